"""A VM whose guest agent is silent is watched while it idles: a real process, and a virsh that knows it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import HANGS
from tests.windows.virsh import UUID
from tests.windows_host import SOURCES

pytestmark = pytest.mark.machines
PLAN = "{name: rests, layers: [host, vm], rounds: {min: 1, max: 1}, workloads: [{idle: {seconds: 1}}]}\n"
BUSY = "while :; do :; done"  # a QEMU that takes what it gets of one CPU


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """In which libvirt:win1 runs, whose agent has no socket; its QEMU is a shell under another name."""
    programs = tmp_path / "bin"
    programs.mkdir()
    virsh = programs / "virsh"
    virsh.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {SOURCES}/virsh.py {tmp_path}/nowhere "$@"\n')
    virsh.chmod(0o755)
    qemu = tmp_path / "qemu-system-x86_64"
    shutil.copy("/bin/sh", qemu)
    with subprocess.Popen([qemu, "-c", BUSY, "sh", "-uuid", UUID]) as process:
        try:
            yield {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        finally:
            process.kill()


def test_what_a_silent_vm_takes_is_read_on_its_host(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    argv = (
        "run",
        "plan.yaml",
        "--guest",
        "libvirt:win1",
        "--yes",
        "--json",
        "-o",
        "report.html",
        "--wait",
        "--emulate",
    )
    command = [sys.executable, "-m", "vmtax", *argv]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=3 * HANGS)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["data"]["idle_guests"]
    assert (found["treatment"], found["baseline"], found["rounds"]) == ("existing", "", 1)
    assert 0.02 < found["seconds"] < 1.1, "its one thread, and nothing of what else runs here"
    assert "nothing was looked at inside" in done.stderr
    assert "libvirt:win1 counts as emulated: " in done.stderr and "none of its open files is one of KVM" in done.stderr
