"""Files that a command writes: in one step or not at all, and nowhere that another user chooses."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vmtax.cli.app import BadUse, write_file
from vmtax.system.output_file import replacing

NOBODY = 65534
# Links every name that appears beside the target to the victim, and the target itself, over and over.
RACE = """
import os, sys
public, victim = sys.argv[1:]
os.setgid(65534); os.setuid(65534)
os.chdir(public)
while True:
    for name in (*os.listdir("."), "r.html"):
        try:
            os.symlink(victim, name + ".")
            os.rename(name + ".", name)
        except OSError:
            pass
"""


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """A directory in which everybody may write, as /tmp would be without its sticky bit."""
    for directory in (tmp_path, *tmp_path.parents[:2]):
        directory.chmod(0o755)
    (tmp_path / "public").mkdir()
    (tmp_path / "public").chmod(0o777)
    return tmp_path / "public"


def test_a_report_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    file, link = tmp_path / "r.html", tmp_path / "latest.html"
    link.symlink_to(file)
    write_file(link, b"first")
    assert file.read_bytes() == b"first" and link.is_symlink()
    pid = os.fork()
    if pid == 0:  # a limit on its files, as a full disk would be
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3, 3))
        try:
            write_file(file, b"second")
        except BadUse as error:
            os._exit(0 if str(error).endswith("r.html: File too large; name another file with --output") else 1)
        os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    assert file.read_bytes() == b"first"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest.html", "r.html"]


def test_its_mode_is_the_umask_s_or_what_is_asked_for(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "usual", b"")
        with replacing(tmp_path / "private", mode=0o600) as stream:
            assert stat.S_IMODE(os.fstat(stream.fileno()).st_mode) == 0o600
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("usual", "private")] == [0o640, 0o600]


def test_a_link_of_another_user_is_not_followed(public: Path) -> None:
    victim = public.parent / "victim"
    victim.write_text("precious")
    (public / "r.html").symlink_to(victim)
    (public / "out").symlink_to(public.parent)
    (public / "device").symlink_to("/dev/null")
    for name in ("r.html", "out", "device"):
        os.lchown(public / name, NOBODY, NOBODY)
    for name in ("r.html", "out/victim", "device"):
        with pytest.raises(BadUse, match=r"is a link of user 65534, who could lead it anywhere"):
            write_file(public / name, b"text")
    assert victim.read_text() == "precious"
    os.mkfifo(public / "fifo")
    os.chown(public / "fifo", NOBODY, NOBODY)
    with pytest.raises(BadUse, match="is no regular file"):
        write_file(public / "fifo", b"text")


def test_ones_own_link_is_followed_wherever_it_is(public: Path) -> None:
    (public / "r.html").symlink_to(public.parent / "kept")
    write_file(public / "r.html", b"text")
    assert (public.parent / "kept").read_bytes() == b"text" and (public / "r.html").is_symlink()


def test_a_race_for_the_name_is_not_won(public: Path) -> None:
    victim = public.parent / "victim"
    victim.write_text("precious")
    racer = subprocess.Popen([sys.executable, "-c", RACE, str(public), str(victim)])
    written = 0
    try:
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            try:
                write_file(public / "r.html", b"text")
                written += 1
            except BadUse:
                pass  # where its link was there first
    finally:
        racer.kill()
        racer.wait()
    assert victim.read_text() == "precious"
    assert written > 0


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    write_file(Path("/dev/null"), b"text")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(BadUse, match=r"Is a directory"):
        write_file(tmp_path, b"text")
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    write_file(tmp_path / "fifo", b"text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    inner, outer = os.pipe()
    write_file(Path(f"/dev/fd/{outer}"), b"text")
    assert os.read(inner, 100) == b"text"
    os.close(inner)
    os.close(outer)
    with pytest.raises(BadUse, match="No such file"):
        write_file(tmp_path / "nowhere" / "r.html", b"text")
    with pytest.raises(BadUse, match="File name too long"):
        write_file(tmp_path / ("a" * 300), b"text")


def test_the_new_name_is_on_the_disk_when_the_block_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        there = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append(there.name if (tmp_path / "r.html").exists() else "before")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    with replacing(tmp_path / "r.html") as stream:
        stream.write(b"x")
    assert synced == ["before", tmp_path.name], "the file, then the directory with its new name"
