"""What ran on an emulated CPU (TCG): guests that vmtax emulated, and all of a host that is itself emulated. Pure.

The first stands with each boot. The second is a fact of the host, which all that runs on it inherits: a guest on KVM
inside an emulated machine finds KVM below itself, and emulated hardware below that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vmtax.core.records import Boot, Experiment, Json, Treatment
from vmtax.design.interleaved import is_host


def host_path(treatment: Treatment) -> str:
    """Path of the host under test that the treatment is measured on."""
    return treatment.side if treatment.side and is_host(treatment.side) else "host"


def on_emulated_hosts(treatments: Iterable[Treatment], facts: Mapping[str, Json]) -> frozenset[str]:
    """Names of those measured on a host that is itself emulated; `facts` by machine path.

    Runs that are older than this fact have none, and are taken for what their boots are.
    """
    return frozenset(t.name for t in treatments if (facts.get(host_path(t)) or {}).get("emulated_cpu") is True)


def emulated(treatments: Iterable[Treatment], boots: Iterable[Boot], facts: Mapping[str, Json]) -> frozenset[str]:
    """Names of the treatments whose figures are emulated: those of an emulated host, and those with such a boot."""
    return on_emulated_hosts(treatments, facts) | {boot.treatment for boot in boots if boot.emulated}


def emulated_treatments(experiment: Experiment) -> frozenset[str]:
    """The same of a run as it is stored."""
    return emulated(experiment.treatments, experiment.boots, experiment.facts)
