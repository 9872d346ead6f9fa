"""The work that a run was asked to do, and what it will take: the same words for `run` and `plan check`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from vmtax.cli.app import say
from vmtax.cli.files import check_room
from vmtax.core.records import Experiment
from vmtax.experiment import progress
from vmtax.experiment.outlook import Line, outlook
from vmtax.experiment.preview import Place
from vmtax.experiment.resume import CannotResume
from vmtax.experiment.runner import Options
from vmtax.experiment.writes import written_by_round
from vmtax.plan.asked import Typed
from vmtax.plan.estimate import Emulation, Foreseen, demonstration, foresee
from vmtax.plan.schema import Plan
from vmtax.store import Store
from vmtax.testbed.host.hosts import lab_of
from vmtax.testbed.parts.usual_card import with_usual_card
from vmtax.testbed.session.exclusive import WAIT_SECONDS, HostBusy
from vmtax.testbed.session.session import Destination, ExistingVm, Hosts, TestbedOptions, Wire
from vmtax.testbed.storage.host_disk import more_seconds
from vmtax.testbed.subjects import existing

ROOM = 32 * 2**20  # bytes that a run of some hours stores, raw outputs included


@dataclass(frozen=True, slots=True)
class RunWork:
    """The work that `run` was asked to do."""

    plan: Plan
    options: Options
    resumed: Experiment | None = None  # a stopped experiment to be resumed
    rebooted: bool = False  # the host was rebooted since the experiment stopped
    agreed: bool = False  # the user agreed when it began, which still holds
    or_demo: bool = False  # if guests would be emulated, make only a demonstration
    waits: bool = False  # for others who measure on the host, until they have ended
    typed: Typed = field(default_factory=dict)  # levels that the user named, which must not be left out

    def emulating(self) -> RunWork:
        """The same, even if no guest boots with KVM."""
        return self.on(replace(self.options.testbed, emulate=True))

    def demonstrated(self) -> RunWork:
        """A short demonstration of it, with emulated guests."""
        shorter = replace(self, plan=demonstration(self.plan))
        return shorter.on(replace(self.options.testbed, emulate=True, demonstration=True))

    def over(self, wire: Wire | None) -> RunWork:
        """The same, over that wire."""
        return self.on(replace(self.options.testbed, wire=wire))

    def to(self, destination: Destination | None) -> RunWork:
        """The same, with guests that are migrated to that host."""
        return self.on(replace(self.options.testbed, destination=destination))

    def inside(self, vm: ExistingVm | None) -> RunWork:
        """The same, with that VM as layer existing."""
        return self.on(replace(self.options.testbed, existing=vm))

    def on(self, testbed: TestbedOptions) -> RunWork:
        """The same, with these testbed options."""
        return replace(self, options=replace(self.options, testbed=testbed))


def refuse_full(store: Store) -> None:
    """Raises BadUse and StoreError if the results of a run could not be stored."""
    store.refuse_unwritable()
    if store.directory is not None:
        check_room(store.directory, ROOM, "set XDG_DATA_HOME to a directory on a larger file system")


def until_free(busy: Callable[[], str], *, waits: bool) -> None:
    """Wait until nobody is in the way, and say for whom; without `waits`, raises HostBusy if somebody is.

    busy: says who is in the way; "" if nobody is
    """
    said = ""
    while words := busy():
        if not waits:
            raise HostBusy(words)
        if words != said:
            progress.tell([("waits", words)])
            said = words
        time.sleep(WAIT_SECONDS)


def fitted(work: RunWork, hosts: Hosts) -> RunWork:
    """The work with the usual card of guests there, and the size of the existing VM, if it measures one. Raises
    CannotResume if that was another, and MachineError.
    """
    if work.resumed is None:
        under_test = filter(None, (hosts.host, hosts.other, hosts.destination))
        work = replace(work, plan=with_usual_card(work.plan, [*under_test]))
    if hosts.existing is None:
        return work
    plan = existing.fitted(work.plan, hosts.existing)
    if left_out := existing.not_measured(work.plan, hosts.existing):
        say(f"left out, because {hosts.existing.name} has no programs for it: {', '.join(left_out)}", file=sys.stderr)
    if work.resumed is not None:
        known = work.resumed.facts.get(hosts.existing.path, {}).get("uuid")
        if plan.guest != work.plan.guest or known not in (None, hosts.existing.uuid):
            raise CannotResume(
                f"{work.resumed.id} cannot go on: {hosts.existing.name} has another size now, or is another VM:"
                " begin a new run"
            )
    return replace(work, plan=plan)


def outlook_of(store: Store, work: RunWork, places: Sequence[Place], why: str) -> tuple[Foreseen, list[Line]]:
    """How long the work takes, and all lines before the question; `why`: why guests are emulated, "" if they are not.

    Raises BadInput if the plan allows fewer writes than it needs.
    """
    expected, written = foreseen(store, work, places, why), written_per_round(store, work, places, why)
    return expected, outlook(work.plan, places, work.options.testbed, expected, emulated=why, written=written)


def foreseen(store: Store, work: RunWork, places: Sequence[Place], why: str) -> Foreseen:
    """How long it takes; `why`: why guests are emulated, "" if they are not."""
    plan, before, target = work.plan, work.resumed, work.options.testbed.target
    host = is_emulated(places)
    more = (
        more_seconds(lab_of(place.name), place.machine, target, plan, emulated=bool(why) or host) for place in places
    )
    return foresee(
        plan,
        [treatment for place in places for treatment in place.possible],
        Emulation(guests=bool(why), host=host),
        more=sum(more) + sum(place.alone_seconds for place in places),
        measured=store.seconds_per_round(
            plan.model_dump(mode="json"), plan.host, work.options.testbed.interleave_with, emulated=bool(why) or host
        ),
        done=max((trial.round for trial in before.trials), default=1) - 1 if before else 0,
    )


def written_per_round(store: Store, work: RunWork, places: Sequence[Place], why: str) -> float | None:
    """Bytes that each round of the newest run of the same plan on the same host wrote; None if there is none."""
    plan, other = work.plan, work.options.testbed.interleave_with
    emulated = bool(why) or is_emulated(places)
    earlier = store.same_work(plan.model_dump(mode="json"), plan.host, other, emulated=emulated)
    if earlier is None:
        return None
    worked = [trial for trial in earlier.trials if trial.status == "ok"]  # what others wrote is a guess
    rounds = written_by_round(worked, plan.build_workloads())
    return sum(rounds.values()) / max(1, len(rounds))


def is_emulated(places: Sequence[Place]) -> bool:
    """Whether a host under test is itself emulated."""
    return any(place.below["emulated_cpu"] is True for place in places)
