"""The wording of a history: dates, what changed, and how far anything can have changed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from vmtax.analysis.many.costs import WITHOUT_COSTS
from vmtax.analysis.many.history import HistoryChange, HistoryLine, HistoryPoint, HostHistory
from vmtax.analysis.summary import label
from vmtax.core.units import Cost, count_of, format_cost, format_overhead
from vmtax.stats import FEWEST_RUNS

BARS = "▁▂▃▄▅▆▇█"
STEP = "|"  # in a sparkline, before the first run after a change
MOST_BARS = 20  # runs of a sparkline, the newest
LEAST_SPAN = 0.02  # of times, over the height of a sparkline: less is noise that would look like a change
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
READING = (
    "Each cost is how much more time the same work takes than on the baseline, with its interval within that run. Bars"
    f" are the runs, oldest first; {STEP} stands before a change. Then how far the cost can have changed since (95 %)."
)


def date(seconds: float) -> str:
    """A day in UTC, whatever the locale: "3 October 2026"."""
    day = datetime.fromtimestamp(seconds, UTC)
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def short_date(seconds: float) -> str:
    """The same for a table: "2026-10-03"."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"


def subject(line: HistoryLine) -> str:
    """Such as "CPU, chess: vm against host"."""
    return f"{label(line.metric)}: {contrast(line)}"


def contrast(line: HistoryLine) -> str:
    return f"{line.treatment} against {line.baseline}"


def newest(line: HistoryLine) -> Cost:
    """The cost in the newest run that has it."""
    return cost(line.points[-1])


def cost(point: HistoryPoint) -> Cost:
    return format_cost(point.ratio, point.low, point.high)


def bars(line: HistoryLine) -> str:
    """A sparkline of the newest runs: "▂▁▂|▇█"."""
    ratios = [point.ratio for point in line.points]
    low, high = min(ratios), max(ratios)
    room = max(0.0, LEAST_SPAN * low - (high - low)) / 2
    low, span = low - room, high - low + 2 * room
    firsts = {change.run for change in line.changes}
    drawn = (
        f"{STEP if point.run in firsts else ''}{BARS[min(len(BARS) - 1, int(len(BARS) * (point.ratio - low) / span))]}"
        for point in line.points[-MOST_BARS:]
    )
    return "".join(drawn)


def bound(line: HistoryLine) -> str:
    """How far it can have changed since its last change: "≤ 1.2 %", "too few runs"."""
    return "too few runs" if line.most is None else f"≤ {format_overhead(line.most)}"


def since(line: HistoryLine) -> str:
    """The last cell of its row: what changed last, and how far it can have changed since."""
    if not line.changes:
        return bound(line)
    last = line.changes[-1]
    return f"{amount(last)} on {short_date(last.since)}, then {bound(line)}"


def amount(change: HistoryChange) -> str:
    """The size of a change: "+5.1 %", "−3 %"."""
    return format_cost(change.ratio).estimate


def told(line: HistoryLine, change: HistoryChange) -> str:
    """A change as a sentence."""
    return f"{subject(line)}: times {amount(change)} between {short_date(change.before)} and {short_date(change.since)}"


def changes(found: Sequence[tuple[HistoryLine, HistoryChange]]) -> str:
    """Changes of several lines at the same run, one at least, as a sentence, with what else differs from then on."""
    line, first = found[0]
    beside = f"; {'; '.join(first.software)}" if first.software else ""
    sizes = sorted(change.ratio for _, change in found[1:])
    spread = dict.fromkeys(format_cost(ratio).estimate for ratio in (sizes[0], sizes[-1])) if sizes else ()
    more = f", and {count_of(len(sizes), 'other cost')} by {' to '.join(spread)}" if sizes else ""
    return f"{told(line, first)}{more} ({first.run}{beside})"


def trends(history: HostHistory) -> list[str]:
    """The lines that drift: "CPU, chess: vm against host: times +0.3 % (0.1–0.5) in 30 days, since 2026-10-03"."""
    return [
        f"{subject(line)}: times {format_cost(1 + line.trend, 1 + line.trend_low, 1 + line.trend_high)} in 30 days,"
        f" since {short_date(line.since)}"
        for line in history.lines
        if line.drifts and line.trend is not None and line.trend_low is not None and line.trend_high is not None
    ]


def odd(history: HostHistory) -> list[str]:
    """The runs that are odd in any line, newest first."""
    found = {
        run: [(line, point) for line in history.lines for point in line.points if point.run == run and point.odd]
        for run in reversed(history.runs)
    }
    return [
        f"{run}: {'; '.join(f'{cost(point)} in {subject(line)}' for line, point in pairs)}; it differs from the other"
        " runs by more than these do among themselves"
        for run, pairs in found.items()
        if pairs
    ]


def headline(history: HostHistory) -> str:
    """One sentence about the primary figures, or about all if none is primary."""
    lines = history.primary
    if not lines or history.since is None:
        return f"These runs have no costs: {WITHOUT_COSTS}."
    changed = [(line, line.changes[-1]) for line in lines if line.changes]
    if changed:
        line, last = max(changed, key=lambda pair: pair[1].since)
        more = f", and {count_of(len(changed) - 1, 'other cost')} by then" if changed[1:] else ""
        rest = "" if history.most is None else f" Since then by at most {format_overhead(history.most)}."
        return f"Changed on {date(last.since)}: {subject(line)}, {amount(last)}{more}.{rest}"
    most = max(line.runs_since for line in lines)
    if most < FEWEST_RUNS:
        return f"Too few runs to say whether anything changed: {most} of the {FEWEST_RUNS} that are needed."
    if history.most is None:
        return f"No change is shown since {date(history.since)}, but some costs are in fewer than {FEWEST_RUNS} runs."
    return f"Nothing changed since {date(history.since)}, or by at most {format_overhead(history.most)}."


def about(history: HostHistory) -> str:
    """What the first sentence is about: "6 runs, 4 primary costs"."""
    primary = any(line.primary for line in history.lines)
    costs = count_of(len(history.primary), "primary cost" if primary else "cost")
    return f"{count_of(len(history.runs), 'run')} since {short_date(history.created[0])}, {costs}"


def banner(history: HostHistory) -> str | None:
    """The warning that must be above emulated figures."""
    if not any(line.emulated for line in history.lines):
        return None
    return "Some of these costs are of an emulated CPU (TCG): they show that everything works, not what hardware costs."
