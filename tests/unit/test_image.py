"""The image cache, export and import, on an image of a few bytes; the initramfs archive read back by cpio."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from vmtax.image import build, cache, initramfs, place, recipe
from vmtax.image.cache import Image, ImageError


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def make_image(manifest: str = "busybox 1\nfio 3\n") -> Image:
    with cache.shelf().workshop() as (_, work):
        (work / "tree/usr").mkdir(parents=True)
        (work / "tree/usr/program").write_text("program")
        (work / "tree/link").symlink_to("usr/program")
        for name in ("root.erofs", "vmlinux", "initrd"):
            (work / name).write_text(f"content of {name}")
        (work / "manifest").write_text(manifest)
        image = cache.describe(work, kernel="6.12", recipe_key=recipe.key(), created=time.time())
        return cache.install(work, image)


def test_an_image_is_found_by_its_recipe_and_by_the_start_of_its_name() -> None:
    assert cache.current() is None
    image = make_image()
    assert cache.current() == image == cache.find(image.identity[:5])
    assert image.packages == 2 and image.manifest() == ["busybox 1", "fio 3"]
    assert make_image("busybox 1\nfio 4\n").identity != image.identity, "other versions are another image"
    with pytest.raises(ImageError, match="no image 'xyz'; there are: "):
        cache.find("xyz")


@pytest.mark.parametrize("damaged", ["root.erofs", "vmlinux", "manifest", "tree/usr/program"])
def test_damage_is_found(damaged: str) -> None:
    image = make_image()
    cache.verify(image)
    (image.directory / damaged).write_text("something else of another length")
    with pytest.raises(ImageError, match=r"damaged"):
        cache.verify(image)


def test_a_half_built_or_half_removed_image_is_none() -> None:
    image = make_image()
    (image.directory / cache.INFO).write_text('{"identity": ')
    assert cache.images() == []
    left, half_removed = cache.images_directory() / ".building-left", cache.images_directory() / "0123456789ab"
    left.mkdir()
    half_removed.mkdir()
    with cache.shelf().locked():
        assert cache.shelf().half_made() == [], "what a killed build or removal left is swept away"


def test_removing_removes_it() -> None:
    image = make_image()
    cache.remove(image)
    assert cache.images() == [] and not image.directory.exists()


def test_export_and_import_carry_it_to_another_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = make_image()
    file = tmp_path / "image.tar.zst"
    place.export(image, file)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert cache.images() == []
    carried = place.import_(file)
    assert carried.identity == image.identity and carried.directory != image.directory
    cache.verify(carried)
    assert (carried.tree / "link").readlink() == Path("usr/program")
    assert place.import_(file) == carried, "a second import finds it there"


def test_an_image_is_exported_to_a_file_only(tmp_path: Path) -> None:
    image = make_image()
    with pytest.raises(ImageError, match="is no regular file; name a file"):
        place.export(image, tmp_path)
    with pytest.raises(ImageError, match="its directory does not exist; name a file"):
        place.export(image, tmp_path / "no" / "image.tar.zst")


def test_garbage_is_not_imported(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_text("no archive")
    with pytest.raises(ImageError, match="garbage: not an image that"):
        place.import_(garbage)
    assert cache.images() == [] and list(cache.images_directory().glob(".building-*")) == []


def test_the_archive_is_what_cpio_reads(tmp_path: Path) -> None:
    entries = {
        "etc": initramfs.directory(0o700),
        "etc/odd": initramfs.file(b"abc\0d", 0o600),  # a length that needs padding
        "empty": initramfs.file(b""),
    }
    more = {"later": initramfs.file(b"second archive")}
    joined = initramfs.archive(entries) + initramfs.archive(more)
    subprocess.run(["cpio", "-i", "--quiet"], input=initramfs.archive(entries), cwd=tmp_path, check=True)
    assert (tmp_path / "etc/odd").read_bytes() == b"abc\0d"
    assert (tmp_path / "etc/odd").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "etc").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "empty").read_bytes() == b""
    assert len(joined) % 4 == 0, "the kernel looks for the next archive at a multiple of four"


def test_modules_are_loaded_after_what_they_need(tmp_path: Path) -> None:
    (tmp_path / "modules.builtin").write_text("kernel/drivers/virtio/virtio_pci.ko\n")
    (tmp_path / "modules.dep").write_text(
        "kernel/net/virtio_net.ko.xz: kernel/net/net_failover.ko.xz kernel/net/failover.ko.xz\n"
        "kernel/net/net_failover.ko.xz: kernel/net/failover.ko.xz\n"
        "kernel/net/failover.ko.xz:\n"
        "kernel/block/virtio-blk.ko.xz:\n"
    )
    found = initramfs.module_closure(tmp_path, ["virtio_pci", "virtio_blk", "virtio_net", "failover"])
    names = [path.name.partition(".")[0] for path in found]
    assert names == ["virtio-blk", "failover", "net_failover", "virtio_net"]
    with pytest.raises(LookupError, match="no module nosuch"):
        initramfs.module_closure(tmp_path, ["nosuch"])


@pytest.mark.parametrize("lie", [{"identity": "../victim"}, {"identity": ""}, {"digests": {}}])
def test_an_archive_cannot_say_where_it_goes(lie: dict[str, object], tmp_path: Path) -> None:
    """What is imported is named by its files' own digest, so that no archive can replace another directory."""
    image = make_image()
    victim = cache.images_directory().parent / "victim"
    victim.mkdir()
    info = json.loads((image.directory / cache.INFO).read_text())
    (image.directory / cache.INFO).write_text(json.dumps(info | lie))
    file = tmp_path / "lying.tar.zst"
    argv = ["tar", "--zstd", "-cf", str(file), "-C", str(image.directory), *place.MEMBERS]
    subprocess.run(argv, check=True)
    with pytest.raises(ImageError, match="not an image that"):
        place.import_(file)
    assert victim.is_dir() and image.directory.is_dir()


def test_only_root_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ImageError, match="building the root image needs root; as root: vmtax image build && "):
        build.build(lambda event: None)
