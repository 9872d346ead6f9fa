"""Clones of a Windows, as far as they can be had here: a real libvirt boots clones of a Linux, whose disks are what a
stand-in for PowerShell lists, and whose guest agent, but for its pings, is one whose programs Wine runs.

What fio and stockfish measure in a Windows is not proved, nor that it has a driver, nor how it mounts the disc.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.owners_vm import OF_START, Libvirt, guest_files, libvirt, wait_until, without_systemd
from tests.unit.test_clone_windows import files_of
from tests.windows_agent import Message, WindowsGuest, windows_guest
from tests.windows_host import SOURCES, compile_program
from vmtax.attach.clone.windows_disk import LIST
from vmtax.cli.app import app
from vmtax.image import contents
from vmtax.machine.windows.command_line import encoded
from vmtax.store import Store
from vmtax.testbed.session import windows_disc
from vmtax.testbed.session.windows_disc import PROGRAMS
from vmtax.testbed.session.windows_way import programs_here

pytestmark = pytest.mark.machines
NAME, EXPRESS = "win1", "win2"
METADATA = (
    "<metadata><libosinfo:libosinfo xmlns:libosinfo='http://libosinfo.org/xmlns/libvirt/domain/1.0'>"
    "<libosinfo:os id='http://microsoft.com/win/11'/></libosinfo:libosinfo></metadata>"
)
# Asks the agent of the clone itself whether it is up, and that of the stand-in for all else that vmtax asks.
VIRSH = """\
#!/bin/sh
case "$*" in
    *--cmd*guest-ping*) ;;
    *--cmd*) exec {python} -I -S {sources}/virsh.py {socket} "$@" ;;
esac
exec {real} "$@"
"""
# Prints serial number, bytes and partitions of each disk.
DISKS = (
    "modprobe sr_mod; modprobe isofs; modprobe ata_piix; modprobe sd_mod; for each in /sys/block/[sv]d*; do "
    "serial=$(cat $each/serial 2> /dev/null || tr -cd '[:alnum:]-' < $each/device/vpd_pg80); "
    'echo "${each##*/} $(cat $each/size) ${serial:-none}"; done'
)
# Mounts the disc, and prints the digest of each file on it.
DISC = "mkdir -p /run/disc; mount -t iso9660 -o ro /dev/sr0 /run/disc; cd /run/disc && sha256sum *"
FIGURES = {
    "min": 10_000,
    "max": 9_000_000,
    "mean": 200_000.0,
    "percentile": {"50.000000": 150_000, "99.000000": 900_000},
}
SIDE = {"total_ios": 4000, "iops": 4000.0, "bw_bytes": 16_384_000, "runtime": 1000, "lat_ns": FIGURES}
FIO = {"fio version": "fio-3.41", "jobs": [{"error": 0, "job options": {}, "read": SIDE, "write": SIDE}]}
PLAN = """\
name: windows-clones
layers: [host, clone]
factors: {disk.bus: [ide]}
rounds: {min: 1, max: 1}
iterations: 1
workloads:
  - disk: {size: 16MiB, seconds: 1, patterns: [randread-4k-qd1], percentiles: [p50]}
