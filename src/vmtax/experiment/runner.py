"""Begin or resume an experiment: set up the testbed, record it in the store, run the loop."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from vmtax.core.events import NoticeEvent
from vmtax.core.records import Experiment, Json, Treatment, Trial
from vmtax.design.host import boots_asked, reboots_itself
from vmtax.design.interleaved import both
from vmtax.design.reboots import HOST, boots_of, next_block, seed_of
from vmtax.design.topology import unlike
from vmtax.experiment.loop import Emit, Loop
from vmtax.experiment.real_cut import PowerWasCut
from vmtax.experiment.reboots import NOISE_FLOOR, RebootNeeded, Reboots, refuse_changed
from vmtax.experiment.resume import (
    Before,
    cuts_power,
    refuse_impossible,
    resumable,
    resumed_note,
    same_boot,
    worked_seconds,
)
from vmtax.experiment.signatures import Signatures
from vmtax.plan.guests import guests_at_once
from vmtax.plan.schema import Plan
from vmtax.store import End, Store, StoreError
from vmtax.testbed.session.base import Testbed
from vmtax.testbed.session.session import TestbedOptions


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line adds to the plan."""

    command: str  # the command line that repeats this run
    testbed: TestbedOptions = field(default_factory=TestbedOptions)
    label: str = ""  # the user's name for the run


DEMONSTRATION = (
    "This run demonstrates what a report looks like: no guest boots with KVM here, so vmtax ran short rounds of the "
    "primary metrics on an emulated CPU."
)
AT_ONCE = (
    "Where several guests work at the same time, rates are added up over them; any other figure is the median of the"
    " guests."
)
# Sets up the testbed of a run; calls back with the hosts' facts by path before anything is made.
SetUp = Callable[[Callable[[Mapping[str, Json]], None]], Testbed]


def run(store: Store, options: Options, emit: Emit, set_up: SetUp) -> str:
    """Carry out the testbed's plan; returns the experiment's id. Raises what stopped it; everything measured is
    kept.
    """
    clock = time.monotonic()
    testbed = set_up(lambda facts: None)
    plan = testbed.plan
    _, left_out = plan.treatments()
    facts = testbed.host_facts()
    treatments = both(plan.entries(testbed.impossible), options.testbed.interleave_with)
    experiment = _experiment(store, plan, treatments, options)
    store.begin(experiment)
    loop = Loop(experiment.id, testbed, experiment.treatments, store, emit, seed_of(experiment), clock)
    loop.reboots = _reboots(experiment, facts)
    with _finished(loop):
        not_here = (f"{name}: {why}" for name, why in testbed.impossible.items())
        at_once = (AT_ONCE,) if guests_at_once(plan) > 1 else ()
        shown = (DEMONSTRATION,) if options.testbed.demonstration else ()
        again = any(treatment.repeats is not None for treatment in treatments)
        floor = (NOISE_FLOOR,) if loop.reboots and again else ()
        for text in (*shown, *left_out, *not_here, *plan.moved_defaults, *at_once, *floor):
            loop.note(text)
        _keep_host_facts(loop, facts)
        loop.run(time.monotonic() - clock)
    return experiment.id


def resume(id: str, store: Store, emit: Emit, set_up: SetUp) -> str:
    """Finish a stopped experiment; no trial that it has is repeated. Raises CannotResume, and the exceptions of
    `run`.
    """
    clock = time.monotonic()
    experiment = store.load(id)
    # This process may own it, and have rebooted a lab for it; otherwise the store refuses
    if experiment.state != "running":
        resumable(experiment)
    testbed = set_up(lambda facts: refuse_changed(experiment, facts))
    refuse_impossible(experiment, testbed.impossible)
    facts = testbed.host_facts()
    reboots = _reboots(experiment, facts)
    if reboots:
        facts[HOST]["boots"] = list(reboots.boots)
    store.resume(experiment.id)
    loop = Loop(
        *(experiment.id, testbed, experiment.treatments, store, emit, seed_of(experiment)),
        clock - worked_seconds(experiment),
        before=_before(experiment, facts),
        reboots=reboots,
        signatures=Signatures.of(testbed.workloads, _with_raw(store, experiment)),
        trials=list(experiment.trials),
        boots=list(experiment.boots),
        facts=dict(experiment.facts),
        notes=list(experiment.notes),
        up={boot.treatment for boot in experiment.boots},
    )
    with _finished(loop):
        if was_interrupted(experiment, reboots):
            loop.note(resumed_note(experiment, facts))
        _keep_host_facts(loop, facts)
        loop.run(time.monotonic() - clock)
    return experiment.id


