"""Who used the CPUs of a host with Windows, by the documented shapes of its counters. None was printed by a Windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.sample import sample_experiment
from vmtax.analysis.analysis import Analysis
from vmtax.core.machines import MachineLost
from vmtax.machine.windows.command import WindowsOutcome
from vmtax.meter import MeteredCommand
from vmtax.meter.windows_ledger import LINE, TICK, UNIT, WindowsLedger, WindowsReading, parse, reckon
from vmtax.report.figures import ledger_picture
from vmtax.report.sections import ledger as section

# Two processors with Hyper-V, two VMs, and the host's own Windows, 10 s apart: by how much each counter
# grows in that time, in seconds.
KINDS = {
    "logical": {"Hv LP 0": (2.0, 0.5), "Hv LP 1": (6.0, 0.5), "_Total": (8.0, 1.0)},
    "root": {"Root VP 0": (1.5,), "Root VP 1": (0.5,), "_Total": (2.0,)},
    "virtual": {"web|1: a:Hv VP 0": (6.0,), "web|1: a:Hv VP 1": (2.0,), "old:Hv VP 0": (1.0,), "_Total": (9.0,)},
    "windows": {
        "0,0": (6.0, 2.0, 2.0, 0.5, 0.5),
        "0,1": (10.0, 0.0, 0.0, 0.0, 0.0),
        "0,_Total": (8.0, 1.0, 1.0, 0.2, 0.2),
        "_Total": (8.0, 1.0, 1.0, 0.2, 0.2),
    },
}
SECONDS, READER = 10.0, 0.4


def printed(passed: float, kinds: Mapping[str, Mapping[str, tuple[float, ...]]] = KINDS, reader: float = READER) -> str:
    """What the program prints after these seconds; each class was read a little later than the one before."""
    lines = []
    for place, (kind, processors) in enumerate(kinds.items()):
        for name, counters in processors.items():
            numbers = [1000.0 + place + passed, *(77.0 + value * passed / SECONDS for value in counters)]
            lines.append(f"{kind}={'|'.join(f'{number / UNIT:.0f}' for number in numbers)}|{name}")
    return "\r\n".join([*lines, f"reader={reader / UNIT:.0f}", ""])


def entries(
    kinds: Mapping[str, Mapping[str, tuple[float, ...]]] = KINDS, vm: str | None = "web|1: a"
) -> dict[str, float]:
    before, after = parse(printed(0.0, kinds)), parse(printed(SECONDS, kinds))
    assert before is not None and after is not None
    return reckon(before, after, vm)


def test_the_entries_of_a_host_of_hyper_v_add_up_to_its_busy_time() -> None:
    """The hypervisor says how long the host's Windows ran, 2 s, and Windows, which counted 4 s, what it did then."""
    found = entries()
    assert found.pop("seconds") == pytest.approx(SECONDS) and found.pop("error") == 2 * TICK * 2
    assert found == pytest.approx(
        {
            "guest": 8.0,
            "other_vms": 1.0,
            "hypervisor": 1.0,
            "hard_irq": 0.25,
            "soft_irq": 0.25,
            "user": 1.0 * 1.1 / 1.5,
            "kernel": 0.5 * 1.1 / 1.5,
            "vmtax": 0.4,
            "busy": 12.0,
            "remainder": 0.0,
        }
    )


@pytest.mark.parametrize(("vm", "guest", "others"), [("", 9.0, 0.0), ("no such VM", 9.0, 0.0), (None, 0.0, 9.0)])
def test_vms_are_measured_together_if_which_of_them_is_is_not_known(
    vm: str | None, guest: float, others: float
) -> None:
    """And none is if only the host is."""
    found = entries(vm=vm)
    assert (found.get("guest", 0.0), found.get("other_vms", 0.0)) == pytest.approx((guest, others))


def test_a_windows_without_a_hypervisor_has_its_own_counters() -> None:
    found = entries({"windows": KINDS["windows"]})
    assert {"guest", "hypervisor"}.isdisjoint(found) and found["busy"] == pytest.approx(4.0)
    assert sum(found[name] for name in ("user", "kernel", "hard_irq", "soft_irq", "vmtax")) == pytest.approx(4.0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "reader=1\n",
        printed(0.0).replace("reader", "other"),
        printed(0.0).replace("reader=", "reader=-"),
        "windows=1|2|3|4|5|6|_Total\nreader=1\n",
        "windows=1|2|3|4|5|x|0\nreader=1\n",
        f"windows={9**30}|2|3|4|5|6|0\nreader=1\n",
        "windows=1|2|3|4|5|-6|0\nreader=1\n",
    ],
)
def test_what_is_not_understood_is_no_reading(text: str) -> None:
    assert parse(text) is None


