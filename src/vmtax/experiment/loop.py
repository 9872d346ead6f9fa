"""The loop of a run: rounds of shuffled treatments, one boot each; every result is committed as soon as it exists."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vmtax.analysis import comparisons
from vmtax.core.events import (
    Event,
    GuestBooted,
    NoticeEvent,
    RoundFinished,
    RunFinished,
    RunStarted,
    TreatmentStarted,
    TrialFinished,
    WorkloadStarted,
)
from vmtax.core.layers import LAYERS
from vmtax.core.records import Boot, Comparison, Json, Treatment, Trial
from vmtax.core.stopwatch import Stopwatch
from vmtax.core.units import format_duration
from vmtax.design import iterations
from vmtax.design.host import of_boot, reboots_itself
from vmtax.design.reboots import HOST, Block
from vmtax.design.stopping import count
from vmtax.design.treatments import shuffled_rounds
from vmtax.experiment.activity import ACTIVITIES, failed_boot
from vmtax.experiment.eta import Pace
from vmtax.experiment.real_cut import session_of
from vmtax.experiment.reboots import Reboots
from vmtax.experiment.resume import Before
from vmtax.experiment.signatures import Signatures
from vmtax.experiment.trial import TrialKey, run_trials, voided
from vmtax.experiment.writes import machines_of, why_over, written_by_round
from vmtax.hypervisor import BootFailed
from vmtax.machine import MachineError, MachineLost
from vmtax.plan.estimate import fit_rounds
from vmtax.store import Store
from vmtax.testbed.host import needs
from vmtax.testbed.session.base import Cut, RunningTreatment, Testbed
from vmtax.testbed.session.cloning import ClonedBoot
from vmtax.workload import Command, Workload
from vmtax.workload.boot import BootTime

# If this many treatments of a layer fail to boot in a row, the layer is given up. If only half of 24
# treatments cannot boot, chance puts that many of them first in one of 1,500 runs.
HOPELESS = 8
Emit = Callable[[Event], None]
Todo = Mapping[iterations.Case, Sequence[int]]  # (workload, case) -> iterations


@dataclass
class Loop:
    """One experiment under way on a testbed."""

    id: str
    testbed: Testbed
    treatments: tuple[Treatment, ...]
    store: Store
    emit: Emit
    seed: int  # of the order within rounds
    since: float = field(default_factory=time.monotonic)  # when it began, on a clock that stops during pauses
    before: Before = field(default_factory=Before)  # what earlier sessions have done
    reboots: Reboots | None = None  # None if no factor requires reboots of the host
    signatures: Signatures = field(default_factory=Signatures)
    trials: list[Trial] = field(default_factory=list)
    boots: list[Boot] = field(default_factory=list)
    facts: dict[str, Json] = field(default_factory=dict)  # by machine path
    notes: list[str] = field(default_factory=list)
    schedules: dict[iterations.Case, iterations.Schedule] = field(default_factory=dict)  # set when the pilot is over
    ended: str | None = None  # why there are no more rounds
    up: set[str] = field(default_factory=set)  # treatments that have come up
    down: set[str] = field(default_factory=set)  # treatments that failed to come up at least once
    took: float | None = None  # seconds, once it has ended

    def __post_init__(self) -> None:
        self.plan = self.testbed.plan
        self.workloads = self.testbed.workloads

    @property
    def pilot(self) -> int:
        """Number of rounds that are run to plan the iterations of the later ones."""
        return min(iterations.PILOT_ROUNDS, self.plan.rounds.max) if self.plan.iterations == "auto" else 0

    # What is kept

    def note(self, text: str) -> None:
        """Store a note for the experiment's reader, once."""
        if text not in self.notes:
            self.notes.append(text)
            self.store.add_note(self.id, text)

    def keep_facts(self, path: str, facts: Json) -> None:
        """Store the facts of the machine at `path`."""
        self.facts[path] = facts
        self.store.add_facts(self.id, path, facts)

    def add(self, *trials: Trial) -> tuple[Trial, ...]:
        """Store trials that ran at the same time; returns them as recorded, with a failed trial for an unfit result."""
        recorded = self.store.add_trials(self.id, *trials, seconds=self.seconds)
        self.trials += recorded
        for trial in recorded:
            self.emit(TrialFinished(trial))
        return recorded

    # Rounds

    def run(self, setup_seconds: float) -> None:
        """Run rounds until there are enough; `setup_seconds` is the time that passed before the first round."""
        pace = Pace(setup_seconds=setup_seconds)
        plan, first = self.plan, self.before.round
        if first > self.pilot:
            self._plan_iterations()
        emulated = self.testbed.host_emulated
        self.emit(RunStarted(self.id, self.treatments, plan.rounds.min, plan.rounds.max, emulated, first - 1))
        for number, order in enumerate(shuffled_rounds(self.treatments, self.seed), start=1):
            if number < first:
                continue
            for position, treatment in enumerate(order, start=1):
                self._treatment(TrialKey(number, position, treatment.name), treatment)
            pace.lap()
            # The run has several sessions, each with its own set-up
            if self.reboots is not None or self.testbed.power is not None:
                pace = Pace(rounds=[self.seconds / number] * 2)
            if number == self.pilot:
                self._end_pilot(pace)
            planned, warnings = fit_rounds(plan, pace.seconds_per_round, pace.setup_seconds)
            if number == first:
                self._tell_layer_differences()
            if number == max(first, self.pilot):  # earlier rounds took longer than later ones will
                for text in warnings:
                    self.emit(NoticeEvent(text))
            primary = self._primary()
            self.ended = self._why_over(primary, number) or self._writes_over()
            if self.ended is None and number >= planned:
                self.ended = self._budget_over(number, self.seconds)
                for text in warnings:
                    self.note(text)
            if self.ended is not None:
                self.emit(RoundFinished(number, number, (0.0, 0.0), primary))
                self._tell_end(number)
                return
            self.emit(RoundFinished(number, planned, self._left(pace, number, planned), primary))

    def _left(self, pace: Pace, number: int, planned: int) -> tuple[float, float]:
        """Seconds left, from and to; including reboots of a lab, which vmtax carries out itself."""
        if self.reboots is None or not reboots_itself(self.plan.host):
            return pace.left(planned - number)
        each = (time.time() - self.reboots.boots[0]["began"]) / number
        return (planned - number) * each, (planned - number) * each

    def _plan_iterations(self) -> None:
        """After the pilot, if there was one: decide how often each case is run in the following boots."""
        if self.pilot:
            self.schedules = iterations.schedules(self.trials, self.boots, self.plan.primary)

    def _end_pilot(self, pace: Pace) -> None:
        self._plan_iterations()
        pace.shorten(iterations.pilot_excess(self.trials, self.schedules))
        self.emit(NoticeEvent(iterations.sentence(self.schedules)))

    def _tell_layer_differences(self) -> None:
        for text in self.testbed.layer_differences(self.facts):
            self.note(text)
            self.emit(NoticeEvent(text))

    def _budget_over(self, rounds: int, seconds: float) -> str:
        """Why there are no more rounds, if the budget is the reason."""
        budget = self.plan.budget
        assert budget is not None
        if seconds > 1.1 * budget:
            return f"after {count(rounds)}, the fewest, which took more than the budget of {format_duration(budget)}"
        return f"after {count(rounds)}, which the budget of {format_duration(budget)} allowed"

    def _tell_end(self, rounds: int) -> None:
        once = iterations.together(self.trials)  # guests that work at the same time count once
        inside = sum(trial.wall_seconds for trial in once if trial.workload != "boot")
        self.took = self.seconds
        self.emit(RunFinished(self.id, rounds, self.took, inside / self.took))

    @property
    def seconds(self) -> float:
        """Working time so far, over all sessions; after the end, the total."""
        return time.monotonic() - self.since if self.took is None else self.took

    def _primary(self) -> tuple[Comparison, ...]:
        """The comparisons that decide when the run stops."""
        trials = iterations.counted(self.trials, self.schedules)
        alpha, primary = self.plan.stopping().alpha, self.plan.primary
        every = comparisons.comparisons(self.treatments, trials, self.boots, alpha, self.facts)
        repeats = {treatment.name for treatment in self.treatments if treatment.repeats is not None}
        return tuple(one for one in every if one.metric.name in primary and one.treatment not in repeats)

    def _comparable(self) -> set[str]:
        """The primary metrics that both treatments of some comparison have: a host, for example, has no boot time."""
        layer = {treatment.name: treatment.layer for treatment in self.treatments}
        compared = [treatment for treatment in self.treatments if treatment.repeats is None]
        pairs = [{layer[name] for name in pair} for pair in comparisons.contrasts(compared)]
        names = {
            metric.name
            for workload in self.workloads
            if any(pair <= workload.layers for pair in pairs)
            for metric in workload.metrics()
        }
        return names & set(self.plan.primary)

    def _why_over(self, primary: tuple[Comparison, ...], number: int) -> str | None:
        """Why the run may end now; None if it goes on."""
        wanted = self._comparable()
        # A metric without any result is neither precise nor decided.
        missing = not wanted or not wanted <= {comparison.metric.name for comparison in primary}
        return self.plan.stopping().why_over(number, () if missing else primary)

    def _writes_over(self) -> str | None:
        """Why the plan's limit of writes ends the run; None if it goes on."""
        written = written_by_round(self.trials, self.workloads)
        return why_over(self.plan, needs.disk_bytes(self.plan), written, machines_of(self.treatments))

    # One treatment

    def _treatment(self, key: TrialKey, treatment: Treatment) -> None:
        """One boot of one treatment with all its workloads. A guest that fails costs only this round's trial.

        If one of several guests is lost, the case does not count for any of them, and the case and what follows it get
        a second boot.
        """
        todo = self._todo(key, treatment)
        if not todo or not self._in_its_boot(Block(key.round, of_boot(treatment))):
            return
        self.testbed.check()
        self.emit(TreatmentStarted(key.round, key.position, treatment))
        stopped = (key.round, treatment.name) in self.before.repeats
        with session_of(self.testbed.power, self.id):
            left = todo if stopped else self._boot(key, treatment, todo)
        if left:
            why = "the run was stopped after a case that failed" if stopped else "a guest was lost"
            again = f"{treatment.name}, round {key.round}: {why}, and so all of its guests are booted once more"
            self.note(again)
            self.emit(NoticeEvent(again))
            self._boot(key, treatment, left)

    def _boot(self, key: TrialKey, treatment: Treatment, todo: Todo) -> Todo:
        """One boot and the work in it; returns the work that was not done because one of several guests was lost."""
        watch = Stopwatch()
        try:
            with self.testbed.opened(treatment) as running:
                boot_void = watch.void
                self.up.add(treatment.name)
                self._record_boots(key, treatment, running)
                self._keep_first_writes(treatment)
                left = self._workloads(key, running, todo)
                if running.guests and not left:
                    self._activities(key, running, todo, boot_void)
                return left if len(running.subjects) > 1 else {}
        except (BootFailed, MachineError) as failure:
            self._check_host(treatment, failure)
            if self._nothing_works(treatment):
                raise  # report it now, not after hours
            self.add(failed_boot(key, watch, str(failure)))
            return {}

    def _in_its_boot(self, block: Block) -> bool:
        """Whether the block is measured in the present boot of the host. Raises RebootNeeded."""
        if self.reboots is None:
            return True
        if self.reboots.is_over(block):
            return False
        try:
            self.reboots.begin(block)
        finally:
            if self.reboots.boots != self.facts[HOST].get("boots", []):
                self.keep_facts(HOST, {**self.facts[HOST], "boots": list(self.reboots.boots)})
        return True

    def _todo(self, key: TrialKey, treatment: Treatment) -> Todo:
        """The work that remains for this boot; an activity counts as one case."""
        wanted = [
            (workload.name, case)
            for workload in self.workloads
            if treatment.layer in workload.layers and (workload.compared or treatment.repeats is None)
            for case in (self.plan.cases(workload, treatment) if isinstance(workload, Command) else [""])
        ]
        left = {what: self._iterations_left(key, what) for what in wanted}
        return {what: numbers for what, numbers in left.items() if numbers}

    def _iterations_left(self, key: TrialKey, what: iterations.Case) -> list[int]:
        name, case = what
        once = any(w.name == name and (not isinstance(w, Command) or w.once(case)) for w in self.workloads)
        runs = 1 if once else iterations.runs(self.plan.iterations, self.schedules, what, key.round)
        return [number for number in range(1, runs + 1) if not self.before.has(key, *what, number)]

    def _nothing_works(self, treatment: Treatment) -> bool:
        """Whether no treatment of this layer has come up yet, and HOPELESS of them (or all) failed in this session."""
        self.down.add(treatment.repeats or treatment.name)
        layer = {each.repeats or each.name for each in self.treatments if each.layer == treatment.layer}
        came_up = any(each.name in self.up for each in self.treatments if each.layer == treatment.layer)
        return not came_up and len(self.down & layer) >= min(HOPELESS, len(layer))

    def _check_host(self, treatment: Treatment, failure: Exception) -> None:
        """Raises MachineLost if the host or a guard is gone: then nothing else can work, and that is the real cause."""
        try:
            self.testbed.check_host(treatment)
        except MachineLost as lost:
            raise lost from failure

    def _record_boots(self, key: TrialKey, treatment: Treatment, running: RunningTreatment) -> None:
        for guest in running.guests:
            boot = Boot(
                round=key.round,
                treatment=key.treatment,
                path=guest.path,
                accelerator=guest.spec.accelerator,
                emulated=running.emulated,
                argv=guest.argv,
                ready_seconds=guest.ready_seconds,
                kernel_seconds=guest.kernel_seconds,
                warnings=tuple(guest.warnings),
                obtained=guest.obtained,
            )
            self.store.add_boot(self.id, boot)
            self.boots.append(boot)
            self.emit(GuestBooted(boot))
            path = self.testbed.facts_path(treatment, guest.path)
            if path not in self.facts:
                self.keep_facts(path, self.testbed.guest_facts(running, guest))
        for subject in running.subjects:
            if (cloned := subject.offer(ClonedBoot)) is not None:
                self._record_clone(key, running, subject.machine, cloned)

    def _record_clone(self, key: TrialKey, running: RunningTreatment, path: str, cloned: ClonedBoot) -> None:
        boot = Boot(
            round=key.round,
            treatment=key.treatment,
            path=path,
            accelerator=cloned.accelerator,
            emulated=running.emulated,
            argv=cloned.argv,
            ready_seconds=cloned.ready_seconds,
            kernel_seconds=0.0,  # not known: its kernel is not asked
            warnings=cloned.warnings,
        )
        self.store.add_boot(self.id, boot)
        self.boots.append(boot)
        self.emit(GuestBooted(boot))
        if path not in self.facts:
            self.keep_facts(path, self.testbed.clone_facts(running, cloned))

    def _keep_first_writes(self, treatment: Treatment) -> None:
        """Store how each disk under test was written first; a nested guest's disk is written in the first boot of its
        outer VM.
        """
        path, writes = self.testbed.first_writes(treatment)
        facts = self.facts[path]
        if writes and writes != facts["disk"].get("first_write"):
            self.keep_facts(path, {**facts, "disk": {**facts["disk"], "first_write": writes}})

    def _workloads(self, key: TrialKey, running: RunningTreatment, todo: Todo) -> Todo:
        """Run every remaining workload that these machines support; returns what is left if a guest was lost."""
        left = dict(todo)
        sites = [subject.site for subject in running.subjects]
        for workload in self.workloads:
            if not isinstance(workload, Command) or sites[0].layer not in workload.layers:
                continue
            if workload.networked and None in [s.link for s in sites]:
                continue
            for case in (case for case in workload.cases() if (workload.name, case) in todo):
                if workload.fresh_bytes and workload.once(case) and None in [site.fresh_disk for site in sites]:
                    continue  # a bare device: it is unknown which of its blocks were ever written
                last = self._iterations(key, running, workload, case, todo[workload.name, case])
                if any(trial.status == "refused" for trial in last):
                    break  # the work was not the same, and it would not be in the other cases
                if any(trial.status == "failed" for trial in last) and not self._answers(running):
                    return left
                del left[workload.name, case]
        return {}

    def _iterations(
        self, key: TrialKey, running: RunningTreatment, workload: Command[Any], case: str, numbers: Sequence[int]
    ) -> tuple[Trial, ...]:
        """Run one case as often as given, or until it fails, because the next iteration would fail too; returns the
        last trials.
        """
        for number in numbers:
            self.testbed.check(ask=False)
            self.emit(WorkloadStarted(key.treatment, workload.name, case, number, numbers[-1]))
            trials = self.add(*run_trials(key, running, workload, case, self.signatures, iteration=number))
            if any(trial.status != "ok" for trial in trials):
                break
        return trials

    def _answers(self, running: RunningTreatment) -> bool:
        """Whether all subjects still answer. Raises MachineLost if it is a host: nothing more can be measured."""
        try:
            return all(subject.site.machine.answers() for subject in running.subjects)
        except MachineLost:
            if not LAYERS[running.subjects[0].site.layer].kernels:
                raise
            return False

    def _activities(self, key: TrialKey, running: RunningTreatment, todo: Todo, boot_void: str) -> None:
        """Carry out the activities; the last one ends the guests, and then those that carry them.

        boot_void: why the boot's time does not count; "" if it does
        """
        wanted = {workload.name: workload for workload in self.workloads if (workload.name, "") in todo}
        for activity in ACTIVITIES:
            workload = wanted.get(activity.workload)
            if workload is not None and workload.cases():
                self.emit(WorkloadStarted(key.treatment, workload.name, "", 1, 1))
            watch = Stopwatch()
            trials = activity.perform(key, running, workload, self.emit)
            if workload is not None:
                void = why_void(workload, boot_void, watch.void)
                self.add(*(voided(trial, void) for trial in trials))
        if all(subject.offer(Cut) is None for subject in running.subjects):
            for carrier in reversed(running.outer):
                carrier.shut_down()


def why_void(workload: Workload[Any], of_boot: str, own: str) -> str:
    """Why the results of an activity do not count; "" if they do, as those that have no times, such as which states
    survived, always do.

    of_boot, own: why the times of the boot, and of the activity itself, do not
    """
    if not workload.compared:
        return ""
    return own or (of_boot if workload.name == BootTime.name else "")
