"""How much a machine's figures drift from session to session, from its runs of `vmtax calibrate`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from vmtax import stats
from vmtax.analysis.sessions.facts import software
from vmtax.analysis.sessions.level import FEWEST_ROUNDS, SessionSubject, levels, rounds_of
from vmtax.analysis.sessions.refusal import differences, machine
from vmtax.core.records import Experiment
from vmtax.plan.schema import PlanError

CALIBRATE = "calibrate"  # name of the plan


@dataclass(frozen=True, slots=True)
class CalibratedRun:
    """One run with its levels."""

    experiment: Experiment
    levels: dict[SessionSubject, stats.SessionLevel]

    @property
    def boot(self) -> Hashable:
        """The boot of the host in which it ran; if unknown, a unique value."""
        host = self.experiment.facts.get("host") or {}
        return host.get("boot_id") or ("unknown", self.experiment.id)

    @staticmethod
    def of(experiment: Experiment) -> CalibratedRun:
        return CalibratedRun(experiment, levels(experiment))


def replicates(
    sessions: Sequence[CalibratedRun], subject: SessionSubject, *, by_boot: bool
) -> list[stats.SessionLevel]:
    """One level for each session that has one; `by_boot`: one for each boot of the host, the mean of its sessions."""
    found: dict[Hashable, list[stats.SessionLevel]] = defaultdict(list)
    for session in sessions:
        if subject in session.levels:
            found[session.boot if by_boot else session.experiment.id].append(session.levels[subject])
    return [stats.merged(levels) for levels in found.values()]


def fits(calibration: Experiment, experiment: Experiment) -> bool:
    """Whether it calibrates the machine and the work of `experiment`."""
    complete = calibration.name == CALIBRATE and calibration.state == "complete"
    if not complete or machine(calibration) != machine(experiment):
        return False
    if calibration.id == experiment.id or rounds_of(calibration) < FEWEST_ROUNDS:
        return False
    try:
        unlike = list(differences(calibration, experiment))
    except PlanError:  # a plan of an older vmtax
        return False
    # Another image is allowed: `stored` groups calibrations by it, among other facts.
    return not [text for text in unlike if not text.startswith("image.")]


def stored(
    calibrations: Sequence[CalibratedRun], subject: SessionSubject, *, by_boot: bool
) -> stats.BetweenSessions | None:
    """The variance between those sessions, within groups that ran on the same software; None: too few."""
    groups: dict[Hashable, list[CalibratedRun]] = defaultdict(list)
    for session in calibrations:
        groups[software(session.experiment)].append(session)
    logs = [[one.log for one in replicates(group, subject, by_boot=by_boot)] for group in groups.values()]
    try:
        return stats.between_sessions(*logs)
    except ValueError:
        return None
