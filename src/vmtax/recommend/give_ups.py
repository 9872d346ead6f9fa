"""What each choice gives up: choices with the same features, and how each feature was tested. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vmtax.core.records import Treatment
from vmtax.design.features import Feature, State
from vmtax.design.topology import varying
from vmtax.recommend.kinds import ChoiceKind, Features
from vmtax.recommend.records import Advice

ORDER: tuple[State, ...] = ("no", "not tried", "not shown", "yes")  # of the states of a feature: given up first


@dataclass(frozen=True, slots=True)
class Group:
    """Treatments with the same states of all features."""

    treatments: tuple[str, ...]  # their names, in the plan's order
    states: tuple[State, ...]  # in the order of the kind's features
    tests: tuple[tuple[Feature, ...], ...]  # for each of these: what was found, each different finding once
    # Factor -> levels that only these treatments have, of each factor that tells them from the others; () if they are
    # all; None if factor levels cannot tell them apart, or if there is one
    common: tuple[tuple[str, tuple[str | None, ...]], ...] | None
    has_choice: bool  # whether the choice is among them
    has_runner_up: bool  # whether the runner-up is


@dataclass(frozen=True, slots=True)
class Reason:
    """The source of an answer."""

    feature: Feature  # what was found
    treatments: tuple[str, ...]  # for which
    of: int  # number of treatments that the run looked at


def groups_of(kind: ChoiceKind, looked_at: Sequence[Treatment], features: Features, found: Advice) -> Iterator[Group]:
    """Groups that give up least first; equal ones in the plan's order."""
    alike: dict[tuple[State, ...], list[Treatment]] = {}
    for treatment in looked_at:
        states = {feature.name: feature.state for feature in features[treatment.name]}
        alike.setdefault(tuple(states.get(name, "not tried") for name in kind.features), []).append(treatment)
    for answers, members in sorted(alike.items(), key=lambda entry: -entry[0].count("yes")):
        names = tuple(treatment.name for treatment in members)
        chosen, runner_up = (
            option is not None and option.treatment in names for option in (found.choice, found.runner_up)
        )
        tests = tuple(tuple(dict.fromkeys(_of(name, names, features))) for name in kind.features)
        yield Group(names, answers, tests, _common(members, looked_at), chosen, runner_up)


def _common(
    members: Sequence[Treatment], field: Sequence[Treatment]
) -> tuple[tuple[str, tuple[str | None, ...]], ...] | None:
    """What only these have in common."""
    if len(members) == 1:
        return None
    levels = {factor: _levels(factor, members) for factor in varying(field)}
    alike = [t for t in field if all(t.levels.get(factor) in kept for factor, kept in levels.items())]
    if len(alike) > len(members):
        return None
    return tuple((factor, kept) for factor, kept in levels.items() if len(kept) < len(_levels(factor, field)))


def _levels(factor: str, members: Sequence[Treatment]) -> tuple[str | None, ...]:
    return tuple(dict.fromkeys(treatment.levels.get(factor) for treatment in members))


def _of(name: str, treatments: Iterable[str], features: Features) -> Iterator[Feature]:
    return (feature for one in treatments for feature in features[one] if feature.name == name)


def reasons_of(kind: ChoiceKind, looked_at: Sequence[Treatment], features: Features) -> Iterator[Reason]:
    """Feature by feature, what is given up first."""
    for name in kind.features:
        alike: dict[Feature, list[str]] = {}
        for treatment in looked_at:
            for feature in _of(name, [treatment.name], features):
                alike.setdefault(feature, []).append(treatment.name)
        for feature, names in sorted(alike.items(), key=lambda entry: ORDER.index(entry[0].state)):
            yield Reason(feature, tuple(names), len(looked_at))
