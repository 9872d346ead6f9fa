"""What survived when the power was cut, for each configuration: counts, their bounds, and conclusions. Pure.

A trial of one kind of end (of ENDS) counts states of a guest's disk, and in how many of them a writer had lost what it
had acknowledged. A loss in any of them shows that a configuration is not durable: data that does not survive its QEMU
does not survive a power cut of the host either. Durability is never proved; it counts as shown after enough states
without a loss, if the trial can detect losses, and if documentation does not say the opposite: layers that are not
modelled may still lose data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vmtax.analysis.losses import End, end_of
from vmtax.core.records import Experiment, Treatment, Trial
from vmtax.core.units import at_most, count_of
from vmtax.design.disk import DiskSettings
from vmtax.design.features import BY_TRIAL, Feature, State, documented_durability
from vmtax.design.settings import UnknownLevel
from vmtax.workload.durability import (
    ENDS,
    HOST_CUT,
    KILLED,
    NAME,
    NEEDED_STATES,
    POWER_CUT,
    REAL_CUT,
    STACK_CUT,
    STATES,
)

FEATURE = "durable"  # in design.features.FEATURES
Basis = Literal["documented", "real cut", "simulated cut", "killed QEMU"]  # how it is known whether a disk is durable
MOST_NAMES = 3  # per sentence


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the trials of one configuration show."""

    treatment: str  # name of the treatment; the trials of its A/A are included
    ends: tuple[End, ...]  # the kinds of end that were tried
    failed: int  # number of trials without a result
    documented: Feature  # what documentation says about its durability
    below: bool  # whether the documented loss is not in QEMU but below the image, which a power cut of the image does
    # not affect
    state: State  # "yes", "no", "not shown"
    reason: str  # reason for `state`, in one line for people
    options: str = ""  # non-default options with which the guest mounted its file system

    def end(self, name: str) -> End | None:
        """One kind of end; None if it was not tried."""
        return next((end for end in self.ends if end.end == name), None)

    @property
    def modelled(self) -> End | None:
        """The end in whose states the documented loss would show; None: there is none."""
        end = self.end(_showing(self.ends, below=self.below))
        return end if end is not None and end.count.states else None

    @property
    def sees_below(self) -> bool:
        """Whether an end was tried in which everything below the image lost its power, too."""
        return self.end(STACK_CUT) is not None or self.end(REAL_CUT) is not None

    @property
    def has_loss(self) -> bool:
        return any(end.has_loss for end in self.ends)

    @property
    def proves_nothing(self) -> bool:
        """Whether a power cut was tried in which even the control lost nothing, so that no loss would have been
        detected.
        """
        end = self.end(STACK_CUT) or self.end(POWER_CUT) or self.end(REAL_CUT)
        return end is not None and end.count.states > 0 and not end.control_lost and not self.has_loss

    @property
    def is_short(self) -> bool:
        """Whether only more states are needed to show that it is durable."""
        end = self.modelled
        enough = end is None or not end.control_lost or end.count.states >= NEEDED_STATES
        return self.documented.state != "no" and not self.has_loss and not enough

    @property
    def had_to_lose(self) -> bool:
        """Whether it is documented as not durable, and enough states were checked to see that."""
        end = self.modelled
        return self.documented.state == "no" and end is not None and end.count.states >= NEEDED_STATES

    def doubted(self, why: str) -> Evidence:
        """The same, with the doubt that the run's trials may not detect losses."""
        if self.state != "yes":
            return self
        return replace(self, state="not shown", reason=f"{self.reason}; but {why} either, which had to lose data")

    @property
    def disagreement(self) -> str:
        """How trial and documentation contradict each other, as a sentence; "" if they do not.

        Documentation does not cover a file system that is mounted with unusual options.
        """
        if self.options:
            return ""
        if self.has_loss and self.documented.state == "yes":
            return f"{self.treatment} is documented as durable ({self.documented.words}), but {self.reason}."
        end = self.modelled
        enough = end is not None and end.count.states >= NEEDED_STATES and end.control_lost
        if self.documented.state == "no" and not self.has_loss and enough and end is not None:
            return f"{self.treatment} is documented as not durable ({self.documented.words}), but {end.sentence}."
        return ""

    @property
    def basis(self) -> Basis:
        """What its feature rests on: the strongest kind of end that was tried, or the one that lost data."""
        if self.feature.how != BY_TRIAL:
            return "documented"
        names = {end.end for end in self.ends if end.count.states and (end.has_loss or self.state == "yes")}
        if names & {HOST_CUT, REAL_CUT}:
            return "real cut"
        return "simulated cut" if names & {POWER_CUT, STACK_CUT} else "killed QEMU"

    @property
    def feature(self) -> Feature:
        """The answer for recommendations: by trial if it shows something, otherwise as documented, with the reason."""
        if self.state != "not shown" and not (self.options and self.has_loss):
            return Feature(FEATURE, self.state, BY_TRIAL, self.reason)
        known = self.documented
        words = f"{known.words}; not shown by trial: {self.reason}"
        return Feature(FEATURE, known.state, known.how, words)


