"""Shorten long names of treatments in lists: common parts are omitted, and differences are shown in columns. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmtax.core.records import Treatment
from vmtax.design.topology import varying

WIDEST = 64  # characters of all columns together; beyond that, the name's own words are shown on several lines
WRAPPED = 46  # characters of such a line
GAP = "\N{NO-BREAK SPACE}" * 2  # between columns
BETWEEN = " \N{MIDDLE DOT} "  # between levels that are not in columns
NOTHING = "–"  # the treatment has no level of that factor


@dataclass(frozen=True, slots=True)
class Label:
    """The label beside a treatment's point."""

    lines: tuple[str, ...]  # a single one, padded with no-break spaces, if there are columns
    plain: str  # the same on one line, without padding


@dataclass(frozen=True, slots=True)
class Short:
    """Labels of treatments of one layer."""

    head: Label | None  # names of the columns; None if labels are names
    labels: Mapping[str, Label]  # by treatment name


def factor_words(factors: Sequence[str]) -> dict[str, str]:
    """Factor -> its last part, "cache", if that distinguishes it from the others; otherwise the whole name."""
    last = [name.rpartition(".")[2] for name in factors]
    return {name: short if last.count(short) == 1 else name for name, short in zip(factors, last, strict=True)}


def shortened(members: Sequence[Treatment]) -> Short:
    """Columns of levels, one for each factor that varies; names without their layer if columns do not fit."""
    factors = varying(members)
    words = factor_words(factors)
    rows = {treatment.name: [treatment.levels.get(name) or NOTHING for name in factors] for treatment in members}
    widths = [max(len(words[name]), *(len(row[place]) for row in rows.values())) for place, name in enumerate(factors)]
    told_apart = len({tuple(row) for row in rows.values()}) == len(rows)
    if factors and told_apart and sum(widths) + len(GAP) * (len(widths) - 1) <= WIDEST:
        head = _columns([words[name] for name in factors], widths)
        return Short(head, {name: _columns(row, widths) for name, row in rows.items()})
    return Short(None, {treatment.name: _words(treatment, words) for treatment in members})


def _columns(cells: Sequence[str], widths: Sequence[int]) -> Label:
    text = GAP.join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return Label((text.replace(" ", "\N{NO-BREAK SPACE}"),), BETWEEN.join(cells))


def _words(treatment: Treatment, words: Mapping[str, str]) -> Label:
    """The name without its layer, and with only the last part of each factor."""
    layer, _, rest = treatment.name.partition(" ")
    pieces = []
    for piece in rest.split():
        factor, sign, level = piece.partition("=")
        pieces.append(f"{words.get(factor, factor)}{sign}{level}")
    text = " ".join(pieces) or f"{layer}, all first levels"
    return Label(tuple(textwrap.wrap(text, WRAPPED, break_on_hyphens=False)) or (text,), text)
