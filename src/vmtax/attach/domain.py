"""A running domain of libvirt, by virsh as a command: what it is, and devices that are plugged into it for a run."""

from __future__ import annotations

import hashlib
import re
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from xml.sax.saxutils import quoteattr

from vmtax.attach.pluggable import Bus
from vmtax.core.errors import CannotDo
from vmtax.core.machines import Machine, Outcome, Reader, Undoing
from vmtax.machine.answer import whole_of
from vmtax.machine.packages import install
from vmtax.meter.text import fields

# The connection that the user chose; by itself virsh takes another one for a user than for root.
VIRSH = (
    *("sh", "-c"),
    'exec env LC_ALL=C virsh --quiet --connect "${LIBVIRT_DEFAULT_URI:-qemu:///system}" "$@"',
    "virsh",
)
SECONDS = 60.0  # for one question to libvirt
NOT_FOUND = 127  # exit code of a shell
OF_A_USER = "Domains of a user's own are reached with LIBVIRT_DEFAULT_URI=qemu:///session in that user's environment"
FULL = "No more available PCI slots"
OF_QEMU = "unable to execute QEMU command '"  # so libvirt says what its QEMU could not do; its agent is another one
CONFINED = "; if no file's mode says so, AppArmor or SELinux forbids it: journalctl -k | grep -i denied"
FIRST_DISK = re.compile(r"<disk type='\w+' device='disk'[^>]*>(.*?)</disk>", re.DOTALL)
DRIVER = re.compile(r"<driver ([^>]*?)/?>")
OTHER = (("iothread=", "an iothread"), ("queues=", "queues"), ("<iotune>", "limits of I/O"))  # in it, and not in ours
ATTRIBUTE = re.compile(r"(\w+)='([^']*)'")
BUS = re.compile(r"<target [^>]*bus='(\w+)'")
DISK_NAME = re.compile(r"<target dev='(\w+)' bus=")
BLOCK_JOB = re.compile(r"^ ?type=(.+)$", re.MULTILINE)  # of virsh blockjob --raw, which prints nothing without a job
COPIED = ("cache", "io", "discard", "detect_zeroes")  # of the domain's first disk, for ours
KNOWN_BUSES = ("virtio", "scsi", "sata", "ide", "usb")
RUNNING, OFF = ("running", "idle", "blocked"), "shut off"  # states of a domain that runs, and of one that does not
ANSWERS = {
    "paused": "is paused (virsh domstate --reason {0} says why): virsh resume {0}",
    "shut off": "is shut off: virsh start {}",
    "crashed": "has crashed: virsh start {}",
    "pmsuspended": "is suspended: virsh dompmwakeup {}",
    "in shutdown": "is being shut down: virsh start {}",
}
WINDOWS = re.compile(r"<libosinfo:os id=['\"]http://microsoft\.com/win")  # as virt-manager and virt-install say it
SCSI = re.compile(r"<controller type='scsi' index='(\d+)' model='virtio-scsi'")
UNITS = (101, 102)  # of our disks on a controller, which may be the user's own: of one for data, of the image
# Prints the process id of each QEMU whose command line has this UUID. Argument: the UUID. Constant text.
FIND_QEMU = (
    *("sh", "-c"),
    'for file in $(grep -s -l -i -F -e "$1" /proc/[0-9]*/cmdline); do own=${file%/cmdline}; '
    'case "$(cat "$own/comm" 2> /dev/null)" in qemu-system*|qemu-kvm*|kvm) echo "${own#/proc/}" ;; esac; done',
    "vmtax-find",
)


class DomainError(CannotDo):
    """The domain cannot be measured as it runs; the text says why and what to type."""


