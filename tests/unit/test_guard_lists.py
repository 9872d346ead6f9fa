"""What a guard reads and removes: lists that are damaged, foreign or deep, and entries that fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_guard import append
from vmtax.machine import MachineError
from vmtax.machine.guard import read_list
from vmtax.machine.local import LocalMachine

pytestmark = pytest.mark.usefixtures("lists")


def test_a_half_written_line_counts_for_nothing() -> None:
    text = '{"add": 1, "remove": "/a"}\n{"add": 2, "argv": ["b"]}\n{"undo": 1}\n{"add": 3, "rem'
    assert list(read_list(text)) == [2]


def test_a_damaged_list_does_not_stop_the_next_start(lists: Path) -> None:
    lists.mkdir(parents=True)
    (lists / "0123.undo").write_bytes(b'{"add": 1, "remove": "/nowhere"}\n\xff\xfe{')
    machine = LocalMachine()
    assert machine.guard.recovered == 1
    machine.close()
    assert list(lists.iterdir()) == []


@given(st.text())
def test_any_text_can_be_read_as_a_list(text: str) -> None:
    assert isinstance(read_list(text), dict)


def deep(path: Path, levels: int) -> None:
    path.mkdir()
    descriptor = os.open(path, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("a" * 20, dir_fd=descriptor)
        inner = os.open("a" * 20, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(os.open("file", os.O_CREAT, dir_fd=descriptor))
    os.close(descriptor)


def test_a_tree_of_any_depth_is_removed_and_no_link_is_followed(tmp_path: Path) -> None:
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    machine = LocalMachine()
    machine.remove_later(PurePosixPath(tree))
    machine.remove_later(PurePosixPath(tmp_path / "link"))
    deep(tree, 2000)  # deeper than Python recurses, and longer than the kernel takes a path
    (tree / "away").symlink_to(outside)
    (tmp_path / "link").symlink_to(outside)
    machine.close()
    assert machine.left == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "state"]
    assert (outside / "kept").exists()


def test_what_is_mounted_in_a_tree_is_kept_and_reported(tmp_path: Path) -> None:
    other, tree = tmp_path / "other", tmp_path / "tree"
    (tree / "mounted").mkdir(parents=True)
    (tree / "file").touch()
    other.mkdir()
    (other / "kept").touch()
    # The same file system at a second place: a device number would not tell. Constant text.
    text = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    code = "import sys; from vmtax.machine.tree import remove; remove(sys.argv[1])"
    words = ("sh", "-c", text, "sh", str(other), str(tree / "mounted"), sys.executable, "-c", code, str(tree))
    done = subprocess.run(["unshare", "--mount", "--map-root-user", *words], capture_output=True, text=True)
    assert "mounted: a file system is mounted there" in done.stderr
    assert (other / "kept").exists() and not (tree / "file").exists()


def test_no_entry_of_a_list_keeps_another_from_being_undone(tmp_path: Path, lists: Path) -> None:
    lists.mkdir(parents=True, mode=0o700)
    log = tmp_path / "log"
    nested = '{"add": 8, "argv": ' + "[" * 100_000
    odd = [{"add": 2, "remove": "relative"}, {"add": 3, "remove": "/a\0b"}, {"add": 4, "argv": []}, {"add": 5}]
    odd += [{"add": 6, "argv": ["a\0b"]}, {"add": 7, "remove": ["/"]}, {"outlive": 10**30}]
    whole = [{"add": 1, "argv": append(log, "first")}, *odd, {"add": 9, "argv": append(log, "last")}]
    (lists / "0123.undo").write_text("\n".join([*map(json.dumps, whole), nested, "[]", "null", ""]))
    machine = LocalMachine()
    assert machine.guard.recovered == 1
    assert len(machine.guard.left) == 6 and log.read_text().split() == ["last", "first"]
    machine.close()
    assert [path.name for path in lists.iterdir()] == ["0123.undo"], "what is left is listed"


def test_an_undo_that_leaves_a_process_running_is_not_waited_for(tmp_path: Path) -> None:
    machine, pid = LocalMachine(), tmp_path / "pid"
    entry = machine.undo_later("sh", "-c", 'sleep 30 >&2 & echo "$!" > "$1"', "sh", str(pid))
    started = time.monotonic()
    entry.undo()
    machine.close()
    assert time.monotonic() - started < 10
    os.kill(int(pid.read_text()), signal.SIGKILL)


def test_lists_that_others_may_have_written_are_not_read(tmp_path: Path, lists: Path) -> None:
    lists.mkdir(parents=True, mode=0o700)
    log = tmp_path / "log"
    text = json.dumps({"add": 1, "argv": append(log, "ran")}) + "\n"
    (tmp_path / "elsewhere").write_text(text)
    (lists / "0001.undo").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "twice").write_text(text)
    (lists / "0002.undo").hardlink_to(tmp_path / "twice")
    (lists / "0003.undo").write_text(text)
    (lists / "0003.undo").chmod(0o666)
    os.mkfifo(lists / "0004.undo")
    (lists / "0005.undo").mkdir()
    machine = LocalMachine()
    second, others = machine.guard.left
    assert machine.guard.recovered == 0
    assert second.startswith("0002.undo: not undone, for it has a second name")
    assert others.startswith("0003.undo: not undone, for others can write it")
    machine.close()
    assert not log.exists() and (tmp_path / "elsewhere").read_text() == text


def test_a_directory_of_lists_that_others_can_write_is_refused(lists: Path) -> None:
    lists.mkdir(parents=True)
    lists.chmod(0o777)
    with pytest.raises(MachineError, match=r"undo: others can write there: look at what is in it, then chmod go-w"):
        LocalMachine().run("true")
    lists.chmod(0o770)
    with pytest.raises(MachineError, match="others can write there"):
        LocalMachine().run("true")
    lists.rmdir()
    (lists.parent / "else").mkdir()
    lists.symlink_to(lists.parent / "else")
    with pytest.raises(MachineError, match=r"undo: Not a directory"):
        LocalMachine().run("true")
