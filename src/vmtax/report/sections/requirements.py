"""What a reader asks of a disk, and whether a run can answer: light, for most runs cannot. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmtax.analysis.requirements import Wish
from vmtax.analysis.scores import Scores
from vmtax.core.records import Experiment

if TYPE_CHECKING:
    from vmtax.analysis.weight_profiles import Mix
    from vmtax.report.sections.recommendation import Advised

TITLE = "Recommendation"
GIVE_UPS = "What each choice gives up"
READING = "What is durable is as documented; all else was tried on this host. “?” was not tried, and counts as missing."


def advised_where_known(
    experiment: Experiment, mix: Mix | None, wish: Wish | None, made: Scores | None = None
) -> Advised | None:
    """`advised` of a run that found out what its disks can do. What it needs takes 0.1 s to load: for no other run."""
    disk = (experiment.facts.get("host") or {}).get("disk") or {}
    if not disk.get("features"):
        return None
    from vmtax.report.sections.recommendation import advised

    return advised(experiment, mix, wish, made)
