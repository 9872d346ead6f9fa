"""R4: Little's law (J. D. C. Little, 1961): operations under way = rate times mean latency."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vmtax.claims.figures import PrintedNumber, computed
from vmtax.claims.finding import RuleFinding, compared, place
from vmtax.claims.schema import PublishedClaim, QueueLoad

APART = 0.1  # share of the queue by which rate times latency may miss it: latencies leave out part of the way


def check(claim: PublishedClaim) -> Sequence[RuleFinding] | None:
    """Wrong if rate times latency is not the fixed queue; doubtful if two rows are compared that worked on unlike many
    operations at once.
    """
    loaded = [(table, name, row.load) for table in claim.tables for name, row in table.rows.items() if row.load]
    if not loaded:
        return None
    missed = [(place(table, name), _miss(load)) for table, name, load in loaded]
    found = [RuleFinding("R4", "wrong", where, text) for where, text in missed if text]
    return [*found, *_unlike(claim)]


def _under_way(load: QueueLoad) -> PrintedNumber:
    return computed(lambda rate, latency: rate * latency, load.rate, load.latency)


def _miss(load: QueueLoad) -> str:
    under_way = _under_way(load)
    if load.queue is None or under_way.low * (1 - APART) <= load.queue <= under_way.high * (1 + APART):
        return ""
    return (
        f"{load.rate.text}/s times {load.latency.text} s is {under_way.value:.3g} operations under way, but"
        f" {load.queue} were: one of the three is wrong"
    )


def _unlike(claim: PublishedClaim) -> Iterator[RuleFinding]:
    for table, of, base in compared(claim):
        one, two = table.rows[of].load, table.rows[base].load
        if one is None or two is None or (one.queue is not None and one.queue == two.queue):
            continue
        mine, theirs = _under_way(one), _under_way(two)
        if not mine.overlaps(theirs):
            text = f"{mine.value:.3g} against {theirs.value:.3g} operations under way: their latencies say little"
            yield RuleFinding("R4", "doubtful", place(table, of, base), text)
