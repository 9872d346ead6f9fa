"""`vmtax run --host ssh://…` where the host is Windows: it is measured, and a VM with Windows on it, as they run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from vmtax.analysis.builds import PROGRAMS
from vmtax.cli.app import NOBODY, BadUse, agree, say, warn
from vmtax.cli.work import RunWork, refuse_full, until_free
from vmtax.core.events import ExpectedTime
from vmtax.core.layers import EXISTING, LAYERS
from vmtax.core.records import Json
from vmtax.core.units import count_of, format_room
from vmtax.experiment import live, progress, runner
from vmtax.experiment.outlook import Line, how_long, what_is_done, writes_of_work
from vmtax.experiment.resume import CannotResume
from vmtax.experiment.writes import machines_of, refuse_too_much
from vmtax.plan.estimate import Emulation, Foreseen, foresee
from vmtax.store import Store
from vmtax.testbed.host import needs
from vmtax.testbed.machines.on_windows import (
    HOST,
    WindowsHosts,
    WindowsTestbed,
    connected_to_windows,
    fitted_to_windows,
    wants_transfer,
)
from vmtax.testbed.subjects.existing import not_measured
from vmtax.workload.transfer import PROGRAM

LOGIN = "--guest ssh://Administrator@vm"


def carry_out(store: Store, work: RunWork, *, yes: bool) -> str:
    """As for a host with Linux: check what can be checked, announce the work, ask, do it; returns the run's id.

    Raises CannotDo.
    """
    agreed = yes or work.agreed
    if not agreed and not sys.stdin.isatty():
        raise BadUse(NOBODY)
    refuse_asked(work)
    with connected_to_windows(work.plan.host, work.options.testbed, warn) as hosts:
        until_free(lambda: _busy(store, hosts), waits=work.waits)
        work = _fitted(work, hosts)
        refuse_full(store)
        expected = _foreseen(store, work)
        progress.tell((line.what, line.text) for line in lines(work, hosts, expected))
        crowd = "Begin although other VMs run there? [y/N]"
        agree(agreed, crowd if hosts.other_vms else "Begin? [Y/n]")
        journal = live.Journal(hosts.local)
        with progress.open_screen() as journal.screen:
            journal.emit(ExpectedTime(*expected.seconds))

            def set_up(keep: Callable[[Mapping[str, Json]], None]) -> WindowsTestbed:
                keep({login.there.path: hosts.facts(layer) for layer, login in hosts.layers.items()})
                return _with_the_same_programs(work, WindowsTestbed(work.plan, hosts, journal.emit))

            if work.resumed:
                return runner.resume(work.resumed.id, store, journal.emit, set_up)
            return runner.run(store, work.options, journal.emit, set_up)


def looked_at(store: Store, work: RunWork) -> tuple[RunWork, Foreseen, list[Line]]:
    """The work as it would be done there, how long it takes, and what would be said before the question.

    Raises CannotDo and BadInput.
    """
    refuse_asked(work)
    with connected_to_windows(work.plan.host, work.options.testbed, warn) as hosts:
        work = _fitted(work, hosts)
        expected = _foreseen(store, work)
        return work, expected, [*lines(work, hosts, expected)]


def _with_the_same_programs(work: RunWork, testbed: WindowsTestbed) -> WindowsTestbed:
    """Raises CannotResume if the run began with other builds."""
    used = ((work.resumed.facts if work.resumed else {}).get(HOST) or {}).get(PROGRAMS)
    if work.resumed and used not in (None, testbed.digests):
        raise CannotResume(f"{work.resumed.id} cannot go on: it used other builds for Windows: begin a new run")
    return testbed


def _busy(store: Store, hosts: WindowsHosts) -> str:
    """Which of them another run of this store measures; "" if none is, and they are ours. No other lock is there."""
    taken = (one.name for one in hosts.layers.values() if one.uuid and not store.take_host(f"windows {one.uuid}"))
    name = next(taken, "")
    return name and f"another run of this store measures {name}: `vmtax runs` lists it"


def refuse_asked(work: RunWork) -> None:
    """Raises BadUse for what no Windows can do."""
    plan, options = work.plan, work.options.testbed
    if booted := [name for name in plan.layers if name not in (HOST, EXISTING)]:
        titles = ", ".join(LAYERS[name].title for name in booted)
        raise BadUse(
            f"--host {plan.host}: is Windows, where vmtax starts no {titles}: name a VM of it with {LOGIN}, or measure"
            " it alone: --layers host"
        )
    if plan.space.factors or any(part.levels for part in plan.space.parts):
        raise BadUse(
            f"--host {plan.host}: is Windows, whose settings vmtax does not change: leave out --vary, or name a plan"
            " without factors, such as quick"
        )
    for option, value in _only_on_linux(work):
        if value:
            raise BadUse(f"{option}: {plan.host} is Windows, where that is not possible: leave it out")
    if options.existing and not options.existing.name.startswith("ssh://"):
        raise BadUse(f"--guest {options.existing.name}: {plan.host} is Windows, whose VMs are entered by {LOGIN}")


def _only_on_linux(work: RunWork) -> Iterator[tuple[str, object]]:
    options, target = work.options.testbed, work.options.testbed.target
    yield "--interleave-with", options.interleave_with
    yield "--qemu", options.qemu
    yield "--card", options.wire
    yield "--power-cut", options.power_cut
    yield "--destination", options.destination
    yield "--disk-device", target.devices
    yield "--disk-group", target.group
    yield "--disk-pool", target.pool
    yield "--emulate", options.emulate
    yield "--clone", options.existing is not None and options.existing.clone


def _fitted(work: RunWork, hosts: WindowsHosts) -> RunWork:
    """The work with the VM's size, and without what Windows has no programs for. Raises CannotResume, and what the
    parts raise.
    """
    measures = hosts.vm or hosts.host
    if left_out := not_measured(work.plan, measures):
        say(f"left out, because Windows has no programs for it: {', '.join(left_out)}", file=sys.stderr)
    plan = fitted_to_windows(work.plan, hosts)
    if work.resumed is not None:
        for login in hosts.layers.values():
            known = (work.resumed.facts.get(login.there.path) or {}).get("uuid")
            if plan.guest != work.plan.guest or (known or None) != (login.uuid or None):
                raise CannotResume(
                    f"{work.resumed.id} cannot go on: {login.name} has another size now, or is another machine: begin a"
                    " new run"
                )
    return replace(work, plan=plan)


def _foreseen(store: Store, work: RunWork) -> Foreseen:
    plan, before = work.plan, work.resumed
    return foresee(
        plan,
        plan.entries(),
        Emulation(),
        measured=store.seconds_per_round(plan.model_dump(mode="json"), plan.host, None, emulated=False),
        done=max((trial.round for trial in before.trials), default=1) - 1 if before else 0,
    )


def lines(work: RunWork, hosts: WindowsHosts, expected: Foreseen) -> Iterator[Line]:
    """What is done, and how long it takes, for the person who is asked. Raises BadInput if the plan allows fewer writes
    than it needs.
    """
    plan = work.plan
    if work.resumed:
        yield Line("resumes", f"{work.resumed.id}, whose {len(work.resumed.trials)} trials are kept")
    names = [treatment.name for treatment in plan.treatments()[0]]
    yield Line("what", what_is_done(plan, work.options.testbed, names, expected.done))
    yield Line("how long", how_long(plan, expected))
    for text in expected.losses:
        yield Line("budget", text)
    if hosts.other_vms:
        yield Line("beside", f"{count_of(hosts.other_vms, 'other VM')} of {hosts.host.name} running now")
    size = needs.disk_size(plan.build_workloads())
    every = plan.treatments()[0]
    refuse_too_much(plan, needs.disk_bytes(plan), machines_of(every))
    for layer, login in hosts.layers.items():
        if size:
            own = [each for each in every if each.layer == layer]
            writes = writes_of_work(plan.model_copy(update={"max_writes": None}), own, expected)
            more = f", {writes}" if writes.most else ""
            yield Line("writes", f"{format_room(size)} to {login.home} of {login.name}{more}; removed again")
        yield Line("enters", f"{login.name}: {login.announced}")
    if wants_transfer(plan):
        yield Line("serves", f"{PROGRAM} at TCP ports of this machine, for those Windows, until the run ends")
    if size and plan.max_writes is not None:
        limit = format_room(plan.max_writes)
        yield Line("ends", f"before a round with which all that is written may exceed {limit}")
