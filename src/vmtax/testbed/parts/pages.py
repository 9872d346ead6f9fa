"""Provide what `memory.backing` and `memory.merge` need of a host, above all huge pages for the time of a run.

Pages of 2 MiB are allowed as surplus (nr_overcommit_hugepages): the kernel makes them when QEMU starts and takes them
back when it ends; where it kept them in its pool, that is made as small as it was. There is no surplus of 1 GiB pages:
these are added to the host's pool (nr_hugepages) for the whole run. All settings are restored when the run is over,
however it ended. `NodePages` provides the pages of a node that a plan names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from vmtax.core.records import Treatment
from vmtax.core.units import format_room
from vmtax.design.guest import MIB, GuestSettings, MemoryBacking
from vmtax.design.settings import ON_HOST
from vmtax.machine import Machine
from vmtax.meter.memory import available_memory
from vmtax.meter.text import GREP, Files, chosen, parse_files, whole
from vmtax.plan.guests import sized
from vmtax.plan.schema import Plan
from vmtax.testbed.host import needs
from vmtax.testbed.parts.numa import huge_nodes
from vmtax.testbed.parts.part import Part, Request
from vmtax.testbed.session.examine import is_root

POOLS = "/sys/kernel/mm/hugepages"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
KSM = "/sys/kernel/mm/ksm/run"
GIGANTIC = 1024 * MIB  # pages of this size allow no surplus
BACKING, MERGE = (GuestSettings.factors()[name].name for name in ("backing", "merge"))
# $1: a setting of the kernel; $2: its original value; $3: the value we set. A value that somebody else set since is
# left alone.
GIVE_BACK = (
    *("sh", "-c"),
    'now=$(cat "$1") || exit; if test "$now" -gt "$2" && test "$now" -le "$3"; then echo "$2" > "$1"; fi',
    "sh",
)
# $1: the directory of a pool; $2: its pages without surplus before the run; $3: how many at most were made for QEMUs.
# Those that the kernel kept though nobody uses them. What it says of a pool counts surplus, what is written does not.
KEPT = (
    *("sh", "-c"),
    'of() { cat "$1/$2_hugepages"; }; kept=$(($(of "$1" nr) - $(of "$1" surplus) - $2)); '
    'if test "$kept" -gt 0 && test "$kept" -le "$3" && test "$kept" -le $(($(of "$1" free) - $(of "$1" resv))); '
    'then echo "$2" > "$1/nr_hugepages"; fi',
    "sh",
)


@dataclass(frozen=True, slots=True)
class Pool:
    """A host's huge pages of one size."""

    directory: PurePosixPath
    total: int  # nr_hugepages
    most_surplus: int  # nr_overcommit_hugepages
    surplus: int
    unused: int  # neither in use nor reserved

    @staticmethod
    def of(files: Files, page_bytes: int) -> Pool | None:
        """None if the kernel has no pages of this size."""
        directory = f"{POOLS}/hugepages-{page_bytes // 1024}kB"
        names = ("nr_hugepages", "nr_overcommit_hugepages", "surplus_hugepages", "free_hugepages", "resv_hugepages")
        found = [whole(files.get(f"{directory}/{name}")) for name in names]
        if None in found:
            return None
        total, most, surplus, free, promised = (number or 0 for number in found)
        return Pool(PurePosixPath(directory), total, most, surplus, max(0, free - promised))


