"""The image cache, export and import, on an image of a few bytes; the initramfs archive read back by cpio."""

from __future__ import annotations

import ast
import os
import resource
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from tests.unit.test_cleanup import vmtax
from vmtax.core.errors import BadInput
from vmtax.core.machines import DEFAULT_TIMEOUT, Idle
from vmtax.experiment import cleanup
from vmtax.image import build, cache, contents, initramfs, place, recipe
from vmtax.image.additions import Additions
from vmtax.image.cache import Image, ImageError
from vmtax.machine.local import ISOLATED, PYTHON, LocalMachine
from vmtax.store import Store
from vmtax.testbed.host import hosts

# A far host that is this one with another home: ssh's options are dropped, the rest is the command.
FAR = """#!/bin/sh
for word; do case $word in -N | -O) exit 0 ;; esac; done
while [ "$1" != -- ]; do shift; done
shift
unset XDG_CACHE_HOME XDG_STATE_HOME
export HOME="$FAR"
exec sh -c "$*"
"""


pytestmark = pytest.mark.usefixtures("own_cache")


def far_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the far host, which ssh leads to from now on."""
    tools, home = tmp_path / "tools", tmp_path / "far"
    for directory in (tools, home):
        directory.mkdir()
    (tools / "ssh").write_text(FAR)
    (tools / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("FAR", str(home))
    return home


def make_image(manifest: str = "busybox 1\nfio 3\n", program: str = "program", kernel: str = "6.12") -> Image:
    with cache.shelf().workshop() as (_, work):
        (work / "tree/usr/lib/vmtax").mkdir(parents=True)
        (work / "tree/usr/program").write_text(program)
        (work / "tree/usr/program").chmod(0o755)
        (work / "tree/link").symlink_to("usr/program")
        (work / "tree/usr/two links").hardlink_to(work / "tree/usr/program")
        (work / "tree" / cache.IDENTITY).write_text(f"tree of {program}")
        for name in ("root.erofs", "vmlinux", "initrd"):
            (work / name).write_text(f"content of {name}")
        (work / "manifest").write_text(manifest)
        work.chmod(0o755)
        cache.describe(work, kernel=kernel, recipe_key=recipe.key())
        return cache.install(work)


def settled(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stamp is there: as long after it was made as the clock of files takes to tick."""
    monkeypatch.setattr(contents, "SETTLED_SECONDS", -60.0)
    cache.verify(image)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.images_directory().parent.parent))
    assert (image.directory / contents.STAMP).is_file()


def test_an_image_is_found_by_its_recipe_and_by_the_start_of_its_digest() -> None:
    assert cache.current() is None
    image = make_image()
    assert cache.current() == image == cache.find(image.identity[:5]) == cache.find(image.digest)
    assert image.packages == 2 and image.manifest() == ["busybox 1", "fio 3"]
    with pytest.raises(BadInput, match="no image 'xyz'; there are: "):
        cache.find("xyz")


def test_of_several_images_that_begin_so_none_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (replace(make_image(), digest=begin.ljust(64, "0")) for begin in ("abc1", "abc2"))
    monkeypatch.setattr(cache, "images", lambda: [one, other])
    assert [cache.find("abc1"), cache.find(other.digest)] == [one, other]
    for begin in ("a", "abc"):
        with pytest.raises(BadInput, match=f"more than one image '{begin}'; there are: "):
            cache.find(begin)


@pytest.mark.variations
def test_an_image_is_known_by_all_that_is_in_it() -> None:
    image = make_image()
    assert make_image() == image, "the same files are the same image"
    assert make_image("busybox 1\nfio 4\n").digest != image.digest
    assert make_image(program="PROGRAM").digest != image.digest, "the same packages, names and sizes"
    assert make_image(kernel="6.13").digest != image.digest
    assert len(cache.images()) == 4


