"""What all measuring commands share: preview the work, ask, do it, show its progress."""

from __future__ import annotations

import contextlib
import functools
import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from vmtax.cli import on_windows
from vmtax.cli.app import NOBODY, BadUse, agree, agree_to_cut, agree_to_erase, fail, say, warn
from vmtax.cli.asked import DiskOptions
from vmtax.cli.keeping import keep_results
from vmtax.cli.work import RunWork, fitted, foreseen, outlook_of, refuse_full, until_free
from vmtax.core.errors import INTERRUPTED, CannotDo
from vmtax.core.events import ExpectedTime, RunStarted
from vmtax.core.records import Experiment, Json
from vmtax.design.host import arguments, reboots_itself
from vmtax.experiment import live, progress, runner
from vmtax.experiment.live import Journal
from vmtax.experiment.outlook import Line
from vmtax.experiment.preview import Place, look, refuse_emulation, with_disks_tried
from vmtax.experiment.real_cut import PowerWasCut
from vmtax.experiment.reboots import RebootNeeded, refuse_boot, refuse_changed, refuse_off
from vmtax.experiment.resume import image_of, refuse_impossible, resumable
from vmtax.experiment.runner import Options
from vmtax.image import build
from vmtax.lab.home import Lab
from vmtax.lab.reboot import reboot
from vmtax.machine.hold import Turn
from vmtax.machine.login_shell import WindowsThere
from vmtax.meter.facts import read_boot
from vmtax.plan.asked import refuse_left_out
from vmtax.plan.estimate import settled
from vmtax.storage import DISK_DIRECTORY, Target
from vmtax.store import Store, StoreError
from vmtax.store.owner import this_process
from vmtax.testbed.host.additions import additions
from vmtax.testbed.host.hosts import lab_of
from vmtax.testbed.machines.machines import Machines, examined, set_up
from vmtax.testbed.machines.on_windows import HOST
from vmtax.testbed.session.examine import Examined
from vmtax.testbed.session.exclusive import Claim, hold, ids_of, others_first
from vmtax.testbed.session.session import Hosts, TestbedOptions, connected
from vmtax.testbed.session.ways import OwnVm
from vmtax.testbed.subjects.host_facts import host_facts

OF_WINDOWS = re.compile(r"[A-Za-z]:[\\/]")  # how an absolute path begins there
KEPT = "every result that was measured is kept: `vmtax show` shows them, `vmtax run --resume` goes on"


def going_on(experiment: Experiment, erase: Sequence[str] = (), *, rebooted: bool) -> RunWork:
    """The rest of a run that was stopped. Raises CannotResume."""
    plan, options = resumable(experiment)
    place = options.target
    asked = DiskOptions(str(place.directory), [*place.devices], place.group, place.pool, [*erase])
    target = disk_target(plan.host, asked)
    return RunWork(plan, Options(experiment.command, replace(options, target=target)), experiment, rebooted)


def options_of(environment: TestbedOptions) -> Options:
    """What the command line adds to the plan, including the command line itself."""
    return Options(shlex.join(["vmtax", *sys.argv[1:]]), environment)


def program(host: str, name: str | None, option: str) -> str | None:
    """A QEMU on `host`, as the command line names it; a relative path becomes absolute."""
    if name is None or "/" not in name or name.startswith("/"):
        return name
    if host != "local":
        raise BadUse(f"{option} {name}: must be absolute, for it is on {host}")
    return str(Path(name).absolute())


def disk_target(host: str, asked: DiskOptions) -> Target:
    """Where the disks under test will be on `host`, according to the command line."""
    where = PurePosixPath(asked.disk_dir) if asked.disk_dir else DISK_DIRECTORY
    devices, erase = asked.disk_device or (), asked.erase or ()
    if not where.is_absolute() and not (host.startswith("ssh://") and OF_WINDOWS.match(str(where))):
        if host != "local":
            raise BadUse(f"--disk-dir {asked.disk_dir}: must be absolute, for it is on {host}")
        where = PurePosixPath(Path(where).absolute())
    for option, names in (("--disk-device", devices), ("--erase", erase)):
        for name in names:
            if not name.startswith("/dev/"):
                raise BadUse(f"{option} {name}: must be a device, such as /dev/sdb")
            if names.count(name) > 1:
                raise BadUse(f"{option} {name}: is given twice")
    for name in erase:
        if name not in devices:
            raise BadUse(f"--erase {name}: is about a device of --disk-device, and it is none of them")
    group, pool = asked.disk_group, asked.disk_pool
    if group is not None and not re.fullmatch(r"[\w+.][\w+.-]{0,126}", group, re.ASCII):
        raise BadUse(f"--disk-group {group}: no volume group can be called that; `vgs` lists those that are there")
    if pool is not None and not re.fullmatch(r"[A-Za-z][\w.:/-]{0,199}", pool, re.ASCII):
        raise BadUse(f"--disk-pool {pool}: no pool can be called that; `zfs list` lists pools and datasets")
    return Target(where, tuple(devices), group, pool, frozenset(erase))


