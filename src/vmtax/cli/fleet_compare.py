"""What `vmtax fleet compare` does: many hosts before a change and after it."""

from __future__ import annotations

from collections.abc import Sequence

from vmtax.analysis.many.costs import RunCosts
from vmtax.analysis.many.fleet_change import fleet_change
from vmtax.cli.app import BadUse
from vmtax.cli.asked_results import FleetCompareOptions, ManyOptions
from vmtax.cli.compare import SAME_WITHIN, fraction
from vmtax.cli.files import file_of
from vmtax.cli.many import costs_asked, show, without_names
from vmtax.report.render.formats import find_fleet_change
from vmtax.report.sections import fleet_change as section


def fleet_compare(before: str, after: str, asked: FleetCompareOptions) -> None:
    """`before`, `after`: labels, with commas between them."""
    file, format, full = file_of(asked.output), "json" if asked.json else asked.format, asked.full
    render = find_fleet_change(format)  # before anything is read
    given = fraction("--same-within", asked.same_within)
    sides = [list(dict.fromkeys(label.strip() for label in text.split(","))) for text in (before, after)]
    if twice := next((label for label in sides[0] if label in sides[1]), None):
        raise BadUse(f"{twice!r} is on both sides: name other labels after than before")
    second = _side(sides[1], asked.plan, redact=asked.redact)
    first = _side(sides[0], second[0].plan, redact=asked.redact)
    change = fleet_change(first, second, SAME_WITHIN if given is None else given)
    show(lambda detail: section.document(change, detail), lambda: render(change, full), format, file, full=full)


def _side(labels: Sequence[str], plan: str, *, redact: bool) -> Sequence[RunCosts]:
    """The runs of these labels. Raises BadUse if one of them has none."""
    found: list[RunCosts] = []
    for label in labels:
        if not label:
            raise BadUse("a label is missing beside a comma: such as spring1,spring2")
        asked = ManyOptions(label=label, redact=redact)
        found += without_names(costs_asked(plan or (found[0].plan if found else ""), asked), asked)
    return found
