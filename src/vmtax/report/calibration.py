"""What `vmtax calibrate` answers: on the terminal, and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vmtax.calibration import TARGETS, Calibration, Reach, Target
from vmtax.report.view import emulated_treatments
from vmtax.result import Json
from vmtax.stats import FEWEST_SESSIONS
from vmtax.units import format_duration, format_percent, printable


def render(found: Calibration) -> RenderableType:
    """Within 80 columns."""
    run, emulated = found.experiment, is_emulated(found)
    rounds = max(trial.round for trial in run.trials)
    head = Text.assemble(
        (f"{rounds} rounds of a guest against itself", "bold"),
        (f"  {printable(run.host)} · {format_duration(found.seconds_per_round)} a round · {run.id}", "dim"),
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    heads = ("", "one run", "reached", *(f"±{format_percent(target)}" for target in TARGETS))
    for number, name in enumerate(heads):
        table.add_column(name, justify="right" if number else "left", no_wrap=number > 0)
    for reach in found.metrics:
        table.add_row(Text(reach.metric.name, style="bold"))
        table.add_row(*map(Text, _cells(reach, emulated)))
    note = (
        "One run: the coefficient of variation. Reached: the half-width of the 95 % interval. Then: rounds, and their"
        " time, until the interval is that narrow."
    )
    return Group(head, Text(), table, Padding(Text(note, style="dim"), (1, 0)), *map(Text, sessions(found)))


def sessions(found: Calibration) -> Iterator[str]:
    """What is known of how much this machine changes by itself from session to session."""
    emulated = " (emulated)" if is_emulated(found) else ""
    known = [reach for reach in found.metrics if reach.between is not None]
    for reach in known:
        assert reach.between is not None
        yield (
            f"{reach.metric.name}: {100 * reach.between.sd:.2g} % standard deviation from session to session{emulated},"
            f" of {reach.between.sessions} sessions"
        )
    if not known:
        missing = max(FEWEST_SESSIONS - found.sessions, 1)
        yield (
            f"This is session {found.sessions}. `vmtax compare` needs {FEWEST_SESSIONS} to know how much the machine"
            f" changes by itself: calibrate {missing} more time{'' if missing == 1 else 's'}, at other times of the day"
            " or after reboots."
        )


def calibration_data(found: Calibration) -> Json:
    """Kind "calibration"."""
    return {
        "run": found.experiment.id,
        "host": found.experiment.host,
        "emulated": is_emulated(found),
        "seconds_per_round": found.seconds_per_round,
        "sessions": found.sessions,
        "metrics": [
            {
                "metric": reach.metric.name,
                "cv": reach.cv,
                "half_width": reach.half_width,
                "rounds": reach.rounds,
                "targets": [
                    {"half_width": t.half_width, "rounds": t.rounds, "seconds": t.seconds} for t in reach.targets
                ],
                "between_sessions_sd": reach.between.sd if reach.between else None,
            }
            for reach in found.metrics
        ],
    }


def is_emulated(found: Calibration) -> bool:
    return bool(emulated_treatments(found.experiment))


def _cells(reach: Reach, emulated: bool) -> Iterator[str]:
    yield " emulated" if emulated else ""
    if reach.cv is None or reach.half_width is None:
        yield from ("too few rounds", f"{reach.rounds} rounds")
        return
    yield f"{100 * reach.cv:.2g} %"
    yield f"±{100 * reach.half_width:.2g} %"
    yield from map(_target, reach.targets)


def _target(target: Target) -> str:
    return f"{target.rounds} rounds\n{format_duration(target.seconds)}"
