"""Layer vm: guests on the host under test."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from vmtax.core.records import Treatment
from vmtax.design.migration import MigrationSettings
from vmtax.design.net import settings_of
from vmtax.design.topology import topology
from vmtax.hypervisor import AWAITED, Guest
from vmtax.network import guest_address
from vmtax.testbed import parts
from vmtax.testbed.host import needs
from vmtax.testbed.layers.boots import boot_all, boot_guest, host_spec, running_subject
from vmtax.testbed.network import net_paths
from vmtax.testbed.parts import Order, destination
from vmtax.testbed.session.base import Route, RunningSubject
from vmtax.testbed.subjects import cards
from vmtax.testbed.subjects.provisioned import Provisioned


def open_layer(
    on: Provisioned, treatment: Treatment, stack: contextlib.ExitStack, guests: list[Guest]
) -> tuple[tuple[Guest, ...], list[RunningSubject]]:
    """No outer guests, and one subject for each guest. Raises BootFailed and MachineError."""
    wanted = topology(treatment)
    orders = []
    for subject in wanted.subjects:
        spec = replace(host_spec(on, treatment, None), name=subject.name)
        order = Order(on.host, spec, number=subject.number, count=len(wanted.subjects))
        orders.append(parts.shape(on, treatment, order, stack))
    booted = boot_all(on, orders, stack, guests)
    offers = [order.offers(guest) for order, guest in zip(orders, booted, strict=True)]
    named = net_paths.names_card(on.plan)
    subjects = [
        running_subject(on, subject, guest, settings_of(treatment, subject.number) if named else None, each)
        for subject, guest, each in zip(wanted.subjects, booted, offers, strict=True)
    ]
    if needs.migrates(on.plan):  # there is only one guest
        route = _route(on, treatment, orders[0], booted[0], stack)
        subjects = [replace(subjects[0], offers=(*subjects[0].offers, route))]
    return (), subjects


def _route(on: Provisioned, treatment: Treatment, here: Order, guest: Guest, stack: contextlib.ExitStack) -> Route:
    """The migration of this guest to another QEMU of its host, or to another host."""
    plug = here.plug and replace(here.plug, awaits=True)
    order = replace(here, spec=replace(here.spec, incoming=AWAITED), plug=plug)
    if (there := on.destination) is not None:
        assert on.network is not None and on.network.far is not None and plug is not None
        keeps_user = settings_of(treatment).path.has_function
        spec = destination.spec_there(there, order.spec, keeps_user=keeps_user)
        stack.enter_context(destination.lead(on, here.spec, spec, keeps_user=keeps_user))
        far = on.network.far
        function = far.functions[plug.number - 1] if far.functions else None
        order = Order(there.machine, spec, replace(plug, segment=far.segment, function=function))
    handover = cards.handover(guest, (on.host, here.plug), (order.parent, order.plug))
    settings = MigrationSettings.of(treatment.levels)
    return Route(settings, guest_address(1), lambda: boot_guest(on, order, stack), on.watch, handover)
