"""What `vmtax run` does before the question: nothing that can be known beforehand is found out after the answer."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.sample import sample_experiment, unstarted
from tests.unit.test_preview import host
from vmtax.cli import measuring
from vmtax.cli.app import BadUse
from vmtax.cli.files import check_room
from vmtax.cli.work import RunWork, written_per_round
from vmtax.core.errors import BadInput, CannotDo
from vmtax.core.events import Event, Step
from vmtax.core.records import Experiment
from vmtax.design.reboots import Block
from vmtax.experiment import live
from vmtax.experiment.preview import Place
from vmtax.experiment.real_cut import PowerWasCut
from vmtax.experiment.reboots import RebootNeeded
from vmtax.experiment.runner import Options
from vmtax.hypervisor import Accelerator
from vmtax.machine.hold import EARLIER, Turn
from vmtax.meter.neighbours import Neighbours
from vmtax.plan.schema import load
from vmtax.store import Store
from vmtax.store.owner import this_process
from vmtax.testbed.session.exclusive import HostBusy, others_first
from vmtax.testbed.session.power import PowerCut
from vmtax.testbed.session.session import Hosts, TestbedOptions

WHY = "there is no /dev/kvm"
SAMPLE = sample_experiment(rounds=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.sqlite") as made:
        yield made


def work(resumed: Experiment | None = None, *, or_demo: bool = False, emulate: bool = False) -> RunWork:
    found = RunWork(load("quick"), Options("vmtax run"), resumed, or_demo=or_demo)
    return found.emulating() if emulate else found


def place(*accelerators: Accelerator) -> Place:
    plan = load("quick")
    below = {"emulated_cpu": False, "virtualized": False, "hypervisor": None}
    return Place(host(), "local", plan, plan.entries(), below, accelerators=accelerators)


def test_an_emulated_run_takes_consent(store: Store) -> None:
    with pytest.raises(BadInput, match=r"local: there is no /dev/kvm\. .* minutes, .*--emulate"):
        measuring._emulated(store, work(), [place()], WHY)
    consented = work(emulate=True)
    assert measuring._emulated(store, consented, [place()], WHY) == consented


def test_a_demonstration_is_short_and_marked_in_the_run(store: Store) -> None:
    found = measuring._emulated(store, work(or_demo=True), [place()], WHY)
    assert (found.plan.rounds.min, found.plan.rounds.max) == (3, 3)
    options = found.options.testbed.to_json()
    assert options["demonstration"] is True and TestbedOptions.from_json(options).emulate
    assert "demonstration" not in TestbedOptions().to_json()


def test_a_run_that_was_emulated_is_resumed_without_asking_again(store: Store) -> None:
    begun = work(SAMPLE)
    assert measuring._emulated(store, begun, [place()], WHY) == begun
    with pytest.raises(BadInput, match="--emulate"):
        measuring._emulated(store, work(dataclasses.replace(SAMPLE, facts={})), [place()], WHY)


def test_a_host_without_kvm_is_refused_before_an_image_is_built_and_before_the_question(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def connected(*_: Any) -> Iterator[Hosts]:
        yield Hosts(host(), host())

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is asked, built or examined")

    monkeypatch.setattr("vmtax.cli.measuring.connected", connected)
    monkeypatch.setattr("vmtax.cli.measuring.look", lambda *_: [place(Accelerator("tcg", WHY, tried=False))])
    for name in ("_examined", "agree"):
        monkeypatch.setattr(measuring, name, never)
    with pytest.raises(BadInput, match="--emulate runs it all the same"):
        measuring.measure(store, work(), yes=True)
    assert store.experiments() == []


def test_where_other_vms_run_on_any_host_no_is_the_answer_to_the_question() -> None:
    alone, beside = place(), dataclasses.replace(place(), neighbours=Neighbours(("kvm (pid 9)",)))
    assert measuring._question([alone, alone]) == "Begin? [Y/n]"
    for places in ([beside], [alone, beside], [beside, alone]):
        assert "other VMs" in measuring._question(places) and measuring._question(places).endswith("[y/N]")
    for known in ({"may_be_own": True}, {"is_cloned": True}):
        one, two = (Neighbours(tuple(f"kvm (pid {pid})" for pid in range(count)), **known) for count in (1, 2))
        assert measuring._question([dataclasses.replace(alone, neighbours=one)]) == "Begin? [Y/n]", "the user named it"
        assert "other VMs" in measuring._question([dataclasses.replace(alone, neighbours=two)])


def test_too_little_room_is_refused(tmp_path: Path) -> None:
    check_room(tmp_path, 1, "")
    with pytest.raises(BadUse, match=r"free, 1024.0 TiB are needed; name another"):
        check_room(tmp_path, 2**50, "name another")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), CannotDo("the disk is gone")])
@pytest.mark.varied(1)
def test_a_run_that_ends_early_keeps_its_headline(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def stopped(*_: Any, **__: Any) -> str:
        store.put(dataclasses.replace(sample_experiment(rounds=7), state="interrupted"))
        raise error

    monkeypatch.setattr(measuring, "_carry_out_in_boots", stopped)
    with pytest.raises(SystemExit):
        measuring.measure(store, work(), yes=True)
    (entry,) = store.experiments()
    assert entry.state == "interrupted" and entry.result.startswith("VM ")


def test_runs_says_what_a_run_waits_for_until_it_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run = dataclasses.replace(sample_experiment(rounds=7), state="interrupted")

    def stopped(*_: Any, **__: Any) -> str:
        store.put(run)
        raise RebootNeeded(run.id, Block(2, "mitigations=off"), ("mitigations=auto", "mitigations=off"))

    monkeypatch.setattr(measuring, "_carry_out_in_boots", stopped)
    with pytest.raises(SystemExit) as ended:
        measuring.measure(store, work(), yes=True)
    assert ended.value.code == 5
    assert store.experiments()[0].result == "waits for its host to be booted with mitigations=off"
    store.resume(run.id)
    assert store.experiments()[0].result == ""


@pytest.mark.parametrize(("error", "end"), [(None, "complete"), (CannotDo("the lab does not start"), "interrupted")])
def test_a_run_goes_on_while_its_lab_reboots_and_others_see_that(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    error: Exception | None,
    end: str,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    run = dataclasses.replace(SAMPLE, boots=(), trials=(), state="running", finished=None)
    seen: list[tuple[str, str]] = []

    def carry_out(_: Store, work: RunWork, *__: Any, **___: Any) -> str:
        if work.resumed is None:
            store.begin(run)
            raise RebootNeeded(run.id, Block(2, "mitigations=off"), ("mitigations=auto", "mitigations=off"))
        seen.append((store.load(run.id).state, ""))
        store.resume(run.id)
        store.finish(run.id, "complete", 1.0)
        return run.id

    def reboot(_: Any, arguments: Sequence[str], emit: Callable[[Event], None]) -> None:
        emit(Step("rebooting the lab", " ".join(arguments)))
        state = live.read(run.id)
        assert state is not None and state.progress().startswith("1 of ")
        seen.append((store.load(run.id).state, state.step))
        if error is not None:
            raise error

    monkeypatch.setattr(measuring, "_carry_out", carry_out)
    monkeypatch.setattr("vmtax.cli.measuring.reboot", reboot)
    begun = work()
    begun = dataclasses.replace(begun, plan=begun.plan.model_copy(update={"host": "lab:x"}))
    with pytest.raises(CannotDo) if error else contextlib.nullcontext():
        measuring._carry_out_in_boots(store, begun, yes=True)
    assert seen[0] == ("running", "rebooting the lab: mitigations=off") and store.load(run.id).state == end
    assert seen[1:] == ([] if error else [("running", "")])


def test_each_session_cuts_the_power_by_the_command_that_was_agreed_to(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the run began with another, which is what the store has."""
    old, new = PowerCut(("/bin/old",)), PowerCut(("/bin/new", "1"), 60.0)
    begun = work()
    options = dataclasses.replace(begun.options.testbed, power_cut=old, emulate=True).to_json()
    store.begin(dataclasses.replace(SAMPLE, boots=(), trials=(), state="running", finished=None, options=options))
    used: list[object] = []

    def carry_out(_: Store, work: RunWork, *__: Any, **___: Any) -> str:
        assert work.options.testbed.emulate or not used, "as was found out in the first session"
        used.append(work.options.testbed.power_cut)
        if len(used) < 3:
            raise PowerWasCut(SAMPLE.id)
        return SAMPLE.id

    monkeypatch.setattr(measuring, "_carry_out", carry_out)
    measuring._carry_out_in_boots(store, begun.on(dataclasses.replace(begun.options.testbed, power_cut=new)), yes=True)
    assert used == [new, new, new]


