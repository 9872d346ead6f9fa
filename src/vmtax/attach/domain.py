"""A running domain of libvirt, by virsh as a command: what it is, and devices that are plugged into it for a run."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass, field
from typing import Literal
from xml.sax.saxutils import quoteattr

from vmtax.core.errors import CannotDo
from vmtax.core.machines import Machine, Outcome, Undoing
from vmtax.machine.answer import whole_of
from vmtax.machine.packages import install
from vmtax.meter.text import fields

# The user's own choice of a connection holds; by itself virsh takes another one for a user than for root.
VIRSH = (
    *("sh", "-c"),
    'exec env LC_ALL=C virsh --quiet --connect "${LIBVIRT_DEFAULT_URI:-qemu:///system}" "$@"',
    "virsh",
)
SECONDS = 60.0  # for one question to libvirt
NOT_FOUND = 127  # exit code of a shell
FULL = "No more available PCI slots"
# Detaches the device of an alias, and waits until the guest has let go of it. Succeeds if there is no such device, no
# such domain, or if it is off. Arguments: name of the domain, alias. Constant text.
DETACH = (
    *("sh", "-c"),
    'v() { LC_ALL=C virsh --quiet --connect "${LIBVIRT_DEFAULT_URI:-qemu:///system}" "$@"; }; '
    'has() { v dumpxml "$1" 2> /dev/null | grep -q -F "<alias name=\'$2\'/>"; }; '
    'has "$1" "$2" || exit 0; v detach-device-alias "$1" "$2" --live || exit 1; '
    'n=0; while has "$1" "$2"; do n=$((n+1)); [ $n -le 120 ] || exit 1; sleep 0.25; done',
    "vmtax-detach",
)
FIRST_DISK = re.compile(r"<disk type='\w+' device='disk'[^>]*>(.*?)</disk>", re.DOTALL)
DRIVER = re.compile(r"<driver ([^>]*?)/?>")
ATTRIBUTE = re.compile(r"(\w+)='([^']*)'")
BUS = re.compile(r"<target [^>]*bus='(\w+)'")
COPIED = ("cache", "io", "discard", "detect_zeroes")  # of the domain's first disk, for ours
KNOWN_BUSES = ("virtio", "scsi", "sata", "ide", "usb")
ANSWERS = {
    "paused": "is paused: virsh resume {}",
    "shut off": "is shut off: virsh start {}",
    "crashed": "has crashed: virsh start {}",
    "pmsuspended": "is suspended: virsh dompmwakeup {}",
    "in shutdown": "is being shut down: virsh start {}",
}
SCSI = re.compile(r"<controller type='scsi' index='(\d+)' model='virtio-scsi'")
UNITS = (101, 102)  # of our disks on a controller, which may be the user's own: of one for data, of the image
Bus = Literal["virtio", "scsi"]


class DomainError(CannotDo):
    """The domain cannot be measured as it runs; the text says why and what to type."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain that ran when it was looked at."""

    host: Machine
    name: str
    uuid: str
    vcpus: int
    memory: int  # bytes that it has now
    token: str = field(default_factory=lambda: secrets.token_hex(4))  # names what is plugged in for this run
    before: list[str] = field(default_factory=list)  # its digests when it was entered
    listed: list[Undoing] = field(default_factory=list)  # what was done to it for the run, in this order

    def ask(self, *argv: str, timeout: float = SECONDS) -> Outcome:
        """What virsh says. Raises MachineLost."""
        return self.host.try_run(*VIRSH, *argv, timeout=timeout)

    def definition(self) -> str:
        """The XML of the domain as it runs. Raises DomainError."""
        said = self.ask("dumpxml", self.name)
        if not said.ok:
            raise DomainError(f"libvirt:{self.name}: {words_of_virsh(said)}")
        return said.stdout

    def digests(self) -> list[str]:
        """Of its XML, as it runs and as it is defined; "" for a transient domain's definition.

        Without what changes by itself, which the balloon and the guest agent's connection do.
        """
        texts = (self.definition(), self.ask("dumpxml", self.name, "--inactive", "--security-info").stdout)
        steady = [re.sub(r"<currentMemory.*?</currentMemory>|state='\w+'", "", text) for text in texts]
        return [hashlib.sha256(text.encode()).hexdigest() if text else "" for text in steady]

    def alias(self, what: str) -> str:
        """The alias of a device of ours: libvirt keeps those that begin with "ua-"."""
        return f"ua-vmtax-{self.token}-{what}"

    def detach_later(self, what: str) -> Undoing:
        """List its removal in the host's guard, before it is plugged in."""
        return self.later(self.host.undo_later(*DETACH, self.name, self.alias(what)))

    def later(self, undoing: Undoing) -> Undoing:
        """The same, which is undone when the run leaves the domain, if not before."""
        self.listed.append(undoing)
        return undoing

    def leave(self) -> dict[str, object]:
        """Undo everything, and compare its definition and state with what they were. Raises MachineError."""
        while self.listed:
            self.listed.pop().undo()
        now = self.digests()
        names = ("definition as it runs", "definition as it is stored")
        changed = [name for name, *pair in zip(names, self.before, now, strict=False) if pair[0] != pair[1]]
        state = self.ask("domstate", "--", self.name).stdout.strip()
        return {"definition_sha256": list(now), "changed": changed, "state": state}

    def attach(self, xml: str) -> None:
        """Plug a device into it, until it is detached or the domain ends. Raises DomainError."""
        file = self.host.scratch / f"device-{secrets.token_hex(4)}.xml"
        self.host.run("tee", str(file), input=xml)
        said = self.ask("attach-device", self.name, str(file), "--live")
        if not said.ok:
            raise DomainError(f"libvirt:{self.name}: {words_of_virsh(said)}")

    def settings(self) -> dict[str, str]:
        """The bus and the driver's settings of its first disk, as libvirt names them."""
        disk = FIRST_DISK.search(self.definition())
        if disk is None:
            return {}
        driver, bus = DRIVER.search(disk[1]), BUS.search(disk[1])
        named = dict(ATTRIBUTE.findall(driver[1])) if driver else {}
        settings = {name: named[name] for name in COPIED if name in named}
        return {"bus": bus[1], **settings} if bus and bus[1] in KNOWN_BUSES else settings

    def disk(self, what: str, file: str, bus: Bus, settings: dict[str, str], *, readonly: bool = False) -> str:
        """The XML of a disk of ours; `readonly`: of a file that everybody may read, and that keeps its owner."""
        driver = " ".join(f"{name}={quoteattr(value)}" for name, value in settings.items() if name in COPIED)
        place = ""
        if bus == "scsi":  # otherwise libvirt derives the place from the name, on a controller that is not there
            controller = SCSI.search(self.definition())
            unit = UNITS[readonly]
            place = f"<address type='drive' controller='{controller[1] if controller else 0}' unit='{unit}'/>"
        kept = "<seclabel model='dac' relabel='no'/>" if readonly else ""
        target = "vd" if bus == "virtio" else "sd"
        return (
            f"<disk type='file' device='disk'><driver name='qemu' type='raw' {driver}/>"
            f"<source file={quoteattr(file)}>{kept}</source>"
            f"<target dev='{target}{'z' if readonly else 'y'}' bus='{bus}'/>{'<readonly/>' if readonly else ''}"
            f"<serial>{self.serial(what)}</serial><alias name='{self.alias(what)}'/>{place}</disk>"
        )

    def serial(self, what: str) -> str:
        """By which the guest finds it."""
        return f"vmtax-{self.token}-{what}"


