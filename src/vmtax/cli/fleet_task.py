"""`vmtax run PLAN --host HOST --fleet NAME`: one host of a fleet, measured once however often this is repeated.

A fleet is the runs with its name as their label. Whatever repeats this command (Ansible, GNU parallel, Slurm, cron)
needs to know nothing: a finished host is done at once, a stopped one goes on without repeating a trial, and while
somebody else measures it, the exit code says to come back.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from vmtax.cli.app import BadUse, fail, say, warn
from vmtax.cli.asked import RunOptions
from vmtax.cli.measuring import going_on
from vmtax.cli.option_groups import given
from vmtax.cli.running import answered, check_report, measured, new_work
from vmtax.cli.work import RunWork
from vmtax.core.errors import FAILED
from vmtax.core.names import label_problem
from vmtax.experiment.resume import CannotResume
from vmtax.meter.facts import machine_id
from vmtax.plan.estimate import settled
from vmtax.store import ExperimentSummary, Store, StoreError
from vmtax.store.rows import work as same_work
from vmtax.testbed.session.exclusive import HostBusy

LOOK_SECONDS = 10.0  # between two looks whether the fleet was stopped: of a thousand hosts 100 in a second


def carry_out_task(plan: str, asked: RunOptions) -> None:
    """Measure the host unless that was done, and print the answer. Raises HostBusy while another process does it."""
    fleet = asked.fleet or ""
    _refuse(fleet, asked)
    check_report(asked.results.output)
    wanted = new_work(plan, asked.measured)
    wanted = replace(wanted, options=replace(wanted.options, label=fleet))
    with Store() as store:
        machine = _machine(store, wanted.plan.host)
        task = " ".join(filter(None, (fleet, wanted.plan.name, wanted.plan.host, machine)))
        refuse_stopped(store, fleet)
        if not store.take_task(task):
            raise HostBusy(f"another process measures {wanted.plan.host} for fleet {fleet}: repeat this later")
        before = _before(store, wanted, fleet, machine)
        if before is not None and before.state == "complete":
            _say_done(before)
            return
        with FleetWatch(store, fleet), _saying_how_to_begin_anew(before):
            done = measured(store, _work(store, wanted, before, asked), asked)
    answered(done, asked)


def _refuse(fleet: str, asked: RunOptions) -> None:
    if problem := label_problem(fleet):
        raise BadUse(f"--fleet {fleet!r}: {problem}")
    if others := given(asked.continued, replace(asked.results, output=None, json=False, notify=None)):
        raise BadUse(f"--fleet names the run and goes on with it by itself: leave out {' '.join(others)}")


def refuse_stopped(store: Store, fleet: str) -> None:
    if words := store.stops.stopped(fleet):
        fail(
            f"fleet {fleet} was stopped by {words}: `vmtax fleet stop {shlex.quote(fleet)} --undo` lets it go on",
            FAILED,
        )


def _machine(store: Store, host: str) -> str:
    """What tells this machine from others that share the store, all of which call themselves local; "" if the host's
    own address does. Raises BadUse for a host of which nothing would tell.
    """
    if host.startswith("ssh://") or store.directory is not None:
        return ""
    file = Path("/etc/machine-id")
    machine = machine_id(file.read_text(encoding="ascii", errors="replace")) if file.is_file() else None
    if host != "local" or machine is None:
        raise BadUse(f"--host {host}: others who share this store may call theirs so, too: name it by ssh://")
    return machine


def _before(store: Store, wanted: RunWork, fleet: str, machine: str) -> ExperimentSummary | None:
    """The run of this host in the fleet, the newest if there are several; None: there is none. Raises BadUse if it
    measured something else, and HostBusy if it is running. `machine`: of `_machine`
    """
    plan = wanted.plan
    for entry in store.experiments(label=fleet, host=plan.host, name=plan.name):
        stored = store.load(entry.id, without=("readings", "latencies"))
        if machine and (stored.facts.get("host") or {}).get("machine_id") != machine:
            continue  # of another machine, or ended before it was known of which
        if entry.state == "running":
            raise HostBusy(f"run {entry.id} measures {plan.host} just now: repeat this later")
        if not stored.options.get("demonstration") and not _is_same(stored.plan, wanted):
            raise BadUse(
                f"run {entry.id} of fleet {fleet} measured {plan.host} by another plan of the name {plan.name}:"
                " name another fleet"
            )
        return entry
    return None


def _is_same(stored: dict[str, object], wanted: RunWork) -> bool:
    """Whether it is the plan of the stored run, which also says what a host without KVM changed in it."""
    plans = (wanted.plan, *(settled(wanted.plan, emulated=emulated) for emulated in (False, True)))
    return any(same_work(plan.model_dump(mode="json")) == same_work(stored) for plan in plans)


def _say_done(run: ExperimentSummary) -> None:
    if not run.ok:
        fail(f"done already, and nothing could be measured: run {run.id}; `vmtax runs rm {run.id}` begins anew", FAILED)
    say(f"done already: run {run.id}", file=sys.stderr)


@contextmanager
def _saying_how_to_begin_anew(before: ExperimentSummary | None) -> Iterator[None]:
    """For a run that cannot go on, such as one whose host came back with another kernel: repeating does not help."""
    try:
        yield
    except CannotResume as error:
        if before is None:
            raise
        raise CannotResume(f"{error}: `vmtax runs rm {before.id}` lets the fleet measure it anew") from error


def _work(store: Store, wanted: RunWork, before: ExperimentSummary | None, asked: RunOptions) -> RunWork:
    if before is None:
        return wanted
    work = going_on(store.load(before.id), asked.measured.disks.erase or (), rebooted=False)
    return work.emulating() if asked.measured.without_kvm.emulate else work


class FleetWatch:
    """Interrupts this process, as Ctrl-C does, when the fleet is stopped, from wherever."""

    def __init__(self, store: Store, fleet: str) -> None:
        self._store, self._fleet = store, fleet
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            try:
                words = self._store.stops.stopped(self._fleet)
            except StoreError:
                continue  # the run itself meets the same, and says so
            if words:
                warn(f"fleet {self._fleet} was stopped by {words}")
                os.kill(os.getpid(), signal.SIGINT)
                return
