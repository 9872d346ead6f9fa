"""The choice of a disk: it must keep flushed data, and it is ranked by speed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import Numbers
from vmtax.analysis.durability import FEATURE, Basis, basis, documented
from vmtax.core.records import Metric, Treatment
from vmtax.design.disk import DiskSettings, Share
from vmtax.design.factors import DISK
from vmtax.design.features import BY_TRIAL, FEATURES, Feature
from vmtax.design.settings import UnknownLevel
from vmtax.recommend.disk_export import DiskExport, export_disk
from vmtax.recommend.kinds import ChoiceKind, Features, Figures, measured_by_most
from vmtax.recommend.records import named
from vmtax.workload.base import CPU_PER_OPERATION
from vmtax.workload.fio import Disk

LOSS = "data that the guest flushed are lost with the host's power"


class DiskKind(ChoiceKind):
    """The disk under test."""

    name = "disk"
    ways = "ways to keep a guest's disk"
    factors = DISK
    features = FEATURES
    workloads = (Disk.name,)
    score = "score.both"
    score_words = "the storage score"
    title = "Recommendation"
    gives_up = "What each choice gives up"
    headings: ClassVar = {"pause-on-full": "pauses", "migration": "migrates"}
    compared = (
        ("4K read", ("disk.randread-4k-qd1.iops", "disk.randread-4k-qd32.iops")),
        ("4K write", ("disk.randwrite-4k-qd1.iops", "disk.randwrite-4k-qd32.iops")),
        ("fsync", ("disk.randwrite-4k-fsync.iops", "disk.write-4k-fsync.iops")),
        ("1M read", ("disk.read-1m.iops",)),
        ("CPU", ("disk.randread-4k-qd1.host_cpu_seconds", "disk.randwrite-4k-qd1.host_cpu_seconds")),
    )
    asked_first = (("durable", "durable"), ("thin", "may fill"))

    def looked_at(self, analysis: Analysis) -> Features:
        """The features that were tried for them; durability by trial if a trial shows it, otherwise as documented."""
        if analysis.survival is None:
            return analysis.disk_features
        tried = {one.treatment: one.feature for one in analysis.survival.evidence}
        names = dict.fromkeys((*analysis.disk_features, *tried))
        return {name: _with(tried.get(name), analysis.disk_features.get(name, ())) for name in names}

    def answers(self, features: Sequence[Feature], treatment: Treatment) -> Mapping[str, Feature]:
        return {feature.name: feature for feature in features} | {"durable": durability(features, treatment)}

    def reading(self, features: Features) -> str:
        durable = [feature for each in features.values() for feature in each if feature.name == "durable"]
        tried = sum(feature.how == BY_TRIAL for feature in durable)
        known = "as documented"
        if tried:
            known = (
                "by trial" if tried == len(durable) else f"by trial for {tried} of {len(durable)}, else as documented"
            )
        others = any(feature.name != "durable" for each in features.values() for feature in each)
        rest = (
            "all else was tried on this host. “?” was not tried, and counts"
            if others
            else "“?” was not tried, and counts"
        )
        return f"What is durable is {known}; {rest} as missing."

    def danger(self, features: Sequence[Feature], treatment: Treatment) -> str | None:
        durable = durability(features, treatment)
        return f"{durable.words} ({durable.how}): {LOSS}" if durable.state == "no" else None

    def basis(self, analysis: Analysis, treatment: Treatment, feature: str) -> Basis | None:
        if feature != FEATURE:
            return None
        return basis(analysis.survival, treatment, self.looked_at(analysis).get(treatment.name, ()))

    def grounds(self, analysis: Analysis, treatment: Treatment) -> Iterator[str]:
        if analysis.survival is None:
            return
        tried = analysis.survival.named(treatment.name)
        if tried is None:
            yield "Whether it is durable is as documented: it was not among those whose power was cut."
        elif tried.state == "yes":
            yield f"That it is durable was tried: {tried.reason}."
        elif tried.documented.state == "yes":
            yield f"That it is durable is documented, and not shown by trial: {tried.reason}."

    def unknown(self, treatment: Treatment) -> Iterator[str]:
        try:  # a run of another version of vmtax may have levels that this one lacks
            if (share := DiskSettings.of(treatment.levels).share) is not Share.NONE:
                yield f"disk.share={share} shares a directory, and is no way to keep a guest's disk"
        except UnknownLevel as error:
            yield str(error)

    def usual_needs(self, analysis: Analysis, members: Sequence[Treatment]) -> tuple[str, ...]:
        """Durable, if it is known of every choice whether it is."""
        known = self.looked_at(analysis)
        states = {durability(known.get(t.name, ()), t).state for t in members}
        return () if analysis.requirements.accept_loss or "not tried" in states else ("durable",)

    def usual_metric(self, analysis: Analysis) -> Metric | None:
        """The plan's first primary metric of the disk."""
        measured = {metric.name: metric for metric, _ in analysis.boot_numbers}
        primary = [measured[name] for name in analysis.criteria.primary if name in measured]
        return next((metric for metric in primary if metric.workload == Disk.name), None)

    def figures(
        self, analysis: Analysis, numbers: Numbers, members: Sequence[Treatment], metric: str | None
    ) -> Figures:
        """Speed is the mean of the plan's primary disk metrics."""
        there = measured_by_most(numbers, members)
        of_disk = [m for m in there if m.workload == Disk.name]
        cpu = tuple(m for m in dict.fromkeys(m for m, _ in numbers) if _is_cpu(m))
        if metric is not None:
            return Figures(metric, tuple(m for m in there if m.name == metric), cpu)
        # Without a primary disk metric, the plan is about something else and measured the disk as well.
        chosen = [m for m in of_disk if m.name in analysis.criteria.primary]
        chosen = chosen or [m for m in of_disk if m.measure == "iops"]
        if len(chosen) == 1:
            return Figures(chosen[0].name, tuple(chosen), cpu)
        return Figures(f"the mean of {len(chosen)} disk metrics" if chosen else "the disk's speed", tuple(chosen), cpu)

    def doubts(self, analysis: Analysis, names: Collection[str], alone: Figures | None) -> Iterator[str]:
        unknown = [name for name in names if name not in analysis.disk_features]
        if unknown and len(unknown) == len(names):
            how = "from documentation" if analysis.survival is None else "by trial or from documentation"
            yield f"This run did not try what the choices can do: only durability is known, {how}."
        elif unknown:
            yield f"The features of these were not tried: {named(unknown)}."
        if alone:
            yield "Host CPU per operation was not measured for all choices: speed and features decide."
        if analysis.requirements.accept_loss:
            yield "Choices that lose flushed data with the host's power were considered, as --accept-loss asks."

    def export(self, levels: Mapping[str, str]) -> DiskExport:
        return export_disk(levels)

    def why_not(self, analysis: Analysis, members: Sequence[Treatment]) -> str:
        known = self.looked_at(analysis)
        if any(known.get(treatment.name) for treatment in members):
            measured = any(metric.workload == Disk.name for metric, _ in analysis.boot_numbers)
            return "" if analysis.disk_features or measured else "did not measure how fast its disks are"
        return "did not find out what its disks can do: measure again with `give_ups: true` in the plan"


def durability(features: Sequence[Feature], treatment: Treatment) -> Feature:
    """By trial, or as the run determined it; if the run did not check it, as documented."""
    return documented(treatment, features)


def _with(tried: Feature | None, features: Sequence[Feature]) -> tuple[Feature, ...]:
    """The features, with the tried one in place of its documented one; first if the run did not check it."""
    if tried is None:
        return tuple(features)
    others = tuple(feature for feature in features if feature.name != tried.name)
    place = next((n for n, feature in enumerate(features) if feature.name == tried.name), 0)
    return (*others[:place], tried, *others[place:])


def _is_cpu(metric: Metric) -> bool:
    return (metric.workload, metric.measure) == (Disk.name, CPU_PER_OPERATION)
