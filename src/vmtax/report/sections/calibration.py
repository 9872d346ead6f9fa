"""The output of `vmtax calibrate`: the precision that a machine reaches, in what time, and how much it varies."""

from __future__ import annotations

from collections.abc import Iterator

from vmtax.analysis.calibration import TARGETS, Calibration, SelfComparison
from vmtax.core.units import format_duration, format_overhead, format_percent
from vmtax.report.document import (
    Cell,
    Column,
    Document,
    Paragraph,
    Row,
    Section,
    Table,
    listed,
    name_cell,
    value_cell,
    with_heads,
)
from vmtax.stats import FEWEST_SESSIONS

READING = (
    "One run: the coefficient of variation. Reached: the half-width of the 95 % interval. Then what it takes until the"
    " interval is that narrow."
)


def document(calibration: Calibration) -> Document:
    """A row for each primary metric, then how much the machine changes from session to session."""
    run = calibration.experiment
    rounds = max(trial.round for trial in run.trials)
    about = f"{run.host} · {format_duration(calibration.seconds_per_round)} a round · {run.id}"
    targets = (Column(f"±{format_percent(target)}") for target in TARGETS)
    table = Table(
        "Metric",
        (Column("metric"), Column("one run"), Column("reached"), *targets),
        tuple(_row(reach, calibration.emulated) for reach in calibration.metrics),
    )
    blocks = (Paragraph(about, "note"), *with_heads((table,)), Paragraph(READING, "note"))
    return Document(
        None,
        (
            Section("precision", f"{rounds} rounds of a guest against itself", blocks),
            Section("sessions", "From session to session", (listed(_sessions(calibration)),)),
        ),
    )


def _row(reach: SelfComparison, emulated: bool) -> Row:
    if reach.cv is None or reach.half_width is None:
        return Row((name_cell(reach.metric.name, f"too few rounds: {reach.rounds}"), *(Cell() for _ in range(5))))
    amounts = (format_overhead(reach.cv), f"±{format_overhead(reach.half_width)}")
    takes = (value_cell(f"{target.rounds} rounds", format_duration(target.seconds)) for target in reach.targets)
    cells = (value_cell(amount, emulated=emulated) for amount in amounts)
    return Row((name_cell(reach.metric.name), *cells, *takes))


def _sessions(calibration: Calibration) -> Iterator[str]:
    emulated = " (emulated)" if calibration.emulated else ""
    measured = [(reach.metric, reach.between) for reach in calibration.metrics if reach.between is not None]
    for metric, between in measured:
        yield (
            f"{metric.name}: {format_overhead(between.sd)} standard deviation from session to session{emulated},"
            f" of {between.sessions} sessions"
        )
    if not measured:
        missing = max(FEWEST_SESSIONS - calibration.sessions, 1)
        yield (
            f"This is session {calibration.sessions}. `vmtax compare` needs {FEWEST_SESSIONS} to know how much the"
            f" machine drifts: calibrate {missing} more time{'' if missing == 1 else 's'}, at other times of"
            " the day or after reboots."
        )
