"""Whether a run can recommend anything; imports little, because most runs cannot. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmtax.analysis.analysis import Analysis
from vmtax.design import net

if TYPE_CHECKING:
    from vmtax.report.document import Section
    from vmtax.report.sections.recommendation import Recommendation


def recommendations_if_known(analysis: Analysis) -> tuple[Recommendation, ...]:
    """Recommendations for a run that checked features of its disks, or has several network cards. Other runs do not
    import the code, which takes 0.1 s.
    """
    cards = {
        tuple(t.levels.get(name) for name in net.NAMES) for t in analysis.experiment.treatments if t.layer != "host"
    }
    if not analysis.disk_features and len(cards) < 2 and analysis.survival is None:
        return ()
    from vmtax.report.sections.recommendation import recommendations

    return recommendations(analysis)


def sections(analysis: Analysis) -> tuple[tuple[Section, Section], ...]:
    """For each recommendation, what to choose, and what each choice gives up."""
    found = recommendations_if_known(analysis)
    if not found:
        return ()
    from vmtax.report.sections import recommendation

    return tuple(map(recommendation.sections, found))