def measure(store: Store, work: RunWork, *, yes: bool) -> str:
    """The experiment's id. If it cannot be finished, the program ends, and every result is kept."""
    turn = Turn()
    _alone(store, work, turn)
    known = {entry.id for entry in store.experiments() if not work.resumed or entry.id != work.resumed.id}
    try:
        id = _on_its_system(store, work, yes=yes)
    except KeyboardInterrupt:  # here, because typer ends silently on it
        fail(f"interrupted; {KEPT if _kept(store, known) else 'nothing was measured yet'}", INTERRUPTED)
    except RebootNeeded as needed:
        _kept(store, known)
        store.keep_headline(needed.run, needed.waits)
        fail(str(needed), needed.exit_code)
    except CannotDo as error:
        fail(f"{error}\n{KEPT}" if _kept(store, known) else str(error), error.exit_code)
    finally:
        turn.leave()
    keep_results(store, id)
    return id


def _on_its_system(store: Store, work: RunWork, *, yes: bool) -> str:
    """On the system that the host has."""
    try:
        return _carry_out_in_boots(store, work, yes=yes)
    except WindowsThere as there:
        if there.path != HOST:
            raise
    return on_windows.carry_out(store, work, yes=yes)


def _alone(store: Store, work: RunWork, turn: Turn) -> None:
    """Wait, or raise HostBusy, while another run of this store measures one of the hosts, also while it reboots it.

    turn: ours among those who wait here, kept long enough to connect to the host, where there is another line
    """

    def busy() -> str:
        others = others_first(turn, work.plan.host) if work.waits else ""
        return _busy(store, work) or others

    until_free(busy, waits=work.waits)


def _alone_on_machines(store: Store, hosts: Hosts, *, waits: bool) -> None:
    """The same, whatever that run calls the host."""
    ids = ids_of(hosts)
    busy = "another run of this store measures this host, perhaps under another name: `vmtax runs` lists it"
    until_free(lambda: "" if all(store.take_host(id) for id in ids) else busy, waits=waits)


def _busy(store: Store, work: RunWork) -> str:
    ours = _hosts(work.plan.host, work.options.testbed)
    for run in store.in_progress():
        theirs = _hosts(run.host, TestbedOptions.from_json(run.options))
        same = [host for host in theirs if host in ours]
        if any(not host.startswith("ssh://") for host in same) and store.owner(run.id).boot != this_process().boot:
            same = [host for host in same if host.startswith("ssh://")]  # what is local there is not so here
        if same:
            shows = f"`vmtax watch {run.id}` shows it, `vmtax run --wait` waits"
            return f"run {run.id} measures {same[0]} just now: {shows}"
    return ""


def _hosts(host: str, testbed: TestbedOptions) -> list[str]:
    """The hosts on which a run has guests."""
    to = testbed.destination.host if testbed.destination else None
    return [each for each in (host, testbed.other_host, to) if each is not None]


def _kept(store: Store, known: set[str]) -> bool:
    """Store the results of a run that ended early, as for a complete one; returns whether it measured anything.

    known: ids of earlier runs, which are ignored
    """
    new = [entry.id for entry in store.experiments() if entry.id not in known and entry.ok]
    measured = [id for id in new if store.owner(id) == this_process()]  # others may use the store at the same time
    for id in measured:
        keep_results(store, id)
    return bool(measured)


