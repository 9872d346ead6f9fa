"""KVM's counters for a guest, read with QMP's query-stats; names, units and exponents come from its schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vmtax.hypervisor.qemu.qmp import Qmp, QmpError

TARGETS = ("vcpu", "vm")
Scales = Mapping[tuple[str, str], tuple[str, float]]  # (target, KVM's name) -> our name, factor to the base unit


class KvmCounters:
    """Counters of one guest; the schema is requested once."""

    def __init__(self, qmp: Qmp) -> None:
        self._qmp = qmp
        self._scales: Scales | None = None

    def read(self) -> dict[str, float]:
        """Counts since the guest's start, summed over vCPUs, in base units; {} if QEMU has no such counters.

        Never raises: a guest that is gone has no counters either.
        """
        try:
            if self._scales is None:
                self._scales = scales(self._qmp.execute("query-stats-schemas"))
            answers = {target: self._qmp.execute("query-stats", target=target) for target in TARGETS}
        except QmpError:
            return {}
        return totals(answers, self._scales)


def scales(schemas: object) -> Scales:
    """The counters in query-stats-schemas; gauges, peaks and histograms are left out. Pure."""
    found = {}
    for schema in _dicts(schemas):
        for each in _dicts(schema.get("stats")):
            if schema.get("provider") != "kvm" or each.get("type") != "cumulative":
                continue
            base, exponent = each.get("base", 10), each.get("exponent", 0)
            if not isinstance(base, int) or not isinstance(exponent, int) or abs(exponent) > 60:
                continue
            kvm_name = str(each.get("name"))
            name = kvm_name.replace("-", "_")
            if each.get("unit") == "seconds":
                name = name.removesuffix("_ns") + "_seconds"
            found[str(schema.get("target")), kvm_name] = (name, float(base) ** exponent)
    return found


def totals(answers: Mapping[str, object], scales: Scales) -> dict[str, float]:
    """Sums over vCPUs of the answers of query-stats for each target. Pure; values in unknown formats are left out."""
    found: dict[str, float] = {}
    for target, answer in answers.items():
        for result in _dicts(answer):
            for each in _dicts(result.get("stats")):
                known, value = scales.get((target, str(each.get("name")))), each.get("value")
                if known and isinstance(value, int):
                    name, scale = known
                    found[name] = found.get(name, 0.0) + value * scale
    return found


def _dicts(found: object) -> Iterator[dict[str, Any]]:
    yield from (each for each in found if isinstance(each, dict)) if isinstance(found, list) else ()