def test_what_is_expected_to_be_written_is_what_earlier_trials_wrote_and_no_guess(store: Store) -> None:
    disk = next(each for each in load("quick").build_workloads() if each.name == "disk")
    wrote = [trial for trial in SAMPLE.trials if trial.workload == "disk"]
    last = next(trial for trial in wrote if trial.case == "write-1m")
    failed = [dataclasses.replace(last, status="failed", measurements=())]
    earlier = dataclasses.replace(SAMPLE, trials=(*SAMPLE.trials, *failed), plan=load("quick").model_dump(mode="json"))
    store.put(earlier)
    expected = written_per_round(store, work(), [place()], "emulated, as it was")
    assert expected is not None
    assert expected == pytest.approx(sum(map(disk.written_by, wrote)) / len({trial.round for trial in wrote}))


def test_a_host_that_another_run_of_the_store_measures_under_another_name_is_busy(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "ids_of", lambda hosts: ["measures 1", "measures 2"])
    hosts: Any = None
    with Store(store.path) as theirs:
        assert theirs.take_host("measures 2")
        with pytest.raises(HostBusy, match="another run of this store measures this host, perhaps under another name"):
            measuring._alone_on_machines(store, hosts, waits=False)
        told: list[object] = []
        monkeypatch.setattr(measuring.progress, "tell", told.append)
        monkeypatch.setattr("time.sleep", lambda seconds: theirs._locks.release_all())
        measuring._alone_on_machines(store, hosts, waits=True)
        assert len(told) == 1


