"""Bring up the machines of one treatment, whatever its layer, and once more if a guest is lost while it boots."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from vmtax.core.layers import EXISTING
from vmtax.core.notices import recorded
from vmtax.core.records import Treatment
from vmtax.design.topology import topology
from vmtax.hypervisor import BootFailed, Guest
from vmtax.machine import Machine, MachineLost
from vmtax.meter import new_meters
from vmtax.plan.guests import guests_at_once, sized
from vmtax.testbed import parts
from vmtax.testbed.host.footprint import Footprint
from vmtax.testbed.layers import clone, container, existing, host, nested, proof, vm
from vmtax.testbed.network.standby import Carriers
from vmtax.testbed.session.base import RunningSubject, RunningTreatment
from vmtax.testbed.session.observed import Observed, Watched
from vmtax.testbed.subjects import cards, servers
from vmtax.testbed.subjects.provisioned import Provisioned

SETTLE_SECONDS = 1.0  # after a boot, before anything is measured
Opener = Callable[
    [Provisioned, Treatment, contextlib.ExitStack, list[Guest]], tuple[tuple[Guest, ...], list[RunningSubject]]
]
# Layer -> opens it once: the outer guests, and the subjects. Guests that come up are appended to the list, `stack` ends
# them.
OPENERS: Mapping[str, Opener] = {
    "host": host.open_layer,
    "container": container.open_layer,
    "existing": existing.open_layer,
    "clone": clone.open_layer,
    "vm": vm.open_layer,
    "nested": nested.open_layer,
}


@contextlib.contextmanager
def opened(on: Provisioned, treatment: Treatment) -> Iterator[RunningTreatment]:
    """Bring up the treatment's machines, settled and with cold caches; guests are gone at exit.

    If a guest is lost while it boots, everything is set up once more, and the guest's warnings say so: emulated SVM
    makes QEMU abort about once in twenty boots of a carrier (assertion `iotlb_to_section`).
    """
    with contextlib.ExitStack() as stack:
        guests: list[Guest] = []
        try:
            running = _open(on, treatment, stack, guests)
        except (BootFailed, MachineLost) as failure:
            reason = _why_lost(failure, guests, emulated=on.emulated)
            if reason is None or not treatment.boots:
                raise
            stack.close()
            guests.clear()
            running = _open(on, treatment, stack, guests)
            for guest in guests[-1:]:  # of a clone there is none
                guest.warnings.append(recorded("second-boot", reason))
        proof.check(on, treatment, running)
        yield running


def _why_lost(failure: BootFailed | MachineLost, guests: list[Guest], *, emulated: bool) -> str | None:
    """How a guest was lost, with QEMU's message if there is one; None if a second attempt would fail the same way."""
    time.sleep(0.5)  # a process whose connection just broke may still be ending
    causes = [cause for guest in guests if (cause := guest.cause_of_death())]
    if causes:
        return causes[0]
    # An emulated guest that panics may well boot the next time.
    if emulated or isinstance(failure, MachineLost) or failure.qemu_died:
        return str(failure).partition("\n")[0]
    return None


def _open(on: Provisioned, treatment: Treatment, stack: contextlib.ExitStack, guests: list[Guest]) -> RunningTreatment:
    """Make one attempt; each guest that comes up is appended to `guests`."""
    on = replace(on, plan=sized(on.plan, treatment.levels))
    parts.hold(on, treatment, stack)
    if on.network is not None:
        serving = [servers.start(on, subject.number, stack) for subject in topology(treatment).subjects]
    outer, subjects = OPENERS[treatment.layer](on, treatment, stack, guests)
    if on.network is not None:
        subjects = [servers.linked(on, *pair) for pair in zip(subjects, serving, strict=True)]
    running = RunningTreatment(
        tuple(subjects),
        on.host,
        outer,
        on.emulated,
        (*_carriers(on, subjects), *new_meters(_qemus(on, treatment, subjects)), *_footprint(on, outer, subjects)),
    )
    time.sleep(SETTLE_SECONDS)
    if treatment.boots or subjects[0].offer(Watched) is None:  # otherwise it is somebody's host at work
        drop_caches(on, running)
    return running


def _qemus(on: Provisioned, treatment: Treatment, subjects: Sequence[RunningSubject]) -> dict[str, int]:
    """Path of the host -> the QEMU there of an existing VM, or of a clone, if that is measured."""
    entered = on.existing.entered if on.existing and treatment.layer == EXISTING else subjects[0].offer(Observed)
    return {on.host.path: entered.qemu} if entered and entered.qemu else {}


def _footprint(on: Provisioned, outer: Sequence[Guest], subjects: Sequence[RunningSubject]) -> list[Footprint]:
    """Meters of the guests' memory, only if the plan has several guests at once: they take time, and only that report
    uses them.
    """
    if guests_at_once(on.plan) == 1:
        return []
    parents = {machine.path: machine for machine in (on.host, *(guest.machine for guest in outer))}
    guests = [subject.guest for subject in subjects if subject.guest is not None]
    return [Footprint((guest, parents[guest.path.rpartition("/")[0]]) for guest in guests)]


def _carriers(on: Provisioned, subjects: Sequence[RunningSubject]) -> list[Carriers]:
    """Meters that count packets by card, only if guests have a virtual function and a stand-by card."""
    guests = [subject.guest for subject in subjects if subject.guest is not None]
    found = [(guest.path, tapped) for guest in guests if (tapped := cards.tapped_of(on, guest)) is not None]
    return [Carriers(found)] if found else []


def drop_caches(on: Provisioned, running: RunningTreatment) -> None:
    """Drop the guests' caches first, then the host's, so that data written back by guests does not stay in the host's
    cache.
    """
    machines: list[Machine] = [guest.machine for guest in reversed(running.guests)]
    for machine in (*machines, on.host):
        machine.run("sync")
        if machine is not on.host or not on.why_warm:
            machine.run("tee", "/proc/sys/vm/drop_caches", input="3")
