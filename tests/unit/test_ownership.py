"""Who could change what a path leads to."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from vmtax.machine.reader import LocalReader
from vmtax.storage import StorageError, refuse_unsafe
from vmtax.system import ownership, search_path

NOBODY = 65534


def theirs(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, NOBODY, NOBODY)
    return path


def through_their_directory(top: Path) -> Path:
    """Both ends are root's, and the directory of the link between them is not."""
    (top / "usr").mkdir()
    (theirs(top / "home") / "current").symlink_to(top / "usr")
    (top / "bin").symlink_to(top / "home/current")
    return top / "bin"


def their_link(top: Path) -> Path:
    (top / "link").symlink_to("/usr")
    os.chown(top / "link", NOBODY, NOBODY, follow_symlinks=False)
    return top / "link"


def in_a_group(top: Path) -> Path:
    (top / "shared/inner").mkdir(parents=True)
    os.chown(top / "shared", 0, pwd.getpwuid(NOBODY).pw_gid)
    (top / "shared").chmod(0o775)
    return top / "shared/inner"


def open_to_all(top: Path) -> Path:
    (top / "open").mkdir()
    (top / "open").chmod(0o777)
    return top / "open"


def up_again(top: Path) -> Path:
    (theirs(top / "theirs") / "inner").mkdir()
    return top / "theirs/inner/../.."


def around(top: Path) -> Path:
    (top / "around").symlink_to("around")
    return top / "around"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda top: theirs(top / "theirs"), "theirs belongs to user 65534, not to root"),
        (lambda top: theirs(top / "theirs") / "missing", "theirs belongs to user 65534"),
        (through_their_directory, "home belongs to user 65534"),
        (their_link, "link belongs to user 65534"),
        (in_a_group, "others than root can write to .*/shared$"),
        (open_to_all, "others than root can write to .*/open$"),
        (up_again, "theirs belongs to user 65534"),
        (around, "more than 40 links"),
    ],
)
def test_what_others_could_change(make: Callable[[Path], Path], words: str, tmp_path: Path) -> None:
    path = make(tmp_path)
    why = ownership.why_unsafe(str(path))
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(why)
    assert "\n" not in why
    # Alone, as it runs on a host under test.
    alone = (sys.executable, "-I", "-S", "-c", Path(ownership.__file__).read_text(encoding="utf-8"), str(path))
    done = subprocess.run(alone, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"{why}\n")
    with pytest.raises(StorageError, match=f"^host: no disk is laid in {path}: .*{words.rstrip('$')}.*; name with"):
        refuse_unsafe(LocalReader(), PurePosixPath(path))
    environment = {"PATH": f"/usr/bin:{path}"}
    assert search_path.make_safe(environment) == [f"PATH: {path} is left out: {why}"]
    assert environment["PATH"] == "/usr/bin"


def test_what_no_other_user_can_change(tmp_path: Path) -> None:
    (tmp_path / "fine").mkdir()
    (tmp_path / "link").symlink_to("fine/../fine")
    for path in ("/", "/tmp", "/var/tmp", "/usr/bin", *(str(tmp_path / name) for name in ("fine", "link", "missing"))):
        assert ownership.why_unsafe(path) == "", path
        refuse_unsafe(LocalReader(), PurePosixPath(path))
    for path in ("/tmp", f"/tmp/{tmp_path.name}-missing"):
        assert ownership.why_unsafe(path, sticky=False) == "others than root can write to /tmp"
