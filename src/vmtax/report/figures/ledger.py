"""Who used the host's CPU, as stacked bars in cores, one for each configuration of a case."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate

from markupsafe import Markup

from vmtax.analysis.ledger import REMAINDER, Ledger
from vmtax.report.figures.svg import Axis, across, drawing, element, emulation, percent, text
from vmtax.report.picture import Key, Picture
from vmtax.report.wording.ledger import KERNEL, in_words
from vmtax.workload import words

TITLE = "Whose work the host's CPUs did"
LINE, BAR, GAP = 17, 16, 13  # pixels: height of a label's line, of a bar, and of the gap between rows
CHARACTERS = 44  # of a label's line on a telephone
ABOVE = 20  # pixels, for the names of the axis
MOST = 40  # bars; more would make the page too long
TICKS = 5
# The parts of a bar from the left: name, colour, entries of the ledger.
PARTS = (
    ("guest code, or its emulator", "vm", ("guest", "emulator")),
    ("vCPUs in the host's kernel and in QEMU", "nesting", ("vcpu_kernel", "vcpu_user")),
    ("Hyper-V's hypervisor", "nesting", ("hypervisor",)),
    ("other threads of QEMU", "level-4", ("main_loop", "iothreads", "qemu_other")),
    ("vhost", "warn", ("vhost",)),
    ("interrupts", "level-3", ("hard_irq", "soft_irq", "idle_irq")),
    ("workload and its commands", "host", ("workload",)),
    ("programs", "level-4", ("user",)),
    ("Windows' kernel", "text", ("kernel",)),
    ("kernel threads", "text", (KERNEL,)),
    ("other VMs", "level-5", ("other_vms",)),
    ("other processes, vmtax and stolen time", "muted", ("other", "vmtax", "steal")),
)


def ledger_picture(found: Sequence[Ledger], emulated: Collection[str]) -> Picture | None:
    """None for a run without a ledger."""
    hosts = [one for one in found if "/" not in one.machine]
    if not hosts:
        return None
    cases = list(dict.fromkeys((one.workload, one.case) for one in hosts))
    hosts.sort(key=lambda one: cases.index((one.workload, one.case)))  # what is to be compared is adjacent
    shown = hosts[:MOST]
    marked = emulation([one.treatment.name in emulated for one in shown])
    most = max(max(one.cores, sum(_parts(one))) for one in shown) or 1.0
    step = 10 ** math.floor(math.log10(most / TICKS))
    step *= next(factor for factor in (1, 2, 5, 10) if most / (step * factor) <= TICKS)
    axis = Axis(0.0, most, tuple((number * step, f"{number * step:g}") for number in range(int(most / step) + 1)))
    title = f"{TITLE}{f' ({marked})' if marked else ''}"
    alternative = f"Cores that were busy in {len(shown)} cases, each divided by whose work it was. The table has them."
    labels = [_label(one, one.treatment.name in emulated) for one in shown]
    tops = [0, *accumulate(len(label) * LINE + BAR + GAP for label in labels)]
    rows = (part for row in zip(tops[:-1], labels, shown, strict=True) for part in _row(*row, axis))
    inside = element("svg", across(axis, above=True), *rows, y=ABOVE, height=tops[-1])
    drawn = drawing(
        "ledger-bars", title, alternative, (inside,), class_="chart", width="100%", height=tops[-1] + ABOVE + 24
    )
    used = [any(parts) for parts in zip(*map(_parts, shown), strict=True)]
    legend = [Key("square", style, name) for (name, style, _), is_used in zip(PARTS, used, strict=True) if is_used]
    caption = "Cores, as a mean over the trials of a case; what no part explains is not drawn."
    if len(hosts) > MOST:
        caption += f" The first {MOST} of {len(hosts)} bars; the table has all."
    return Picture("ledger-bars", TITLE, caption, alternative, tuple(legend), drawn)


def _parts(one: Ledger) -> tuple[float, ...]:
    """Cores for each of PARTS."""
    return tuple(
        sum(value for name, value in one.entries.items() if name != REMAINDER and _belongs(name, entries)) / one.seconds
        for _, _, entries in PARTS
    )


def _belongs(name: str, entries: Sequence[str]) -> bool:
    return name in entries or (KERNEL in entries and name.startswith(KERNEL))


def _label(one: Ledger, is_emulated: bool) -> Sequence[str]:
    """Its lines."""
    case = " ".join(filter(None, (words.title(one.workload), one.case)))
    name = f"{one.treatment.name}{' (emulated)' if is_emulated else ''}"
    return textwrap.wrap(f"{case}: {name}", CHARACTERS, break_on_hyphens=False)


def _row(top: int, label: Sequence[str], one: Ledger, axis: Axis) -> Iterator[Markup]:
    for number, line in enumerate(label, start=1):
        yield text(line, "0", str(top + number * LINE), style="panel")
    left = 0.0
    tip = f"{one.cores:.2f} cores: {in_words(one)}"
    for (_, style, _), cores in zip(PARTS, _parts(one), strict=True):
        if cores > 0:
            size = {
                "x": percent(axis.at(left)),
                "width": percent(cores / axis.high),
                "y": top + len(label) * LINE + 6,
                "height": BAR,
            }
            yield element("rect", element("title", tip), class_=style, fill="currentColor", **size)
            left += cores
