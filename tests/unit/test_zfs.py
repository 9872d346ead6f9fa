"""The ZFS pack: which one an image may use, and what is read from the tools that make it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from tests.unit.test_cleanup import vmtax
from tests.unit.test_image import make_image
from vmtax.experiment import cleanup
from vmtax.image import contents, packs, recipe, zfs
from vmtax.image.cache import Image, ImageError
from vmtax.image.packs import Pack
from vmtax.store import Store

MANIFEST = "linux-base 4.12\nlinux-image-6.12 6.12.{}-1\nlinux-image-amd64 6.12.{}-1\n"


@pytest.fixture(autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))


def image_with(patch: int) -> Image:
    """An image whose kernel's release is 6.12 whatever its package's version."""
    return make_image(MANIFEST.format(patch, patch))


def make_pack(image: Image, **other: object) -> Pack:
    directory = zfs.KIND.home / zfs.key(image)
    directory.mkdir(parents=True)
    file = directory / packs.EROFS
    file.write_text("a pack")
    pack = Pack(file, image.kernel, "2.3.9-1", zfs.key(image), 6, contents.digest(str(file)))
    info = {name: value for name, value in asdict(pack).items() if name != "path"}
    (directory / packs.INFO).write_text(json.dumps(info | other))
    return pack


def test_a_pack_is_for_one_version_of_the_kernels_package() -> None:
    image, newer = image_with(43), image_with(57)
    assert zfs.kernel_version(image) == "6.12.43-1" and image.kernel == newer.kernel
    assert zfs.current(image) is None
    pack = make_pack(image)
    assert zfs.current(image) == pack
    assert zfs.current(newer) is None, "the same release, but another kernel"
    other_programs = make_image(MANIFEST.format(43, 43) + "fio 3\n")
    assert zfs.current(other_programs) == pack, "what else is in the image does not matter"
    with pytest.raises(ImageError, match=r"its manifest has no package of its kernel 6\.12"):
        zfs.kernel_version(make_image("fio 3\n"))


@pytest.mark.parametrize("lie", [{"kernel": "6.13"}, {"key": "0123456789abcdef"}, {"digest": 3}])
def test_a_pack_that_says_something_else_is_not_used(lie: dict[str, object]) -> None:
    image = image_with(43)
    make_pack(image, **lie)
    assert zfs.current(image) is None


def test_damage_is_an_error_with_its_cure() -> None:
    image = image_with(43)
    pack = make_pack(image)
    pack.path.write_text("A pack")
    with pytest.raises(ImageError, match=r"pack\.erofs: damaged .*; `vmtax image zfs --again` builds it anew"):
        zfs.ensure(image, lambda event: None)
    pack.path.unlink()
    with pytest.raises(ImageError, match=r"pack\.erofs: No such file.*; `vmtax image zfs --again`"):
        zfs.current(image)


def test_a_half_made_pack_is_none_and_stays_until_it_is_removed() -> None:
    image = image_with(43)
    pack = make_pack(image)
    (pack.path.parent / packs.INFO).unlink()
    assert zfs.KIND.all() == [] and zfs.current(image) is None
    assert zfs.KIND.shelf().half_made() == [pack.path.parent]
    with zfs.KIND.shelf().locked():
        assert pack.path.parent.exists()
    zfs.KIND.remove(pack)
    assert zfs.KIND.shelf().entries() == []


def test_a_pack_goes_with_the_last_image_that_can_use_it(tmp_path: Path) -> None:
    image, other = image_with(43), image_with(57)
    twin = make_image(MANIFEST.format(43, 43) + "fio 3\n")
    pack = make_pack(image)
    listed = vmtax("image", "list", home=tmp_path).stdout
    assert "ZFS 2.3.9-1  kernel 6.12  6 B  for its images" in listed
    assert "ZFS" not in vmtax("image", "remove", image.identity, home=tmp_path).stdout
    assert "ZFS" not in vmtax("image", "remove", other.identity, home=tmp_path).stdout
    assert zfs.current(twin) == pack
    assert "removed ZFS 2.3.9-1 for kernel 6.12" in vmtax("image", "remove", twin.identity, home=tmp_path).stdout
    assert not pack.path.parent.exists()


def test_cleaning_takes_the_packs_of_old_images_only(monkeypatch: pytest.MonkeyPatch) -> None:
    old = image_with(43)
    useless = make_pack(old)
    monkeypatch.setattr(recipe, "LAYOUT", 999)
    used = make_pack(image_with(57))
    with Store() as store:
        assert [leftover.what for leftover in cleanup.found(store, images=False)] == []
        assert {leftover.what for leftover in cleanup.found(store, images=True)} == {"old image", "useless pack"}
        assert cleanup.remove(store, images=True) == []
    assert zfs.KIND.all() == [used] and not useless.path.exists()


def test_only_root_builds_and_only_for_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no image yet" in vmtax("image", "zfs", home=tmp_path).stderr
    image = image_with(43)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ImageError, match="needs root"):
        zfs.build(image, lambda event: None)


def test_a_pack_that_is_there_is_not_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the second of two builds at once finds when the first has ended."""
    image = image_with(43)
    pack = make_pack(image)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda tool: tool)
    assert zfs.build(image, lambda event: None) == pack


