"""What `vmtax doctor --host ssh://…` says of a Windows as a host of Hyper-V: its VMs, and who uses its CPUs.

Pure, apart from `examine_hyper_v`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from vmtax.core.checks import HOST, VM, Check, Diagnosis
from vmtax.core.units import count_of, format_room
from vmtax.doctor.windows import about, disturbances, needs, opened_windows
from vmtax.machine.login_shell import NEVER_RUN
from vmtax.meter.hyper_v import HyperVFacts, HyperVGuest, read_hyper_v
from vmtax.meter.windows import WindowsFacts, read_windows

OF_A_VM = ("administrator", "clock", "virtio drivers")
BUSY = 0.05  # share of the CPUs from which on VMs at work are said to disturb


def examine_hyper_v(name: str) -> Diagnosis:
    """Read it; nothing is changed or written there. Raises MachineError."""
    with opened_windows(name) as machine:
        facts, now = read_windows(machine), datetime.now(UTC)
        return diagnose_hyper_v(name, machine.shell, facts, read_hyper_v(machine), now)


def diagnose_hyper_v(name: str, shell: str, facts: WindowsFacts, host: HyperVFacts, now: datetime) -> Diagnosis:
    """Draw conclusions. `name`: as the user names it; `now`: when the facts were read, UTC."""
    common = [*filter(_holds_for_hosts, needs(shell, facts, now)), *_missing(host)]
    disturbing = [*filter(_holds_for_hosts, disturbances(facts)), *_work(facts, host)]
    return Diagnosis(name, about(facts), (*_measurable(host), *_guests(host), *common, *disturbing))


def verdict(diagnosis: Diagnosis) -> str:
    """The answer in a sentence or two."""
    run = f"vmtax run quick --host {diagnosis.host}"
    return (
        f"Disk and CPU can probably be measured on it, and in a Windows VM of it: {run} --guest"
        f" ssh://Administrator@vm. vmtax was {NEVER_RUN}."
    )


def _holds_for_hosts(check: Check) -> bool:
    """Whether what is said of a Windows VM holds for a host: not of the buses and drivers that a hypervisor gives it,
    nor of a clock that this sets, nor who may leave a task behind, which nothing does here.
    """
    return check.name not in OF_A_VM and not check.name.startswith("disk ")


def _measurable(host: HyperVFacts) -> Iterator[Check]:
    if not host.is_host:
        text = "Hyper-V does not say which VMs it has: it is not installed, or this login may not ask it"
        remedy = "log in as a member of Administrators or of Hyper-V Administrators"
        yield Check("measurable", HOST, "missing", text, remedy)
        return
    text = f"its VMs and CPUs are listed; its disk and CPU can be measured; {NEVER_RUN}"
    yield Check("measurable", HOST, "unknown", text)
    runs = sum(guest.runs for guest in host.guests)
    text = f"{count_of(len(host.guests), 'VM')}, {runs} of them running"
    yield Check("measurable", VM, "ok" if runs else "unknown", text)


def _guests(host: HyperVFacts) -> Iterator[Check]:
    for guest in host.guests:
        yield Check("measurable", f"VM {guest.name}", "ok" if guest.runs else "unknown", _words(guest))


def _words(guest: HyperVGuest) -> str:
    cards = [card for card in guest.cards if card.weight]
    functions = sum(card.has_function is True for card in cards)
    return ", ".join(
        filter(
            None,
            (
                guest.state,
                f"generation {guest.generation}" if guest.generation else "",
                count_of(guest.cpus, "CPU") if guest.cpus else "",
                format_room(guest.memory_bytes) if guest.memory_bytes else "",
                "nesting allowed" if guest.nesting else "nesting not allowed" if guest.nesting is False else "",
                f"SR-IOV asked for, {functions} of {count_of(len(cards), 'card')} with a function" if cards else "",
                f"{guest.busy:.2f} CPUs busy and {guest.hypervisor_busy:.2f} in the hypervisor for it"
                if guest.busy is not None and guest.hypervisor_busy is not None
                else "",
                f"{guest.metered_mhz} MHz on average by its metering" if guest.metered_mhz is not None else "",
            ),
        )
    )


def _missing(host: HyperVFacts) -> Iterator[Check]:
    for number, problem in enumerate(host.problems, 1):
        yield Check("need", f"of VMs {number}" if number > 1 else "of VMs", "unknown", problem)


def _work(facts: WindowsFacts, host: HyperVFacts) -> Iterator[Check]:
    known = [(guest.busy or 0.0) + (guest.hypervisor_busy or 0.0) for guest in host.guests if guest.busy is not None]
    if known and facts.cpus:
        share = sum(known) / facts.cpus
        text = f"VMs use {100 * share:.0f} % of its CPUs"
        yield Check("disturbance", "VMs at work", "disturbs" if share > BUSY else "ok", text)
    shares = {
        "in the hypervisor": host.hypervisor,
        "in deferred calls (DPC)": host.deferred,
        "in interrupts": host.interrupts,
        "idle": host.idle,
    }
    words = [f"{100 * share:.0f} % {what}" for what, share in shares.items() if share is not None]
    if words:
        yield Check("disturbance", "CPUs", "ok", ", ".join(words))
    for guest in host.guests:
        for card in guest.cards:
            if card.weight and card.has_function is False and guest.runs:
                text = f"it asks for SR-IOV at switch {card.switch}, and has no virtual function"
                remedy = "PowerShell there: (Get-VMSwitch).IovSupportReasons says why"
                yield Check("disturbance", f"SR-IOV of {guest.name}", "disturbs", text, remedy)
