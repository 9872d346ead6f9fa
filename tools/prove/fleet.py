"""Many hosts whose truth is known: how often an innocent one is accused, odd ones are found, and what differs is what
was planted. And many runs of one host: how often a step is claimed that is not there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tools.prove.bar import Bar, above, at_least, at_most
from vmtax import stats

SEED = 20261127
ROUND_SD = 0.03  # of a round's log ratio
ROUNDS = 10
BETWEEN = (0.0, 0.005, 0.01, 0.02, 0.03)  # standard deviation between equal hosts, in log
USUAL = 0.01  # of those
ODD = math.log(1.1)  # an odd host: +10 %
WANTED = {1: 0.88, 3: 0.85, 5: 0.65}  # odd ones of 20 -> share of them that is found
RUN_SD = 0.01  # from run to run of one host, in log


def bars(experiments: int = 1500) -> Iterator[Bar]:
    """Odd hosts, the mean and the next host, groups, steps."""
    rng = np.random.default_rng(SEED)
    yield from _equal(rng, experiments)
    yield from _odd(rng, experiments // 3)
    yield from _costs(rng, experiments // 5)
    yield from _means(rng, experiments)
    yield from _groups(rng, experiments)
    yield from _steps(rng, experiments)


def _equal(rng: np.random.Generator, experiments: int) -> Iterator[Bar]:
    for hosts, rounds, limit, times in (
        (8, ROUNDS, 0.055, experiments),
        (8, 30, 0.055, experiments // 2),
        (12, ROUNDS, 0.055, experiments),
        (20, 7, 0.05, experiments // 2),
        (20, ROUNDS, 0.05, 2 * experiments),
        (20, 30, 0.05, experiments // 2),
        (200, ROUNDS, 0.05, experiments // 5),
    ):
        shares = [_accused(rng, hosts, between, rounds, times) for between in BETWEEN]
        what = f"fleet: {hosts} equal hosts, {rounds} rounds, 0 to 3 % apart: any is called odd"
        yield at_most(what, limit, max(shares))
    naive = sum(_by_dashboard(fleet(rng, 20, USUAL)) for _ in range(experiments)) / experiments
    yield above("fleet, control: 20 equal hosts, the rule of dashboards: any is called odd", 0.1, naive)


def _accused(rng: np.random.Generator, hosts: int, between: float, rounds: int, times: int) -> float:
    """Share of fleets in which any host is called odd."""
    fleets = (fleet(rng, hosts, between, rounds=rounds) for _ in range(times))
    return sum(any(one.is_odd for one in stats.odd_hosts(found)) for found in fleets) / times


def _by_dashboard(hosts: Sequence[stats.HostEstimate]) -> bool:
    """Whether any host is more than three median absolute deviations (of a normal distribution) from the median."""
    logs = np.array([host.log for host in hosts])
    apart = np.abs(logs - np.median(logs))
    return bool((apart > 3 * 1.4826 * np.median(apart)).any())


def _odd(rng: np.random.Generator, experiments: int) -> Iterator[Bar]:
    for count, wanted in WANTED.items():
        found = [
            sum(one.is_odd for one in stats.odd_hosts(fleet(rng, 20, USUAL, odd=count))[:count])
            for _ in range(experiments)
        ]
        yield at_least(f"fleet: {count} of 20 hosts +10 %: found", wanted, sum(found) / count / experiments)
    found = [
        sum(one.is_odd for one in stats.odd_hosts(fleet(rng, 200, USUAL, odd=4))[:4]) for _ in range(experiments // 3)
    ]
    yield at_least("fleet: 4 of 200 hosts +10 %: found", 0.85, sum(found) / 4 / (experiments // 3))


def _costs(rng: np.random.Generator, experiments: int) -> Iterator[Bar]:
    """Several costs of each host, whose errors have nothing to do with each other: the worst case."""
    for count, most in ((6, 0.065), (12, 0.095)):
        for odd, limit in ((0, most), (1, 0.05)):
            false = sum(_false_share(rng, count, odd) for _ in range(experiments)) / experiments
            what = "any is called odd" if not odd else f"{odd} odd: share of others among those called odd"
            yield at_most(f"fleet: 20 hosts with {count} costs, {what}", limit, false)


def _false_share(rng: np.random.Generator, costs: int, odd: int) -> float:
    """Share of innocent hosts among those that are called odd in any of their costs; 0 if none is called so."""
    lines = [stats.odd_hosts(fleet(rng, 20, USUAL, odd=odd)) for _ in range(costs)]
    families = [np.array([one.p for one in host]) for host in zip(*lines, strict=True)]
    claimed = [any(claims) for claims in stats.family_discoveries(families, stats.ODD_RATE)]
    return sum(claimed[odd:]) / max(1, sum(claimed))


def _means(rng: np.random.Generator, experiments: int) -> Iterator[Bar]:
    for sd in BETWEEN:
        found = [stats.fleet_mean(fleet(rng, 20, sd)) for _ in range(experiments)]
        what = f"fleet: 20 hosts, {100 * sd:g} % apart:"
        covered = sum(one.low <= 0 <= one.high for one in found) / experiments
        yield at_least(f"{what} the interval of the mean holds it", 0.92, covered)
        if sd >= USUAL:
            variance = float(np.mean([one.between**2 for one in found]))
            yield at_most(f"{what} variance found, off by", 0.15, abs(variance / sd**2 - 1))
            following = rng.normal(0, sd, experiments)
            held = sum(
                one.next_low is not None and one.next_high is not None and one.next_low <= true <= one.next_high
                for one, true in zip(found, following, strict=True)
            )
            yield at_least(f"{what} the next host is where predicted", 0.93, held / experiments)


def _groups(rng: np.random.Generator, experiments: int) -> Iterator[Bar]:
    labels = ["a"] * 8 + ["b"] * 12

    def claimed(shift: float) -> bool:
        found = stats.by_group(fleet(rng, 20, USUAL, odd=8, shift=shift), labels)
        return found is not None and found.p <= stats.ALPHA

    alike = sum(claimed(0.0) for _ in range(experiments)) / experiments
    yield at_most("fleet: two groups alike: called different", 0.065, alike)
    found = sum(claimed(0.03) for _ in range(experiments)) / experiments
    yield at_least("fleet: two groups 3 % apart: found", 0.9, found)


def _steps(rng: np.random.Generator, experiments: int) -> Iterator[Bar]:
    for runs in (4, 8, 30):
        alike = sum(bool(stats.steps(rng.normal(0, RUN_SD, runs))) for _ in range(4 * experiments)) / experiments / 4
        yield at_most(f"history: {runs} runs alike: a step is claimed", 0.055, alike)
    moved = np.array([0.0] * 8 + [0.05] * 2)
    places = [[step.place for step in stats.steps(rng.normal(0, RUN_SD, 10) + moved, 0.01)] for _ in range(experiments)]
    near = sum(any(abs(place - 8) <= 1 for place in found) for found in places)
    yield at_least("history: 5 % worse in the last 2 of 10 runs: found, to a run", 0.8, near / experiments)
    smaller = 0
    for _ in range(experiments):
        place, shift = int(rng.integers(1, 10)), rng.uniform(-0.02, 0.02)
        most = stats.most_change(rng.normal(0, RUN_SD, 10) + shift * (np.arange(10) >= place))
        smaller += most is not None and abs(shift) <= most
    yield at_least("history: one step of up to 2 %: no more than the bound", 0.95, smaller / experiments)


def fleet(
    rng: np.random.Generator, hosts: int, between: float, *, odd: int = 0, shift: float = ODD, rounds: int = ROUNDS
) -> list[stats.HostEstimate]:
    """Hosts around 0, the first `odd` of them shifted, each with the mean of its rounds."""
    centres = rng.normal(0, between, hosts) + shift * (np.arange(hosts) < odd)
    drawn = rng.normal(centres[:, None], ROUND_SD, (hosts, rounds))
    means, errors = drawn.mean(axis=1), drawn.std(axis=1, ddof=1) / math.sqrt(rounds)
    return [stats.HostEstimate(float(m), float(e), rounds - 1) for m, e in zip(means, errors, strict=True)]