def script(*names: str) -> tuple[str, ...]:
    """The command that runs a shell script of this part with arguments, after others with functions that it uses.

    names: such as "end", or "clone/end"; the last one is that of the script
    """
    texts = [resources.files("vmtax.attach").joinpath(f"{name}.sh").read_text(encoding="utf-8") for name in names]
    return ("sh", "-c", "".join(texts), f"vmtax-{names[-1].rpartition('/')[2]}")


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain that ran when it was looked at."""

    host: Machine
    name: str
    uuid: str  # by which it is asked for: a name may be the number of another domain
    uri: str  # of the connection
    vcpus: int
    memory: int  # bytes that it has now
    token: str = field(default_factory=lambda: secrets.token_hex(4))  # names what is plugged in for this run
    before: list[str] = field(default_factory=list)  # its digests when it was entered
    listed: list[Undoing] = field(default_factory=list)  # what was done to it for the run, in this order

    def ask(self, verb: str, *words: str, timeout: float = SECONDS) -> Outcome:
        """What virsh says to a verb, about this domain, with these further words. Raises MachineLost."""
        connected = ("env", "LC_ALL=C", "virsh", "--quiet", "--connect", self.uri)
        return self.host.try_run(*connected, verb, "--domain", self.uuid, *words, timeout=timeout)

    def is_windows(self) -> bool:
        """As its guest agent says, which does not mark it as tainted; or else its definition."""
        system = fields(self.ask("guestinfo", "--os").stdout).get("os.id")
        return system == "mswindows" if system else bool(WINDOWS.search(self.ask("dumpxml").stdout))

    def refuse_job(self) -> None:
        """Raises DomainError if a job of libvirt's runs on it."""
        job = fields(self.ask("domjobinfo").stdout).get("Job type", "None")
        if job != "None":
            raise DomainError(
                f"libvirt:{self.name}: a job runs on it ({job}), such as a backup: wait until it has ended"
            )
        for disk in DISK_NAME.findall(self.definition()):  # what works on one disk is no job of the domain's
            if kind := BLOCK_JOB.search(self.ask("blockjob", disk, "--raw").stdout):
                raise DomainError(
                    f"libvirt:{self.name}: a job works on its disk {disk} ({kind[1]}): wait until it has ended (virsh"
                    f" blockjob {shlex.quote(self.name)} {disk})"
                )

    def definition(self) -> str:
        """The XML of the domain as it runs. Raises DomainError."""
        said = self.ask("dumpxml")
        if not said.ok:
            raise DomainError(f"libvirt:{self.name}: {words_of_virsh(said)}")
        return said.stdout

    def digests(self) -> list[str]:
        """Of its XML, as it runs and as it is defined; "" for a transient domain's definition.

        Without what changes by itself, which the balloon and the guest agent's connection do.
        """
        texts = (self.definition(), self.ask("dumpxml", "--inactive", "--security-info").stdout)
        steady = [re.sub(r"<currentMemory.*?</currentMemory>|state='\w+'", "", text) for text in texts]
        return [hashlib.sha256(text.encode()).hexdigest() if text else "" for text in steady]

    def alias(self, what: str) -> str:
        """The alias of a device of ours: libvirt keeps those that begin with "ua-"."""
        return f"ua-vmtax-{self.token}-{what}"

    def removal(self, what: str) -> Undoing:
        """Its removal, listed in the host's guard before it is plugged in."""
        argv = (*script("saved", "detach"), self.uri, self.uuid, self.alias(what), self.name)
        return self.host.undo_later(*argv, lasting=True)  # it may be saved when its host goes down

    def removal_of(self, file: str) -> Undoing:
        """The removal of a file that is plugged in, listed in the host's guard before there is one."""
        return self.host.undo_later(*script("saved", "remove"), self.uri, self.uuid, file, self.name, lasting=True)

    def detach_later(self, what: str) -> None:
        """List its removal for when the run leaves the domain."""
        self.later(self.removal(what))

    def later(self, undoing: Undoing) -> None:
        """Undo that when the run leaves the domain."""
        self.listed.append(undoing)

    def leave(self, also: Sequence[str] = ()) -> dict[str, object]:
        """Undo everything, and compare its definition and state with what they were. Raises MachineError.

        also: what else is not as it was
        """
        while self.listed:
            self.listed.pop().undo()
        now = self.digests()
        names = ("definition as it runs", "definition as it is stored")
        changed = [name for name, *pair in zip(names, self.before, now, strict=False) if pair[0] != pair[1]]
        state = self.ask("domstate").stdout.strip()
        return {"definition_sha256": list(now), "changed": [*changed, *also], "state": state}

    def attach(self, xml: str) -> None:
        """Plug a device into it, until it is detached or the domain ends. Raises DomainError."""
        file = self.host.scratch / f"device-{secrets.token_hex(4)}.xml"
        self.host.run("tee", str(file), input=xml)
        said = self.ask("attach-device", "--file", str(file), "--live")
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

    def unlike(self) -> str:
        """What its first disk has and ours has not, in a sentence; "" if there is nothing."""
        disk = FIRST_DISK.search(self.definition())
        if disk is None:
            return ""
        format = re.search(r"<driver [^>]*type='(\w+)'", disk[1])
        found = [f"the format {format[1]}"] if format and format[1] != "raw" else []
        found += [words for mark, words in OTHER if mark in disk[1]]
        return f"The disk under test has not all that the VM's own disk has: {', '.join(found)}." if found else ""

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
            f"<disk type='file' device='disk' snapshot='no'><driver name='qemu' type='raw' {driver}/>"
            f"<source file={quoteattr(file)}>{kept}</source>"
            f"<target dev='{target}{'z' if readonly else 'y'}' bus='{bus}'/>{'<readonly/>' if readonly else ''}"
            f"<serial>{self.serial(what)}</serial><alias name='{self.alias(what)}'/>{place}</disk>"
        )

    def serial(self, what: str) -> str:
        """By which the guest finds it."""
        return f"vmtax-{self.token}-{what}"