class Pages(Part):
    """The pages of the guests' memory, and whether the host merges equal ones."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        named = [name for name in (BACKING, MERGE) if request.plan.space.first(name) is not None]
        if not named:
            return {}
        files = _read(request.host)
        available, root = available_memory(request.host), is_root(request.host)
        guests = {each.name: GuestSettings.of(each.levels) for each in request.treatments if each.layer in ON_HOST}
        plans = {each.name: sized(request.plan, each.levels) for each in request.treatments if each.layer in ON_HOST}
        by_node = huge_nodes(request)
        reasons = {
            name: _why_no_merging(settings, named, files)
            or (None if name in by_node else _why_not(settings, named, plans[name], files, available))
            or (None if root or name in by_node else _why_only_root(settings, plans[name], files))
            for name, settings in guests.items()
        }
        return {name: why for name, why in reasons.items() if why}

    def announced(self, request: Request) -> Sequence[str]:
        """One line for each size of pages."""
        return [
            f"{count} {'page' if count == 1 else 'pages'} of {backing}"
            f" ({format_room(count * (backing.page_bytes or 1))}) from the host's memory,"
            f" {'for the whole run' if backing is MemoryBacking.GIGANTIC else 'while its guests run'}; given back"
            for backing, count in _wanted(request).items()
        ]

    def take(self, request: Request) -> Mapping[str, str]:
        impossible: dict[str, str] = {}
        for backing, count in _wanted(request).items():
            if why := _taken(request.host, backing, count):
                for treatment in request.treatments:
                    if GuestSettings.of(treatment.levels).backing is backing:
                        impossible[treatment.name] = why
        return impossible


def _wanted(request: Request) -> dict[MemoryBacking, int]:
    """The largest number of huge pages of each kind that the guests of one configuration take, of any node."""
    wanted: dict[MemoryBacking, int] = {}
    by_node = huge_nodes(request)
    for each in request.treatments:
        backing = GuestSettings.of(each.levels).backing
        if each.layer in ON_HOST and backing.page_bytes and each.name not in by_node:
            wanted[backing] = max(pages_at_once(request.plan, each), wanted.get(backing, 0))
    return wanted


def pages_at_once(plan: Plan, treatment: Treatment) -> int:
    """How many huge pages its guests take."""
    guest = GuestSettings.of(treatment.levels)
    return _guests(plan, guest) * _pages(sized(plan, treatment.levels), guest.backing)


def _read(machine: Machine) -> Files:
    return parse_files(machine.try_run(*GREP, "", POOLS, THP, KSM).stdout)


def _guests(plan: Plan, settings: GuestSettings) -> int:
    """How many guests have their memory at once; a migrated guest has it twice."""
    return settings.count * (2 if needs.migrates(plan) else 1)


def _pages(plan: Plan, backing: MemoryBacking) -> int:
    """How many pages one guest's memory takes."""
    return -(-plan.guest.memory // (backing.page_bytes or 1))


def _why_no_merging(settings: GuestSettings, named: Sequence[str], files: Files) -> str | None:
    if MERGE in named and settings.merge and files.get(KSM) != "1":
        cure = f"`echo 1 > {KSM}`" if KSM in files else "the kernel was built without it"
        return f"{MERGE}=on needs the host's ksmd, which does not run: {cure}"
    return None


def _why_not(
    settings: GuestSettings, named: Sequence[str], plan: Plan, files: Files, available: int | None
) -> str | None:
    if BACKING not in named:
        return None
    backing = settings.backing
    if backing is MemoryBacking.THP and chosen(files.get(THP)) not in ("always", "madvise"):
        return f"{BACKING}=thp: the host has transparent huge pages turned off: `echo madvise > {THP}`"
    if backing.page_bytes is None:
        return None
    return _why_no_pages(backing, _guests(plan, settings), plan, Pool.of(files, backing.page_bytes), available)


def _why_no_pages(
    backing: MemoryBacking, guests: int, plan: Plan, pool: Pool | None, available: int | None
) -> str | None:
    page = backing.page_bytes or 1
    if pool is None:
        return no_such_pages(backing)
    wanted = guests * _pages(plan, backing)
    lacking = max(0, wanted - pool.unused)
    if available is None or lacking * page <= available:
        return None
    return (
        f"{BACKING}={backing} takes {wanted} pages ({guests} x {format_room(plan.guest.memory)}), of which the host has"
        f" {pool.unused}: the other {format_room(lacking * page)} are more than the {format_room(available)} of memory"
        " that are available; lower guest.memory, or end something there"
    )


def no_such_pages(backing: MemoryBacking) -> str:
    size = format_room(backing.page_bytes or 1)
    return f"{BACKING}={backing}: the host's CPU or kernel has no pages of {size} (hugetlb)"


@dataclass(frozen=True, slots=True)
class PageSetting:
    """A change of a host's setting that makes huge pages available to the run."""

    setting: PurePosixPath
    before: int
    after: int

    @property
    def only_root(self) -> str:
        return f"only root may have huge pages made (tee {self.setting})"

    @staticmethod
    def of(pool: Pool, backing: MemoryBacking, wanted: int) -> PageSetting | None:
        """None if the host has `wanted` pages, or makes them when QEMU starts without a change."""
        lacking = max(0, wanted - pool.unused)
        if (backing.page_bytes or 1) >= GIGANTIC:
            change = PageSetting(pool.directory / "nr_hugepages", pool.total, pool.total + lacking)
        else:
            change = PageSetting(pool.directory / "nr_overcommit_hugepages", pool.most_surplus, pool.surplus + lacking)
        return change if lacking and change.after > change.before else None


def _why_only_root(settings: GuestSettings, plan: Plan, files: Files) -> str | None:
    """Why only root can provide this guest's pages; None if that is not so."""
    backing = settings.backing
    pool = Pool.of(files, backing.page_bytes) if backing.page_bytes else None
    change = PageSetting.of(pool, backing, _guests(plan, settings) * _pages(plan, backing)) if pool else None
    return f"{BACKING}={backing}: {change.only_root}" if change else None


def _taken(machine: Machine, backing: MemoryBacking, wanted: int) -> str | None:
    """Change the setting, if needed. Why the host has fewer than `wanted` pages; None if it has them, or makes them
    when QEMU starts.
    """
    page = backing.page_bytes or 1
    pool = Pool.of(_read(machine), page)
    if pool is None:
        return f"{BACKING}={backing}: the host has no pages of {format_room(page)} any more"
    change = PageSetting.of(pool, backing, wanted)
    if change is None:
        return None
    undoing = [machine.undo_later(*words) for words in _giving_back(pool, change)]
    if not machine.try_run("tee", str(change.setting), input=str(change.after)).ok:
        for each in reversed(undoing):
            each.undo()
        return f"{BACKING}={backing}: {change.only_root}"
    given = Pool.of(_read(machine), page)
    if page >= GIGANTIC and given is not None and given.unused < wanted:
        undoing[0].undo()
        return (
            f"{BACKING}={backing} takes {wanted} pages, and the host could give only {given.unused}, because its memory"
            f" is fragmented: reserve them when it boots, with hugepagesz=1G hugepages={wanted} on its command line"
        )
    return None


def _giving_back(pool: Pool, change: PageSetting) -> Iterator[tuple[str, ...]]:
    """Commands that undo the change, the last of them first."""
    if change.setting.name != "nr_hugepages":
        yield (*KEPT, str(pool.directory), str(pool.total - pool.surplus), str(change.after - pool.surplus))
    yield (*GIVE_BACK, str(change.setting), str(change.before), str(change.after))
