"""What guests that do nothing take of their host's CPU. Pure."""

from __future__ import annotations

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.idle import IdleGuest
from vmtax.core.units import MINUS
from vmtax.report.document import Column, Detail, Paragraph, Row, Section, Table, name_cell, value_cell

TITLE = "An idle guest takes"
LESS = (
    "The host's CPU time while the guest does nothing, less what the host takes without it, in the same rounds. A"
    " nested guest is without the guest around it."
)
OWN = (
    "Of an existing VM, and of a clone that is only watched, what the threads of its QEMU take, whether it does nothing"
    " or not: nothing was looked at inside. Interrupts of the host for it are not in it."
)
READING = "100 % is one CPU. The interval is at the run's confidence; – where there are too few rounds."


def section(analysis: Analysis) -> Section | None:
    """None if no guest idled."""
    if not analysis.idle_guests:
        return None
    columns = (Column("configuration"), Column("of one CPU"), Column("interval"), Column("rounds"))
    rows = tuple(_row(each, analysis) for each in analysis.idle_guests)
    table = Table(TITLE, columns, rows, "settings")
    return Section("idle", TITLE, (table, Paragraph(_reading(analysis), "note", Detail.FULL)), "Idle guests")


def _reading(analysis: Analysis) -> str:
    subtracted = [bool(each.baseline) for each in analysis.idle_guests]
    whole = [*([LESS] if any(subtracted) else []), *([] if all(subtracted) else [OWN]), READING]
    return " ".join(whole)


def _row(each: IdleGuest, analysis: Analysis) -> Row:
    bounds = () if each.low is None or each.high is None else (each.low, each.high)
    estimate, *ends = _percents(each.seconds, *bounds)
    cells = map(value_cell, (f"{estimate} %", f"{' to '.join(ends)} %" if ends else "–", str(each.rounds)))
    return Row((name_cell(each.treatment, emulated=each.treatment in analysis.emulated), *cells))


def _percents(*shares: float) -> list[str]:
    """With two digits of the interval's width, if there is one, but at most two decimals."""
    size = 100 * (max(shares) - min(shares) if len(shares) > 1 else abs(shares[0]))
    decimals = 0 if size >= 10 else 1 if size >= 1 else 2
    texts = (f"{100 * share:.{decimals}f}" for share in shares)
    return [text.replace("-", MINUS) if float(text) else f"{0:.{decimals}f}" for text in texts]