@pytest.mark.parametrize("damaged", ["root.erofs", "vmlinux", "manifest", "tree/usr/program", "contents"])
@pytest.mark.parametrize("after_use", [False, True])
@pytest.mark.varied(4)
def test_damage_is_found(damaged: str, after_use: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where size and times are what they were."""
    image = make_image()
    file = image.directory / damaged
    if after_use:
        settled(image, monkeypatch)
    else:
        cache.verify(image)
    before, content = file.stat(), file.read_bytes()
    file.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_mtime_ns == before.st_mtime_ns and file.stat().st_size == before.st_size
    with pytest.raises(ImageError, match=rf"{damaged}: damaged .*; `vmtax image remove {image.identity}`"):
        cache.verify(image)
    file.write_bytes(content)
    cache.verify(image)


def alter(image: Image, how: str) -> None:
    tree = image.tree
    if how == "more":
        (tree / "more").write_text("more")
    elif how == "less":
        (tree / "link").unlink()
    elif how == "link":
        (tree / "link").unlink()
        (tree / "link").symlink_to("usr/elsewhere")
    elif how == "pipe":
        (tree / "usr/program").unlink()
        os.mkfifo(tree / "usr/program")
    elif how == "setuid":
        (tree / "usr/program").chmod(0o4755)
    elif how == "writable":
        (tree / "usr").chmod(0o777)


@pytest.mark.parametrize("how", ["more", "less", "link", "pipe", "setuid", "writable"])
@pytest.mark.varied(3)
def test_what_is_not_as_it_was_built_is_found(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    image = make_image()
    settled(image, monkeypatch)
    alter(image, how)
    with pytest.raises(ImageError, match=r"; `vmtax image remove \w{12}` and it is built anew"):
        cache.verify(image)


def test_what_belongs_to_somebody_else_is_not_run() -> None:
    status = os.stat_result((0o100644, 1, 1, 1, 12345, 0, 0, 0, 0, 0))
    with pytest.raises(contents.ContentsError, match="program: belongs to user 12345"):
        contents.check_owner("program", status)


def test_files_are_read_once_and_again_when_they_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    image = make_image()
    settled(image, monkeypatch)
    reads: list[str] = []
    digest = contents.digest
    monkeypatch.setattr(contents, "digest", lambda path: (reads.append(path), digest(path))[1])
    cache.verify(image)
    assert reads == []
    (image.tree / "usr/program").touch()
    cache.verify(image)
    assert len(reads) == 7
    reads.clear()
    cache.verify(image)
    assert len(reads) == 7, "no stamp that a change within the same tick of the clock would not show in"
    (image.directory / contents.STAMP).chmod(0o666)
    monkeypatch.setattr(contents, "SETTLED_SECONDS", -60.0)
    reads.clear()
    cache.verify(image)
    assert len(reads) == 7, "a stamp that others could write says nothing"
    assert (image.directory / contents.STAMP).stat().st_mode & 0o777 == 0o600


def test_what_changes_while_it_is_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may link to its files, which changes their ctime: a copy by `cp -al`, or a backup."""
    image = make_image()
    readings: list[str] = []
    monkeypatch.setattr(contents, "_compare", lambda directory, wanted: readings.append(directory))
    for seen, times in (("aa", 1), ("abcc", 2), ("abcdee", 3)):
        states = iter(seen)
        monkeypatch.setattr(contents, "_state", lambda *_, states=states: (next(states), 0.0))
        (image.directory / contents.STAMP).unlink(missing_ok=True)
        contents.check(str(image.directory), image.digest)
        assert len(readings) == times
        readings.clear()
    states = map(str, range(2 * contents.READINGS))
    monkeypatch.setattr(contents, "_state", lambda *_: (next(states), 0.0))
    with pytest.raises(contents.ContentsError, match="was changed whenever it was read"):
        contents.check(str(image.directory), image.digest)


def test_it_is_checked_where_it_is_placed() -> None:
    image = make_image()
    local = LocalMachine()
    try:
        assert place.place(local, local, image, lambda event: None).tree == str(image.tree)
        (image.tree / "usr/program").write_text("PROGRAM")
        with pytest.raises(ImageError, match="tree/usr/program: damaged"):
            place.place(local, local, image, lambda event: None)
    finally:
        local.close()


def test_another_host_checks_it_with_its_own_python() -> None:
    image = make_image()
    source = Path(contents.__file__).read_text()

    def check(digest: str) -> str:
        argv = [PYTHON, *ISOLATED, source, str(image.directory), digest]
        return subprocess.run(argv, capture_output=True, text=True, cwd="/").stderr

    assert check(image.digest) == ""
    assert check("0" * 64) == "contents: damaged (it is the list of another image)\n"
    (image.tree / "usr/program").write_text("PROGRAM")
    assert check(image.digest) == "tree/usr/program: damaged (its digest is not the one of the build)\n"


def test_it_is_copied_to_another_host_and_checked_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = make_image()
    home = far_home(tmp_path, monkeypatch)
    there = home / ".cache/vmtax/images" / image.identity
    told: list[object] = []
    local = LocalMachine()
    far = hosts.connect(local, "ssh://root@far", "host")
    try:
        assert place.place(far, local, image, told.append).tree == str(there / "tree")
        assert (there / "tree/usr/program").stat().st_mode & 0o7777 == 0o755 and told != []
        told.clear()
        assert place.place(far, local, image, told.append).root == str(there / "root.erofs")
        assert told == [], "it is there"
        (there / "vmlinux").write_text("Content of vmlinux")
        with pytest.raises(ImageError, match=r"host: .*: vmlinux: damaged .*; remove it there, and it is copied anew"):
            place.place(far, local, image, told.append)
    finally:
        far.close()
        local.close()
    assert list(there.parent.iterdir()) == [there]


def test_a_half_built_half_removed_or_older_image_is_none(tmp_path: Path) -> None:
    image = make_image()
    (image.directory / contents.NAME).write_text("vmtax-image 1\n")
    older = cache.images_directory() / "138b23d57570"
    older.mkdir()
    (older / "image.json").write_text('{"identity": "138b23d57570"}')
    left, half_removed = cache.images_directory() / ".building-left", cache.images_directory() / "0123456789ab"
    left.mkdir()
    half_removed.mkdir()
    assert cache.images() == [] and len(cache.shelf().left()) == 4
    with cache.shelf().locked():
        assert cache.shelf().left() == []
    assert not left.exists(), "what a killed build left is swept away"
    assert older.exists() and half_removed.exists(), "what may be another version's stays until somebody removes it"
    with Store(tmp_path / "store" / "vmtax.sqlite") as store:
        assert [leftover.what for leftover in cleanup.found(store, images=False)] == []
        assert [leftover.what for leftover in cleanup.found(store, images=True)] == ["unusable image"] * 3
        with mock.patch("vmtax.machine.tree.remove", side_effect=PermissionError(1, "Operation not permitted")):
            assert len(cleanup.remove(store, images=True)) == 3, "what could not be removed is told"
        assert cleanup.remove(store, images=True) == [] and cache.shelf().half_made() == []


def test_a_directory_that_is_no_whole_image_is_removed_alone_and_by_name(tmp_path: Path) -> None:
    one, other = cache.images_directory() / "138b23d57570", cache.images_directory() / "0123456789ab"
    for path in (one, other):
        path.mkdir(parents=True)
    done = vmtax("image", "remove", one.name, home=tmp_path)
    assert done.stdout == f"removed {one.name}\n" and not one.exists() and other.exists()


def test_a_tree_of_any_depth_is_removed() -> None:
    image = make_image()
    descriptor = os.open(image.tree, os.O_PATH)
    for _ in range(3000):
        os.mkdir("deep", dir_fd=descriptor)
        below = os.open("deep", os.O_PATH, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    with pytest.raises(ImageError, match="`vmtax image remove"):
        cache.verify(image)
    cache.remove(image)
    assert cache.images() == [] and not image.directory.exists()


def test_removing_removes_it() -> None:
    image = make_image()
    cache.remove(image)
    cache.remove(image)
    assert cache.images() == [] and not image.directory.exists()


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


def test_only_root_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    needed = Additions(("gcc",), (Path("/srv/a b"),))
    build_it = (
        r"vmtax image build --packages gcc --files '/srv/a b', .*export --identity .*; then here: vmtax image import"
    )
    with pytest.raises(ImageError, match=build_it):
        build.refuse(needed)
    with pytest.raises(ImageError, match="building the root image needs root; as root: vmtax image build && "):
        build.build(lambda event: None)


@pytest.mark.parametrize(
    ("words", "complaints"),
    [
        (["E: You don't have enough free space in /var/cache/apt/archives/.", "E: mmdebstrap failed to run"], []),
        (["dpkg: error: failed to write: No space left on device", "E: mmdebstrap failed to run"], []),
        ([], ["tar: ./usr/bin/fio: Cannot write: No space left on device"]),
    ],
)
def test_a_full_file_system_is_named_by_whoever_meets_it(words: list[str], complaints: list[str]) -> None:
    text = build.why_failed(Path("/cache"), 25, words, 2, complaints)
    assert text.startswith("/cache: no space left; about 2 GiB are needed")


def test_no_step_of_a_build_has_the_time_limit_of_quick_commands() -> None:
    """On a machine with a load of fifteen, depmod took more than a minute, and twenty minutes of work were lost."""
    calls = [
        call
        for path in Path(build.__file__).parent.glob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("keeper.run", "keeper.try_run")
    ]
    assert len(calls) > 3
    limits = [{word.arg: ast.unparse(word.value) for word in call.keywords}.get("timeout", "") for call in calls]
    assert {limit.rpartition(".")[2] for limit in limits} <= {"", "STEP_SECONDS"}
    assert isinstance(build.STEP_SECONDS, Idle) and isinstance(DEFAULT_TIMEOUT, Idle)


def test_a_failed_build_shows_the_last_lines_of_what_failed() -> None:
    assert build.why_failed(Path("/cache"), 25, ["a", "b"], 2, ["c"]) == "mmdebstrap ended with 25:\na\nb"
    assert build.why_failed(Path("/cache"), 0, ["a"], 2, ["c"]) == "tar ended with 2:\nc"


def test_a_stamp_for_which_there_is_no_room_leaves_nothing(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:  # a limit on its files, as a full disk would be
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3, 3))
        contents._put_stamp(str(tmp_path / contents.STAMP), "state")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0 and list(tmp_path.iterdir()) == []
