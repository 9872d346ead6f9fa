"""The wording of a comparison of sessions, shared by all formats."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from vmtax.analysis.sessions import Change, MetricChange
from vmtax.core.units import count_of, format_percent
from vmtax.report.wording.cost import NOT_A_COST, cost_of

READING = (
    "Each figure is how much more time the same work takes after than before, with its 95 % interval over sessions."
    " Verdicts are about lost throughput where the metric is a rate: 3 % of a rate are 3.1 % of time."
)
STORED = (
    "One session on a side: how much the machine changes from session to session is taken from its calibrations"
    " (vmtax calibrate)."
)


def basis(change: Change) -> list[str]:
    """What the intervals are based on if one side has a single session."""
    stored = any(line.primary and line.method == "stored" for line in change.lines)
    return [STORED] if stored else []


def amount(line: MetricChange) -> str:
    """ "+2.1 % (0.4–3.8)", "+2.1 % (no interval)", either followed by "emulated"."""
    estimate, interval = cost(line)
    return f"{estimate}{interval and f' ({interval})'}{' emulated' if line.emulated and interval else ''}"


def cost(line: MetricChange) -> tuple[str, str]:
    """("+2.1 %", "0.4–3.8"), ("+2.1 %", "no interval"); ("not measured on one side", "")."""
    if math.isnan(line.ratio):
        return "not measured on one side", ""
    estimate, interval = cost_of(line.metric.better, *line.cost)
    return estimate, interval or "no interval"


def verdict(line: MetricChange, change: Change) -> str:
    """ "same within 3 %"; "worse by over 3 %"; "undecided"."""
    word = f"same within {format_percent(change.same_within)}" if line.verdict == "same" else line.verdict
    if change.limit is None:
        return word
    limit = format_percent(change.limit)
    if line.gate == "undecided" and line.verdict != "undecided":
        return f"{word}, over {limit}: undecided"
    if line.gate == "failed":
        return f"worse by over {limit}"
    if line.gate == "passed" and line.verdict in ("worse", "undecided"):
        return f"worse by {limit} or less" if line.verdict == "worse" else f"not worse by over {limit}"
    return word


def sessions(line: MetricChange) -> str:
    return " + ".join(map(str, line.sessions))


def headline(change: Change) -> str:
    """One sentence about the primary figures."""
    primary = [line for line in change.lines if line.primary]
    if not primary:
        return "No primary metric is common to all runs: everything is exploratory."
    counts = Counter(verdict(line, change) for line in primary)
    counted = "; ".join(f"{count} {words}" for words, count in counts.items())
    return f"Of {count_of(len(primary), 'primary figure')}: {counted}."


def sides(change: Change) -> Sequence[tuple[str, str]]:
    """("before", "ID, ID on HOST"), ("after", ...)."""
    named = zip(("before", "after"), (change.before, change.after), change.host_names, strict=True)
    return [(name, f"{', '.join(ids)} on {host}") for name, ids, host in named]


def banner(change: Change) -> str | None:
    """The warning that must be above emulated figures."""
    ran = f"{', '.join(change.emulated)} ran on an emulated CPU (TCG)."
    return f"{ran} {NOT_A_COST}" if change.emulated else None


def reasons(lines: Sequence[MetricChange]) -> list[str]:
    """Each reason why something is undecided, once, with what it concerns."""
    about: dict[str, list[str]] = {}
    for line in lines:
        if line.why:
            about.setdefault(line.why, []).append(f"{line.metric.name} {line.treatment}")
    return [
        f"{places[0]}{f' and {len(places) - 1} more' if places[1:] else ''}: {why}" for why, places in about.items()
    ]
