"""Text from outside through everything that prints: it is shown as it is, and nothing in it is obeyed."""

from __future__ import annotations

import dataclasses
import io
import re
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tests.sample import sample_experiment, unstarted
from vmtax.analysis.analysis import Analysis
from vmtax.cli.app import LONGEST, printed, say, warn
from vmtax.core import events
from vmtax.core.checks import Check, Diagnosis
from vmtax.core.records import Boot, Treatment, Trial
from vmtax.experiment import progress as screen
from vmtax.report.document import Detail
from vmtax.report.render.terminal import whole
from vmtax.report.runs import runs_table
from vmtax.report.sections import doctor
from vmtax.report.show import render
from vmtax.store import ExperimentSummary
from vmtax.system import console as consoles
from vmtax.system.console import console

TEXTS = (
    *("lab:m", ":smile:", "a :boom: b", "[bold]x", "[/]", "[red]x[/red]", "[link=http://x]y[/link]", "[[x]]"),
    *("\x1b]0;x\a", "\x1b[2J", "\x9b31m", "\u202egnp.exe", "\u2066x\u2069", "a\x00b", "\udcff", "\r", "w" * 5000),
)
EVENTS: dict[str, Callable[[str], events.Event]] = {
    "step": lambda text: events.Step(text, text, 0.5),
    "notice": events.NoticeEvent,
    "run": lambda text: events.RunStarted(text, (Treatment(text, "vm"),), 1, 2),
    "treatment": lambda text: events.TreatmentStarted(1, 1, Treatment(text, "vm")),
    "boot": lambda text: events.GuestBooted(Boot(1, text, text, "kvm", False, (), 1.0, 1.0)),
    "workload": lambda text: events.WorkloadStarted(text, text, text),
    "trial": lambda text: events.TrialFinished(Trial(1, 1, text, text, text, 1, "failed", 0.0, 0.0, error=text)),
}


def shown(text: str) -> str:
    """What of `text` may reach a terminal."""
    return "".join(c if c.isprintable() else " " if c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def check(found: str, text: str) -> None:
    """Nothing that a terminal obeys, and the text itself, however it was wrapped."""
    odd = {c for c in found if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn") and c not in "\n"}
    assert odd == set(), found
    # Some of what is replaced rich leaves out itself.
    wanted, there = ("".join(one.replace("\N{REPLACEMENT CHARACTER}", "").split()) for one in (shown(text), found))
    assert wanted in there, found


def on(draw: Callable[[Any], None]) -> str:
    """What a console of 6000 columns without colours makes of it."""
    text = io.StringIO()
    draw(console(text, width=6000, color=False))
    return text.getvalue()


@pytest.mark.parametrize("text", TEXTS)
def test_a_console_shows_strings_as_they_are_wherever_they_stand(text: str) -> None:
    table = Table(text, title=text, caption=text)
    table.add_row(text)
    for renderable in (text, Text(text), table, Padding(text, 1), Group(text, Text.assemble((text, "bold")))):
        check(on(lambda one, what=renderable: one.print(what)), text)
    check(on(lambda one: one.print(text, soft_wrap=True)), text)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", EVENTS)
def test_the_screen_shows_what_events_hold(name: str, text: str) -> None:
    one = EVENTS[name](text)
    started = events.RunStarted("id", (Treatment(text, "vm"),), 1, 2)
    state = screen.State()
    lines = [line for line in (state.take(started), state.take(one)) if line]
    check(on(lambda screen: [screen.print(line) for line in lines] and screen.print(state.draw())), text)

    def plain(target: Any) -> None:
        for each in (started, one):
            screen.Plain(target).emit(each)

    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", on(plain))


@pytest.mark.parametrize("text", TEXTS)
def test_a_live_screen_obeys_nothing_but_rich(text: str) -> None:
    out = io.StringIO()
    terminal = consoles.PlainConsole(file=out, force_terminal=True, width=6000, markup=False, emoji=False)
    state = screen.State()
    for name in EVENTS:
        if line := state.take(EVENTS[name](text)):
            terminal.print(line)
    terminal.print(state.draw())
    check(re.sub(r"\x1b\[[\d;]*m", "", out.getvalue()), text)  # without the colours


@pytest.mark.parametrize("text", TEXTS)
def test_errors_warnings_and_lines_are_clean(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    say(text)
    warn(f"{text}: is wrong")
    printed(text)
    screen.tell([(text, text)])
    captured = capsys.readouterr()
    if len(text) < LONGEST:
        check(captured.out, text)
        check(captured.err, text)
    assert all(len(line) < 3000 for line in captured.err.splitlines() if line.startswith("vmtax: "))


@pytest.mark.parametrize("text", TEXTS)
def test_reports_tables_and_the_doctor_are_clean(text: str) -> None:
    run = dataclasses.replace(unstarted(sample_experiment(rounds=1)), name=text, host=text, notes=(text,), command=text)
    check(on(lambda one: one.print(render(Analysis(run), True))), text)
    entry = ExperimentSummary(text, text, text, 0.0, 1.0, "failed", 1, 1, 1, 1)
    check(on(lambda one: one.print(runs_table([entry]))), text)
    diagnosis = Diagnosis(text, text, (Check("need", text, "missing", text, text),))
    check(on(lambda one: one.print(whole(doctor.document(diagnosis), Detail.BRIEF))), text)


@pytest.mark.parametrize("name", ["host", "host disk.filesystem=xfs", "host on ssh://b"])
def test_a_treatment_of_the_host_is_never_shown_as_booting(name: str) -> None:
    state = screen.State()
    state.take(events.TreatmentStarted(1, 1, Treatment(name, "host")))
    assert state.doing == {name: "settling"}
    state.take(events.TreatmentStarted(1, 2, Treatment("vm", "vm")))
    assert state.doing == {"vm": "booting"}


def test_progress_says_how_long_it_has_run_and_how_long_it_may_from_the_first_round_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("vmtax.experiment.progress.time.monotonic", lambda: now)
    state = screen.State()
    state.take(events.ExpectedTime(1200.0, 2400.0))
    state.take(events.RunStarted("x", (), 3, 7))
    now += 125.0
    assert state.progress() == "round 1 of at most 7, 2 m 05 s so far, about 18 to 40 minutes left"
    state.take(events.RoundFinished(1, 7, (600.0, 600.0), ()))
    now += 60.0
    assert state.progress() == "1 of 7 rounds done, 3 m 05 s so far, about 9 m 00 s left"
    assert state.progress(left=False) == "1 of 7 rounds done"
