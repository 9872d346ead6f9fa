"""Medians and costs as cells of tables. Pure."""

from __future__ import annotations

from vmtax.analysis.by_workload import Number
from vmtax.analysis.effects import Effect
from vmtax.core.units import format_value
from vmtax.report.document import Cell, value_cell
from vmtax.report.wording.cost import effect_in_words


def effect_cell(effect: Effect | None) -> Cell:
    """The estimate with its interval, or why there is none."""
    if effect is None:
        return Cell()
    return value_cell(*effect_in_words(effect), emulated=effect.emulated, shown=not effect.unclear)


def number_cell(number: Number | None) -> Cell:
    """The median with its unit; empty if there is none."""
    if number is None:
        return Cell()
    return value_cell(format_value(number.value, number.unit), emulated=number.emulated)
