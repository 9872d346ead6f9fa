"""Many hosts before and after a change that is known: how often the interval of the mean holds it, and who is accused
of having changed unlike the others. Each run of a host has a drift of its own, which no interval within a run shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tools.prove.bar import Bar, above, at_least, at_most
from vmtax import stats

SEED = 20261128
ROUND_SD = 0.03  # of a round's log ratio
ROUNDS = 10
DRIFT_SD = 0.01  # of a host from run to run, in log
HOSTS_SD = 0.1  # of the hosts' own levels, in log: what pairing removes
CHANGE = 0.02  # on every host, in log
UNLIKE = math.log(1.15)  # what an unlike host changes besides: +15 %


def bars(experiments: int = 1500) -> Iterator[Bar]:
    """The mean change, the change of one host, hosts that changed unlike the others."""
    rng = np.random.default_rng(SEED)
    yield from _means(rng, experiments // 2)
    yield from _single(rng, experiments)
    yield from _unlike(rng, experiments)
    yield from _repeated(np.random.default_rng(SEED + 1), experiments)


def _means(rng: np.random.Generator, experiments: int) -> Iterator[Bar]:
    for hosts in (3, 8, 20):
        found = [stats.fleet_mean(_changes(rng, hosts)) for _ in range(experiments)]
        held = sum(one.low <= CHANGE <= one.high for one in found) / experiments
        yield at_least(f"fleet compare: {hosts} hosts: the interval of the mean holds the change", 0.93, held)
        following = rng.normal(CHANGE, math.sqrt(2) * DRIFT_SD, experiments)
        inside = sum(
            one.next_low is not None and one.next_high is not None and one.next_low <= true <= one.next_high
            for one, true in zip(found, following, strict=True)
        )
        yield at_least(f"fleet compare: {hosts} hosts: the next host changes as predicted", 0.93, inside / experiments)
    moved = sum(_is_above(_changes(rng, 20)) for _ in range(experiments)) / experiments
    yield at_least("fleet compare: 20 hosts 10 % apart, +2 %: found", 0.9, moved)
    unpaired = sum(_unpaired(rng) for _ in range(experiments)) / experiments
    yield at_most("fleet compare, control: the same without pairs: found", 0.2, unpaired)


def _single(rng: np.random.Generator, experiments: int) -> Iterator[Bar]:
    """The interval of one host is of its rounds alone."""
    for rounds in ((10, 10), (6, 30)):
        held = {drift: _held(rng, experiments, rounds, drift) for drift in (0.0, DRIFT_SD)}
        what = f"fleet compare: one host, {rounds[0]} and {rounds[1]} rounds"
        yield at_least(f"{what}: its interval holds its change", 0.935, held[0.0])
        yield above(f"{what}, control: with drift from run to run: it does not", 0.07, 1 - held[DRIFT_SD])


def _held(rng: np.random.Generator, experiments: int, rounds: tuple[int, int], drift: float) -> float:
    """Share of hosts whose interval holds their change, which is none."""
    found = [stats.paired(*(_side(rng, rng.normal(0, drift), count) for count in rounds)) for _ in range(experiments)]
    held = sum(one.low is not None and one.high is not None and one.low <= 0 <= one.high for one in found)
    return held / experiments


def _unlike(rng: np.random.Generator, experiments: int) -> Iterator[Bar]:
    for hosts, limit in ((8, 0.055), (20, 0.05), (200, 0.05)):
        times = experiments if hosts < 100 else experiments // 5
        false = sum(any(one.is_odd for one in stats.odd_hosts(_changes(rng, hosts))) for _ in range(times)) / times
        yield at_most(f"fleet compare: {hosts} hosts change alike: any is called unlike", limit, false)
    for count, wanted in ((1, 0.88), (3, 0.85)):
        found = [
            sum(one.is_odd for one in stats.odd_hosts(_changes(rng, 20, count))[:count]) for _ in range(experiments)
        ]
        what = f"fleet compare: {count} of 20 hosts change by 15 % more: found"
        yield at_least(what, wanted, sum(found) / count / experiments)


def _repeated(rng: np.random.Generator, experiments: int) -> Iterator[Bar]:
    """Hosts that were measured several times on a side: then their intervals include what they change by themselves."""
    for hosts, runs in ((3, (2, 2)), (8, (1, 2)), (20, (2, 2))):
        for drift in (0.0, DRIFT_SD):
            found = [_of_repeated(rng, [runs] * hosts, drift)[0] for _ in range(experiments // 3)]
            held = sum(one.low is not None and one.high is not None and one.low <= 0 <= one.high for one in found)
            what = f"fleet compare: {hosts} hosts, {runs[0]} and {runs[1]} runs, {100 * drift:g} % drift"
            yield at_least(f"{what}: one host's interval holds its change", 0.92, held / len(found))
    mixed = [(1, 1)] * 10 + [(1, 3)] * 10
    false = sum(
        any(one.is_odd for one in stats.odd_hosts(_estimates(_of_repeated(rng, mixed, DRIFT_SD))))
        for _ in range(experiments // 2)
    )
    what = "fleet compare: 20 hosts alike, half of them measured three times after: any is called unlike"
    yield at_most(what, 0.055, false / (experiments // 2))


def _of_repeated(rng: np.random.Generator, runs: Sequence[tuple[int, int]], drift: float) -> list[stats.PairedChange]:
    """The changes of hosts, which are none, with that many runs of each before and after."""
    sides = [[[_side(rng, rng.normal(0, drift)) for _ in range(count)] for count in host] for host in runs]
    known = stats.run_drift([side for host in sides for side in host])
    return [stats.paired(*(stats.repeated(side, known) for side in host)) for host in sides]


def _estimates(changes: Sequence[stats.PairedChange]) -> list[stats.HostEstimate]:
    return [stats.HostEstimate(one.log, one.error, one.freedom) for one in changes]


def _changes(rng: np.random.Generator, hosts: int, unlike: int = 0) -> list[stats.HostEstimate]:
    """The changes of hosts, the first `unlike` of which change by more."""
    found = []
    for number in range(hosts):
        own = rng.normal(0, HOSTS_SD)
        change = CHANGE + UNLIKE * (number < unlike)
        sides = (_side(rng, own + shift + rng.normal(0, DRIFT_SD)) for shift in (0.0, change))
        one = stats.paired(*sides)
        found.append(stats.HostEstimate(one.log, one.error, one.freedom))
    return found


def _side(rng: np.random.Generator, centre: float, rounds: int = ROUNDS) -> stats.HostEstimate:
    """The mean of the rounds of a run."""
    drawn = rng.normal(centre, ROUND_SD, rounds)
    return stats.HostEstimate(float(drawn.mean()), float(drawn.std(ddof=1)) / math.sqrt(rounds), rounds - 1)


def _is_above(changes: list[stats.HostEstimate]) -> bool:
    return stats.fleet_mean(changes).low > 0


def _unpaired(rng: np.random.Generator) -> bool:
    """Whether the mean after is found to be above that before, as of hosts that are not the same ones."""
    first, second = (rng.normal(shift, HOSTS_SD, 20) for shift in (0.0, CHANGE))
    error = math.sqrt(first.var(ddof=1) / 20 + second.var(ddof=1) / 20)
    return bool(second.mean() - first.mean() > 2.024 * error)
