"""The programs of a host: which are missing, too old or do not work, in their words; real userlands are captured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_machine import FakeMachine, Reply
from tests.userland import USERLANDS, asks_tools, programs
from vmtax.core.machines import DEFAULT_TIMEOUT, Outcome
from vmtax.core.packages import PACKAGES
from vmtax.machine import CommandFailed, tools
from vmtax.machine.local import PYTHON
from vmtax.machine.packages import READ
from vmtax.machine.tools import BUILD, CARDS, COPY, DEVICES, HOST, NETWORK, STORAGE, TOOLS, FoundTool
from vmtax.storage import StorageError
from vmtax.storage.ground import refuse_used

DEBIAN_11 = (USERLANDS / "debian-11.txt").read_text()


def host(answer: str) -> FakeMachine:
    return FakeMachine(answers={asks_tools: answer, READ: "ID=debian\n"})


@pytest.mark.parametrize(
    "answer, use, wrong",
    [
        (programs(), HOST, ""),
        (programs(), BUILD, ""),
        (programs("bwrap"), HOST, "bwrap is missing there: apt-get install bubblewrap"),
        (programs("taskset"), HOST, "taskset is missing there: apt-get install util-linux"),
        (programs("python3"), HOST, "python3 is missing"),
        (programs("zstd"), COPY, "zstd is missing"),
        (programs("zstd"), HOST, ""),
        ("", NETWORK, "ip is missing there: apt-get install iproute2"),
        ("garbage\n\t\n1\t2\t3\n", NETWORK, "ip is missing"),
        (
            programs(bwrap="127 bwrap: error while loading shared libraries: libcap.so.2"),
            HOST,
            "bwrap does not work: bwrap: error while loading shared libraries: libcap.so.2",
        ),
        (programs(bwrap="126 sh: bwrap: Permission denied"), HOST, "bwrap does not work: sh: bwrap: Permission denied"),
        (programs(bwrap="139 "), HOST, "bwrap does not work: exit code 139"),
        (programs(bwrap="0 bubblewrap 0.3.1"), HOST, "bwrap is too old (bubblewrap 0.3.1); 0.4 or newer is needed"),
        (programs(bwrap="0 bubblewrap 0.4.1"), HOST, ""),
        (
            programs(bwrap="0 bubblewrap 0.6.2"),
            BUILD,
            "bwrap is too old (bubblewrap 0.6.2); 0.7 or newer is needed, for --size of a tmpfs",
        ),
        (programs(bwrap="0 bubblewrap 0.10.0"), BUILD, ""),  # ten is more than seven
        (programs(python3="0 Python 3.6.8"), HOST, "python3 is too old (Python 3.6.8); 3.7 or newer is needed"),
        (programs(python3="0 Python 3.14.0rc2"), HOST, ""),
        (
            programs(python3="1 its standard library is not whole: No module named 'ctypes'"),
            HOST,
            "python3 does not work: its standard library is not whole: No module named 'ctypes': apt-get install"
            " python3",
        ),
        (programs(tar="0 tar (GNU tar) 1.30"), COPY, "tar is too old (tar (GNU tar) 1.30); 1.31 or newer is needed"),
        (
            programs(tar="0 tar (busybox) 1.36.1"),
            COPY,
            "tar is that of busybox; 1.31 or newer of the usual one is needed",
        ),
        (programs(tar="0 bsdtar 3.7.2 - libarchive 3.7.2"), COPY, ""),  # has --zstd
        (programs(ip="0 ip utility, iproute2-ss171112"), CARDS, ""),  # a snapshot: what it cannot do, it says itself
        (programs(ip="0 ip utility, iproute2-4.11.0"), CARDS, "ip is too old"),
        (programs(ip="0 ip utility, iproute2-4.11.0"), NETWORK, ""),
        (programs(ip="1 BusyBox v1.36.1 multi-call binary."), NETWORK, "ip does not work: BusyBox v1.36.1"),
        (programs(sfdisk="0 sfdisk from util-linux 2.34"), DEVICES, "sfdisk is too old (sfdisk from util-linux 2.34)"),
        (programs(lsblk="0 lsblk from util-linux 2.23.2"), HOST, "lsblk is too old (lsblk from util-linux 2.23.2)"),
        (programs(lsblk="0 lsblk from util-linux 2.36.1"), HOST, ""),
        (DEBIAN_11, HOST, ""),
        (DEBIAN_11, DEVICES, ""),
        (DEBIAN_11, CARDS, ""),
        (DEBIAN_11, BUILD, "bwrap is too old (bubblewrap 0.4.1); 0.7 or newer is needed"),
        (DEBIAN_11, STORAGE, "zpool is missing"),
        ((USERLANDS / "debian-12.txt").read_text(), BUILD, ""),
        ((USERLANDS / "debian-13-minbase.txt").read_text(), HOST, "bwrap is missing"),
    ],
)
def test_what_is_wrong_with_a_host_s_programs_is_said_in_one_line(answer: str, use: str, wrong: str) -> None:
    said = tools.why_not(host(answer), tools.of(use))
    assert said.startswith(wrong) if wrong else said == ""
    assert "\n" not in said


@given(st.text() | st.lists(st.sampled_from([*DEBIAN_11, "\t", "9" * 30])).map("".join))
def test_any_answer_is_read(text: str) -> None:
    found = tools.read(host(text), TOOLS)
    assert all(isinstance(tools.complaint(tool, found), str) for tool in TOOLS)


@pytest.mark.parametrize(
    "words, version",
    [
        ("lsblk from util-linux 2.36.1", (2, 36, 1)),
        ("mke2fs 1.47.0 (5-Feb-2023)", (1, 47, 0)),
        ("timeout (uutils coreutils) 0.0.30", (0, 0, 30)),
        ("v7", None),
        ("", None),
    ],
)
def test_versions_are_read_from_what_programs_say(words: str, version: tuple[int, ...] | None) -> None:
    assert FoundTool(0, words).version == version


def test_the_programs_of_this_machine_answer_and_what_is_asked_is_not_run_for_more(tmp_path: Path) -> None:
    """A real shell; one program that waits for input, one that prints much, and one that fails."""
    for name, text in (("bwrap", "cat; echo bubblewrap 1.2"), ("tar", "yes 1.40 | head -n 9999"), ("ip", "exit 3")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)

    class Here(FakeMachine):
        def try_run(self, *argv: str, input: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
            path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
            done = subprocess.run(argv, env=path, capture_output=True, text=True, timeout=60, check=False)
            return Outcome("host", argv, done.returncode, done.stdout, done.stderr, 0.0)

    found = tools.read(Here(), TOOLS)
    assert found["bwrap"] == FoundTool(0, "bubblewrap 1.2") and found["tar"].version == (1, 40)
    assert found["ip"] == FoundTool(3, "") and found["python3"].words.startswith("Python 3.")
    assert tools.named(["python3"])[0].file == PYTHON


def test_a_python_without_its_whole_standard_library_says_so() -> None:
    """Debian's python3-minimal ran until a copied image was read. A PYTHONHOME of the user's own is not ours."""
    lacks = tools.ASK_PYTHON.replace("import sys\n", "import sys\nsys.modules['tempfile'] = None\n")
    for asked, code, words in (
        (lacks, 1, f"{tools.NOT_WHOLE}: import of tempfile halted"),
        (tools.ASK_PYTHON, 0, "Python 3."),
    ):
        environment = {"PYTHONHOME": "/nowhere"}
        done = subprocess.run([sys.executable, asked], env=environment, capture_output=True, text=True)
        assert done.returncode == code and (done.stdout + done.stderr).startswith(words), done


def test_in_a_vm_that_is_logged_in_to_a_part_of_pythons_library_will_do() -> None:
    """A VM with python3-minimal is measured; the image brings its own bubblewrap."""
    python = next(tool for tool in tools.of_vm() if tool.name == "python3")
    assert python.asked == "--version" and python.least == (3, 7)
    assert "bwrap" not in {tool.name for tool in tools.of_vm()}


def test_what_lsblk_says_is_shown_where_it_fails_on_a_device() -> None:
    """It was taken for "no block device": lsblk before 2.37 has no column MOUNTPOINTS."""
    unknown = Reply(stderr="lsblk: unknown column: MOUNTPOINTS\n", code=1)
    answers = {lambda argv: argv[0] == "lsblk": unknown}
    with pytest.raises(CommandFailed, match=r"exit code 1\n  lsblk: unknown column: MOUNTPOINTS\nwhat stands on /dev"):
        refuse_used(FakeMachine(answers={**answers, ("test", "-b", "/dev/sdb"): ""}), "/dev/sdb", erase=False)
    none = FakeMachine(answers={**answers, ("test", "-b", "/dev/sdb"): Reply(code=1)})
    with pytest.raises(StorageError, match=r"is no block device \(lsblk: unknown column"):
        refuse_used(none, "/dev/sdb", erase=False)


def test_every_row_says_what_it_takes_and_each_program_has_packages() -> None:
    assert {tool.name for tool in TOOLS} <= PACKAGES.keys() and all(tool.use for tool in TOOLS)
    assert all(tool.asked for tool in TOOLS if tool.least), "a version that is needed is asked for"