def both() -> tuple[WindowsReading, WindowsReading]:
    before, after = parse(printed(0.0)), parse(printed(SECONDS))
    assert before is not None and after is not None
    return before, after


def test_processors_that_come_or_go_and_counters_that_begin_again_take_nothing() -> None:
    before, after = both()
    gone = {name: counted for name, counted in before.virtual.items() if name != "old:Hv VP 0"}
    assert "other_vms" not in reckon(replace(before, virtual=gone), after, "web|1: a"), "it was started meanwhile"
    again = {name: [when, *(0.0 for _ in rest)] for name, (when, *rest) in after.virtual.items()}
    assert "guest" not in reckon(before, replace(after, virtual=again), "web|1: a")
    one = {name: counted for name, counted in before.logical.items() if name == "Hv LP 0"}
    assert reckon(replace(before, logical=one), after)["busy"] == pytest.approx(8.0), "the other one has no idle time"
    assert reckon(after, after) == {} and reckon(after, before) == {}


@pytest.mark.parametrize("lacks", [("logical",), ("root",), ("virtual",), ("logical", "root", "virtual")])
def test_a_class_that_answers_once_only_makes_no_entries(lacks: tuple[str, ...]) -> None:
    """They would be those of a host that is not so."""
    (before, after), lost = both(), {name: dict[str, list[float]]() for name in lacks}
    assert not reckon(before, replace(after, **lost)) and not reckon(replace(before, **lost), after)
    assert bool(reckon(replace(before, **lost), replace(after, **lost))) == (lacks in (("virtual",), (*KINDS,)[:3]))


class FarWindows:
    """Gives these answers, one after the other; None: it is lost."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)

    def carry(self, line: str) -> WindowsOutcome:
        assert line == LINE
        answer = self.answers.pop(0)
        if answer is None:
            raise MachineLost("host: a command did not end")
        return WindowsOutcome(answer, "", 0)


def readings(*answers: str | None) -> Any:
    meter = WindowsLedger(FarWindows(*answers), "web|1: a")
    meter.before(cast("Any", None))
    return meter.after(cast("Any", None), [MeteredCommand("fio", ok=True, seconds=9.0, operations=5.0)])


def test_a_trial_has_the_entries_and_what_the_host_was_busy_with() -> None:
    """The time of the reading itself counts for no operation."""
    found = readings(printed(0.0), printed(SECONDS))
    assert found.rows["guest"] == pytest.approx(8.0) and found.rows["operations"] == 5.0
    assert found.disturbance.busy_seconds == pytest.approx(11.6)
    assert found.disturbance.wall_seconds == pytest.approx(SECONDS)


@pytest.mark.parametrize("answers", [("", printed(SECONDS)), (printed(0.0), ""), (None, printed(0.0)), (LINE, None)])
def test_a_windows_that_does_not_answer_has_no_entries(answers: tuple[str | None, ...]) -> None:
    found = readings(*answers)
    assert not found.rows and found.disturbance is None


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        (KINDS, "Hyper-V counts how long VMs, the host's own Windows and its hypervisor ran"),
        ({"windows": KINDS["windows"]}, "Windows' own counters split its time"),
    ],
)
def test_a_report_says_who_counted_and_names_the_parts(kinds: Any, words: str) -> None:
    run = sample_experiment()
    rows = {f"ledger.{name}": value for name, value in entries(kinds).items()}
    analysis = Analysis(replace(run, trials=tuple(replace(trial, readings={"host": rows}) for trial in run.trials)))
    found = section.section(analysis)
    assert found is not None
    said = str(found.blocks)
    assert words in said and "On KVM" not in said and "programs 0." in said
    assert ("Hyper-V's hypervisor 0.10" in said and "other VMs 0.10" in said) == ("virtual" in kinds)
    drawn = ledger_picture(analysis.ledger, ())
    assert drawn is not None and ("other VMs" in [key.text for key in drawn.legend]) == ("virtual" in kinds)
