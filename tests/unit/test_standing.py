"""A lab that answers may stand still: a CPU without a timer, a disk that does not answer."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fake_machine import FakeMachine, Reply
from tests.sample_lab import home, made
from vmtax.lab import standing
from vmtax.lab.home import LabError
from vmtax.lab.standing import LIMIT_SECONDS, why_standing
from vmtax.machine.local import PYTHON
from vmtax.machine.reader import LocalReader
from vmtax.testbed.host import hosts

__all__ = ["home"]
WHOLE = "begins CPU 0\nbegins CPU 1\nbegins flush\ndone\n"


def stuck(stdout: str) -> Reply:
    return Reply(stdout, seconds=LIMIT_SECONDS + 1)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Reply(WHOLE), ""),
        (stuck(WHOLE), ""),
        (stuck("begins CPU 0\nbegins CPU 1\nbegins flush\n"), "a flush of /var/tmp has not returned in 60 s"),
        (stuck("begins CPU 0\n"), "CPU 0 has not answered in 60 s"),
        (stuck(""), "a program has not answered in 60 s"),
        (
            Reply("begins CPU 0\nstopped CPU 0\nbegins CPU 1\nbegins flush\ndone\n"),
            "the local timer of CPU 0 has stopped",
        ),
        (stuck("begins CPU 0\nstopped CPU 0\nbegins CPU 1\n"), "the local timer of CPU 0 has stopped"),
        (Reply("stopped CPU 0\nstopped CPU 3\n"), "the local timer of CPU 0 and CPU 3 has stopped"),
        (Reply("", "python3: not found", 127), ""),
        (Reply("begins CPU 0\n", "No space left on device", 1), ""),
    ],
)
def test_what_stands_still_is_named(reply: Reply, why: str) -> None:
    assert why_standing(FakeMachine(answers={lambda argv: argv[0] == PYTHON: reply})) == why


def test_the_probe_finds_a_machine_that_works_working() -> None:
    assert why_standing(LocalReader()) == ""


def test_the_probe_finds_a_timer_that_does_not_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = " ".join(["314"] * 4096)
    (tmp_path / "interrupts").write_text(f"  CPU0 CPU1\n 24: 0 1\nLOC: {counts} Local timer interrupts\n")
    monkeypatch.setattr(standing, "INTERRUPTS", str(tmp_path / "interrupts"))
    monkeypatch.setattr(standing, "TICK_SECONDS", 0.01)
    assert re.fullmatch(r"the local timer of CPU \d+( and CPU \d+)* has stopped", why_standing(LocalReader()))


def test_a_run_does_not_begin_on_a_lab_that_stands_still(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made("blue")
    monkeypatch.setattr(hosts, "lab_standing", lambda one: f"hangs: why; vmtax lab cut {one.name}")
    monkeypatch.setattr(hosts, "reach", lambda *_: pytest.fail("it was begun"))
    with pytest.raises(LabError, match="lab blue hangs: why; vmtax lab cut blue"):
        hosts.connect(SimpleNamespace(), "lab:blue", "host")  # type: ignore[arg-type]  # not used
