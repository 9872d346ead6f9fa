"""The interface of Hyper-V that KVM offers to guests, in parts that QEMU calls enlightenments. Pure.

Names and dependencies: QEMU's docs/system/i386/hyperv.rst. Bits of CPUID: kvm_hyperv_properties in its
target/i386/kvm/kvm.c. What Linux uses: arch/x86/kernel/cpu/mshyperv.c, arch/x86/hyperv/ and
drivers/clocksource/hyperv_timer.c of Linux 6.12.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

OFF, HIDDEN, ALL = "off", "hidden", "all"
# Without it, Linux does not take the hypervisor for Hyper-V (ms_hyperv_platform); so every guest with others has it.
BASE = "vpindex"
SPINS = 0x1FFF  # attempts at a spinlock before the hypervisor is called; what Proxmox and virt-install ask for
EAX, EBX, ECX, EDX = range(4)
Leaf = tuple[int, int, int, int]  # EAX, EBX, ECX, EDX


@dataclass(frozen=True, slots=True)
class Enlightenment:
    """One part of the interface."""

    leaf: int  # of CPUID, above 0x40000000, that shows it
    register: int  # in that leaf: EAX …
    mask: int  # bits of the register that belong to it
    value: int  # those bits, if a guest has it
    needs: tuple[str, ...] = ()  # others without which QEMU refuses it
    used: bool = False  # whether a guest's Linux does anything with it
    flag: str = ""  # QEMU's name for it with its value, where that is not hv-NAME


def _bit(leaf: int, register: int, bit: int, *needs: str, used: bool = False) -> Enlightenment:
    return Enlightenment(leaf, register, 1 << bit, 1 << bit, needs, used)


ENLIGHTENMENTS: Mapping[str, Enlightenment] = {
    "relaxed": _bit(4, EAX, 5),
    "vapic": _bit(3, EAX, 4, used=True),
    "spinlocks": Enlightenment(4, EBX, 0xFFFFFFFF, SPINS, flag=f"hv-spinlocks={SPINS:#x}"),
    "vpindex": _bit(3, EAX, 6, used=True),
    "runtime": _bit(3, EAX, 0),
    "time": _bit(3, EAX, 9, used=True),
    "synic": _bit(3, EAX, 2, "vpindex"),
    "stimer": _bit(3, EAX, 3, "vpindex", "synic", "time"),
    "stimer-direct": _bit(3, EDX, 19, "vpindex", "synic", "time", "stimer", used=True),
    "frequencies": _bit(3, EAX, 11, used=True),
    "reenlightenment": _bit(3, EAX, 13),
    "tlbflush": _bit(4, EAX, 2, "vpindex", used=True),
    "ipi": _bit(4, EAX, 10, "vpindex", used=True),
}
LEVELS = (OFF, HIDDEN, ALL, *ENLIGHTENMENTS)
# Two or more of them, in their order above: a set has one spelling.
SETS = r"(?=[^+]+\+[^+])(?!.*\+$)" + "".join(rf"(?:{name}(?:\+|$))?" for name in ENLIGHTENMENTS)


def parts_of(level: str) -> tuple[str, ...]:
    """The enlightenments of a guest at that level of `cpu.hyperv`, with those that they need."""
    if level in (OFF, HIDDEN):
        return ()
    wanted = set(ENLIGHTENMENTS) if level == ALL else {BASE, *level.split("+")}
    wanted |= {needed for name in wanted for needed in ENLIGHTENMENTS[name].needs}
    return tuple(name for name in ENLIGHTENMENTS if name in wanted)


def level_of(names: Iterable[str]) -> str:
    """The level of a guest with these enlightenments, HIDDEN without any: the shortest that has them."""
    wanted = set(names) & set(ENLIGHTENMENTS)
    if not wanted:
        return HIDDEN
    implied = {needed for name in wanted for needed in ENLIGHTENMENTS[name].needs}
    if wanted - {BASE}:
        implied.add(BASE)
    level = "+".join(name for name in ENLIGHTENMENTS if name in wanted - implied)
    return ALL if len(parts_of(level)) == len(ENLIGHTENMENTS) else level


def cpu_options(level: str) -> tuple[str, ...]:
    """What to add to QEMU's -cpu. Linux takes KVM's own interface wherever it sees it, so that is hidden."""
    if level == OFF:
        return ()
    return ("kvm=off", *(ENLIGHTENMENTS[name].flag or f"hv-{name}" for name in parts_of(level)))


def why_not(level: str, leaves: Sequence[Leaf]) -> str | None:
    """What a guest's CPUID, from leaf 0x40000000 on, shows instead of that level; None if it shows the level."""
    if not leaves:
        return "cannot be read"
    name = b"".join(register.to_bytes(4, "little") for register in leaves[0][1:])
    if name != b"Microsoft Hv":
        shown = OFF if name.startswith((b"KVMKVMKVM", b"TCGTCGTCG")) else HIDDEN
        return None if shown == level else f"shows {shown}"
    if len(leaves) < 5:
        return "ends too early"
    got = [key for key, each in ENLIGHTENMENTS.items() if leaves[each.leaf][each.register] & each.mask == each.value]
    if level in (OFF, HIDDEN):
        return f"shows {level_of(got)}"
    wanted = parts_of(level)
    lacking = [f"lacks {key}" for key in wanted if key not in got]
    excess = [f"has {key}" for key in got if key not in wanted]
    return ", ".join(lacking + excess) or None
