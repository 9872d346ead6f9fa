"""What guests that work at once take of memory, read after each trial on the machine that runs each of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.fake_machine import FakeMachine
from vmtax.machine import MachineLost
from vmtax.meter import MeteredCommand
from vmtax.testbed.host.footprint import Footprint

WORK = MeteredCommand("fio", ok=True, seconds=10.0)
READ = {"resident_bytes": 2.0**29, "beyond_bytes": 5e7, "huge_bytes": 0.0}


def guest(path: str, found: dict[str, float] | Exception) -> Any:
    asked: list[str] = []

    def memory_readings(parent: FakeMachine) -> dict[str, float]:
        asked.append(parent.path)
        if isinstance(found, Exception):
            raise found
        return found

    return SimpleNamespace(path=path, memory_readings=memory_readings, asked=asked)


def test_each_guest_is_looked_at_from_the_machine_that_runs_it() -> None:
    host, outer = FakeMachine("host"), FakeMachine("host/vm")
    beside, nested = guest("host/vm-2", READ), guest("host/vm/vm", READ)
    meter: Any = Footprint([(beside, host), (nested, outer)])  # type: ignore[list-item]
    wanted = {"resident_bytes": 2.0**29, "beyond_bytes": 5e7}
    assert meter.after(FakeMachine("host/vm-2"), [WORK]).rows == wanted
    assert meter.after(FakeMachine("host/vm/vm"), [WORK]).rows == wanted
    assert (beside.asked, nested.asked) == (["host"], ["host/vm"])


def test_what_is_no_guest_or_is_lost_has_no_readings() -> None:
    host = FakeMachine("host")
    meter: Any = Footprint([(guest("host/vm", MachineLost("host: gone")), host)])  # type: ignore[list-item]
    assert meter.after(host, [WORK]).rows == {}, "a set of processes on the host"
    assert meter.after(FakeMachine("host/vm"), [WORK]).rows == {}
    assert meter.after(FakeMachine("host/vm"), [MeteredCommand("fio", ok=False, seconds=1.0)]).rows == {}
