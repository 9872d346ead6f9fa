"""QEMU as a machine has it: which it is, what starts it, and the guests that it boots."""

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
from vmtax.hypervisor.base import GuestSpec, Patience
from vmtax.hypervisor.confine import FIRST_USER, PATIENT, TUN, USERS, VFIO, Reach, alone, become, image_program, sandbox
from vmtax.hypervisor.credentials import Credentials
from vmtax.hypervisor.qemu.argv import arguments, reach, why_not
from vmtax.hypervisor.qemu.boot import QemuGuest, boot
from vmtax.hypervisor.qemu.cards import handed_over
from vmtax.hypervisor.qemu.cpu import QUIT, UNKNOWN, asking, missing_features, nearest_models
from vmtax.hypervisor.qemu.parts import without_huge_pages
from vmtax.hypervisor.spec import passes_device
from vmtax.machine import Machine, Reader
from vmtax.machine.local import LocalMachine

NOT_FOUND = 127  # exit code for a program that is not there
MINIMUM = (7, 2)
# Emulated guests of QEMU 7.2 with two vCPUs panic or reset in more than one of three runs that carry a nested guest,
# while the kernel patches its own code; those of 10.0 in about one of fifteen. What lies between was not tried.
STEADY_EMULATION = (10, 0)
DEFAULT = "qemu-system-x86_64"
# Who we are there, what we may do, and whether the kernel has seccomp.
RIGHTS = ("cat", "/proc/self/status", "/proc/self/uid_map", "/proc/self/gid_map")
# Capabilities, by their number, that QEMU takes to become another user, and we take to find and end it then.
NEEDED = {"CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7, "CAP_SYS_PTRACE": 19}
ROOT = re.compile(r"^Uid:\s+0\s", re.MULTILINE)
ALL_USERS = re.compile(r"^\s*0\s+0\s+4294967295$", re.MULTILINE)


class QemuError(CannotDo):
    """QEMU is missing, too old, or died at start; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Qemu:
    """A QEMU that is there and new enough."""

    command: tuple[str, ...]  # what starts it on its machine, or in its tree
    version: str  # "7.2.22"
    described: str  # its whole version line
    tree: str | None = None  # the unpacked image that it is a part of; None: it is the machine's own
    has_sandbox: bool = False  # it, and its machine's kernel, can filter system calls
    user: int | None = None  # whom it becomes before its guest runs; None: it stays who started it
    doubt: str = ""  # why it is less confined than it could be, as sentences

    @classmethod
    def probe(cls, machine: Reader, program: str | None = None) -> Qemu:
        """The machine's own QEMU, or `program`; raises QemuError."""
        return _examined(machine, (program or DEFAULT,), None, machine.try_run(*RIGHTS).stdout)

    @classmethod
    def of_image(cls, machine: Reader, tree: str) -> Qemu:
        """The QEMU of an unpacked image; raises QemuError."""
        rights = machine.try_run(*RIGHTS).stdout
        program = image_program(tree, DEFAULT, Reach(), *alone(root=bool(ROOT.search(rights))))
        return _examined(machine, program, None if tree == "/" else tree, rights)

    def can(self, spec: GuestSpec) -> str | None:
        """Why no QEMU can have such a guest; None if it can."""
        return why_not(spec)

    def command_line(self, spec: GuestSpec, initrd: PurePosixPath, console: PurePosixPath) -> tuple[str, ...]:
        """The argv; see `arguments`."""
        # What pins memory for a device may pin more of it later, which only root may do without a limit.
        keeps_user = passes_device(spec.cards)
        started = self.for_guest(reach(spec, initrd, console), outlives=spec.lasting is not None, keeps_user=keeps_user)
        # QEMU that became another user reaches that directory by no name, so it begins there.
        there = ("env", "-C", spec.meeting) if spec.meeting else ()
        before = (*spec.within, *without_huge_pages(spec), *handed_over(spec.cards), *there)
        return (*before, *started, *arguments(spec, initrd, console))

    def describe(self, spec: GuestSpec) -> str:
        """The command line, as a shell takes it; that of a boot names the run's own initrd and console."""
        return shlex.join(self.command_line(spec, PurePosixPath(spec.initrd), PurePosixPath("console")))

    def why_no_cpu(self, machine: Machine, model: str, accelerator: str) -> str | None:
        """Why it cannot give a guest there the CPU `model`, one of `cpu.model`'s levels; None if it can.

        Raises QemuError if it has no such model.
        """
        start = self.without_guest(Reach(devices=("/dev/kvm",) if accelerator == "kvm" else ()))
        asked = machine.try_run(*start, *asking(model, accelerator), input=QUIT, timeout=60)
        if asked.ok:
            return None
        if UNKNOWN in asked.stderr:
            there = machine.try_run(*start, "-cpu", "help", timeout=60).stdout
            raise QemuError(
                f"{machine.path}: cpu.model: QEMU {self.version} {nearest_models(model, self.command[0], there)}"
            )
        lacking = missing_features(asked.stderr)
        what = "emulation (TCG)" if accelerator == "tcg" else f"the CPU of {machine.path}"
        if not lacking:
            return f"QEMU refuses it: {first_line(asked.stderr)}"
        return f"{what} lacks {', '.join(lacking)}"

    def why_no_hpet(self, machine: Machine, accelerator: str) -> str | None:
        """Why it cannot give a guest there an HPET; None if it can."""
        start = self.without_guest(Reach(devices=("/dev/kvm",) if accelerator == "kvm" else ()))
        asked = machine.try_run(*start, *asking("qemu64", accelerator, "q35,hpet=on"), input=QUIT, timeout=60)
        return None if asked.ok else f"QEMU {self.version} refuses it: {first_line(asked.stderr)}"

    def boot(
        self,
        parent: Machine,
        spec: GuestSpec,
        credentials: Credentials,
        local: LocalMachine,
        patience: Patience,
        attach: Callable[[], None] | None,
    ) -> AbstractContextManager[QemuGuest]:
        return boot(parent, spec, self.command_line, credentials, local, patience, attach)

    @property
    def emulates_steadily(self) -> bool:
        return _numbers(self.version) >= STEADY_EMULATION

    @property
    def is_default(self) -> bool:
        """Whether it is the one that is used where none is named."""
        return self.tree is None and self.command == (DEFAULT,)

    @property
    def identity(self) -> tuple[str, ...]:
        """Tells it from every other QEMU of its machine: one word, the command, where it is the machine's own."""
        return self.command if self.tree is None else (self.tree, *self.command)

    def for_guest(self, reach: Reach, *, outlives: bool = False, keeps_user: bool = False) -> tuple[str, ...]:
        """What starts it with a guest.

        `reach`: what an image's QEMU has of the machine's files
        `outlives`: it is to run on when its parent has ended
        `keeps_user`: it stays who started it, for what its guest takes
        """
        user = None if keeps_user else self.user
        return (
            *self._entered(reach, outlives=outlives),
            *(sandbox(elevate=user is not None) if self.has_sandbox else ()),
            *(become(user, _numbers(self.version)) if user is not None else ()),
        )

    def without_guest(self, reach: Reach) -> tuple[str, ...]:
        """What starts it to be asked something, without a guest: it opens files by name, as who started it."""
        # Whether a guest can be migrated is tried with a migration into a program.
        return (*self._entered(reach), *(sandbox(spawn=True) if self.has_sandbox else ()))

    def _entered(self, reach: Reach, *, outlives: bool = False) -> tuple[str, ...]:
        if self.tree is None:
            return self.command
        # When a process changes its user, the kernel forgets that it was to die with its parent: the first process of
        # its PID namespace does not change, and takes all others with it.
        bound = () if outlives else ("--die-with-parent", *(("--unshare-pid",) if self.user is not None else ()))
        changes = ("CAP_SETUID", "CAP_SETGID") if self.user is not None else ()
        # A device that a guest has pins all of the guest's memory, beyond what a process may lock by default.
        of_devices = {TUN: "CAP_NET_ADMIN", VFIO: "CAP_IPC_LOCK"}
        kept = (*changes, *(name for device, name in of_devices.items() if device in reach.devices))
        return (*PATIENT, *image_program(self.tree, DEFAULT, reach, "--unshare-ipc", *bound, capabilities=kept))


def _examined(machine: Reader, program: tuple[str, ...], tree: str | None, rights: str) -> Qemu:
    """`rights`: what RIGHTS printed there."""
    outcome = machine.try_run(*program, "--version", timeout=20)
    name = program[-1]
    if not outcome.ok:
        cure = "name a QEMU program that is there"
        if name == DEFAULT:
            cure = "install it (Debian: apt-get install qemu-system-x86) or name another with --qemu"
        if program[0] == "bwrap" and outcome.code == NOT_FOUND:
            cure = "an image's QEMU needs bubblewrap (Debian: apt-get install bubblewrap)"
        elif program[0] == "bwrap":
            cure = "an image's QEMU needs bubblewrap, which must be allowed to make namespaces there"
        raise QemuError(f"{machine.path}: no usable {name} ({first_line(outcome.stderr or outcome.stdout)}); {cure}")
    line = outcome.stdout.partition("\n")[0].strip()
    match = re.search(r"version (\d+\.\d+(\.\d+)?)", line)
    if match is None:
        raise QemuError(f"{machine.path}: {name} --version says '{line}', which is no QEMU version")
    if _numbers(match[1]) < MINIMUM:
        wanted = ".".join(map(str, MINIMUM))
        raise QemuError(f"{machine.path}: {name} is {line}; {wanted} or newer is needed: name another with --qemu")
    has_sandbox = "Seccomp:" in rights and machine.try_run(*program, *sandbox(), "--version", timeout=20).ok
    user, doubt = _user(rights)
    if not has_sandbox:
        doubt = f"QEMU filters no system calls, because it or the kernel was built without seccomp. {doubt}".strip()
    return Qemu((name,), match[1], line, tree, has_sandbox, user, doubt)


def _user(rights: str) -> tuple[int | None, str]:
    """Whom QEMU becomes there, and why it must stay root."""
    if not ROOT.search(rights):
        return None, ""
    held = re.search(r"^CapEff:\s+([0-9a-f]+)$", rights, re.MULTILINE)
    missing = [name for name, bit in NEEDED.items() if not int(held[1] if held else "0", 16) >> bit & 1]
    if missing:
        return None, f"QEMU keeps the rights of root, because root lacks {', '.join(missing)} there."
    if len(ALL_USERS.findall(rights)) != 2:
        return None, "QEMU keeps the rights of root, who is there the root of a user namespace only."
    return FIRST_USER + secrets.randbelow(USERS), ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
