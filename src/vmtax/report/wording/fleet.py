"""The wording of a fleet: which hosts are odd, where the next one lies, what goes with the differences. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from vmtax.analysis.many.costs import WITHOUT_COSTS
from vmtax.analysis.many.fleet import Fleet, FleetLine, HostCost, MergedHost, PropertyCost
from vmtax.analysis.summary import label
from vmtax.core.units import Cost, at_most, count_of, format_cost
from vmtax.stats import FEWEST_HOSTS

MOST_ODD = 5  # odd hosts that a sentence names
READING = (
    "Mean: how much more time the same work takes than on the baseline, over hosts, with its 95 % interval. Next host:"
    " where 95 % of further hosts like these lie. Apart: the standard deviation between hosts, beyond the errors of"
    " their own rounds."
)
ODD_READING = (
    "A host is odd if a cost of it differs from those of the others by more than these differ among themselves. By"
    " simulation, at most 5 % of the hosts that are called odd are not, or, if none is, one is called so in about 5 %"
    " of fleets; in 8 % if there are 12 costs that have nothing to do with each other."
)
ASSOCIATION = "That is no cause: hosts with another kernel or CPU differ in other ways, too."


def subject(line: FleetLine) -> str:
    """Such as "CPU, chess: vm against host"."""
    return f"{label(line.metric)}: {contrast(line)}"


def contrast(line: FleetLine) -> str:
    """Such as "vm against host"; "vm" if it is the time itself."""
    return f"{line.treatment} against {line.baseline}" if line.baseline else line.treatment


def mean(line: FleetLine) -> Cost | None:
    """None: fewer than two hosts."""
    return None if line.ratio is None else format_cost(line.ratio, line.low, line.high)


def following(line: FleetLine) -> str:
    """Where the next host lies: "1.2–3.4 %"; "" if it cannot be said."""
    if line.ratio is None or line.next_low is None or line.next_high is None:
        return ""
    return format_cost(line.ratio, line.next_low, line.next_high).interval_in_unit


def cost(host: HostCost) -> Cost:
    return format_cost(host.ratio, host.low, host.high)


def odd(fleet: Fleet, lines: Sequence[FleetLine]) -> dict[str, list[tuple[FleetLine, HostCost]]]:
    """Run of each odd host -> the lines in which it is odd, the farthest first; the hosts that are odd in most lines
    first.
    """
    found: dict[str, list[tuple[FleetLine, HostCost]]] = defaultdict(list)
    for line in lines:
        for host in line.odd:
            found[host.run].append((line, host))
    return dict(sorted(found.items(), key=lambda pair: -len(pair[1])))


def headline(fleet: Fleet) -> str:
    """One sentence about the primary figures, or about all if none is primary."""
    lines = fleet.primary
    hosts = count_of(len(fleet.costs), "host")
    if not lines:
        return f"{hosts} without costs: {WITHOUT_COSTS}."
    tested = [line for line in lines if any(host.p is not None for host in line.hosts)]
    if not tested:
        each = "" if len(fleet.costs) < FEWEST_HOSTS else " that have the same cost"
        return f"{hosts}: too few{each} to say which is odd; {FEWEST_HOSTS} are needed."
    found = odd(fleet, lines)
    if not found:
        among = len({host.run for line in tested for host in line.hosts})
        return f"No host is odd among {among}, in {count_of(len(tested), _kind(fleet))}."
    names = [pairs[0][1].host for pairs in found.values()]
    are = "is" if len(names) == 1 else "are"
    return f"{len(names)} of {hosts} {are} odd: {', '.join(at_most(MOST_ODD, names))}."


def _kind(fleet: Fleet) -> str:
    return "primary cost" if any(line.primary for line in fleet.lines) else "cost"


def deviations(pairs: Sequence[tuple[FleetLine, HostCost]]) -> str:
    """Of one odd host: "web7 (RUN): times +10 % against the median host in CPU, chess: vm against host"."""
    said = [f"{format_cost(host.deviation).estimate} in {subject(line)}" for line, host in pairs]
    return f"{pairs[0][1].host} ({pairs[0][1].run}), times against the median host: {'; '.join(said)}"


def goes_with(line: FleetLine, one: PropertyCost) -> str:
    """What a cost goes with."""
    groups = ", ".join(
        f"{group.value} {format_cost(group.ratio, group.low, group.high)} on {count_of(group.hosts, 'host')}"
        for group in one.groups
    )
    same = f"; the same hosts differ in {' and '.join(one.same_as)}" if one.same_as else ""
    return f"{subject(line)} goes with the {one.name}: {groups} (p {one.p:.2g}{same})"


def associations(fleet: Fleet) -> list[str]:
    """All of them, with the reminder that they are no causes."""
    found = [goes_with(line, one) for line in fleet.primary for one in line.properties if one.shown]
    return [*found, ASSOCIATION] if found else []


def not_shown(fleet: Fleet) -> str:
    """The properties in which the hosts differ, and with which no cost goes; "" if there are none."""
    tested = {one.name: False for line in fleet.primary for one in line.properties}
    for line in fleet.primary:
        for one in line.properties:
            tested[one.name] |= one.shown
    rest = [name for name, shown in tested.items() if not shown]
    return f"No primary cost is shown to go with: {', '.join(rest)}." if rest else ""


def merged(one: MergedHost) -> str:
    """Why a machine counts once."""
    runs = count_of(len(one.others), "earlier run")
    if not one.names:
        return f"{one.host}: the newest run counts, {one.run}; {runs} of it not"
    return (
        f"{' and '.join(one.names)} have one machine-id, so they are one host: its newest run counts, {one.run}; {runs}"
        " not. If they are copies of one disk, give each its own: systemd-machine-id-setup"
    )


def banner(fleet: Fleet) -> str | None:
    """The warning that must be above emulated figures."""
    if not any(line.emulated for line in fleet.lines):
        return None
    return (
        "Some of these figures are of an emulated CPU (TCG): they show that everything works, not what hardware costs."
    )


def facts(fleet: Fleet) -> Iterator[str]:
    """In what the hosts are alike and differ, for a head: "2 kernels"."""
    yield count_of(len(fleet.costs), "host")
    for name in ("CPU", "kernel", "QEMU"):
        known = {run.properties.get(name) for run in fleet.costs}
        if len(known) > 1:
            yield f"{len(known)} {name}s"