@dataclass(frozen=True, slots=True)
class Survival:
    """Which acknowledged data survived when QEMU was killed or the host lost its power, as trials show."""

    evidence: tuple[Evidence, ...]  # the evidence for each configuration

    def named(self, treatment: str) -> Evidence | None:
        """The evidence for one configuration; None if it was not tried."""
        return next((one for one in self.evidence if one.treatment == treatment), None)

    def of(self, state: State) -> tuple[Evidence, ...]:
        """Those with this answer."""
        return tuple(one for one in self.evidence if one.state == state)

    @property
    def ends(self) -> tuple[str, ...]:
        """The kinds of end that were tried."""
        tried = {end.end for one in self.evidence for end in one.ends}
        return tuple(name for name in dict.fromkeys((*ENDS, *sorted(tried))) if name in tried)

    @property
    def must_lose(self) -> tuple[Evidence, ...]:
        """The positive controls: configurations that documentation calls not durable."""
        return tuple(one for one in self.evidence if one.documented.state == "no")

    @property
    def disagreements(self) -> tuple[str, ...]:
        """Contradictions between trials and documentation, as sentences for people."""
        return tuple(one.disagreement for one in self.evidence if one.disagreement)

    @property
    def proof(self) -> str:
        """Whether the configurations that had to lose data did, as a sentence for people."""
        must, losing = self.must_lose, [one.treatment for one in self.must_lose if one.has_loss]
        if losing:
            return f"As documentation says, {_listed(losing)} lost data: the trials notice what a configuration loses."
        if not must:
            return (
                "No configuration of this run is documented as not durable, so none had to lose: add disk.cache=unsafe"
                " to show that the trials notice what a configuration loses."
            )
        unseen = all(one.below and not one.sees_below for one in must)
        why = ", for what loses there is below the image, which a power cut does not model here" if unseen else ""
        return (
            f"{_listed([one.treatment for one in must])} had to lose data, as documentation says, and did not"
            f"{why}: this run does not show that its trials notice what a"
            " configuration loses."
        )

    @property
    def shows_losses(self) -> bool:
        """Whether a configuration that is documented as not durable lost data; this shows that the trials notice such a
        loss.
        """
        return any(one.has_loss for one in self.must_lose)

    @property
    def blind(self) -> tuple[Evidence, ...]:
        """Configurations whose own control lost nothing, so that their trial proves nothing."""
        return tuple(one for one in self.evidence if one.proves_nothing)


def survival(run: Experiment, recorded: Mapping[str, Sequence[Feature]]) -> Survival | None:
    """None for a run without a result of such a trial.

    recorded: what the run found out about each treatment's features, which is more reliable than its settings
    """
    names = {treatment.name: treatment.repeats or treatment.name for treatment in run.treatments}
    options = _mount_options(run)
    # If a trial was repeated because its machine was lost the first time, only the last attempt counts.
    trials = {
        (t.round, t.treatment, t.case, t.iteration, t.machine): t
        for t in run.trials
        if t.workload == NAME and t.treatment in names
    }.values()
    by_name: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        by_name[names[trial.treatment]].append(trial)
    found = (
        _evidence(treatment, by_name[treatment.name], recorded.get(treatment.name, ()), options)
        for treatment in run.treatments
        if treatment.name in by_name
    )
    evidence = tuple(one for one in found if one.ends)
    idle = [one for one in evidence if one.had_to_lose and not one.has_loss]
    if idle and not any(one.has_loss for one in evidence):
        evidence = tuple(one.doubted(f"{_listed([each.treatment for each in idle])} lost nothing") for one in evidence)
    return Survival(evidence) if evidence else None