def test_runs_of_a_store_that_wait_come_in_one_after_the_other(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, later, came = dataclasses.replace(work(), waits=True), Turn(), list[str]()
    busy = iter(["run 1 measures", "run 1 measures", ""])
    monkeypatch.setattr(measuring, "_busy", lambda *_: next(busy, ""))
    monkeypatch.setattr(measuring.progress, "tell", lambda lines: came.append(lines[0][1]))
    first = Turn()

    def sleep(_: float) -> None:
        """Another run asks whenever the first one sleeps, and at last when that has ended."""
        came.append(others_first(later, waiting.plan.host))

    monkeypatch.setattr(measuring.time, "sleep", sleep)
    measuring._alone(store, waiting, first)
    assert came == ["run 1 measures", f"local: {EARLIER}", f"local: {EARLIER}"]
    monkeypatch.setattr(measuring.time, "sleep", lambda _: first.leave())
    measuring._alone(store, waiting, later)
    assert came[3:] == [f"local: {EARLIER}"]
    later.leave()


@pytest.mark.parametrize(
    ("host", "elsewhere", "is_busy"),
    [("local", True, False), ("local", False, True), ("ssh://a", True, True), ("lab", True, False)],
)
def test_what_is_local_to_another_controller_is_another_machine(
    host: str, elsewhere: bool, is_busy: bool, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.begin(unstarted(SAMPLE, host=host))
    if elsewhere:
        monkeypatch.setattr(store, "owner", lambda id: dataclasses.replace(this_process(), boot="another"))
    asked = dataclasses.replace(work(), plan=load("quick").model_copy(update={"host": host}))
    assert bool(measuring._busy(store, asked)) is is_busy
