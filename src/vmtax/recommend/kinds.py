"""What of a guest is chosen, and all in which the choice of one differs from that of another. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import Numbers
from vmtax.core.records import Metric, Treatment
from vmtax.design.features import Feature
from vmtax.design.settings import GUESTS
from vmtax.recommend.forms import Export

Features = Mapping[str, tuple[Feature, ...]]  # of each treatment that the run looked at


@dataclass(frozen=True, slots=True)
class Figures:
    """What choices are ranked by, and what else they are compared by. The metrics of each have equal weight."""

    by: str  # what ranks them, for people
    first: tuple[Metric, ...]  # what ranks them; () if it was not measured
    second: tuple[Metric, ...]  # counts where every choice has it
    by_cpu: bool = False  # `first` is the host's CPU time, and `second` the speed; else the reverse
    is_mix: bool = False  # in the place of speed is a score, of which cost may be a part

    @property
    def best(self) -> str:
        """What the first of the ranking is."""
        return "cheapest" if self.by_cpu else "best" if self.is_mix else "fastest"

    @property
    def worse(self) -> str:
        """What the others are."""
        return "more expensive" if self.by_cpu else "worse" if self.is_mix else "slower"

    @property
    def speed(self) -> str:
        """What a table calls a loss of speed."""
        return "weighted cost" if self.is_mix else "time"

    @property
    def waste(self) -> str:
        """What speaks against a choice that is beaten by another in `second` alone."""
        return "are slower than another" if self.by_cpu else "cost the host more CPU than another"


class Kind(ABC):
    """One part of a guest for which a run may recommend settings. Stateless."""

    name: ClassVar[str]  # "disk"
    ways: ClassVar[str]  # choices of it: "ways to keep a guest's disk"
    factors: ClassVar[tuple[str, ...]]  # what sets it; all other factors are conditions of the experiment
    features: ClassVar[Mapping[str, str]]  # what it may be able to do -> what one that has it does
    workloads: ClassVar[tuple[str, ...]]  # that measure it
    score: ClassVar[str]  # the metric of the score that ranks it where no weights are given; "": none
    score_words: ClassVar[str]  # what people call scores of it
    title: ClassVar[str]  # of the section that recommends it
    gives_up: ClassVar[str]  # title of the table of features
    headings: ClassVar[Mapping[str, str]]  # feature -> the head of its column, where that is not its name

    @abstractmethod
    def looked_at(self, analysis: Analysis) -> Features:
        """What the run, or documentation, says of the features of each choice."""

    @abstractmethod
    def answers(self, features: Sequence[Feature], treatment: Treatment) -> Mapping[str, Feature]:
        """By name, with what is documented where the run did not look."""

    @abstractmethod
    def reading(self, features: Features) -> str:
        """How the table of features is to be read: which were tried, and which are as documented."""

    @abstractmethod
    def danger(self, features: Sequence[Feature], treatment: Treatment) -> str | None:
        """Why this choice is dangerous whatever else it offers; None if it is not."""

    def grounds(self, analysis: Analysis, treatment: Treatment) -> Iterator[str]:
        """On what rests that a choice can do what it is chosen for, in sentences, where more than one thing says it."""
        return iter(())

    @abstractmethod
    def unknown(self, treatment: Treatment) -> Iterator[str]:
        """Why it is unknown how to make this choice; nothing where that is known."""

    @abstractmethod
    def usual_needs(self, analysis: Analysis, members: Sequence[Treatment]) -> tuple[str, ...]:
        """What is needed where nothing is asked for."""

    @abstractmethod
    def usual_metric(self, analysis: Analysis) -> Metric | None:
        """What ranks them where no score does; None: what `figures` says."""

    @abstractmethod
    def figures(
        self, analysis: Analysis, numbers: Numbers, members: Sequence[Treatment], metric: str | None
    ) -> Figures:
        """What is compared; ranked by `metric` where that is named."""

    @abstractmethod
    def doubts(self, analysis: Analysis, names: Collection[str], alone: Figures | None) -> Iterator[str]:
        """Of its own: what was not tried or measured, in sentences. `alone`: what ranks them, where nothing else that
        compares them was measured.
        """

    @abstractmethod
    def export(self, levels: Mapping[str, str]) -> Export:
        """The choice in every form. Raises UnknownLevel."""

    @abstractmethod
    def why_not(self, analysis: Analysis, members: Sequence[Treatment]) -> str:
        """What a run with two choices or more lacks, as the end of a sentence about it; "" if it lacks nothing."""


def measured_by_most(numbers: Numbers, members: Sequence[Treatment]) -> tuple[Metric, ...]:
    """In the order of the run; a few choices may lack them."""
    having = {m: sum(bool(numbers.get((m, t.name))) for t in members) for m in dict.fromkeys(m for m, _ in numbers)}
    return tuple(metric for metric, count in having.items() if 2 * count > len(members))


def members_of(treatments: Sequence[Treatment]) -> list[Treatment]:
    """The guests of the outermost layer that the run has, on the plan's own side."""
    own = [t for t in treatments if t.repeats is None and not t.side]
    return next((guests for layer in GUESTS if (guests := [t for t in own if t.layer == layer])), [])
