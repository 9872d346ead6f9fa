"""The choice of a network card: it is ranked by the host's CPU time, not by its speed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar

from vmtax import stats
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import Numbers
from vmtax.core.layers import GUESTS
from vmtax.core.records import Metric, Treatment
from vmtax.design import net
from vmtax.design.card_features import PATHS, Documented
from vmtax.design.features import CARD_FEATURES, DOCUMENTED, SMALL, Feature
from vmtax.design.settings import UnknownLevel
from vmtax.recommend.card_export import CardExport, export_card
from vmtax.recommend.kinds import ChoiceKind, Features, Figures, measured_by_most, members_of
from vmtax.stats.arrays import np
from vmtax.workload.base import CPU_PER_OPERATION, HOST_SIDE
from vmtax.workload.latency import Latency
from vmtax.workload.linked import WAYS
from vmtax.workload.net import Net
from vmtax.workload.smb import Smb
from vmtax.workload.words import spoken

NO_HOST_CPU = "no-host-cpu"
THROUGHPUT = "bits_per_second"
# The metric of speed for each workload; UDP is sent at a fixed rate, so its throughput does not count.
SPEEDS = {Net.name: THROUGHPUT, Latency.name: "p50_seconds", Smb.name: "bytes_per_second"}
MEASURED = "measured"


class CardKind(ChoiceKind):
    """The card on the network under test."""

    name = "network card"
    ways = "kinds of network card for a guest"
    factors = net.NAMES
    features = CARD_FEATURES
    workloads = (Net.name, Latency.name, Smb.name)
    score = ""
    score_words = "the score"
    title = "Recommended network card"
    gives_up = "What each network card gives up"
    headings: ClassVar = {NO_HOST_CPU: "no host CPU"}
    compared = (
        ("host CPU, in", ("net.tcp-in.host_cpu_seconds",)),
        ("host CPU, out", ("net.tcp-out.host_cpu_seconds",)),
    )
    asked_first = (("migratable", "migratable"), ("isolation", "isolated"))
    few_figures = True

    def looked_at(self, analysis: Analysis) -> Features:
        guests = [t for t in analysis.experiment.treatments if t.layer in GUESTS]
        return {t.name: tuple(_features(analysis, t)) for t in guests}

    def answers(self, features: Sequence[Feature], treatment: Treatment) -> Mapping[str, Feature]:
        return {feature.name: feature for feature in features}

    def reading(self, features: Features) -> str:
        return (
            "What is migratable and isolated is as documented; what a function saves the host was measured. “?”: not"
            " measured, or not decided by so few rounds; it counts as missing."
        )

    def danger(self, features: Sequence[Feature], treatment: Treatment) -> str | None:
        return None

    def unknown(self, treatment: Treatment) -> Iterator[str]:
        documented, why = _documented(treatment)
        if documented is None:
            yield why

    def usual_needs(self, analysis: Analysis, members: Sequence[Treatment]) -> tuple[str, ...]:
        return ()

    def usual_metric(self, analysis: Analysis) -> Metric | None:
        return None

    def figures(
        self, analysis: Analysis, numbers: Numbers, members: Sequence[Treatment], metric: str | None
    ) -> Figures:
        """The host's CPU time per byte if the load was the same, with speed as the second figure; otherwise speed
        alone.
        """
        there = measured_by_most(numbers, members)
        full = {m.case for m in there if _is_speed(m) and m.workload == Net.name}
        cpu = tuple(
            m for m in there if m.workload == Net.name and m.measure == CPU_PER_OPERATION and m.case not in full
        )
        speed = [m for m in there if _is_speed(m)]
        speed = [m for m in speed if m.name in analysis.criteria.primary] or speed
        if metric is not None:
            return Figures(metric, tuple(m for m in there if m.name == metric), cpu, is_mix=True)
        if cpu:
            ways = " and ".join(WAYS[m.case] for m in cpu)
            return Figures(f"the host's CPU time per GB, {ways}", cpu, tuple(speed), by_cpu=True)
        by = f"the mean of {len(speed)} figures of the network" if speed else "the cost of network cards"
        return Figures(spoken(speed[0]) if len(speed) == 1 else by, tuple(speed), ())

    def doubts(self, analysis: Analysis, names: Collection[str], alone: Figures | None) -> Iterator[str]:
        if alone and not alone.by_cpu:
            yield (
                "What a network card costs the host's CPU compares only at the same load: give the plan's workload net"
                " a `rate`."
            )

    def export(self, levels: Mapping[str, str]) -> CardExport:
        return export_card(levels)

    def why_not(self, analysis: Analysis, members: Sequence[Treatment]) -> str:
        figures = self.figures(analysis, analysis.boot_numbers, members, None)
        if figures.first:
            return ""
        return "has no figures of the network that compare its cards: add the workload net with a `rate` to the plan"


def _is_speed(metric: Metric) -> bool:
    is_rated = metric.workload == Net.name and metric.case.startswith("udp-")
    return metric.measure == SPEEDS.get(metric.workload) and not is_rated


def _features(analysis: Analysis, treatment: Treatment) -> Iterator[Feature]:
    documented, why = _documented(treatment)
    said = {feature.name: feature for feature in documented.features} if documented else {}
    for name in CARD_FEATURES:
        if documented and name == NO_HOST_CPU and not documented.is_carried:
            yield _host_side(analysis, treatment)
        elif documented and name == NO_HOST_CPU:
            yield Feature(name, "no", DOCUMENTED, "the host itself carries its packets")
        else:
            yield said.get(name) or Feature(name, "not shown", DOCUMENTED, why)


def _documented(treatment: Treatment) -> tuple[Documented | None, str]:
    """What documentation says about its card; if the card cannot be recommended, None and the reason."""
    try:
        path = net.meant(treatment.levels).path
    except UnknownLevel as error:  # a run of another version has it
        return None, str(error)
    return PATHS.get(path), f"{net.PATH}={path}: its guests have different cards, so there is none to choose"


def _host_side(analysis: Analysis, treatment: Treatment) -> Feature:
    """The feature of a small host side: whether the host's CPU time for a card that bypasses the host is small against
    the cheapest card whose packets the host carries. Judged by the upper end of the ratio's interval, in the case in
    which that is highest.
    """
    numbers = analysis.boot_numbers
    sides = {m: rounds for (m, name), rounds in numbers.items() if name == treatment.name and m.measure == HOST_SIDE}
    if not sides:
        return Feature(NO_HOST_CPU, "not shown", MEASURED, "the host's side is measured only of guests on KVM")
    beside = list(_carried_beside(analysis, treatment))
    found: list[tuple[float, float, float, str]] = []
    for metric, rounds in sides.items():
        medians = {name: analysis.medians[metric, name] for name in beside if numbers.get((metric, name))}
        if not medians:
            return Feature(NO_HOST_CPU, "not shown", MEASURED, "no card that the host carries was measured beside it")
        cheapest = min(medians, key=lambda name: medians[name])
        of = numbers[metric, cheapest]
        shared = sorted(rounds.keys() & of.keys())
        if not all(rounds[number] > 0 < of[number] for number in shared):
            return Feature(NO_HOST_CPU, "not shown", MEASURED, "a round has no CPU time of the host's side")
        logs = np.log(np.array([rounds[number] / of[number] for number in shared]))
        ends = stats.interval(logs, analysis.criteria.alpha) if len(logs) else None
        if ends is None:
            return Feature(NO_HOST_CPU, "not shown", MEASURED, "so few rounds give no interval")
        high, low, middle = (float(np.exp(end)) for end in (ends[1], ends[0], stats.hodges_lehmann(logs)))
        found.append((high, low, middle, f"{cheapest}, {WAYS[metric.case]}"))
    high, low, middle, about = max(found)
    words = f"{_percent(middle)} % ({_percent(low)}–{_percent(high)}) of the host's side of {about}"
    if high < SMALL:
        return Feature(NO_HOST_CPU, "yes", MEASURED, words)
    return Feature(NO_HOST_CPU, "no" if low >= SMALL else "not shown", MEASURED, words)


def _carried_beside(analysis: Analysis, treatment: Treatment) -> Iterator[str]:
    """Guests whose packets the host carries, and that otherwise equal this one."""
    for other in members_of(analysis.experiment.treatments):
        documented, _ = _documented(other)
        if documented and documented.is_carried and _conditions(other) == _conditions(treatment):
            yield other.name


def _conditions(treatment: Treatment) -> dict[str, str]:
    return {name: level for name, level in treatment.levels.items() if name not in net.NAMES}


def _percent(share: float) -> str:
    return f"{100 * share:.0f}" if share >= 0.1 else f"{100 * share:.1f}"