def find_domain(host: Machine, name: str) -> Domain:
    """The running domain of that name, read without asking the guest. Raises DomainError, which says what to type."""
    said = host.try_run(*VIRSH, "dominfo", "--", name, timeout=SECONDS)
    if said.code == NOT_FOUND:
        raise DomainError(f"{host.path}: libvirt:{name}: virsh is missing there: {install(host, 'virsh')}")
    if not said.ok:
        raise DomainError(f"{host.path}: libvirt:{name}: {words_of_virsh(said)}{_others(host)}")
    facts = fields(said.stdout)
    state = facts.get("State", "")
    if state not in ("running", "idle", "blocked"):
        raise DomainError(f"libvirt:{name} {ANSWERS.get(state, f'is {state}, and not running').format(name)}")
    job = fields(host.try_run(*VIRSH, "domjobinfo", "--", name, timeout=SECONDS).stdout).get("Job type", "None")
    if job != "None":
        raise DomainError(f"libvirt:{name}: a job runs on it ({job}), such as a backup: wait until it has ended")
    vcpus = whole_of(host, f"CPU(s) of virsh dominfo {name}", facts.get("CPU(s)", ""), most=2**16)
    used = facts.get("Used memory", "").removesuffix(" KiB")
    memory = whole_of(host, f"Used memory of virsh dominfo {name}", used, most=2**53) * 1024
    return Domain(host, name, facts.get("UUID", ""), vcpus, memory)


def words_of_virsh(said: Outcome) -> str:
    """Its last complaint, in one line."""
    lines = [line for line in (said.stderr or said.stdout).splitlines() if line.strip()]
    words = lines[-1].removeprefix("error: ") if lines else f"virsh ended with {said.code}"
    if "read only access" in words:
        return f"{words}: this connection to libvirt may only read; run as root, or as a member of group libvirt"
    return words


def _others(host: Machine) -> str:
    """The names of the domains that there are, for somebody who named another one."""
    said = host.try_run(*VIRSH, "list", "--all", "--name", timeout=SECONDS)
    names = [line.strip() for line in said.stdout.splitlines() if line.strip()]
    if not said.ok:
        return ""
    if not names:
        return "; this connection has no domains: LIBVIRT_DEFAULT_URI=qemu:///session takes those of a session"
    return f"; there are: {', '.join(names[:10])}{' …' if len(names) > 10 else ''}"
