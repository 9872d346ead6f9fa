"""The kinds of choices, and everything in which the choice of one kind differs from that of another. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import Numbers
from vmtax.analysis.durability import Basis
from vmtax.core.layers import GUESTS
from vmtax.core.records import Metric, Treatment
from vmtax.design.features import Feature
from vmtax.recommend.forms import Export

Features = Mapping[str, tuple[Feature, ...]]  # of each treatment that the run looked at


@dataclass(frozen=True, slots=True)
class Figures:
    """The metrics that rank the choices, and a second set for comparison. The metrics of each set have equal weight."""

    by: str  # what ranks them, for people
    first: tuple[Metric, ...]  # rank the choices; () if they were not measured
    second: tuple[Metric, ...]  # used if every choice has them
    by_cpu: bool = False  # `first` is the host's CPU time, and `second` the speed; otherwise the reverse
    is_mix: bool = False  # a score replaces speed, and cost may be a part of it

    @property
    def best(self) -> str:
        """What the best one is called."""
        return "cheapest" if self.by_cpu else "best" if self.is_mix else "fastest"

    @property
    def worse(self) -> str:
        """What the others are called."""
        return "more expensive" if self.by_cpu else "worse" if self.is_mix else "slower"

    @property
    def speed(self) -> str:
        """A table's heading for a loss of speed."""
        return "weighted cost" if self.is_mix else "time"

    @property
    def waste(self) -> str:
        """What speaks against a choice that is only worse in `second`."""
        return "are slower than another" if self.by_cpu else "cost the host more CPU than another"


class ChoiceKind(ABC):
    """One part of a guest for which a run may recommend settings. Stateless."""

    name: ClassVar[str]  # "disk"
    ways: ClassVar[str]  # plural for the choices: "ways to keep a guest's disk"
    factors: ClassVar[tuple[str, ...]]  # its settings; all other factors are conditions of the experiment
    features: ClassVar[Mapping[str, str]]  # feature -> what a choice that has it does
    workloads: ClassVar[tuple[str, ...]]  # those that measure it
    score: ClassVar[str]  # metric of the score that ranks it if no weights are given; "": none
    score_words: ClassVar[str]  # what people call its scores
    title: ClassVar[str]  # of the section with the recommendation
    gives_up: ClassVar[str]  # title of the table of features
    headings: ClassVar[Mapping[str, str]]  # feature -> heading of its column, if that is not its name
    # What a reader looks at first: (heading, names of metrics, of which the first that was measured is shown)
    compared: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]]
    asked_first: ClassVar[tuple[tuple[str, str], ...]]  # (feature, heading)
    few_figures: ClassVar[bool] = False  # whether there is room for their intervals

    @abstractmethod
    def looked_at(self, analysis: Analysis) -> Features:
        """What the run, or documentation, says about the features of each choice."""

    @abstractmethod
    def answers(self, features: Sequence[Feature], treatment: Treatment) -> Mapping[str, Feature]:
        """Features by name; the documented ones if the run did not check them."""

    @abstractmethod
    def reading(self, features: Features) -> str:
        """How to read the table of features: which were tried, and which are as documented."""

    @abstractmethod
    def danger(self, features: Sequence[Feature], treatment: Treatment) -> str | None:
        """Why this choice is dangerous, whatever its advantages; None if it is not."""

    def basis(self, analysis: Analysis, treatment: Treatment, feature: str) -> Basis | None:
        """What the answer about this feature rests on; None: nothing is known, or all answers rest on the same."""
        return None

    def grounds(self, analysis: Analysis, treatment: Treatment) -> Iterator[str]:
        """The evidence that a choice can do what it is chosen for, in sentences, if there is more than one source."""
        return iter(())

    @abstractmethod
    def unknown(self, treatment: Treatment) -> Iterator[str]:
        """Why it is unknown how to set up this choice; nothing if it is known."""

    @abstractmethod
    def usual_needs(self, analysis: Analysis, members: Sequence[Treatment]) -> tuple[str, ...]:
        """The needs if none are given."""

    @abstractmethod
    def usual_metric(self, analysis: Analysis) -> Metric | None:
        """The metric that ranks them if no score does; None: as `figures` says."""

    @abstractmethod
    def figures(
        self, analysis: Analysis, numbers: Numbers, members: Sequence[Treatment], metric: str | None
    ) -> Figures:
        """What is compared; ranked by `metric` if it is given."""

    @abstractmethod
    def doubts(self, analysis: Analysis, names: Collection[str], alone: Figures | None) -> Iterator[str]:
        """Additional notes on what was not tried or measured, in sentences. `alone`: what ranks them, if nothing else
        that compares them was measured.
        """

    @abstractmethod
    def export(self, levels: Mapping[str, str]) -> Export:
        """The choice in every form. Raises UnknownLevel."""

    @abstractmethod
    def why_not(self, analysis: Analysis, members: Sequence[Treatment]) -> str:
        """What a run with two or more choices lacks, as the end of a sentence about it; "" if it lacks nothing."""


def measured_by_most(numbers: Numbers, members: Sequence[Treatment]) -> tuple[Metric, ...]:
    """The metrics that most of them have, in the order of the run."""
    having = {m: sum(bool(numbers.get((m, t.name))) for t in members) for m in dict.fromkeys(m for m, _ in numbers)}
    return tuple(metric for metric, count in having.items() if 2 * count > len(members))


def members_of(treatments: Sequence[Treatment]) -> list[Treatment]:
    """The run's guests of the outermost layer, on the plan's own side."""
    own = [t for t in treatments if t.repeats is None and not t.side]
    return next((guests for layer in GUESTS if (guests := [t for t in own if t.layer == layer])), [])
