"""`vmtax doctor` at the real entry point, and what --try does on a fake machine."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.command import vmtax
from tests.fake_machine import Answers, FakeMachine, Reply
from tests.unit.test_doctor import AMD_EXTRA, AMD_FILES, AMD_MORE, IMAGE, KVM_AMD, by_name, examined, machine
from tests.userland import asks_tools
from vmtax.doctor import diagnose
from vmtax.doctor.attempt import announce, attempt_on
from vmtax.doctor.host_parts import HUGE_PAGE_COUNT
from vmtax.image.place import Placed
from vmtax.machine.local import PYTHON, LocalMachine
from vmtax.testbed.session.session import Hosts

# A far host that is this one with another home: ssh's options are dropped, the rest is the command.
FAR = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexport HOME="$FAR"\nexec sh -c "$*"\n'

# A host on which nothing works but reading.
FAILING: Answers = {
    lambda argv: argv[:3] == ("ip", "netns", "add"): "",
    lambda argv: argv[:2] == ("ip", "-n"): Reply(stderr="Error: Unknown device type.\n", code=2),
    lambda argv: argv[0] in ("mkdir", "fallocate"): "",
    lambda argv: argv[0] == "stat": "1000 4096\n",
    asks_tools: "ip\t0\tip utility, iproute2-6.1.0\n",
    HUGE_PAGE_COUNT: Reply(code=1),
    ("cat", "/etc/os-release"): "ID=debian\n",
    lambda argv: argv[0] == "dd" and "oflag=direct" in argv: Reply(stderr="dd: Invalid argument\n", code=1),
}


def doctor(*argv: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    environment = {**clean, "HOME": str(home), "COLUMNS": "80", **environment}
    return vmtax("doctor", *argv, cwd=home, environment=environment)


def test_this_host_is_examined_and_nothing_is_written(tmp_path: Path) -> None:
    done = doctor("--json", home=tmp_path)
    answer = json.loads(done.stdout)
    assert (answer["schema"], answer["kind"], done.stderr) == ("vmtax/1", "doctor", "")
    data = answer["data"]
    assert done.returncode == (0 if data["measurable"] else 1)
    assert {check["area"] for check in data["checks"]} == {"measurable", "need", "disturbance"}
    [kvm] = [check for check in data["checks"] if check["name"] == "KVM"]
    assert kvm["status"] != "ok", "reading proves nothing"
    assert list(tmp_path.rglob("*")) == []


def test_a_host_over_ssh_is_examined_and_nothing_is_written_on_either_side(tmp_path: Path) -> None:
    home, far, tools = (tmp_path / name for name in ("home", "far", "tools"))
    for directory in (home, far, tools):
        directory.mkdir()
    (tools / "ssh").write_text(FAR)
    (tools / "ssh").chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    done = doctor("--host", "ssh://root@far", home=home, PATH=path, FAR=str(far))
    assert done.stderr == "" and done.stdout.startswith("ssh://root@far: ")
    assert [line for line in done.stdout.splitlines() if len(line) > 80 and "→" not in line] == []
    assert [*home.rglob("*"), *far.rglob("*")] == []


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--try",), "there is no terminal to answer from: add --yes"),
        (("--yes",), "--yes answers the question of --try"),
        (("--host", "ftp://x"), "must be local, ssh://"),
    ],
)
def test_bad_use_gets_one_clear_line(argv: tuple[str, ...], words: str, tmp_path: Path) -> None:
    done = doctor(*argv, home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("vmtax: ") and words in line
    assert list(tmp_path.rglob("*")) == []


def test_a_try_that_fails_says_why_and_leaves_nothing() -> None:
    """Without an image there is no guest to boot; bridge and file are tried all the same."""
    readings = replace(examined(machine(AMD_FILES, KVM_AMD, AMD_MORE, AMD_EXTRA)), image=None, placed=None)
    assert not any("guest" in line for line in announce(readings))
    host = FakeMachine(answers=FAILING)
    told: list[object] = []
    local = LocalMachine()
    try:
        after, tried = attempt_on(Hosts(local, host), readings, told.append)
    finally:
        local.close()
    found = by_name(diagnose(after, tried), "tried")
    parts = {name: found.pop(name) for name in ("ext4", "xfs", "btrfs", "LVM", "md", "ZFS", "huge pages")}
    parts |= {name: found.pop(name) for name in ("vhost-net", "SR-IOV")}
    assert {check.status for check in parts.values()} == {"missing"}, "only plans about them take them"
    assert parts["xfs"].text.startswith("losetup is missing there: apt-get install mount")
    assert parts["vhost-net"].text == "does not work: no guest boots on KVM here"
    assert {name: check.status for name, check in found.items()} == {
        "guests": "unknown",
        "bridge": "failed",
        "O_DIRECT": "failed",
        "cold caches": "unknown",
    }
    assert found["guests"].remedy == "vmtax image build"
    assert "exit code 2 Error: Unknown device type." in found["bridge"].text
    assert found["O_DIRECT"].text.endswith("dd: Invalid argument")
    assert len(host.undo_list) == 3, "each was listed before it was made"
    host.close()
    assert host.undo_list == [] and len(host.undone) == 3
    assert len(diagnose(after, tried).bad) == 2


def test_nothing_of_a_damaged_image_is_run() -> None:
    """The fake host knows neither bwrap nor QEMU: a command of either would fail this test."""
    placed = Placed("/far/image/root.erofs", "/far/image/vmlinux", "/far/image/initrd", "/far/image/tree")
    readings = replace(examined(machine(AMD_FILES, KVM_AMD, AMD_MORE, AMD_EXTRA)), image=IMAGE, placed=placed)
    damaged = Reply(stderr="tree/usr/bin/fio: damaged\n", code=1)
    host = FakeMachine(answers={**FAILING, lambda argv: argv[0] == PYTHON: damaged})
    local = LocalMachine()
    try:
        after, tried = attempt_on(Hosts(local, host), readings, lambda event: None)
    finally:
        local.close()
        host.close()
    found = by_name(diagnose(after, tried), "tried")
    assert found["image"].status == "failed" and "host layer" not in found
    assert found["image"].text.startswith("host: /far/image: tree/usr/bin/fio: damaged; remove it there")
    checked = next(argv for argv in host.calls if argv[0] == PYTHON)
    assert checked[1:3] == ("-I", "-S") and checked[-2:] == ("/far/image", IMAGE.digest)
