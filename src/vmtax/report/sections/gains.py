"""Gains from queue depth, and losses of the first write, for each disk, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.gains import Gain, Pair
from vmtax.core.records import Metric
from vmtax.report.wording.cost import cost_of
from vmtax.report.wording.rankings import Ranked, RankingLine, sides, whose

READING = (
    "The score: operations in a second of the one over those of the other, in the same boot, with its interval over"
    " rounds. The cost: how much smaller it is than that of the layer's first configuration in the same round, as"
    " time for the same work."
)
FEW = "too few rounds for an interval"
NO_DIFFERENCE = "no difference is shown"


def tables(analysis: Analysis) -> tuple[Ranked, ...]:
    """One for each pair and layer, the largest ratio first."""
    where = sides(analysis)
    return tuple(
        Ranked(
            Metric(pair.upper, "1/s", "higher"),
            members[0].layer,
            members[0].side,
            members[0].count,
            f"{pair.words[0].upper()}{pair.words[1:]}, {whose(members[0], where)}",
            tuple(_line(one, analysis.emulated) for one in sorted(members, key=lambda one: -one.ratio)),
            READING,
        )
        for pair, members in _grouped(analysis.gains)
    )


def lines(analysis: Analysis) -> Iterator[str]:
    """One sentence for each pair and layer: the range of the ratios, and where nothing is shown."""
    emulated = analysis.emulated
    where = sides(analysis)
    for pair, members in _grouped(analysis.gains):
        ordered = sorted(members, key=lambda one: one.ratio)
        least, most = (f"{_times(one)} in {one.treatment}{_doubt(one, emulated)}" for one in (ordered[0], ordered[-1]))
        text = f"{whose(members[0], where)}: {pair.words}: from {least} to {most}"
        yield "; ".join([text, *_shown(members)])


def _grouped(gains: Sequence[Gain]) -> Iterator[tuple[Pair, list[Gain]]]:
    for (pair, *_), members in groupby(gains, key=lambda one: (one.pair, one.layer, one.side, one.count)):
        yield pair, list(members)


def _shown(members: Sequence[Gain]) -> Iterator[str]:
    """How many differ from 1, and how many from the first one."""
    judged = [one for one in members if one.low is not None]
    if not judged:
        yield FEW
        return
    yield f"{sum(_remark(one) != NO_DIFFERENCE for one in judged)} of {len(members)} are shown to differ from ×1"
    others = [one.less for one in judged if one.less is not None]
    apart = sum(low is not None and high is not None and not low <= 0 <= high for _, low, high in others)
    first = next((one.first for one in judged if one.first is not None), None)
    if first is not None:
        yield f"{apart} of {len(others)} to differ from {first}"


def _remark(one: Gain) -> str:
    if one.low is None or one.high is None:
        return FEW
    return "more" if one.low > 1 else "less" if one.high < 1 else NO_DIFFERENCE


def _line(one: Gain, emulated: frozenset[str]) -> RankingLine:
    amount, interval = ("the first", "") if one.less is None else cost_of("higher", *one.less)
    remark = _remark(one)
    return RankingLine(
        one.treatment, amount, interval, remark, one.treatment in emulated, remark == NO_DIFFERENCE, _times(one)
    )


def _times(one: Gain) -> str:
    """Such as "×2.41 [2.3, 2.52]"."""
    limits = "" if one.low is None or one.high is None else f" [{one.low:.3g}, {one.high:.3g}]"
    return f"×{one.ratio:.3g}{limits}"


def _doubt(one: Gain, emulated: frozenset[str]) -> str:
    return " (emulated)" if one.treatment in emulated else ""