def was_interrupted(experiment: Experiment, reboots: Reboots | None) -> bool:
    """Whether the run stopped in the midst of its work, not to wait for a reboot that it asked for."""
    return experiment.state != "running" and (reboots is None or reboots.cut_short)


def _with_raw(store: Store, experiment: Experiment) -> Iterator[Trial]:
    """Its trials with their raw outputs. Unreadable outputs are skipped: one is no reason to lose the others."""
    for trial, raw in zip(experiment.trials, store.raws(experiment.id), strict=True):
        yield trial if isinstance(raw, StoreError) else replace(trial, raw=raw)


@contextlib.contextmanager
def _finished(loop: Loop) -> Iterator[None]:
    """Store how the run ended, whatever the cause; a run that waits for the reboot of a lab stays running."""
    store, id = loop.store, loop.id
    try:
        yield
    except BaseException as error:
        # The store itself may have failed: its error must not hide the first one.
        with contextlib.suppress(StoreError):
            by_itself = isinstance(error, RebootNeeded) and reboots_itself(loop.plan.host)
            if by_itself or isinstance(error, PowerWasCut):
                store.add_trials(id, seconds=loop.seconds)  # still running: this process continues it
            else:
                end: End = "interrupted" if isinstance(error, (KeyboardInterrupt, RebootNeeded)) else "failed"
                store.finish(id, end, time.time(), seconds=loop.seconds)
        raise
    store.finish(id, "complete", time.time(), loop.ended, loop.seconds)


def _experiment(store: Store, plan: Plan, treatments: tuple[Treatment, ...], options: Options) -> Experiment:
    now = time.time()
    return Experiment(
        id=store.new_id(plan.name, now),
        name=plan.name,
        host=plan.host,
        command=options.command,
        created=now,
        finished=None,
        state="running",
        plan=plan.model_dump(mode="json"),
        facts={},
        treatments=treatments,
        boots=(),
        trials=(),
        options=options.testbed.to_json(),
        label=options.label,
    )


def _before(experiment: Experiment, facts: Mapping[str, Json]) -> Before:
    """What earlier sessions did. If the host is rebooted for each block, the rounds before the next block are over."""
    trials = experiment.trials
    if cuts_power(experiment) and experiment.state != "running" and trials and trials[-1].status == "failed":
        trials = trials[:-1]  # the trial that stopped the run is repeated
    if not boots_asked(experiment.treatments):
        return Before.of(trials, same_boot=same_boot(experiment, facts))
    before, number = Before.of(experiment.trials), next_block(experiment).round
    return replace(before, round=number, position=0) if number > before.round else before


def _reboots(experiment: Experiment, facts: Mapping[str, Json]) -> Reboots | None:
    levels = boots_asked(experiment.treatments)
    return Reboots(experiment.id, levels, facts[HOST], boots_of(experiment)) if levels else None


def _keep_host_facts(loop: Loop, facts: Mapping[str, Json]) -> None:
    """Store the hosts' facts, with notes from the set-up and the differences of the sides."""
    for path, of_host in facts.items():
        loop.keep_facts(path, of_host)
    for text in loop.testbed.notes:
        loop.note(text)
    refused = unlike(loop.treatments)
    if refused is not None:
        loop.note(refused)
    for text in loop.testbed.differences(loop.facts):
        loop.note(text)
        loop.emit(NoticeEvent(text))
