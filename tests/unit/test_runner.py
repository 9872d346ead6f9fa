"""The experiment loop on fake machines: order, what is recorded, what a failure costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fake_machine import Reply
from tests.fake_testbed import PLAN, SEVEN, Lab, bench
from vmtax.core.events import Event, RoundFinished, RunFinished, TrialFinished
from vmtax.core.records import Trial
from vmtax.experiment.loop import Loop
from vmtax.experiment.resume import CannotResume, worked_seconds
from vmtax.hypervisor import BootFailed
from vmtax.machine import MachineLost
from vmtax.storage import FirstWrite, Target
from vmtax.store import StoreError
from vmtax.testbed.session.session import TestbedOptions


@pytest.fixture
def lab(tmp_path: Path) -> Callable[..., Lab]:
    return lambda plan, answer: Lab(plan, answer, tmp_path)


def test_every_treatment_once_in_every_round_and_all_of_it_stored(lab: Callable[..., Lab]) -> None:
    made = lab(SEVEN, lambda number, name: bench(rate=10_000 + number))
    found = made.run()
    assert found.state == "complete"
    assert len(found.trials) == 7 * (2 * 2 + 1), "the A/A runs only what stopping is about"
    for number in range(1, 8):
        order = {(trial.treatment, trial.position) for trial in found.trials if trial.round == number}
        assert {name for name, _ in order} == {"host", "vm", "vm again"} and {place for _, place in order} == {1, 2, 3}
    firsts = {trial.treatment for trial in found.trials if trial.position == 1}
    assert firsts == {"host", "vm", "vm again"}, "the order is drawn anew"
    assert sum(isinstance(event, TrialFinished) for event in made.events) == 35


def test_what_is_valid_once_in_a_boot_needs_no_fresh_disk_unless_it_is_about_one(lab: Callable[..., Lab]) -> None:
    plan = "name: t\nlayers: [host, vm]\nworkloads: [touch]\niterations: 3\nrounds: {min: 1, max: 1}\nbudget: none\n"
    line = "vmtax touch: 65536 pages, first 0.100000000 s, again 0.050000000 s\n"
    found = lab(plan, lambda number, name: Reply(stdout=line)).run()
    trials = [(trial.treatment, trial.iteration, trial.status) for trial in found.trials]
    assert sorted(trials) == [("host", 1, "ok"), ("vm", 1, "ok"), ("vm again", 1, "ok")]


def test_a_failing_workload_is_recorded_and_the_run_goes_on(lab: Callable[..., Lab]) -> None:
    def answer(number: int, name: str) -> Reply:
        if name == "vm" and number == 3:
            return Reply(stdout="half of it", stderr="Illegal instruction", code=132)
        return Reply(stdout="garbage") if name == "vm" and number == 4 else bench()

    found = lab(SEVEN, answer).run()
    failed = [trial for trial in found.trials if trial.status == "failed"]
    assert {trial.round for trial in failed} == {3, 4} and len(failed) == 4
    assert any("exit code 132: Illegal instruction" in (trial.error or "") for trial in failed)
    assert any("no line 'Nodes" in (trial.error or "") for trial in failed)
    assert found.state == "complete" and max(trial.round for trial in found.trials) == 7


def test_other_work_is_refused(lab: Callable[..., Lab]) -> None:
    found = lab(SEVEN, lambda number, name: bench(nodes=1000 if name == "host" else 1001)).run()
    refused = [trial for trial in found.trials if trial.status == "refused"]
    assert len(refused) == 7 and len({trial.treatment for trial in refused}) == 1
    assert all("not the same work" in (trial.error or "") and trial.measurements == () for trial in refused)
    assert not [trial for trial in found.trials if trial.treatment == refused[0].treatment and trial.case == ""]


def test_ctrl_c_keeps_what_was_measured(lab: Callable[..., Lab]) -> None:
    def answer(number: int, name: str) -> Reply:
        if number == 3:
            raise KeyboardInterrupt
        return bench()

    made = lab(SEVEN, answer)
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert made.experiment.state == "interrupted" and len(made.experiment.trials) == 10


def test_a_guest_that_does_not_boot_stops_only_the_first_round(lab: Callable[..., Lab]) -> None:
    later = lab(SEVEN, lambda number, name: BootFailed("no answer") if (number, name) == (5, "vm") else bench())
    found = later.run()
    (failed,) = [trial for trial in found.trials if trial.status == "failed"]
    assert (failed.round, failed.workload, failed.error) == (5, "boot", "no answer")
    at_once = lab(SEVEN, lambda number, name: BootFailed("no answer") if name == "vm" else bench())
    with pytest.raises(BootFailed, match="no answer"):
        at_once.run()
    assert at_once.experiment.state == "failed"


@pytest.mark.parametrize("seed", [2, 4, 6])
@pytest.mark.varied(1)
def test_a_treatment_that_never_boots_is_recorded_and_the_run_goes_on(lab: Callable[..., Lab], seed: int) -> None:
    """Also where chance puts it first of all; where nothing boots, the run ends in its first round."""
    plan = SEVEN.replace("seed: 5", f"seed: {seed}") + "factors: {cpu.mitigations: [auto, off]}\n"
    found = lab(plan, lambda number, name: BootFailed("no answer") if name.endswith("=off") else bench()).run()
    failed = [trial for trial in found.trials if trial.status == "failed"]
    assert found.state == "complete" and [trial.round for trial in failed] == list(range(1, 8))
    assert {(trial.treatment, trial.workload, trial.error) for trial in failed} == {
        ("vm cpu.mitigations=off", "boot", "no answer")
    }
    nothing = lab(plan, lambda number, name: BootFailed("no answer") if name.startswith("vm") else bench())
    with pytest.raises(BootFailed, match="no answer"):
        nothing.run()
    assert {trial.round for trial in nothing.experiment.trials} == {1}


@pytest.mark.variations
def test_half_of_the_treatments_may_fail_whatever_the_order(lab: Callable[..., Lab]) -> None:
    factors = "factors: {disk.bus: [virtio, virtio-scsi, ide, sata, nvme], cpu.mitigations: [auto, off]}\n"
    tried: list[str] = []

    def answer(number: int, name: str) -> Reply | BootFailed:
        """The first five to be tried never come up, the others always do."""
        if name not in tried:
            tried.append(name)
        return BootFailed("no answer") if name.startswith("vm") and tried.index(name) < 5 else bench()

    plan = SEVEN.replace("[host, vm]", "[vm]") + factors
    assert "layers: [vm]" in plan
    found = lab(plan, answer).run()
    assert found.state == "complete" and {trial.status for trial in found.trials} == {"ok", "failed"}


def test_a_precise_run_stops_at_its_first_look(lab: Callable[..., Lab]) -> None:
    made = lab(
        PLAN + "rounds: {min: 7, max: 60}\n", lambda number, name: bench(rate=10_000 + (7 * number + len(name)) % 5)
    )
    made.run()
    rounds = [event for event in made.events if isinstance(event, RoundFinished)]
    assert len(rounds) == 10 and rounds[-1].seconds_left == (0.0, 0.0)
    low, high = rounds[0].seconds_left
    assert low < high, "after one round it is a range"
    assert all(one.seconds_left[0] == one.seconds_left[1] for one in rounds[1:])


def test_a_metric_that_only_one_layer_has_does_not_keep_a_run_from_stopping(lab: Callable[..., Lab]) -> None:
    plan = PLAN.replace("[chess]", "[chess, boot]").replace(
        "nodes_per_second]", "nodes_per_second, boot.ready_seconds]"
    )
    made = lab(
        plan + "rounds: {min: 7, max: 60}\n", lambda number, name: bench(rate=10_000 + (7 * number + len(name)) % 5)
    )
    made.run()
    assert sum(isinstance(event, RoundFinished) for event in made.events) == 10


def test_a_primary_metric_without_a_result_is_not_precise(lab: Callable[..., Lab]) -> None:
    plan = PLAN.replace("nodes_per_second]", "nodes_per_second, chess.one-thread.nodes_per_second]")
    failing = Reply(stdout="garbage")
    made = lab(plan + "rounds: {min: 7, max: 12}\n", lambda number, name: failing if name == "vm" else bench())
    made.run()
    assert sum(isinstance(event, RoundFinished) for event in made.events) == 12


def stopped_in_round(stop: int, error: type[BaseException] = KeyboardInterrupt) -> Callable[[int, str], Reply]:
    """An answer that ends the run once, when `vm` is opened for the `stop`th time."""
    ended: list[int] = []

    def answer(number: int, name: str) -> Reply:
        if (number, name) == (stop, "vm") and not ended:
            ended.append(number)
            raise error
        return bench()

    return answer


def identity(trial: Trial) -> tuple[int, int, str, str, str]:
    return trial.round, trial.position, trial.treatment, trial.workload, trial.case


def test_a_stopped_run_is_finished_without_repeating_a_trial(lab: Callable[..., Lab]) -> None:
    whole = [
        identity(trial) for trial in lab(SEVEN.replace("fake", "whole"), lambda number, name: bench()).run().trials
    ]
    made = lab(SEVEN, stopped_in_round(4))
    with pytest.raises(KeyboardInterrupt):
        made.run()
    kept = made.experiment.trials
    assert made.experiment.state == "interrupted" and 12 <= len(kept) < 28
    found = made.resume()
    assert found.id == made.experiment.id and found.state == "complete"
    assert found.trials[: len(kept)] == kept, "what was there stays as it was"
    assert [identity(trial) for trial in found.trials] == whole, "the order that was drawn at the start goes on"
    (note,) = [note for note in found.notes if "resumed" in note]
    assert "stopped (interrupted) in round" in note and "rebooted" not in note


def test_a_boot_that_was_cut_in_the_middle_is_finished_in_another(lab: Callable[..., Lab]) -> None:
    """chess has two cases: the run ends between them."""
    made = lab(SEVEN, lambda number, name: bench())
    add = made.emit
    made.emit = lambda event: (_ for _ in ()).throw(KeyboardInterrupt) if third(event) else add(event)

    def third(event: object) -> bool:
        return isinstance(event, TrialFinished) and sum(isinstance(e, TrialFinished) for e in made.events) == 2

    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert len(made.experiment.trials) == 3, "the trial was committed before anybody heard of it"
    made.emit = add
    trials = made.resume().trials
    assert len(trials) == 35 and len({identity(trial) for trial in trials}) == 35


def test_other_work_is_refused_after_a_resume_too(lab: Callable[..., Lab]) -> None:
    made = lab(SEVEN, stopped_in_round(4))
    with pytest.raises(KeyboardInterrupt):
        made.run()
    made.answer = lambda number, name: bench(nodes=999)
    later = [trial for trial in made.resume().trials[-9:] if trial.case == "one-thread"]
    assert len(later) == 6 and {trial.status for trial in later} == {"refused"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cpu_model": "Another CPU"}, "cpu_model was Fake CPU, is Another CPU"),
        ({"kernel_release": "7.0"}, "kernel_release was None, is 7.0"),
        ({"mitigations": {"spectre_v2": "Vulnerable"}}, "mitigations was None"),
        ({"kernel_pack": {"digest": "77aa"}}, "it built kernels with pack 5d1c, and the cache has another one"),
        ({"kernel_pack": None}, "it built kernels with pack 5d1c, and it is not in the cache any more"),
    ],
)
@pytest.mark.varied(2)
def test_another_host_is_no_place_to_go_on(lab: Callable[..., Lab], change: dict[str, str], words: str) -> None:
    made = lab(SEVEN, stopped_in_round(4))
    made.facts["kernel_pack"] = {"digest": "5d1c"}
    with pytest.raises(KeyboardInterrupt):
        made.run()
    made.facts |= change
    with pytest.raises(CannotResume, match=words):
        made.resume()
    assert made.experiment.state == "interrupted", "it is still as it was"
    assert made.provisioned == 1, "nothing is made on it"


def test_what_has_become_impossible_is_reported_when_a_run_is_resumed(lab: Callable[..., Lab]) -> None:
    made = lab(SEVEN, stopped_in_round(4))
    with pytest.raises(KeyboardInterrupt):
        made.run()
    made.impossible = {"vm": "qcow2 is gone"}
    with pytest.raises(CannotResume, match="cannot be resumed: vm: qcow2 is gone"):
        made.resume()
    made.impossible = {}
    assert made.resume().state == "complete"


def test_leave_to_erase_is_not_kept() -> None:
    options = TestbedOptions(target=Target(devices=("/dev/sdb",), erase=frozenset({"/dev/sdb"})))
    kept = TestbedOptions.from_json(options.to_json()).target
    assert kept.devices == ("/dev/sdb",) and kept.erase == frozenset()


def test_only_what_was_stopped_is_gone_on_with(lab: Callable[..., Lab]) -> None:
    made = lab(SEVEN, lambda number, name: bench())
    made.run()
    with pytest.raises(CannotResume, match="is complete"):
        made.resume()
    with made.store as store, pytest.raises(StoreError, match="is complete and cannot be resumed"):
        store.resume(made.experiment.id)


def test_a_reboot_in_between_is_reported(lab: Callable[..., Lab]) -> None:
    made = lab(SEVEN, stopped_in_round(4))
    with pytest.raises(KeyboardInterrupt):
        made.run()
    kept = len(made.experiment.trials)
    made.facts["boot_id"] = "second"
    found = made.resume()
    assert any("the host was rebooted in between" in note for note in found.notes)
    stopped = made.experiment.trials[kept - 1].round
    assert {trial.round for trial in found.trials[kept:]} == set(range(stopped + 1, 8)), "no round spans the reboot"


def test_a_resumed_run_in_which_nothing_comes_up_stops_at_once(lab: Callable[..., Lab]) -> None:
    made = lab(SEVEN, stopped_in_round(4))
    with pytest.raises(KeyboardInterrupt):
        made.run()
    made.answer = lambda number, name: BootFailed("no answer") if name == "vm" else bench()
    with pytest.raises(BootFailed):
        made.resume()
    assert made.experiment.state == "failed", "and can be resumed again"
    made.answer = lambda number, name: bench()
    assert made.resume().state == "complete"


def test_a_lost_host_ends_the_run_and_a_lost_guest_does_not(lab: Callable[..., Lab]) -> None:
    made = lab(SEVEN, lambda number, name: MachineLost("host: gone") if number == 3 else bench())
    made.run()
    assert made.experiment.state == "complete", "guests were lost, the host was not"
    made.host_answers = MachineLost("host: gone")
    made.opened_in_round.clear()
    with pytest.raises(MachineLost):
        made.run()
    assert made.experiment.state == "failed" and max(trial.round for trial in made.experiment.trials) == 2


@pytest.mark.parametrize(
    ("seconds", "why"),
    [
        (500.0, "after 7 rounds, which the budget of 10 m 00 s allowed"),
        (660.0, "after 7 rounds, which the budget of 10 m 00 s allowed"),  # a round is not cut off
        (661.0, "after 7 rounds, the fewest, which took more than the budget of 10 m 00 s"),
    ],
)
def test_a_run_says_whether_it_kept_to_its_budget(seconds: float, why: str) -> None:
    loop: Any = SimpleNamespace(plan=SimpleNamespace(budget=600.0))
    assert Loop._budget_over(loop, 7, seconds) == why


def test_a_clock_that_is_set_back_costs_nothing(lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(1_800_000_000, 0, -3600))  # an hour back at every look
    monkeypatch.setattr("time.time", lambda: float(next(times)))
    found = lab(SEVEN, lambda number, name: bench()).run()
    assert found.state == "complete" and len(found.trials) == 35
    assert all(trial.wall_seconds >= 0 for trial in found.trials)


def test_how_each_disk_came_to_be_is_kept_as_soon_as_it_is_known(lab: Callable[..., Lab]) -> None:
    first = FirstWrite("raw file", 2**20, 2**20, "fio", 1.0, 2.0, "before the first round")

    def answer(number: int, name: str) -> Reply:
        if number == 3:  # a carrier's first boot fills the nested disk
            made.first_writes["nested"] = replace(first, when="in the carrier's first boot")
        return bench()

    made = lab(SEVEN, answer)
    made.facts["disk"] = {"device": "/dev/vda"}
    made.first_writes["host"] = first
    disk = made.run().facts["host"]["disk"]
    assert disk["device"] == "/dev/vda" and disk["first_write"]["host"] == first.to_json()
    assert disk["first_write"]["nested"]["when"] == "in the carrier's first boot"


def test_a_run_has_one_duration_over_all_its_sessions_without_the_pause_between_them(lab: Callable[..., Lab]) -> None:
    made = lab(SEVEN, stopped_in_round(4))
    with pytest.raises(KeyboardInterrupt):
        made.run()
    before = made.experiment.seconds
    assert before is not None and before > 0
    with made.store as store:  # a pause of an hour
        long_ago = made.experiment.created - 3600
        with store._database.writing() as connection:
            connection.exec_driver_sql("UPDATE experiment SET created = ?", (long_ago,))
    found = made.resume()
    (end,) = [event for event in made.events if isinstance(event, RunFinished)]
    assert end.seconds == found.seconds == found.took
    assert before < end.seconds < 3600


def test_of_a_killed_run_the_time_of_all_its_sessions_counts(lab: Callable[..., Lab]) -> None:
    made = lab(SEVEN, stopped_in_round(4))
    with pytest.raises(KeyboardInterrupt):
        made.run()
    before = made.experiment.seconds
    kept = []

    def look(event: Event) -> None:
        if isinstance(event, TrialFinished):
            with made.store as store:
                kept.append(store.load("last").seconds)  # as it stands there if the run is killed now

    made.emit = look
    found = made.resume()
    assert before is not None and kept == sorted(kept) and before < kept[0] <= kept[-1] <= (found.seconds or 0)


def test_of_a_run_that_an_earlier_version_left_the_time_until_its_newest_trial_counts(lab: Callable[..., Lab]) -> None:
    made = lab(SEVEN, stopped_in_round(4))
    with pytest.raises(KeyboardInterrupt):
        made.run()
    killed = replace(made.experiment, seconds=None, finished=None)
    newest = max(trial.started + trial.wall_seconds for trial in killed.trials)
    assert worked_seconds(killed) == pytest.approx(newest - killed.created) and killed.took is None
