"""The choice beside what the user has now, in few lines: figures and features. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.effects import effect
from vmtax.core.records import Metric, Treatment
from vmtax.design.features import Feature
from vmtax.design.topology import varying
from vmtax.recommend import Advice, ChoiceKind, members_of
from vmtax.report.document import Cell, Column, Row, Table, headed, name_cell, value_cell
from vmtax.report.sections.give_ups import shown
from vmtax.report.wording.cost import effect_in_words
from vmtax.report.wording.figures import amounts
from vmtax.report.wording.treatment_labels import NOTHING, factor_words

MOST, MOST_FIGURES = 3, 4  # choices, and figures of each: with what is said about them they take twelve lines
CHOSEN = "\N{RIGHTWARDS ARROW} "  # mark of the choice
NOW = "now"  # mark of the plan's first configuration, which others are compared with


@dataclass(frozen=True, slots=True)
class Choices:
    """The recommended choice, the first one of the plan, the runner-up, and the best of the others."""

    analysis: Analysis
    kind: ChoiceKind
    advice: Advice
    features: Mapping[str, Sequence[Feature]]  # of each choice
    ranked_by: str | None  # name of the metric that ranks them, if it is one

    @property
    def members(self) -> list[Treatment]:
        return members_of(self.analysis.experiment.treatments)

    @property
    def rows(self) -> list[Treatment]:
        advice, by_name = self.advice, {member.name: member for member in self.members}
        named = [one.treatment for one in (advice.choice, advice.runner_up, *advice.options) if one is not None]
        first = [self.members[0].name] if self.members else []
        return [by_name[name] for name in [*dict.fromkeys([*named[:1], *first, *named[1:]])][:MOST]]

    @property
    def metrics(self) -> list[tuple[str, Metric]]:
        """(heading, metric) of what was measured for every row."""
        rows = self.rows
        having = [{metric for metric, name in self.analysis.medians if name == row.name} for row in rows]
        common = {metric.name: metric for metric in set.intersection(*having)} if having else {}
        firsts = [(head, next((n for n in names if n in common), None)) for head, names in self.kind.compared]
        found = [(head, common[name]) for head, name in firsts if name is not None]
        found.sort(key=lambda pair: pair[1].name != self.ranked_by)  # the others stay in order
        return found[:MOST_FIGURES]

    def table(self) -> Table | None:
        """None if there is nothing to show."""
        rows, metrics = self.rows, self.metrics
        if not rows or not metrics:
            return None
        factors = [name for name in varying(rows) if name in self.kind.factors]
        words = factor_words(factors)
        units, cells = zip(*(self._column(metric, rows) for _, metric in metrics), strict=True)
        heads = (
            Column(" ".join(words[name] for name in factors)),
            *(Column(f"{head}, {unit}") for (head, _), unit in zip(metrics, units, strict=True)),
            *(Column(self._head(name, head)) for name, head in self.kind.asked_first),
        )
        lines = (
            Row((self._name(row, factors), *(column[place] for column in cells), *self._features(row)))
            for place, row in enumerate(rows)
        )
        return headed(Table("Choices", heads, tuple(lines), "choices"))

    def _column(self, metric: Metric, rows: Sequence[Treatment]) -> tuple[str, list[Cell]]:
        """The unit, and medians; with their costs against what the user has now, if there are few columns."""
        unit, texts = amounts(metric, [self.analysis.medians[metric, row.name] for row in rows])
        return unit, [
            value_cell(text, self._cost(metric, row), emulated=row.name in self.analysis.emulated)
            for text, row in zip(texts, rows, strict=True)
        ]

    def _cost(self, metric: Metric, row: Treatment) -> str:
        first = self.members[0].name
        found = effect(self.analysis, metric, first, row.name) if row.name != first else None
        return " ".join(effect_in_words(found)) if found is not None and self.kind.few_figures else ""

    def _name(self, row: Treatment, factors: Sequence[str]) -> Cell:
        """Its levels of what differs between the rows."""
        levels = " ".join(row.levels.get(name) or NOTHING for name in factors) or row.name
        choice = self.advice.choice
        mark = CHOSEN if choice is not None and row.name == choice.treatment else ""
        return name_cell(f"{mark}{levels}", NOW if row.name == self.members[0].name else "")

    def _features(self, row: Treatment) -> Iterator[Cell]:
        answers = self.kind.answers(self.features.get(row.name, ()), row)
        for name, _ in self.kind.asked_first:
            feature = answers.get(name)
            rests_on = "" if self._common_basis(name) else self.kind.basis(self.analysis, row, name) or ""
            yield name_cell(shown(feature.state) if feature else "?", rests_on)

    def _head(self, feature: str, head: str) -> str:
        """With what all answers rest on; if they rest on different things, each says it."""
        return ", ".join(filter(None, (head, self._common_basis(feature))))

    def _common_basis(self, feature: str) -> str:
        found = {self.kind.basis(self.analysis, row, feature) for row in self.rows}
        return (found.pop() or "") if len(found) == 1 else ""
