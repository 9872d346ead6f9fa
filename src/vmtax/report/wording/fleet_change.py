"""The wording of changes over a fleet: by how much, whether all hosts changed alike, what differs besides. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from vmtax.analysis.many.fleet_change import ChangedLine, FleetChange
from vmtax.core.units import at_most, count_of, format_overhead, format_percent
from vmtax.report.wording import fleet as words
from vmtax.stats import FEWEST_HOSTS

METHOD = (
    "A change of a host is of the time for the same work, from the Hodges–Lehmann estimate of one run to that of the"
    " other, or from the mean of several runs to that of others, with Welch's interval."
)
READING = (
    "Each host is compared with itself. Mean: how much more time the same work takes after than before, over hosts,"
    " with its 95 % interval, which includes what hosts change by themselves from run to run. Next host: where 95 % of"
    " further hosts like these lie. Apart: the standard deviation between the changes of hosts, beyond the errors of"
    " their own rounds."
)
UNLIKE_READING = (
    "A host changed unlike the others if its change differs from theirs by more than these differ among themselves; at"
    " most 5 % of those that are named are not."
)
ROUNDS_ALONE = (
    "The interval of a single host is of its rounds alone: how much it differs from run to run anyway is not in it,"
    " unless hosts were measured several times on one side, with six repeats or more in all; runs of one boot count as"
    " one."
)
UNLIKE = "unlike"


def verdict(one: ChangedLine, change: FleetChange) -> str:
    """ "same within 3 %", "worse", "better", "undecided"."""
    return f"same within {format_percent(change.same_within)}" if one.verdict == "same" else one.verdict


def headline(change: FleetChange) -> str:
    """One sentence about the primary times, and one about hosts that changed unlike the others."""
    hosts = count_of(len(change.pairs), "host")
    known = [one for one in change.primary if one.line.ratio is not None]
    if not known:
        return f"{hosts}: too few to say how hosts change; 2 are needed."
    counts = Counter(verdict(one, change) for one in known)
    kind = "primary time" if known[0].line.primary else "time"
    counted = "; ".join(f"{count} {text}" for text, count in counts.items())
    return f"Of {count_of(len(known), kind)} on {hosts}: {counted}. {unlike_others(change)}"


def unlike_others(change: FleetChange) -> str:
    lines = [one.line for one in change.primary]
    if not any(host.p is not None for line in lines for host in line.hosts):
        return f"Too few hosts to say whether one changed unlike the others; {FEWEST_HOSTS} are needed."
    names = [pairs[0][1].host for pairs in words.odd(change.changes, lines).values()]
    if not names:
        return "No host changed unlike the others."
    return f"Unlike the others changed: {', '.join(at_most(words.MOST_ODD, names))}."


def facts(change: FleetChange) -> Iterator[str]:
    """What is compared, for a head."""
    yield f"before: {change.before}"
    yield f"after: {change.after}"
    yield count_of(len(change.pairs), "host")
    counts = [sum(len(ids) for ids in side) for side in zip(*((p.before, p.after) for p in change.pairs), strict=True)]
    if max(counts) > len(change.pairs):
        yield f"of several runs of a host the mean counts: {counts[0]} runs before, {counts[1]} after"
    if change.left_out:
        yield f"{len(change.left_out)} left out"


def single_hosts(change: FleetChange) -> str:
    """What is in the interval of a single host."""
    known = [one.run_to_run for one in change.primary if one.run_to_run is not None]
    if not known:
        return ROUNDS_ALONE
    return (
        "The interval of a single host includes how much hosts differ from run to run, as those that were measured"
        f" several times show: {format_overhead(max(known))} (standard deviation, of the time that differs most)."
    )


def software(change: FleetChange) -> list[str]:
    """What else differs between the two sides of a host, and on how many hosts."""
    total = len(change.pairs)
    found = [f"{text} on {count} of {count_of(total, 'host')}" for text, count in change.software]
    return found or ["CPU, microcode, kernel, QEMU and system are the same on both sides of every host."]
