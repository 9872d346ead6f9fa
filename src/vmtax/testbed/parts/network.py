"""The factors of the guests' network cards: which paths, queues and sizes of packets a host can give them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from vmtax.core.layers import GUESTS
from vmtax.core.records import Treatment
from vmtax.design.net import DEFAULT, NAMES, PATH, Path, settings_of, take_functions, takes
from vmtax.machine import Machine
from vmtax.network import sriov
from vmtax.plan.guests import guests_at_once
from vmtax.testbed.network.net_paths import peer_behind_card
from vmtax.testbed.parts.part import Order, Part, Request
from vmtax.testbed.session.examine import is_root
from vmtax.testbed.subjects import cards
from vmtax.testbed.subjects.provisioned import Provisioned

VHOST_IS_LOADED = ("grep", "-q", "-w", "vhost-net", "/proc/misc")
# Succeeds if vhost is loaded and may be opened, or can be loaded: not by root of a container. Loads nothing, and opens
# nothing that would load it. Constant text. Capability 16 is CAP_SYS_MODULE.
HAS_VHOST = (
    *("sh", "-c"),
    'if grep -q -w vhost-net "$1"; then test -c "$2" && : <> "$2"; exit; fi;'
    " read -r inside outside count < /proc/self/uid_map;"
    " may=$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status);"
    ' modprobe -n -q vhost_net && test "$count" = 4294967295 && test "$((0x$may >> 16 & 1))" = 1',
    *("sh", "/proc/misc", "/dev/vhost-net"),
)
HAS_MACVTAP = ("sh", "-c", "test -e /sys/module/macvtap || modprobe -n -q macvtap")  # loads nothing
NESTED = (Path.TAP, Path.VHOST)  # paths that a nested guest may have
# Paths that do not work over a card that is a port of a bridge -> why.
APART = {
    Path.USER: "it goes over no card",
    Path.MACVTAP: "the card is a port of a bridge, and such a card carries no macvtap",
}


class NetworkPart(Part):
    """The network under test."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        named = next((name for name in NAMES if request.plan.space.first(name) is not None), None)
        if named is None:
            return {}
        networked = [workload for workload in request.plan.build_workloads() if workload.networked]
        if not networked:
            why = f"{named} needs a workload that uses the network"
            return dict.fromkeys([each.name for each in _guests(request)], why)
        needy = next((workload.takes_bridge for workload in networked if workload.takes_bridge), None)
        refused = _without_path(request, needy)
        return {**_without_settings(request.without(refused), request), **refused}

    def announced(self, request: Request) -> Sequence[str]:
        """The network cards that are taken, and given back afterwards; a module that stays loaded."""
        return [*self._cards(request), *self._modules(request)]

    def _modules(self, request: Request) -> Sequence[str]:
        if any(takes(path, request.treatments) for path in Path if path.has_vhost):
            loaded = request.host.succeeds(*VHOST_IS_LOADED)
            return [] if loaded else ["the kernel module vhost_net, which stays loaded until the host reboots"]
        return []

    def _cards(self, request: Request) -> Sequence[str]:
        wire = request.wire
        far = [] if wire is None else [f"the network card {wire.peer_card} of the peer, {wire.peer}"]
        if take_functions(request.treatments):
            card = sriov.free_card(request.host, guests_at_once(request.plan), request.card)
            return [f"the network card {card}: a virtual function for each guest, its port for all others", *far]
        return [f"the network card {wire.card}, for host and guests", *far] if wire else []

    def shape(self, on: Provisioned, treatment: Treatment, order: Order, stack: contextlib.ExitStack) -> Order:
        return replace(order, plug=cards.plug(on, treatment, order.number))


def _guests(request: Request) -> list[Treatment]:
    """Nested guests too, whose card has a path."""
    return [treatment for treatment in request.treatments if treatment.layer in GUESTS]


def _without_path(request: Request, needy: str | None) -> dict[str, str]:
    """Treatments whose path is impossible -> why. `needy`: what in the plan takes a bridge; None: nothing does."""
    host, most = request.host, guests_at_once(request.plan)
    reasons = {part: _why_not(host, part, most, request.card) for part in Path if takes(part, request.treatments)}
    if needy is not None:
        reasons[Path.USER] = f"carries nothing but net's TCP cases: leave {needy} or {Path.USER} out of the plan"
    refused = {}
    for treatment in _guests(request):
        path = settings_of(treatment).path
        why = next(filter(None, map(reasons.get, path.parts)), None)
        if treatment.layer == "nested" and path not in NESTED:
            why = f"is no path of a nested guest: it has {' or '.join(NESTED)}"
        if why is not None:
            refused[treatment.name] = f"{PATH}={path} {why}"
    return refused


def _without_settings(left: Request, request: Request) -> dict[str, str]:
    """Treatments whose card cannot be as they ask -> why. `left`: what is asked of paths that are possible."""
    functions = next((settings_of(each).path for each in left.treatments if take_functions([each])), None)
    cause = "--card" if request.card is not None else f"{PATH}={functions} of the same plan" if functions else ""
    refused: dict[str, str] = {}
    for treatment in request.guests:
        name, card = treatment.name, settings_of(treatment)
        if cause and card.mtu != DEFAULT.mtu:
            refused[name] = f"net.mtu={card.mtu} cannot be measured with {cause}: a real card keeps its MTU"
        elif cause and card.path in APART:
            refused[name] = f"{PATH}={card.path} cannot be measured with {cause}: {APART[card.path]}"
    return refused


def _why_not(machine: Machine, path: Path, guests: int, wire: str | None) -> str | None:
    """`guests`: the most that have a virtual function at once; `wire`: the host's card of the wire that the user
    named.
    """
    if path is Path.USER:
        return None
    if not is_root(machine):
        return "needs root on the host under test"
    if path.has_vhost and not machine.succeeds(*HAS_VHOST):
        return "needs the host's /dev/vhost-net: load vhost_net"
    if path is Path.MACVTAP and not machine.succeeds(*HAS_MACVTAP):
        return "needs the kernel module macvtap, which is not there"
    if not path.has_function:
        return None
    try:
        sriov.free_card(machine, guests, wire)
    except sriov.NoCard as error:
        return f"needs a card: {error}"
    if not machine.succeeds(*sriov.HAS_IOMMU):
        return "needs an IOMMU: switch it on in the firmware, and boot with intel_iommu=on or amd_iommu=on"
    if not machine.succeeds(*sriov.HAS_VFIO):
        return f"needs VFIO: {sriov.MODULES}"
    if wire is not None or peer_behind_card(machine):
        return None
    return "needs a peer behind the card: name one with --peer, or measure a lab that root started"