def find_domain(host: Machine, name: str) -> Domain:
    """The running domain of that name or UUID, read without asking the guest. Raises DomainError, which says what to
    type.
    """
    domain, state = look_up(host, name)
    if state not in RUNNING:
        why = ANSWERS.get(state, f"is {state}, and not running").format(shlex.quote(domain.name))
        also = "; or measure clones of it: --clone" if state == OFF else ""
        raise DomainError(f"libvirt:{domain.name} {why}{also}")
    domain.refuse_job()
    return domain


def look_up(host: Machine, name: str) -> tuple[Domain, str]:
    """The domain of that name or UUID, and its state in libvirt's words. Raises DomainError."""
    what = f"libvirt:{name}"
    uri = host.try_run(*VIRSH, "uri", timeout=SECONDS)
    if uri.code == NOT_FOUND:
        raise DomainError(f"{host.path}: {what}: virsh is missing there: {install(host, 'virsh')}")
    if not uri.ok:
        raise DomainError(f"{host.path}: {what}: {words_of_virsh(uri)}")
    refuse_connection(what, uri.stdout.strip())
    said = host.try_run(*VIRSH, "dominfo", "--domain", name, timeout=SECONDS)
    if not said.ok:
        raise DomainError(f"{host.path}: {what}: {words_of_virsh(said)}{domains_of(host)}")
    facts = fields(said.stdout)
    if name not in (facts.get("Name"), facts.get("UUID")):
        raise DomainError(f"{what}: libvirt takes {name} for {facts.get('Name')}: name it by that, or by its UUID")
    name, uuid = facts.get("Name", name), facts.get("UUID", "")
    vcpus = whole_of(host, f"CPU(s) of virsh dominfo {name}", facts.get("CPU(s)", ""), most=2**16)
    used = facts.get("Used memory", "").removesuffix(" KiB")
    memory = whole_of(host, f"Used memory of virsh dominfo {name}", used, most=2**53) * 1024
    return Domain(host, name, uuid, uri.stdout.strip(), vcpus, memory), facts.get("State", "")


def refuse_connection(what: str, uri: str) -> None:
    """Raises DomainError for a connection to another host, or to another hypervisor. `what`: the VM, as it was named"""
    driver, _, rest = uri.partition("://")
    if driver.partition("+")[0] != "qemu":
        raise DomainError(f"{what}: the connection {uri} leads to no QEMU: LIBVIRT_DEFAULT_URI=qemu:///system")
    if (place := rest.partition("/")[0]) not in ("", "localhost"):
        raise DomainError(f"{what}: the connection {uri} leads to another host: --host ssh://{place} measures it there")


def words_of_virsh(said: Outcome) -> str:
    """Its last complaint, in one line."""
    if said.timed_out:
        return f"virsh had no answer within {said.seconds:.0f} s"
    lines = [line for line in (said.stderr or said.stdout).splitlines() if line.strip()]
    words = lines[-1].removeprefix("error: ") if lines else f"virsh ended with {said.code}"
    if "read only access" in words:
        return f"{words}: this connection to libvirt may only read; run as root on that host"
    if "Permission denied" in words and OF_QEMU in words:
        return f"{words}{CONFINED}"
    if words.startswith("Failed to connect socket"):
        return f"{words}: does libvirt run there (systemctl status libvirtd, or virtqemud)? {OF_A_USER}"
    return words


def domains_of(host: Reader) -> str:
    """The names of the domains that there are, for somebody who named another one; begins with "; "."""
    said = host.try_run(*VIRSH, "list", "--all", "--name", timeout=SECONDS)
    names = [line.strip() for line in said.stdout.splitlines() if line.strip()]
    if not said.ok:
        return ""
    if not names:
        return f"; this connection has no domains. {OF_A_USER}"
    return f"; there are: {', '.join(names[:10])}{' …' if len(names) > 10 else ''}"
