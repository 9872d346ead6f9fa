"""Find QEMU on a machine: which one it is, how it is started, and which guests it can run."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import PurePosixPath

from vmtax.core.errors import CannotDo
from vmtax.core.machines import first_line
from vmtax.design.disk import Share
from vmtax.hypervisor.base import BootPatience, GuestSpec
from vmtax.hypervisor.confine import FIRST_USER, PATIENT, TUN, USERS, VFIO, Reach, alone, become, image_program, sandbox
from vmtax.hypervisor.credentials import Credentials
from vmtax.hypervisor.qemu.argv import arguments, reach, why_not
from vmtax.hypervisor.qemu.boot import boot
from vmtax.hypervisor.qemu.cards import handed_over
from vmtax.hypervisor.qemu.cpu import QUIT, UNKNOWN, asking, missing_features, nearest_models
from vmtax.hypervisor.qemu.drives import MAPPING, THREADED_DEVICES
from vmtax.hypervisor.qemu.guest import QemuGuest
from vmtax.hypervisor.qemu.parts import without_huge_pages
from vmtax.hypervisor.qemu.shares import device_of
from vmtax.hypervisor.spec import passes_device
from vmtax.machine import Machine, Reader
from vmtax.machine.local import LocalMachine
from vmtax.machine.packages import install

NOT_FOUND = 127  # exit code for a missing program
MINIMUM = (7, 2)
# With QEMU 7.2, emulated guests with two vCPUs that carry a nested guest panic or reset in more than a third of runs,
# while the kernel patches its own code; with 10.0 in about one of fifteen. Versions in between were not tried.
STEADY_EMULATION = (10, 0)
DEFAULT = "qemu-system-x86_64"
# Where else systems keep theirs: RHEL and its children, Proxmox and older systems, NixOS.
ELSEWHERE = (
    *("/usr/libexec/qemu-kvm", "/usr/bin/kvm", "/usr/bin/qemu-kvm"),
    *(f"{profile}/bin/{DEFAULT}" for profile in ("/run/current-system/sw", "/nix/var/nix/profiles/default")),
)
# The first of these programs that is there. Constant text, the names stay arguments.
FIRST = ("sh", "-c", 'for each; do test ! -x "$each" || { echo "$each"; exit; }; done; exit 1', "sh")
# Shows our user and capabilities there, and whether the kernel supports seccomp.
RIGHTS = ("cat", "/proc/self/status", "/proc/self/uid_map", "/proc/self/gid_map")
# Capabilities, by number, that QEMU needs to switch users, and that we need to find and end it afterwards.
NEEDED = {"CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7, "CAP_SYS_PTRACE": 19}
ROOT = re.compile(r"^Uid:\s+0\s", re.MULTILINE)
ALL_USERS = re.compile(r"^\s*0\s+0\s+4294967295$", re.MULTILINE)


class QemuError(CannotDo):
    """QEMU is missing, too old, or died at start; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Qemu:
    """A QEMU that exists and is new enough."""

    command: tuple[str, ...]  # command that starts it on its machine, or in its tree
    version: str  # "7.2.22"
    described: str  # its complete version line
    tree: str | None = None  # the unpacked image that contains it; None: it is the machine's own
    has_sandbox: bool = False  # QEMU and its machine's kernel can filter system calls
    user: int | None = None  # user that it switches to before its guest runs; None: it keeps its user
    doubt: str = ""  # why it is less confined than it could be, as sentences

    @classmethod
    def probe(cls, machine: Reader, program: str | None = None) -> Qemu:
        """The machine's own QEMU, or `program`. Raises QemuError."""
        rights = machine.try_run(*RIGHTS).stdout
        if program is None and machine.try_run(DEFAULT, "--version", timeout=20).code == NOT_FOUND:
            program = machine.try_run(*FIRST, *ELSEWHERE).stdout.strip() or None
        return _examined(machine, (program or DEFAULT,), None, rights)

    @classmethod
    def of_image(cls, machine: Reader, tree: str) -> Qemu:
        """The QEMU of an unpacked image. Raises QemuError."""
        rights = machine.try_run(*RIGHTS).stdout
        program = image_program(tree, DEFAULT, Reach(), *alone(root=bool(ROOT.search(rights))))
        return _examined(machine, program, None if tree == "/" else tree, rights)

    def can(self, spec: GuestSpec) -> str | None:
        """Why no QEMU can run such a guest; None if it can."""
        return why_not(spec)

    def command_line(self, spec: GuestSpec, initrd: PurePosixPath, console: PurePosixPath) -> tuple[str, ...]:
        """The argv; see `arguments`."""
        # A process that pins memory for a device may have to pin more later, which only root may do without a limit.
        keeps_user = passes_device(spec.cards)
        started = self.for_guest(reach(spec, initrd, console), outlives=spec.lasting is not None, keeps_user=keeps_user)
        # After switching users, QEMU cannot reach that directory by any path, so it starts there.
        there = ("env", "-C", spec.meeting) if spec.meeting else ()
        before = (*spec.within, *without_huge_pages(spec), *handed_over(spec.cards), *there)
        return (*before, *started, *arguments(spec, initrd, console))

    def describe(self, spec: GuestSpec) -> str:
        """The command line in shell syntax; the one for a boot contains the run's own initrd and console."""
        return shlex.join(self.command_line(spec, PurePosixPath(spec.initrd), PurePosixPath("console")))

    def why_no_cpu(self, machine: Machine, model: str, accelerator: str) -> str | None:
        """Why it cannot provide the CPU `model`, one of `cpu.model`'s levels, to a guest there; None if it can.

        Raises QemuError if it does not have that model.
        """
        start = self.without_guest(Reach(devices=("/dev/kvm",) if accelerator == "kvm" else ()))
        asked = machine.try_run(*start, *asking(model, accelerator), input=QUIT)
        if asked.ok:
            return None
        if UNKNOWN in asked.stderr:
            there = machine.try_run(*start, "-cpu", "help").stdout
            raise QemuError(
                f"{machine.path}: cpu.model: QEMU {self.version} {nearest_models(model, self.command[0], there)}"
            )
        lacking = missing_features(asked.stderr)
        what = "emulation (TCG)" if accelerator == "tcg" else f"the CPU of {machine.path}"
        if not lacking:
            return f"QEMU refuses it: {first_line(asked.stderr)}"
        return f"{what} lacks {', '.join(lacking)}"

    def why_no_hpet(self, machine: Machine, accelerator: str) -> str | None:
        """Why it cannot provide an HPET to a guest there; None if it can."""
        start = self.without_guest(Reach(devices=("/dev/kvm",) if accelerator == "kvm" else ()))
        asked = machine.try_run(*start, *asking("qemu64", accelerator, "q35,hpet=on"), input=QUIT)
        return None if asked.ok else f"QEMU {self.version} refuses it: {first_line(asked.stderr)}"

    def why_no_hyperv(self, machine: Machine, level: str, accelerator: str) -> str | None:
        """Why it cannot provide that level of `cpu.hyperv` to a guest there; None if it can."""
        start = self.without_guest(Reach(devices=("/dev/kvm",) if accelerator == "kvm" else ()))
        asked = machine.try_run(*start, *asking("host", accelerator, hyperv=level), input=QUIT)
        return None if asked.ok else f"QEMU {self.version} refuses it: {first_line(asked.stderr)}"

    def why_no_share(self, machine: Machine, share: Share) -> str | None:
        """Why it cannot share a directory that way with a guest there; None if it can."""
        devices = machine.try_run(*self.without_guest(Reach()), "-device", "help").stdout
        lacks = f'name "{device_of(share)}"' not in devices
        return f"QEMU {self.version} was built without {device_of(share)}" if lacks else None

    def why_no_mapping(self, machine: Machine, bus: str) -> str | None:
        """Why it cannot give a disk on that bus several iothreads there; None if it can."""
        device = THREADED_DEVICES[bus]
        options = machine.try_run(*self.without_guest(Reach()), "-device", f"{device},help").stdout
        return None if MAPPING in options else f"QEMU {self.version} has no {MAPPING} for {device}"

    def boot(
        self,
        parent: Machine,
        spec: GuestSpec,
        credentials: Credentials,
        local: LocalMachine,
        patience: BootPatience,
        attach: Callable[[], None] | None,
    ) -> AbstractContextManager[QemuGuest]:
        return boot(parent, spec, self.command_line, credentials, local, patience, attach)

    @property
    def emulates_steadily(self) -> bool:
        return _numbers(self.version) >= STEADY_EMULATION

    @property
    def is_default(self) -> bool:
        """Whether it is used if none is named."""
        return self.tree is None and self.command[0] in (DEFAULT, *ELSEWHERE)

    @property
    def identity(self) -> tuple[str, ...]:
        """Distinguishes it from every other QEMU of its machine: one word, its command, if it is the machine's own."""
        return self.command if self.tree is None else (self.tree, *self.command)

    def for_guest(self, reach: Reach, *, outlives: bool = False, keeps_user: bool = False) -> tuple[str, ...]:
        """Command prefix that starts it with a guest.

        `reach`: the machine's files that an image's QEMU can reach
        `outlives`: it continues when its parent has ended
        `keeps_user`: it keeps its user, because of its guest's devices
        """
        user = None if keeps_user else self.user
        return (
            *self._entered(reach, outlives=outlives),
            *(sandbox(elevate=user is not None) if self.has_sandbox else ()),
            *(become(user, _numbers(self.version)) if user is not None else ()),
        )

    def without_guest(self, reach: Reach) -> tuple[str, ...]:
        """Command prefix that starts it for queries, without a guest: it opens files by name and keeps its user."""
        # A check migrates into a program to find out whether a guest can be migrated.
        return (*self._entered(reach), *(sandbox(spawn=True) if self.has_sandbox else ()))

    def _entered(self, reach: Reach, *, outlives: bool = False) -> tuple[str, ...]:
        if self.tree is None:
            return self.command
        # When a process changes its user, the kernel cancels its death signal: the first process of its PID namespace
        # does not change, and takes all others with it.
        bound = () if outlives else ("--die-with-parent", *(("--unshare-pid",) if self.user is not None else ()))
        changes = ("CAP_SETUID", "CAP_SETGID") if self.user is not None else ()
        # A passed-through device pins all of the guest's memory, which is more than a process may lock by default.
        of_devices = {TUN: "CAP_NET_ADMIN", VFIO: "CAP_IPC_LOCK"}
        kept = (*changes, *(name for device, name in of_devices.items() if device in reach.devices))
        return (*PATIENT, *image_program(self.tree, DEFAULT, reach, "--unshare-ipc", *bound, capabilities=kept))