def _carry_out_in_boots(store: Store, work: RunWork, *, yes: bool) -> str:
    """Like `_carry_out`, in several sessions if the host is rebooted in between: a lab that the run asks to reboot, or
    a host whose power was cut.
    """
    one, said, run = lab_of(work.plan.host), list[str](), ""
    try:
        while True:
            try:
                return _carry_out(store, work, said, yes=yes)
            except RebootNeeded as needed:
                if one is None:
                    raise
                run = needed.run
                _reboot(store, one, needed, said)
            except PowerWasCut as cut:
                run = cut.run
            again = replace(going_on(replace(store.load(run), state="interrupted"), rebooted=True), agreed=True)
            # The user agreed to this command line, even if the run began with another one. Whether guests are emulated
            # may have become known since.
            now, stored = work.options.testbed, again.options.testbed
            work = again.on(replace(stored, power_cut=now.power_cut, emulate=now.emulate or stored.emulate))
    except BaseException:
        with contextlib.suppress(StoreError):  # the store itself may have failed, which must not hide the first error
            if run and (left := store.load(run)).state == "running":
                store.finish(run, "interrupted", time.time(), seconds=left.seconds)
        raise


def _reboot(store: Store, one: Lab, needed: RebootNeeded, said: list[str]) -> None:
    """Boot the lab as its run asks; other terminals can watch."""
    if store.load(needed.run).state != "running":  # the lab is off because an earlier process was killed
        store.resume(needed.run)
    run = store.load(needed.run)
    rounds = run.plan["rounds"]
    with connected("local", warn) as hosts, progress.open_screen(said) as screen:
        journal = live.Journal(hosts.local)
        journal.screen = screen
        done = needed.block.round - 1
        journal.emit(RunStarted(run.id, run.treatments, rounds["min"], rounds["max"], rounds_done=done))
        reboot(one, arguments(needed.block.level), journal.emit)


def _refuse_boot(hosts: Hosts, work: RunWork) -> None:
    """Raises if the host is not booted as the resumed run needs."""
    if work.resumed is not None:
        by_itself = reboots_itself(work.plan.host) and not work.agreed
        refuse_boot(work.resumed, read_boot(hosts.host), rebooted=None if by_itself else work.rebooted)


def _carry_out(store: Store, work: RunWork, said: list[str], *, yes: bool) -> str:
    """Check everything that can be checked, announce the work, ask, do it, and report progress; returns the run's id.

    said: notices that need not be repeated
    """
    if not (yes or work.agreed) and not sys.stdin.isatty():
        raise BadUse(NOBODY)
    if work.resumed is not None and not work.agreed:
        refuse_off(work.resumed)
    with connected(work.plan.host, warn, work.options.testbed) as hosts:
        if not (named := work.options.testbed.target.directory).is_absolute():
            raise BadUse(f"--disk-dir {named}: must be absolute, for {work.plan.host} is no Windows")
        waits = work.waits or work.agreed  # in a later session, others may have come while the host was down
        hold(
            hosts,
            Claim.of(f"vmtax run {work.plan.name}"),  # options may hold what others must not read
            tell_waiting=(lambda who: progress.tell([("waits", who)])) if waits else None,
        )
        _alone_on_machines(store, hosts, waits=waits)
        _refuse_boot(hosts, work)
        work = fitted(work, hosts)
        looking = look(
            work.plan,
            hosts,
            work.options.testbed,
            lambda what: None if work.agreed else progress.tell([("looks at", what)]),
            work.typed,
            image_of(work.resumed) if work.resumed else None,
        )
        refuse_full(store)
        if why := next((one.reason for place in looking for one in place.accelerators if not one.tried), ""):
            _emulated(store, work, looking, why)  # refuse before an image is built
        _agree_to_enter(hosts, yes=yes or work.agreed)
        journal = live.Journal(hosts.local)
        sides = _examined(work, hosts, journal, yes=yes or work.agreed)
        work = replace(work, plan=settled(work.plan, emulated=any(side.emulated for side in sides)))
        why = next((side.why_emulated for side in sides if side.why_emulated), "")
        if why:
            work = _emulated(store, work, looking, why)
        looking = with_disks_tried(looking, [side.of_plan(work.plan) for side in sides], work.typed)
        if work.resumed:
            refuse_impossible(work.resumed, {name: why for place in looking for name, why in place.impossible.items()})
        expected, lines = outlook_of(store, work, looking, why)
        if work.resumed:
            lines.insert(0, Line("resumes", f"{work.resumed.id}, whose {len(work.resumed.trials)} trials are kept"))
        if not work.agreed:
            progress.tell((line.what, line.text) for line in lines)
            _agree(work, looking, yes=yes)
        with progress.open_screen(said) as journal.screen:
            journal.emit(ExpectedTime(*expected.seconds))
            make = functools.partial(_set_up, work, sides, journal)
            if work.resumed:
                id = runner.resume(work.resumed.id, store, journal.emit, make)
            else:
                id = runner.run(store, work.options, journal.emit, make)
        if hosts.existing is not None:
            _leave(store, id, hosts.existing)
        return id


