"""The table of what each choice gives up. Pure."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Json
from vmtax.design.features import DOCUMENTED, FEATURES, Feature

HEADINGS = {"pause-on-full": "pauses", "migration": "migrates"}
SHOWN = {"yes": "yes", "no": "no", "not tried": "?"}


@dataclass(frozen=True, slots=True)
class GiveUps:
    """One row for each treatment of the run that was looked at."""

    rows: tuple[tuple[str, tuple[Feature, ...]], ...]  # (treatment, its features in the order of FEATURES)

    def to_json(self) -> Json:
        return {name: [asdict(feature) for feature in features] for name, features in self.rows}

    def reasons(self) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
        """(feature, words, treatments) of every "no" and "not tried", each once."""
        found: dict[tuple[str, str], list[str]] = {}
        for name, features in self.rows:
            for feature in features:
                if feature.state != "yes" and feature.words:
                    found.setdefault((feature.name, feature.words), []).append(name)
        return tuple((feature, words, tuple(names)) for (feature, words), names in found.items())

    def lines(self, width: int = 80) -> list[str]:
        """A table, then why; [] where nothing was looked at."""
        if not self.rows:
            return []
        columns = [HEADINGS.get(name, name) for name in FEATURES]
        text = ["  " + "  ".join(columns)]
        for name, features in self.rows:
            states = {feature.name: feature.state for feature in features}
            wide = zip(FEATURES, columns, strict=True)
            cells = (SHOWN[states.get(key, "not tried")].ljust(len(head)) for key, head in wide)
            text += [*textwrap.wrap(name, width, break_long_words=False), ("  " + "  ".join(cells)).rstrip()]
        text += textwrap.wrap(f"durable is as {DOCUMENTED}; the others were tried on this host. ?: not tried.", width)
        for feature, words, names in self.reasons():
            many = f"{len(names)} of {len(self.rows)}" if len(names) > 1 else names[0]
            text += textwrap.wrap(f"- {HEADINGS.get(feature, feature)}, {many}: {words}", width, subsequent_indent="  ")
        return text


def give_ups(analysis: Analysis) -> GiveUps:
    """Of the treatments that the run looked at, in the plan's order."""
    features = analysis.disk_features
    return GiveUps(tuple((t.name, features[t.name]) for t in analysis.experiment.treatments if t.name in features))
