"""Whether the figures of hosts go with a property of theirs, such as the kernel: a permutation test over hosts.

The host is the unit, and labels are permuted, so no distribution is assumed. What is found is an association: hosts
were not given their kernels at random. Pure numbers. Source: Good, "Permutation, Parametric and Bootstrap Tests of
Hypotheses", 3rd ed. (2005).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from vmtax.stats.arrays import Matrix, Vector, np
from vmtax.stats.fleet import FleetMean, HostEstimate, between_hosts, fleet_mean

PERMUTATIONS = 2000
FEWEST_IN_GROUP = 2  # hosts
SEED = 20261127


@dataclass(frozen=True, slots=True)
class Groups:
    """The hosts by one property of theirs."""

    means: dict[str, FleetMean]  # value of the property -> the mean of its hosts; values with FEWEST_IN_GROUP or more
    p: float  # share of permutations in which the groups differ as much


def by_group(hosts: Sequence[HostEstimate], labels: Sequence[str]) -> Groups | None:
    """The hosts in groups, those with the same label; None unless two groups have FEWEST_IN_GROUP hosts or more.

    The statistic is the weighted sum of squares between the groups; weights are from errors and the variance between
    all hosts. Hosts of smaller groups are left out.
    """
    names = [label for label, count in Counter(labels).items() if count >= FEWEST_IN_GROUP]
    if len(names) < 2:
        return None
    places = {name: place for place, name in enumerate(names)}
    kept = [(host, places[label]) for host, label in zip(hosts, labels, strict=True) if label in places]
    members = np.array([group for _, group in kept])
    values = np.array([host.log for host, _ in kept])
    variances = np.array([host.error**2 for host, _ in kept])
    weights = 1 / (variances + between_hosts(values, variances))
    centred = values - (weights * values).sum() / weights.sum()
    found = _between(members[None, :], weights, centred, len(names))[0]
    rng = np.random.default_rng(SEED)
    drawn = _between(rng.permuted(np.tile(members, (PERMUTATIONS, 1)), axis=1), weights, centred, len(names))
    as_large = int((drawn >= found * (1 - 1e-9)).sum())
    means = {name: fleet_mean([host for host, group in kept if group == number]) for number, name in enumerate(names)}
    return Groups(means, (1 + as_large) / (1 + PERMUTATIONS))


def _between(members: Matrix, weights: Vector, centred: Vector, groups: int) -> Vector:
    """Weighted sum of squares between groups, for each row of `members`: the group of each host."""
    total: Vector = np.zeros(len(members))
    for group in range(groups):
        inside = members == group
        total += (inside @ (weights * centred)) ** 2 / (inside @ weights)
    return total