def _examined(machine: Reader, program: tuple[str, ...], tree: str | None, rights: str) -> Qemu:
    """`rights`: output of RIGHTS on that machine."""
    outcome = machine.try_run(*program, "--version")
    name = program[-1]
    if not outcome.ok:
        cure = "name a QEMU program that is there"
        if name == DEFAULT:
            cure = f"{install(machine, DEFAULT)}, or name another with --qemu"
        if program[0] == "bwrap" and outcome.code == NOT_FOUND:
            cure = f"an image's QEMU needs bubblewrap: {install(machine, 'bwrap')}"
        elif program[0] == "bwrap":
            cure = "an image's QEMU needs bubblewrap, which must be allowed to make namespaces there"
        raise QemuError(f"{machine.path}: no usable {name} ({first_line(outcome.stderr or outcome.stdout)}); {cure}")
    line = outcome.stdout.partition("\n")[0].strip()
    match = re.search(r"version (\d{1,4}\.\d{1,4}(\.\d{1,4})?)", line, re.ASCII)
    if match is None:
        raise QemuError(f"{machine.path}: {name} --version says '{line}', which is no QEMU version")
    if _numbers(match[1]) < MINIMUM:
        wanted = ".".join(map(str, MINIMUM))
        raise QemuError(f"{machine.path}: {name} is {line}; {wanted} or newer is needed: name another with --qemu")
    has_sandbox = "Seccomp:" in rights and machine.try_run(*program, *sandbox(), "--version").ok
    user, doubt = _user(rights)
    if not has_sandbox:
        doubt = f"QEMU filters no system calls, because it or the kernel was built without seccomp. {doubt}".strip()
    return Qemu((name,), match[1], line, tree, has_sandbox, user, doubt)


def _user(rights: str) -> tuple[int | None, str]:
    """The user that QEMU switches to there, and why it must stay root if it must."""
    if not ROOT.search(rights):
        return None, ""
    held = re.search(r"^CapEff:\s+([0-9a-f]{1,16})$", rights, re.MULTILINE)
    missing = [name for name, bit in NEEDED.items() if not int(held[1] if held else "0", 16) >> bit & 1]
    if missing:
        return None, f"QEMU keeps the rights of root, because root lacks {', '.join(missing)} there."
    if len(ALL_USERS.findall(rights)) != 2:
        return None, "QEMU keeps the rights of root, who is there the root of a user namespace only."
    return FIRST_USER + secrets.randbelow(USERS), ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
