"""The factor `cpu.hyperv`: what KVM offers of Hyper-V's interface, asked of QEMU before and read in the guest after a
boot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmtax.core.layers import GUESTS
from vmtax.design import hyperv
from vmtax.design.guest import GuestSettings
from vmtax.machine import Machine
from vmtax.machine.answer import whole_of, words_of
from vmtax.testbed.parts.part import EMULATED, Part, Request

HYPERV = GuestSettings.factors()["hyperv"].name
LEAVES = 5  # from 0x40000000 on
# Run in a guest: its CPU's answers to CPUID, four registers a line. In /dev/cpu/0/cpuid, a place is a leaf.
READ = (
    *("sh", "-c"),
    "modprobe cpuid; dd if=/dev/cpu/0/cpuid iflag=skip_bytes skip=1073741824 bs=16 count=$1 2>/dev/null |"
    " od -A n -v -t x4 -w16",
    *("sh", str(LEAVES)),
)
ITS_KERNEL = (
    f"{HYPERV}: the guests run Linux, with the devices and the interface that Windows guests get. What the host does"
    " for them carries over to Windows; what Windows' own drivers, file system and timers cost does not: it was not"
    " measured."
)
OF_KVM = (
    f"{HYPERV}: Linux takes KVM's own interface where it sees it, so at every level but off, KVM is hidden from it."
    " off is what Linux guests usually have, hidden what Windows has without enlightenments; without `time`, their"
    " Linux may read a slow clock."
)


class Enlightened(Part):
    """Hyper-V's interface."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        """Nested guests are not checked here but when they boot."""
        guests = {each.name: GuestSettings.of(each.levels).hyperv for each in request.guests}
        levels = dict.fromkeys(level for level in guests.values() if level != hyperv.OFF)
        reasons = {level: why for level in levels if (why := _why_not(request, level)) is not None}
        return {name: f"{HYPERV}={level}{reasons[level]}" for name, level in guests.items() if level in reasons}

    def notes(self, request: Request) -> Sequence[str]:
        if request.plan.space.first(HYPERV) is None or not any(each.layer in GUESTS for each in request.treatments):
            return ()
        levels = dict.fromkeys(GuestSettings.of(each.levels).hyperv for each in request.treatments if each.boots)
        unused = [level for level in levels if level in hyperv.ENLIGHTENMENTS and not _is_used(level)]
        said = [ITS_KERNEL]
        if set(levels) - {hyperv.OFF}:
            said.append(OF_KVM)
        if unused:
            said.append(f"{HYPERV}={', '.join(unused)}: Windows uses it, Linux does not.")
        return said


def _is_used(level: str) -> bool:
    """Whether Linux uses what the level has besides that which every level has."""
    return level == hyperv.BASE or any(hyperv.ENLIGHTENMENTS[name].used for name in level.split("+"))


def _why_not(request: Request, level: str) -> str | None:
    """Why guests there cannot have that level; None if they can, or if that is not known yet."""
    if request.accelerator == "tcg":
        return f" {EMULATED}"
    if request.accelerator is None or request.qemu is None:
        return None
    why = request.qemu.why_no_hyperv(request.host, level, request.accelerator)
    return None if why is None else f": {why}"


def why_not_obtained(machine: Machine, settings: GuestSettings) -> str | None:
    """Why a guest did not get its level, judging by its own CPUID; None if it did. Raises MachineError."""
    answer = machine.try_run(*READ)
    leaves = []
    for line in answer.stdout.splitlines():
        words = words_of(machine, "cpuid", line, 4)
        eax, ebx, ecx, edx = (whole_of(machine, "cpuid", word, most=2**32, base=16) for word in words)
        leaves.append((eax, ebx, ecx, edx))
    why = hyperv.why_not(settings.hyperv, leaves)
    return f"{HYPERV}={settings.hyperv} was not obtained: the CPUID that the guest reads {why}" if why else None
