"""The map of a fleet: a tile for each host, in groups, whose colour says how far it is from the median host."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from vmtax.analysis.many.costs import PROPERTIES, RunCosts
from vmtax.analysis.many.fleet import Fleet, FleetLine, HostCost
from vmtax.core.units import count_of, format_cost
from vmtax.report.figures.svg import element
from vmtax.report.picture import Panel, PictureChoice
from vmtax.report.wording import fleet as words

MOST_MAPS = 6  # costs that have one: of 1,000 hosts each takes 100 kB
MOST_GROUPS = 12  # of a property by which hosts are grouped
TILES = "abcde"  # classes of the page: far below the median host, below, near, above, far above
LEAST_STEP = 0.005  # in log: nearer hosts look alike


def fleet_map(fleet: Fleet, odd_word: str = "odd") -> PictureChoice | None:
    """A map for each primary cost; None: there is none, or a single host. `odd_word`: what a framed tile is."""
    lines = fleet.primary[:MOST_MAPS]
    if not lines or len(fleet.costs) < 2:
        return None
    groups = _groups(fleet.costs)
    parts = tuple(
        Panel((place,), words.subject(line), {}, _tiles(line, groups, odd_word)) for place, line in enumerate(lines)
    )
    caption = (
        "A tile for each host: blue is below the median host, orange above it, the darker the farther; framed ones"
        f" are {odd_word}. The pointer shows the name and the figure."
    )
    return PictureChoice("map", "All hosts", caption, (("Cost", tuple(map(words.subject, lines))),), parts)


def _groups(runs: Sequence[RunCosts]) -> Mapping[str, list[str]]:
    """Name of a group -> ids of its runs: by the first property in which hosts differ, and which makes few groups."""
    for name in PROPERTIES:
        found: dict[str, list[str]] = {}
        for run in runs:
            found.setdefault(f"{name} {run.properties.get(name, 'unknown')}", []).append(run.id)
        if 1 < len(found) <= MOST_GROUPS:
            return found
    return {"": [run.id for run in runs]}


def _tiles(line: FleetLine, groups: Mapping[str, list[str]], odd_word: str) -> Markup:
    hosts = {host.run: host for host in line.hosts}
    sizes = sorted(abs(math.log(host.deviation)) for host in line.hosts)
    step = max(LEAST_STEP, 2 * sizes[len(sizes) // 2]) if sizes else LEAST_STEP
    said = f"{words.subject(line)} on {count_of(len(hosts), 'host')}; the table below has each"
    return element("div", *_groups_of_tiles(groups, hosts, step, odd_word), class_="tiled", role="img", aria_label=said)


def _groups_of_tiles(
    groups: Mapping[str, list[str]], hosts: Mapping[str, HostCost], step: float, odd_word: str
) -> Iterator[Markup]:
    for name, runs in groups.items():
        found = [hosts[run] for run in runs if run in hosts]
        if found and name:
            yield element("b", f"{name} ({len(found)})")
        for host in found:
            distance = math.log(host.deviation) / step
            tile = TILES[2 + max(-2, min(2, round(distance)))]
            title = f"{host.host}: {format_cost(host.ratio, host.low, host.high)}{f', {odd_word}' if host.odd else ''}"
            yield element("i", title=title, class_=f"{tile} odd" if host.odd else tile)
