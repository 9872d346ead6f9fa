"""What `make prove-lab` counts as a failure."""

from __future__ import annotations

import argparse
from unittest.mock import MagicMock

import pytest

from tools import prove_lab
from vmtax.lab.home import LabError


@pytest.mark.parametrize(("unflushed", "failures"), [("", []), ("0", ["1 cuts took nothing, not even what had"])])
def test_cuts_that_take_nothing_are_none(unflushed: str, failures: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    machine = MagicMock()
    machine.try_run.side_effect = lambda *argv: MagicMock(stdout="0" if argv[-1] == prove_lab.DURABLE else unflushed)
    for name in ("start", "stop", "cut", "LocalMachine"):
        monkeypatch.setattr(prove_lab, name, MagicMock())
    monkeypatch.setattr(prove_lab, "reach", lambda local, one: machine)
    tally = prove_lab.Tally()
    prove_lab.prove(tally, MagicMock(), MagicMock(), argparse.Namespace(starts=0, cuts=1, restores=0))
    assert (tally.cuts, tally.taken) == (1, not failures)
    assert [line[:38] for line in tally.failures] == failures


def test_a_stop_that_cut_the_power_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prove_lab, "stop", MagicMock(side_effect=LabError("its power was cut")))
    tally = prove_lab.Tally()
    tally.stopped(MagicMock())
    assert tally.failures == ["its power was cut"]


def test_nothing_is_left_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    cut, remove, one = MagicMock(), MagicMock(), MagicMock()
    for name, fake in (("cut", cut), ("remove", remove), ("lab", lambda name: one)):
        monkeypatch.setattr(prove_lab, name, fake)
    monkeypatch.setattr(prove_lab, "prove", MagicMock(side_effect=SystemExit(143)))  # as after SIGTERM
    monkeypatch.setattr("sys.argv", ["prove_lab"])
    monkeypatch.setattr(prove_lab.signal, "signal", MagicMock())
    monkeypatch.setenv("XDG_DATA_HOME", "/nowhere")
    with pytest.raises(SystemExit):
        prove_lab.main()
    assert cut.call_count == remove.call_count == 2