"""


@dataclass
class Clones:
    """The domain win1, which is off, and what its clones say."""

    lv: Libvirt
    guest: WindowsGuest
    listed: list[str] = field(default_factory=list)  # the disks of clones, as PowerShell printed them
    tests: list[str] = field(default_factory=list)  # lines that name a disk
    digests: dict[str, str] = field(default_factory=dict)  # files on the disc in a clone -> their sha256

    @property
    def disc(self) -> Path:
        """What its Windows has as drive E."""
        return self.guest.directory / "drive_e"

    def before(self, message: Message) -> None:
        """The disks that PowerShell lists are those of the clone that runs."""
        given = base64.b64decode(message.get("arguments", {}).get("input-data", "")).decode()
        if "PhysicalDrive" in given:
            self.tests.append(given)
        if encoded(LIST) not in given:
            return
        (name,) = [one for one in self.lv.virsh("list", "--name").split() if one.startswith("vmtax-")]
        lines = [line.split() for line in self.shell(name, DISKS).splitlines()]
        has = {True: "GPT|1|True", False: "RAW|0|False"}
        rows = [
            f"disk={number}|{has[serial == 'none']}|False|{512 * int(size)}|{serial}"
            for number, (_, size, serial) in enumerate(lines)
        ]
        self.listed[:] = rows
        (self.guest.drive / "windows/system32/powershell.txt").write_text("\r\n".join(rows) + "\r\n")
        said = (line.split() for line in self.shell(name, DISC).splitlines())
        self.digests = {file: digest for digest, file in said}

    def shell(self, name: str, script: str) -> str:
        """What a script prints in a clone, by its own agent."""
        argv: dict[str, Any] = {"path": "/bin/sh", "arg": ["-c", script], "capture-output": True}
        started = self.lv.agent(name, "guest-exec", **argv)
        assert started, "its agent starts a program"
        found: list[dict[str, Any]] = []

        def ended() -> bool:
            status = self.lv.agent(name, "guest-exec-status", pid=started["pid"])
            found.extend([status] if status and status["exited"] else [])
            return bool(found)

        wait_until(ended, f"{script} ends in the clone")
        return base64.b64decode(found[0].get("out-data", "")).decode()


@pytest.fixture(scope="module")
def clones(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clones]:
    directory = tmp_path_factory.mktemp("guests")
    files = without_systemd(guest_files("bookworm", directory), directory)
    with (
        windows_guest(tmp_path_factory.mktemp("windows")) as guest,
        libvirt(tmp_path_factory.mktemp("libvirt")) as lv,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, machine in ((NAME, "pc"), (EXPRESS, "q35")):  # the kernel has no AHCI
            lv.define(name, files, machine=machine, words=OF_START)
            text = lv.directory / "named.xml"
            text.write_text(lv.virsh("dumpxml", name).replace("</uuid>", f"</uuid>{METADATA}", 1))
            lv.virsh("define", str(text))
        one = Clones(lv, guest)
        real = shutil.which("virsh")
        words = {"python": sys.executable, "sources": SOURCES, "socket": guest.socket, "real": real}
        (guest.directory / "bin/virsh").write_text(VIRSH.format(**words))
        compile_program("prints.c", guest.drive / "windows/system32/powershell.com")  # before Wine's own
        one.disc.mkdir()
        (guest.directory / "prefix/dosdevices/e:").symlink_to(one.disc)
        (one.disc / "fio.txt").write_text(json.dumps(FIO))
        guest.before = one.before
        for variable, value in {**guest.environment, **lv.environment, "PATH": guest.environment["PATH"]}.items():
            patch.setenv(variable, value)
        patch.setattr(windows_disc, "unpacked", unpacked)
        put = windows_disc.put_disc

        def put_disc(disc: windows_disc.ProgramsDisc, *how: Any) -> windows_disc.ProgramsDisc:
            for name, data in files_of(Path(disc.file).read_bytes()).items():
                (one.disc / name.removesuffix(";1").lower()).write_bytes(data)
            return put(disc, *how)

        patch.setattr("vmtax.testbed.session.cloning.put_disc", put_disc)
        yield one


def unpacked(local: Any, emit: object) -> dict[str, str]:
    """In place of a pack that takes 20 minutes to build."""
    here = programs_here(local)
    here.mkdir()
    for name in PROGRAMS:
        compile_program("prints.c", here / name)
    return {name: contents.digest(str(here / name)) for name in PROGRAMS}


def vmtax(*argv: str, name: str = NAME) -> Result:
    done = CliRunner().invoke(app, [*argv, "--guest", f"libvirt:{name}", "--clone", "--emulate"])
    assert done.exit_code == 0, f"{done.output}\n{done.exception}"
    return done


def test_what_would_be_done_is_said_and_nothing_is_done(clones: Clones) -> None:
    said = " ".join(vmtax("plan", "check", "windows", name=EXPRESS).output.split())
    for words in (
        "left out: clone disk.bus=ide: disk.bus=ide: the machine of libvirt:win2 is a q35",
        "only KVM has it, and libvirt emulates libvirt:win2",
        "Each sees a disc of ours with fio and stockfish",
        "never run on Windows itself",
    ):
        assert words in said, said
    typed = ["plan", "check", "quick", "--vary", "disk.bus=virtio,ide", "--vary", "disk.cache=none,writeback"]
    refused = CliRunner().invoke(app, [*typed, "--guest", f"libvirt:{EXPRESS}", "--clone", "--emulate"])
    assert refused.exit_code != 0 and "disk.bus=ide: the machine of libvirt:win2 is a q35" in str(refused.exception)
    assert not clones.guest.asked


def test_clones_are_measured_on_their_own_disk_alone(clones: Clones, tmp_path: Path) -> None:
    plan, report, disk = tmp_path / "plan.yaml", tmp_path / "report.html", clones.lv.directory / f"{NAME}.raw"
    plan.write_text(PLAN)
    before, digest = clones.lv.virsh("dumpxml", NAME), hashlib.sha256(disk.read_bytes()).hexdigest()
    done = vmtax("run", str(plan), "--yes", "--wait", "--json", "-o", str(report))
    assert f"libvirt:{NAME} is defined as before, its disks hold the same, and shut off" in " ".join(
        done.stderr.split()
    )
    with Store() as store:
        run = store.load(json.loads(done.stdout)["data"]["id"])
    assert [(one.treatment, one.error) for one in run.trials if one.status != "ok"] == []
    assert {one.treatment for one in run.trials} == {"host", "clone", "clone again"}
    serials = [row.rpartition("|")[2] for row in clones.listed]
    (number,) = [place for place, serial in enumerate(serials) if serial.endswith("-data")]
    assert len(serials) == 2 and all("ide-hd" in " ".join(boot.argv) for boot in run.boots)
    facts = run.facts["host/clone"]
    assert {name: facts["windows_programs"][name] for name in PROGRAMS} == {
        name: clones.digests[name] for name in PROGRAMS
    }, "the disc has them in the clone, too"
    assert len(clones.tests) == 2 and all(rf"=\\.\PhysicalDrive{number} " in line for line in clones.tests)
    assert all("E:\\fio.exe --name=randread-4k-qd1" in line for line in clones.tests)
    assert "never run on Windows" in report.read_text()
    assert clones.lv.virsh("dumpxml", NAME) == before
    assert hashlib.sha256(disk.read_bytes()).hexdigest() == digest
    assert clones.lv.virsh("list", "--name").split() == []
    tasks = (clones.guest.drive / "windows/system32/tasks").glob("vmtax-*")
    assert not [*tasks], "its clone is thrown away: nothing is scheduled in it"
