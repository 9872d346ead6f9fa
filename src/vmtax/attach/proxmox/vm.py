"""A running VM of Proxmox VE, into which a port and disks are plugged by QEMU's monitor, as Proxmox does it itself."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from vmtax.attach.agent import FORBIDDEN, FROZEN, AgentRefused, Started
from vmtax.attach.domain import DomainError, script
from vmtax.attach.libvirt import why_other_bus
from vmtax.attach.pluggable import CONTROLLER, DATA, IMAGE, PORT, Bus, Settings
from vmtax.attach.proxmox.agent import ProxmoxAgent
from vmtax.attach.proxmox.config import bus_of, disk_settings, first_disk, has_iothread, has_windows, unlike
from vmtax.core.machines import Machine, Outcome, Undoing
from vmtax.machine.answer import json_or_none, object_or_none, whole_of

PROXMOX = "proxmox:"
SECONDS = 60.0  # for one question to Proxmox
UNTRIED = "vmtax was never run on Proxmox VE itself, only on a stand-in for qm and pvesh"
PLUGS = (
    "plugs a port, the root image as a read-only disk and, for disk tests, a disk of ours into it by QEMU's monitor,"
    " and starts a program by its guest agent. All is unplugged again; modules that its kernel loads for that"
    " (virtio_scsi, sd_mod, erofs) stay until it reboots. Until the run ends, make no snapshot or backup of it, change"
    f" none of its hardware, and do not migrate it; {UNTRIED}"
)
SILENT = (
    "its guest agent does not answer ({}): install and start qemu-guest-agent in the guest; or log in to the VM:"
    " --guest ssh://root@ADDRESS"
)
OPTIONS = {"cache": "cache", "io": "aio", "discard": "discard", "detect_zeroes": "detect-zeroes"}  # for QEMU's -drive
IOTHREAD = "iothread"
# Proxmox asks the agent to keep all that a program prints, so that it must print nothing.
SILENTLY = ("/bin/sh", "-c", 'exec "$@" > /dev/null 2>&1', "sh")
DEVICE = re.compile(r"^\s*(dev: .*?)\s*$", re.MULTILINE)


def words_of_qm(said: Outcome) -> str:
    """Its last complaint, in one line."""
    if said.timed_out:
        return f"{said.argv[2]} had no answer within {said.seconds:.0f} s"
    lines = [line.strip() for line in (said.stderr or said.stdout).splitlines() if line.strip()]
    return lines[-1] if lines else f"{said.argv[2]} ended with {said.code}"


@dataclass(frozen=True, slots=True)
class ProxmoxVm:
    """A VM that ran when it was looked at."""

    host: Machine
    vmid: str
    config: Mapping[str, str]
    vcpus: int
    memory: int
    qemu: int
    uuid: str
    token: str = field(default_factory=lambda: secrets.token_hex(4))  # names what is plugged in for this run
    before: list[str] = field(default_factory=list)  # its digests when it was entered
    listed: list[Undoing] = field(default_factory=list)  # what was done to it for the run, in this order
    announced: str = PLUGS
    asked: str = UNTRIED

    @property
    def name(self) -> str:
        return f"{PROXMOX}{self.vmid}"

    @property
    def disk(self) -> str:
        """The name of its first disk."""
        return first_disk(self.config)

    @property
    def agent(self) -> ProxmoxAgent:
        return ProxmoxAgent(self.host, self.name, self.qemu)

    @property
    def is_windows(self) -> bool:
        return has_windows(self.config)

    @property
    def notes(self) -> tuple[str, ...]:
        found = unlike(self.config, self.disk)
        lacks = f"The disk under test has not all that the VM's own disk has: {', '.join(found)}." if found else ""
        return tuple(filter(None, [lacks, f"{UNTRIED[0].upper()}{UNTRIED[1:]}."]))

    def serial(self, what: str) -> str:
        return f"vmtax-{self.token}-{what}"

    def remember(self) -> None:
        self.before[:] = [self._configuration(), self._devices()]

    def later(self, undoing: Undoing) -> None:
        self.listed.append(undoing)

    def socket(self) -> PurePosixPath:
        return self.host.scratch / self.serial(PORT)

    def removal_of(self, file: str) -> Undoing:
        return self.host.remove_later(PurePosixPath(file))

    def plug_port(self) -> None:
        port, socket = self.serial(PORT), self.socket()
        self.later(self.host.remove_later(socket))
        self.later(self._removal(port, f"chardev-remove {port}"))
        self._do(f"chardev-add socket,id={port},path={_option(str(socket))},server=on,wait=off")
        self._do(f"device_add virtserialport,bus=qga0.0,chardev={port},name={port},id={port}")

    def plug_image(self, file: str) -> tuple[Bus, str]:
        own = bus_of(self.config, self.disk)
        bus: Bus = "virtio" if own == "virtio" else "scsi"
        thread = ""
        if has_iothread(self.config, self.disk):  # as its own disk has, one of ours
            self.later(self._removal("", f"object_del {self.serial(IOTHREAD)}"))
            self._do(f"object_add iothread,id={self.serial(IOTHREAD)}")
            thread = f",iothread={self.serial(IOTHREAD)}"
        if bus == "scsi":
            controller = self.serial(CONTROLLER)
            self.later(self._removal(controller))
            self._do(f"device_add virtio-scsi-pci,id={controller},bus=pci.0{thread}")
        self.later(self._removal(self.serial(IMAGE), f"drive_del {self.serial(IMAGE)}-drive"))
        self._plug_disk(IMAGE, file, bus, "readonly=on")
        return bus, why_other_bus(own, bus) if own not in ("", "virtio", "scsi") else ""

    def plug_data(self, file: str, bus: Bus, named: Settings) -> Undoing:
        data = self.serial(DATA)
        removal = self._removal(data, f"drive_del {data}-drive")
        settings = {**self.settings(), **named}
        if settings.get("detect_zeroes") == "unmap" and settings.get("discard") != "unmap":
            settings["detect_zeroes"] = "on"  # as Proxmox VE has it then; QEMU refuses unmap
        words = [f"{OPTIONS[name]}={value}" for name, value in settings.items() if name in OPTIONS]
        try:
            self._plug_disk(DATA, file, bus, ",".join(words))
        except BaseException:
            removal.undo()
            raise
        return removal

    def settings(self) -> dict[str, str]:
        running = self.host.try_run("cat", f"/proc/{self.qemu}/cmdline").stdout
        return {"bus": bus_of(self.config, self.disk), **disk_settings(self.config, self.disk, running)}

    def start(self, argv: Sequence[str], given: str = "") -> int:
        how = ("--synchronous", "0", *(("--pass-stdin", "1") if given else ()))
        said = self._qm("guest", "exec", self.vmid, *how, "--", *SILENTLY, *argv, given=given)
        if not said.ok:
            raise AgentRefused(f"{self.name}: {self._why(said)}")
        answer = json_or_none(said.stdout, Started)
        if answer is None:
            raise AgentRefused(f"{self.name}: qm guest exec answered {said.stdout[:80]!r}")
        return answer.pid

    def ended(self, pid: int) -> int | None:
        said = self._qm("guest", "exec-status", self.vmid, str(pid))
        if not said.ok:
            raise AgentRefused(f"{self.name}: {self._why(said)}")
        answer = object_or_none(said.stdout) or {}
        if not answer.get("exited"):
            return None
        what = "qm guest exec-status: {}"
        if (signal := answer.get("signal")) is not None:
            return 128 + whole_of(self.host, what.format("signal"), str(signal), most=128)
        return whole_of(self.host, what.format("exitcode"), str(answer.get("exitcode", "")), most=2**32)

    def ends_later(self, argv: Sequence[str]) -> Undoing:
        return self.host.undo_later(*script("proxmox/end"), self.vmid, *SILENTLY, *argv)

    def leave(self) -> dict[str, object]:
        while self.listed:
            self.listed.pop().undo()
        state = self.status()
        now = [self._configuration(), *([self._devices()] if state == "running" else [])]
        names = ("configuration", "devices as it runs")
        changed = [name for name, *pair in zip(names, self.before, now, strict=False) if pair[0] != pair[1]]
        return {"definition_sha256": now, "changed": changed, "state": state}

    def status(self) -> str:
        """In the words of Proxmox VE: "running". Raises MachineLost."""
        return self._qm("status", self.vmid).stdout.strip().removeprefix("status: ")

    def _configuration(self) -> str:
        """A digest of its configuration. Raises DomainError."""
        said = self._qm("config", self.vmid)
        if not said.ok:
            raise DomainError(f"{self.name}: {words_of_qm(said)}")
        return hashlib.sha256(said.stdout.encode()).hexdigest()

    def _devices(self) -> str:
        """A digest of the devices that it has as it runs. Raises DomainError."""
        devices = DEVICE.findall(self._monitor("info qtree"))
        backends = [line.partition(":")[0] for line in self._monitor("info chardev").splitlines()]
        drives = [line.partition(" ")[0] for line in self._monitor("info block").splitlines() if line[:1].strip()]
        threads = [line.partition(":")[0] for line in self._monitor("info iothreads").splitlines() if line[:1].strip()]
        text = "\n".join([*devices, *sorted(backends), *sorted(drives), *sorted(threads)])
        return hashlib.sha256(text.encode()).hexdigest()

    def _removal(self, device: str, *then: str) -> Undoing:
        """Its removal, listed in the host's guard before it is plugged in."""
        return self.host.undo_later(*script("proxmox/detach"), self.vmid, device, *then)

    def _plug_disk(self, what: str, file: str, bus: Bus, options: str) -> None:
        ours = self.serial(what)
        drive = f"file={_option(file)},if=none,id={ours}-drive,format=raw,{options}"
        self._do(f'drive_add auto "{drive}"', "OK")
        if bus == "scsi":
            place = f"scsi-hd,bus={self.serial(CONTROLLER)}.0,scsi-id={1 if what == DATA else 0}"
        else:
            threaded = what == DATA and has_iothread(self.config, self.disk)
            place = f"virtio-blk-pci,bus=pci.0{f',iothread={self.serial(IOTHREAD)}' if threaded else ''}"
        self._do(f"device_add {place},drive={ours}-drive,id={ours},serial={ours}")

    def _do(self, command: str, expected: str = "") -> None:
        """A command that prints just that when it succeeds. Raises DomainError."""
        answer = self._monitor(command).strip()
        if answer != expected:
            lines = [line for line in answer.splitlines() if line.strip()] or ["nothing"]
            raise DomainError(f"{self.name}: QEMU's monitor said to `{command.partition(' ')[0]}`: {lines[-1]}")

    def _monitor(self, command: str) -> str:
        """What QEMU's monitor prints. Raises DomainError."""
        place = f"/nodes/localhost/qemu/{self.vmid}/monitor"
        words = ("pvesh", "create", place, "--command", command, "--output-format", "json")
        said = self.host.try_run("env", "LC_ALL=C", *words, timeout=SECONDS)
        if not said.ok:
            raise DomainError(f"{self.name}: {words_of_qm(said)}")
        answer = json_or_none(said.stdout, str)
        if answer is None:
            raise DomainError(f"{self.name}: pvesh answered {said.stdout[:80]!r} to `{command}`")
        return answer

    def _qm(self, *words: str, given: str = "") -> Outcome:
        return self.host.try_run("env", "LC_ALL=C", "qm", *words, input=given or None, timeout=SECONDS)

    def _why(self, said: Outcome) -> str:
        """Why its agent does not do what it was asked for."""
        words = words_of_qm(said)
        if "disabled" in words or "not allowed" in words or "has not been found" in words:
            frozen = self._qm("guest", "cmd", self.vmid, "fsfreeze-status")
            return FROZEN if frozen.stdout.strip() == "frozen" else FORBIDDEN.format(words)
        return SILENT.format(words) if said.timed_out or "agent" in words.lower() else words


def _option(text: str) -> str:
    """A value of QEMU's options, within a command to its monitor."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace(",", ",,")
