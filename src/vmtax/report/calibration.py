"""What `vmtax calibrate` answers: on the terminal, and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from vmtax.analysis.calibration import Calibration, Reach
from vmtax.analysis.emulation import emulated_treatments
from vmtax.core.units import format_duration, format_overhead, format_percent, printable
from vmtax.stats import FEWEST_SESSIONS


def render(found: Calibration) -> RenderableType:
    """Within 80 columns."""
    run, emulated = found.experiment, is_emulated(found)
    rounds = max(trial.round for trial in run.trials)
    head = Text.assemble(
        (f"{rounds} rounds of a guest against itself", "bold"),
        (f"  {printable(run.host)} · {format_duration(found.seconds_per_round)} a round · {run.id}", "dim"),
    )
    note = (
        "One run: the coefficient of variation. Reached: the half-width of the 95 % interval. Then what it takes until"
        " the interval is that narrow."
    )
    lines = [line for reach in found.metrics for line in (_metric(reach, emulated), *_targets(reach))]
    return Group(head, Text(), *lines, Padding(Text(note, style="dim"), (1, 0)), *map(Text, sessions(found)))


def sessions(found: Calibration) -> Iterator[str]:
    """What is known of how much this machine changes by itself from session to session."""
    emulated = " (emulated)" if is_emulated(found) else ""
    known = [reach for reach in found.metrics if reach.between is not None]
    for reach in known:
        assert reach.between is not None
        yield (
            f"{reach.metric.name}: {format_overhead(reach.between.sd)} standard deviation from session to session"
            f"{emulated}, of {reach.between.sessions} sessions"
        )
    if not known:
        missing = max(FEWEST_SESSIONS - found.sessions, 1)
        yield (
            f"This is session {found.sessions}. `vmtax compare` needs {FEWEST_SESSIONS} to know how much the machine"
            f" changes by itself: calibrate {missing} more time{'' if missing == 1 else 's'}, at other times of the day"
            " or after reboots."
        )


def is_emulated(found: Calibration) -> bool:
    """Its guest, or its host, ran on an emulated CPU."""
    return bool(emulated_treatments(found.experiment))


def _metric(reach: Reach, emulated: bool) -> Text:
    name = (reach.metric.name, "bold")
    if reach.cv is None or reach.half_width is None:
        return Text.assemble(name, f"  too few rounds: {reach.rounds}")
    doubt = ("  emulated", "yellow") if emulated else ""
    amounts = f"  one run {format_overhead(reach.cv)}, reached ±{format_overhead(reach.half_width)}"
    return Text.assemble(name, amounts, doubt)


def _targets(reach: Reach) -> Iterator[Text]:
    for target in reach.targets:
        takes = f"{target.rounds} rounds, {format_duration(target.seconds)}"
        yield Text(f"  ±{format_percent(target.half_width)}: {takes}")