def test_progress_only_rises_and_ends_near_the_whole() -> None:
    lines = [
        *("I: running apt-get update...", "I: installing remaining packages inside the chroot..."),
        "I: running --customize-hook directly: /x/zfs-module /x/tree",
        *["checking for gawk... no"] * 388,
        *["CC [M]  os/linux/spl/spl-atomic.o"] * 291,
        "I: cleaning package lists and apt cache...",
    ]
    shares = [0.0]
    for line in lines:
        shares.append(zfs.share_after(line, shares[-1]))
    assert shares == sorted(shares) and shares[3] == 0.14 and 0.4 < shares[3 + 388] < 0.42 and shares[-1] == 0.96
    assert zfs.share_after("what no build ever said", 0.3) == 0.3
    assert zfs.share_after("checking more than ever", 0.5) == 0.5


@pytest.mark.parametrize(
    ("said", "cure"),
    [
        ("E: Unable to locate package linux-headers-6.12.1+deb13-amd64", "image build --again"),
        ("E: Version '6.12.1-1' for 'linux-headers-6.12.1+deb13-amd64' was not found", "image build --again"),
        ("  Temporary failure resolving 'deb.debian.org'", "cannot be reached"),
        ("E: Failed to fetch http://deb.debian.org/debian/x.deb  404  Not Found", "cannot be reached"),
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "set XDG_CACHE_HOME"),
        ("gcc: fatal error: a.o: No space left on device", "set XDG_CACHE_HOME"),
    ],
)
def test_known_failures_are_one_line_with_the_cure(said: str, cure: str) -> None:
    text = zfs.KIND.failure(["I: installing remaining packages inside the chroot...", said, "E: setup failed"], 25)
    assert cure in text and said.strip().removeprefix("E: ") in text and "\n" not in text


def test_unknown_failures_are_reported_with_the_last_lines() -> None:
    assert zfs.KIND.failure(["one", "two"], 25).splitlines() == [
        "building the ZFS pack: mmdebstrap ended with 25:",
        "one",
        "two",
    ]


def test_what_dpkg_and_ldd_say_is_read() -> None:
    listed = [
        "/.",
        "/etc/zfs/zpool.d",
        "/etc/cron.d/zfsutils-linux",
        "/usr/sbin/zpool",
        "/usr/lib/systemd/system/zfs.target",
    ]
    assert zfs.wanted_files([*listed, "/usr/share/man/man8/zfs.8.gz", "/usr/sbin/zdb", "/var/lib/x"]) == [
        "etc/zfs/zpool.d",
        "usr/sbin/zpool",
    ]
    said = (
        "/usr/sbin/zpool:\n\tlinux-vdso.so.1 (0x00007ffc)\n\tlibzfs.so.6 => /lib/x86_64-linux-gnu/libzfs.so.6 (0x7f1)\n"
        "\t/lib64/ld-linux-x86-64.so.2 (0x00007f2)\n"
    )
    assert zfs.libraries(said) == ["/lib/x86_64-linux-gnu/libzfs.so.6"]
    with pytest.raises(ImageError, match=r"no package has the library libuutil\.so\.3"):
        zfs.libraries("\tlibuutil.so.3 => not found\n")


def test_the_key_follows_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    image = image_with(43)
    before = zfs.key(image)
    assert zfs.key(replace(image, recipe="another")) == before, "another image with the same kernel"
    monkeypatch.setattr(zfs, "LAYOUT", zfs.LAYOUT + 1)
    assert zfs.key(image) != before


def test_the_tools_are_collected_and_every_file_is_closed(tmp_path: Path) -> None:
    """An open file that is forgotten is a ResourceWarning, and those are errors here."""
    image = image_with(43)
    tree, layer = tmp_path / "tree", tmp_path / "layer"
    files = {"usr/sbin/zpool": b"\x7fELF.", "usr/sbin/arcstat": b"#!/usr/bin/python3\n", "etc/zfs/zpool.d/x": b"# x\n"}
    for name, content in {**files, "usr/lib/libzfs.so.6": b"\x7fELF"}.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(content)
    keeper = MagicMock()
    listed = "".join(f"/{name}\n" for name in files)
    keeper.run.side_effect = [listed, "\tlibzfs.so.6 => /usr/lib/libzfs.so.6 (0x7f1)\n"]
    zfs._collect_tools(keeper, tree, image, layer)
    collected = {str(path.relative_to(layer)) for path in layer.rglob("*") if path.is_file()}
    assert collected == {"usr/sbin/zpool", "etc/zfs/zpool.d/x", "usr/lib/libzfs.so.6"}
    assert keeper.run.call_args.args[-1] == "/usr/sbin/zpool", "only programs are asked for their libraries"