def documented(treatment: Treatment, recorded: Sequence[Feature]) -> Feature:
    """As the run determined it; for a run that did not check it, as documented for its settings."""
    found = next((feature for feature in recorded if feature.name == FEATURE), None)
    if found is not None:
        return found
    try:
        return documented_durability(DiskSettings.of(treatment.levels))
    except UnknownLevel as error:  # a run of another version has it
        return Feature(FEATURE, "not tried", "documented", str(error))


def basis(survival: Survival | None, treatment: Treatment, recorded: Sequence[Feature]) -> Basis | None:
    """How it is known whether the disk is durable; None: it is not known."""
    evidence = survival.named(treatment.name) if survival else None
    if evidence is not None and evidence.basis != "documented":
        return evidence.basis
    return "documented" if documented(treatment, recorded).state in ("yes", "no") else None


def _mount_options(run: Experiment) -> str:
    """The plan's mount options for guests' file systems, which may weaken their guarantees."""
    for choice in run.plan.get("workloads") or ():
        parameters = choice.get("parameters") if isinstance(choice, dict) and choice.get("name") == NAME else None
        if isinstance(parameters, dict):
            return str(parameters.get("mount_options", ""))
    return ""


def _evidence(treatment: Treatment, trials: Sequence[Trial], recorded: Sequence[Feature], options: str) -> Evidence:
    sums: dict[str, int] = defaultdict(int)
    for measurement in (one for trial in trials if trial.status == "ok" for one in trial.measurements):
        sums[measurement.metric.name] += round(measurement.value)
    ends = dict.fromkeys((*ENDS, *sorted({name.split(".")[1] for name in sums if name.count(".") > 1})))
    known = documented(treatment, recorded)
    below = known.state == "no" and not _ignores_flushes(treatment)
    tried = tuple(end_of(end, sums) for end in ends if f"{NAME}.{end}.{STATES}" in sums)
    failed = sum(trial.status != "ok" for trial in trials)
    state, reason = _judged(tried, known, below=below)
    if failed and state == "yes":
        how = f"{count_of(failed, 'trial')} of it failed, and what would have been lost in them is not known"
        state, reason = "not shown", f"{reason}; but {how}"
    if options:
        reason = f"{reason}; the guest mounted its file system with {options}"
    return Evidence(treatment.name, tried, failed, known, below, state, reason, options)


def _judged(ends: Sequence[End], known: Feature, *, below: bool) -> tuple[State, str]:
    """The answer with one reason."""
    losing = [end for end in ends if end.has_loss]
    if losing:
        return "no", max(losing, key=lambda end: (end.end != KILLED, end.count.low)).sentence
    cut = next((end for end in ends if end.end == _showing(ends, below=below) and end.count.states), None)
    if cut is None and below:
        how = (
            "only cuts of the host's power show that, by --power-cut, in a lab that logs its writes or on layer nested"
        )
        return "not shown", f"{known.words}, which is below the image: {how}"
    if cut is None:
        return "not shown", "no power cut was tried in which something had been acknowledged"
    if not cut.control_lost:
        return "not shown", (
            f"its control, which never flushes, lost nothing in {count_of(cut.count.states, 'state')} either: no loss"
            " would have been noticed"
        )
    if cut.count.states < NEEDED_STATES:
        return "not shown", f"{cut.sentence}; {NEEDED_STATES} states or more are needed"
    if known.state == "no":
        return "not shown", f"{cut.sentence}, which does not outweigh that it is documented to lose data"
    return "yes", cut.sentence


def _showing(ends: Sequence[End], *, below: bool) -> str:
    """The kind of end in which the documented loss would show. A cut of the whole host shows every loss."""
    whole = next((end.end for end in ends if end.end in (STACK_CUT, REAL_CUT)), None)
    if whole is not None:
        return whole
    return HOST_CUT if below else POWER_CUT


def _ignores_flushes(treatment: Treatment) -> bool:
    try:
        return DiskSettings.of(treatment.levels).cache.ignores_flushes
    except UnknownLevel:
        return False


def _listed(names: Iterable[str]) -> str:
    return _and(at_most(MOST_NAMES, list(names)))


def _and(texts: Sequence[str]) -> str:
    """Such as "a", "a and b", "a, b and 4 more"."""
    *others, last = (text.removeprefix("and ") for text in texts)
    return f"{', '.join(others)} and {last}" if others else last