def _leave(store: Store, id: str, vm: OwnVm) -> None:
    """Leave the user's VM, and record whether it is as it was. Raises MachineError."""
    afterwards = vm.leave()
    if afterwards:
        facts = store.load(id).facts.get(vm.path, {})
        store.add_facts(id, vm.path, {**facts, "afterwards": afterwards})
        changed = ", ".join(afterwards["changed"])
        known = afterwards.get("disks", {}).values()  # of a large one, or a device, not by what it holds
        disks = ", its disks hold the same" if known and all("sha256" in each for each in known) else ""
        as_before = f"{vm.name} is defined as before{disks}"
        same = f"{changed} of {vm.name} is not as before" if changed else as_before
        (warn if changed else functools.partial(say, file=sys.stderr))(f"{same}, and {afterwards['state']}")


def _agree(work: RunWork, looking: Sequence[Place], *, yes: bool) -> None:
    """Ask whether to begin, by what is most serious about the work."""
    if erased := work.options.testbed.target.erase:
        agree_to_erase(yes, sorted(erased))
    elif order := work.options.testbed.power_cut:
        agree_to_cut(yes, work.plan.host, order.words)
    else:
        agree(yes, _question(looking))


def _agree_to_enter(hosts: Hosts, *, yes: bool) -> None:
    """Ask before anything is done to a VM of the user's, if entering it does something."""
    vm = hosts.existing
    if vm is not None and vm.announced:
        progress.tell([(f"{vm.verb}s", f"{vm.name}: {vm.announced}")])
        agree(yes, f"{vm.verb.title()} it so? It is asked again before anything is measured. [y/N]")


def _set_up(
    work: RunWork, sides: Sequence[Examined], journal: Journal, keep: Callable[[Mapping[str, Json]], None]
) -> Machines:
    """The testbed. Raises NotMeasured if a level that the user named turns out to be impossible."""
    made = set_up([side.of_plan(work.plan) for side in sides], journal.emit, keep)
    refuse_left_out(work.plan, work.typed, made.impossible)
    return made


def _question(places: Sequence[Place]) -> str:
    """Where other VMs run, on any host, an empty answer means no."""
    is_crowded = any(place.neighbours.is_crowded for place in places)
    return "Begin although other VMs run here? [y/N]" if is_crowded else "Begin? [Y/n]"


def _examined(work: RunWork, hosts: Hosts, journal: Journal, *, yes: bool) -> list[Examined]:
    """The hosts, examined, and KVM tried on each; if there is no root image, it is built for that."""
    identity, more = image_of(work.resumed) if work.resumed else None, additions(work.plan)
    if build.here(identity, more) is None:
        build.refuse(more)
        again = "" if yes else "; asks again before it measures"
        which = f"an image of its own, with {more}" if more else "the root image"
        progress.tell([("first", f"builds {which}: about a minute, 2 GiB in the cache{again}")])
        agree(yes, "Build it? [Y/n]")
    with progress.open_screen() as journal.screen:
        image = build.ensure(journal.emit, identity, more)
        sides = examined(hosts, image, journal.emit, work.plan, work.options.testbed)
    if work.resumed:
        refuse_changed(work.resumed, host_facts(sides))
    return sides


def _emulated(store: Store, work: RunWork, places: Sequence[Place], why: str) -> RunWork:
    """What to do if guests are emulated: the work, or a demonstration of it. Raises BadInput without consent.

    `why`: why no guest boots with KVM
    """
    asked = work.options.testbed
    # A resumed run follows its stored facts, and nothing else.
    if asked.emulate or (work.resumed and "host" in work.resumed.facts):
        return work
    if not work.or_demo:
        refuse_emulation(work.plan, foreseen(store, work, places, why).seconds, why)
    return work.demonstrated()
