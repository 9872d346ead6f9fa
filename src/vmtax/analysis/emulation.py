"""What ran on an emulated CPU (TCG): guests emulated by vmtax, and everything on a host that is itself emulated. Pure.

The former is recorded with each boot. The latter is a fact of the host that applies to everything on it: a guest on KVM
inside an emulated machine sees KVM below itself, and emulated hardware below that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vmtax.core.layers import EXISTING, EXISTING_PATH
from vmtax.core.records import Boot, Experiment, Json, Treatment
from vmtax.design.interleaved import is_host


def host_path(treatment: Treatment) -> str:
    """Path of the machine whose CPU the treatment sees: of the host under test, or of an existing VM."""
    if treatment.layer == EXISTING:
        return EXISTING_PATH
    return treatment.side if treatment.side and is_host(treatment.side) else "host"


def on_emulated_hosts(treatments: Iterable[Treatment], facts: Mapping[str, Json]) -> frozenset[str]:
    """Names of treatments measured on a host that is itself emulated; `facts` by machine path.

    An existing VM is emulated with its host, whose KVM it sees. Runs older than this fact have none, and are judged by
    their boots.
    """
    return frozenset(t.name for t in treatments if is_emulated(facts, host_path(t)) or _is_below(facts, t))


def is_emulated(facts: Mapping[str, Json], path: str) -> bool:
    """Whether the CPU of the machine at this path is known to be emulated."""
    return (facts.get(path) or {}).get("emulated_cpu") is True


def _is_below(facts: Mapping[str, Json], treatment: Treatment) -> bool:
    return treatment.layer == EXISTING and is_emulated(facts, "host")


def emulated(treatments: Iterable[Treatment], boots: Iterable[Boot], facts: Mapping[str, Json]) -> frozenset[str]:
    """Names of treatments whose figures are emulated: those on an emulated host, and those with an emulated boot."""
    return on_emulated_hosts(treatments, facts) | {boot.treatment for boot in boots if boot.emulated}


def emulated_treatments(experiment: Experiment) -> frozenset[str]:
    """The same for a stored run."""
    return emulated(experiment.treatments, experiment.boots, experiment.facts)
