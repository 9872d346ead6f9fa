"""Show a run's events to the user while it is in progress. Goes to stderr; results go to stdout."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vmtax.core import events
from vmtax.core.records import Comparison
from vmtax.core.units import format_cost, format_duration, format_span, format_value, printable, time_ratio
from vmtax.design.stopping import count
from vmtax.system.console import console

PLAIN_STEP_SECONDS = 10.0  # without a terminal, the details of one step are shown at most this often


@contextlib.contextmanager
def open_screen(said: list[str] | None = None) -> Iterator[Callable[[events.Event], None]]:
    """A function to emit events to: a live display on a terminal, plain lines anywhere else.

    said: notices that earlier screens of the same run have shown, which are not repeated
    """
    screen = console(stderr=True)
    state = State(said=[] if said is None else said)
    if not screen.is_terminal:
        yield Plain(screen, state).emit
        return
    with Live(state.draw(), console=screen, refresh_per_second=4, transient=True, get_renderable=state.draw) as live:

        def emit(one: events.Event) -> None:
            line = state.take(one)
            if line:
                live.console.print(line)

        yield emit


def tell(lines: Iterable[tuple[str, str]]) -> None:
    """Print facts, each with its label in front."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        for name, text in lines:
            screen.print(f"{name:>9}  {text}", soft_wrap=True)
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right", style="bold")
    for name, text in lines:
        grid.add_row(name, Text(text))
    screen.print(grid)


def follow(states: Iterable[State]) -> None:
    """Draw the run of another process: live on a terminal, a line for each round anywhere else."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        shown = ""
        for state in states:
            if state.treatments and state.progress(left=False) != shown:
                shown = state.progress(left=False)
                screen.print(state.progress(), soft_wrap=True)
        return
    with Live(console=screen, refresh_per_second=4, transient=True) as live:
        for state in states:
            live.update(state.draw())


@dataclass
class State:
    """What the display shows."""

    step: str = ""
    treatments: list[str] = field(default_factory=list)
    doing: dict[str, str] = field(default_factory=dict)  # treatment -> its present step
    figures: dict[str, str] = field(default_factory=dict)  # treatment -> its newest figure
    round: int = 0  # rounds done
    planned: int = 0
    left: tuple[float, float] | None = None  # seconds, from and to, as of `heard`
    heard: float = 0.0
    since: float | None = None  # when this session of the run began
    comparisons: tuple[Comparison, ...] = ()
    emulated: bool = False
    said: list[str] = field(default_factory=list)  # notices about the whole run

    def take(self, one: events.Event) -> Text | None:
        """Process one event; returns a line that should stay on the screen, if there is one."""
        match one:
            case events.Step(what, detail, done):
                share = f" {done:.0%}" if done is not None else ""
                self.step = printable(f"{what}{share}: {detail}" if detail else f"{what}{share}")
            case events.NoticeEvent(text):
                return self._once(printable(text), style="yellow")
            case events.ExpectedTime(low, high):
                self.left, self.heard = (low, high), time.monotonic()
            case events.RunStarted(experiment, treatments, _, rounds_max, emulated, done):
                self.since = time.monotonic()
                self.treatments = [treatment.name for treatment in treatments]
                self.planned, self.step, self.emulated, self.round = rounds_max, "", emulated, done
                return self._once(f"run {experiment}")
            case events.TreatmentStarted(_, _, treatment):
                self.doing = {treatment.name: "booting" if treatment.boots else "settling"}
            case events.GuestBooted(boot):
                self.emulated = self.emulated or boot.emulated
                mark = " (emulated)" if boot.emulated else ""
                self.doing[boot.treatment] = f"{boot.path} ready in {boot.ready_seconds:.1f} s{mark}"
            case events.WorkloadStarted(treatment, workload, case, iteration, iterations):
                which = f", {iteration} of {iterations}" if iterations > 1 else ""
                self.doing[treatment] = f"{workload} {case}".strip() + which
            case events.TrialFinished(trial) if trial.error:
                error = trial.error.partition("\n")[0]
                what = f"{trial.treatment} {trial.workload} {trial.case}"
                return Text(printable(f"{what}: {trial.status}: {error}"), style="red")
            case events.TrialFinished(trial) if trial.measurements:
                first = trial.measurements[0]
                what = f"{trial.workload} {trial.case}".strip()
                self.figures[trial.treatment] = f"{what}: {format_value(first.value, first.metric.unit)}"
            case events.RoundFinished(number, planned, seconds_left, comparisons):
                self.round, self.planned, self.left = number, planned, seconds_left
                self.comparisons, self.heard = comparisons, time.monotonic()
            case events.RunFinished(_, rounds, seconds, share):
                several = "round" if rounds == 1 else "rounds"
                return Text(f"{rounds} {several} in {format_duration(seconds)}, {share:.0%} of it inside workloads")
        return None

    def _once(self, text: str, style: str = "") -> Text | None:
        if text in self.said:
            return None
        self.said.append(text)
        return Text(text, style=style)

    def draw(self) -> Group:
        lines: list[Text | Table] = []
        if self.step:
            lines.append(Text(self.step, overflow="ellipsis", no_wrap=True))
        if self.treatments:
            lines.append(Text(self.progress(), style="bold"))
            for name in self.treatments:
                doing, figure = self.doing.get(name, ""), self.figures.get(name, "")
                text = f"  {'>' if doing else ' '} {name:<24} {doing:<26} {figure}"
                lines.append(Text(text.rstrip(), overflow="ellipsis", no_wrap=True))
        if self.comparisons:
            lines.append(self._intervals())
        return Group(*lines)

    def progress(self, *, left: bool = True) -> str:
        """The rounds, for how long it has run, and with `left` for how long it will."""
        if self.round >= self.planned > 0:
            return f"{count(self.round)} done"
        now = f"{self.round} of {self.planned} rounds done" if self.round else f"round 1 of at most {self.planned}"
        if not left:
            return now
        elapsed = "" if self.since is None else f", {format_duration(time.monotonic() - self.since)} so far"
        if self.left is None:
            return f"{now}{elapsed}"
        since = time.monotonic() - self.heard
        low, high = (max(0.0, seconds - since) for seconds in self.left)
        return f"{now}{elapsed}, about {format_span(low, high)} left"

    def _intervals(self) -> Table:
        table = Table(box=None, padding=(0, 1), title_justify="left", header_style="dim")
        for heading in ("metric", "against", "cost", "interval"):
            table.add_column(heading)
        for entry in self.comparisons:
            table.add_row(
                entry.metric.name, f"{entry.treatment} / {entry.baseline}", *interval_words(entry, self.emulated)
            )
        return table


def interval_words(comparison: Comparison, emulated: bool) -> tuple[str, str]:
    """Cost and interval as text; an emulated one is marked as such."""
    found = comparison
    cost = format_cost(*time_ratio(found.metric.better, found.ratio, found.low, found.high))
    return f"{cost.estimate}{' emulated' if emulated else ''}", cost.interval or "needs more rounds"


class Plain:
    """Few lines, no control characters: for logs."""

    def __init__(self, console: Console, state: State | None = None) -> None:
        self._console = console
        self._state = state or State()
        self._step = ""
        self._told = 0.0

    def emit(self, one: events.Event) -> None:
        line = self._state.take(one)
        if line:
            self._say(line.plain)
        if isinstance(one, events.Step):
            now = time.monotonic()
            if one.what != self._step or now - self._told > PLAIN_STEP_SECONDS:
                self._step, self._told = one.what, now
                self._say(self._state.step)
        elif isinstance(one, events.RoundFinished):
            self._say(self._state.progress())

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)
