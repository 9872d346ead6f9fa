"""Who used the host's CPU in each workload: entries that add up to its busy time. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.ledger import REMAINDER, Ledger
from vmtax.core.units import MINUS, at_most
from vmtax.report.document import Column, Figure, Paragraph, Row, Section, Table, name_cell, value_cell
from vmtax.report.wording.ledger import in_words
from vmtax.workload import words

if TYPE_CHECKING:
    from vmtax.report.picture import Picture

TITLE = "Who used the host's CPU"
READING = (
    "CPUs that were busy, as a mean over the trials, and whose work it was; from before a command until after it, so"
    " they include the start of its program. What is busy inside a guest is part of what its host counts as guest code,"
    " or as its emulator. Entries below 1 % or 0.005 CPUs are left out. The remainder is what no entry explains: CPUs ×"
    " time − idle − waiting for disks, less all entries."
)
SAMPLED = "On KVM, samples split the time of a guest's vCPUs into guest code, kernel and QEMU."
BY_TICKS = (
    "On KVM, the kernel's ticks split the time of a guest's vCPUs into guest code, kernel and QEMU, and wrongly if the"
    " guest works in step with them: docs/development/ledger.md says what is better."
)
BY_WINDOWS = frozenset({"hypervisor", "user"})  # of a host, that Windows alone has
BY_HYPER_V = (
    "Hyper-V counts how long VMs, the host's own Windows and its hypervisor ran, and Windows' counters split its own"
    " time, partly by ticks: docs/development/ledger.md."
)
BY_ITS_COUNTERS = "Windows' own counters split its time, partly by ticks: docs/development/ledger.md."
PARTLY = f"{SAMPLED} In some trials the kernel's ticks did, which are less exact: {{}}."
MOST_NAMED = 4


def section(analysis: Analysis, picture: Picture | None = None) -> Section | None:
    """With its picture on a page. None for a run whose version read no ledger."""
    found = analysis.ledger
    if not found:
        return None
    rows: list[Row] = []
    for name, members in groupby(found, key=lambda one: one.treatment.name):
        rows.append(Row((name_cell(name, emulated=name in analysis.emulated),)))
        rows += map(_row, members)
    columns = (Column("workload"), Column("cores busy"), Column("of which", words=True), Column("remainder"))
    table = Table(TITLE, columns, tuple(rows), "wrapped")
    drawn = (Figure((picture,)),) if picture else ()
    texts = (Paragraph(text, "note") for text in (READING, *_how_split(found)))
    return Section("ledger", TITLE, (*drawn, table, *texts), TITLE)


def _how_split(found: Sequence[Ledger]) -> Iterator[str]:
    """What splits the time of vCPUs in the rows of guests on KVM."""
    of_windows = [one for one in found if "/" not in one.machine and BY_WINDOWS & one.entries.keys()]
    if of_windows:  # none of its guests runs on KVM
        yield BY_HYPER_V if any("hypervisor" in one.entries for one in of_windows) else BY_ITS_COUNTERS
        return
    on_kvm = [one for one in found if "guest" in one.entries]
    by_ticks = [f"{one.treatment.name}, {_label(one)}" for one in on_kvm if one.sampled_trials < one.trials]
    if by_ticks and not any(one.sampled_trials for one in on_kvm):
        yield BY_TICKS
    elif on_kvm:
        yield PARTLY.format("; ".join(at_most(MOST_NAMED, by_ticks))) if by_ticks else SAMPLED


def place(one: Ledger) -> str:
    """Where it was read, as an addition to a name: "" for the host, ", inside the VM"."""
    depth = one.machine.count("/")
    if depth == 0:
        return ""
    outer = depth == 1 and one.treatment.layer == "nested"
    what = "outer VM" if outer else "nested VM" if depth > 1 else "VM"
    last = one.machine.rpartition("/")[2]
    return f", inside the {what}{last.removeprefix('vm').replace('-', ' ')}"


def _label(one: Ledger) -> str:
    return f"{' '.join(filter(None, (words.title(one.workload), one.case)))}{place(one)}"


def _row(one: Ledger) -> Row:
    share = one.entries.get(REMAINDER, 0.0) / one.busy if one.busy else 0.0
    remainder = f"{round(100 * share, 1) + 0.0:.1f} %".replace("-", MINUS)  # without a sign before 0
    return Row((name_cell(_label(one)), *map(value_cell, (f"{one.cores:.2f}", in_words(one), remainder))))
