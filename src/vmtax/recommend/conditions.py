"""Conditions of a choice: levels of the guests that are no settings of what is chosen, and are held constant. Pure.

A guest without mitigations may well be faster, but that is no way to keep a disk and no network card, and `--apply`
cannot express it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmtax.analysis.comparisons import named_factors
from vmtax.core.records import Json, Treatment
from vmtax.design.factors import FACTORS, USUAL_LEVELS
from vmtax.recommend.kinds import ChoiceKind


@dataclass(frozen=True, slots=True)
class Conditions:
    """The levels at which the choice is made."""

    levels: Mapping[str, str]  # of each factor that varies among the guests, or that the plan holds off its default
    left_out: tuple[str, ...]  # treatments at other levels
    chosen: str  # the kind of choice: "disk"

    @property
    def why(self) -> str:
        """Why the treatments in `left_out` were left out."""
        at = " and ".join(f"{name}={level}" for name, level in self.levels.items())
        return f"measured under another condition than {at}"

    @property
    def note(self) -> str:
        """The conditions under which the choice holds; "" if there is nothing to say."""
        if not self.levels:
            return ""
        at = " and ".join(_words(name, level) for name, level in self.levels.items())
        others = f", not the {len(self.left_out)} at other levels" if self.left_out else ""
        is_one = "that is a condition" if len(self.levels) == 1 else "those are conditions"
        return (
            f"Only guests with {at} were considered{others}: {is_one} of the experiment and no choice of a"
            f" {self.chosen}, and what is to be applied does not say it."
        )


def conditions(kind: ChoiceKind, plan: Json, members: Sequence[Treatment]) -> Conditions:
    """For each factor, the plan's first level; if only entries of a hand-made list name the factor, its default; if no
    guest has these levels, those of the first guest.
    """
    names = [name for name in dict.fromkeys(name for t in members for name in t.levels) if name not in kind.factors]
    wanted = {name: _baseline(name, plan, members) for name in names}
    if not any(_at(treatment, wanted) for treatment in members):
        wanted = {name: _level(members[0], name) for name in names} if members else {}
    asked = named_factors(plan)
    named = {
        name: level
        for name, level in wanted.items()
        if any(_level(treatment, name) != level for treatment in members)
        or (name in asked and level != USUAL_LEVELS.get(name, level))
    }
    return Conditions(named, tuple(t.name for t in members if not _at(t, named)), kind.name)


def ways(kind: ChoiceKind, members: Sequence[Treatment]) -> int:
    """How many different choices these guests offer."""
    return len({frozenset((name, level) for name, level in t.levels.items() if name in kind.factors) for t in members})


def _baseline(name: str, plan: Json, members: Sequence[Treatment]) -> str:
    there = list(dict.fromkeys(_level(treatment, name) for treatment in members))
    named: Sequence[str] = (plan.get("factors") or {}).get(name) or ()
    return next(level for level in (*named[:1], _default(name, there[0]), there[0]) if level in there)


def _words(name: str, level: str) -> str:
    default = USUAL_LEVELS.get(name, level)
    return f"{name}={level}" if level == default else f"{name}={level} (the default is {default})"


def _at(treatment: Treatment, levels: Mapping[str, str]) -> bool:
    return all(_level(treatment, name) == level for name, level in levels.items())


def _level(treatment: Treatment, name: str) -> str:
    return treatment.levels.get(name) or _default(name, "")


def _default(name: str, otherwise: str) -> str:
    return FACTORS[name].default if name in FACTORS else otherwise
