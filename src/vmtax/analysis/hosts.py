"""The name of a run's host under test for a reader, and what kind of host it is. Pure."""

from __future__ import annotations

from vmtax.core.records import Experiment

GUEST_ONLY_FACT = "command_line"  # their QEMU's; a fact that hosts do not have
LOCAL = "local"  # the plan's name for the machine that runs vmtax


def host_name(experiment: Experiment) -> str:
    """The name of the host under test for a reader: the plan's or, if that is "local", its own name. Of an imported run
    it is the name of the host that was measured, too.

    Runs of versions before 2026-11-23 did not record it: then the model of its CPU is used.
    """
    named = experiment.host.partition(",")[0]
    if named == LOCAL:
        named = _fact(experiment, "hostname") or cpu_model(experiment) or LOCAL
    return named


def cpu_model(experiment: Experiment) -> str:
    """The CPU model of the host under test, without generic words: "Xeon Gold 6338"; "" if it is unknown."""
    words = _fact(experiment, "cpu_model").replace("(R)", "").replace("(TM)", "").partition("@")[0].split()
    return " ".join(word for word in words if word not in ("Intel", "AMD", "CPU", "Processor"))


def _fact(experiment: Experiment, name: str) -> str:
    host = experiment.facts.get("host")
    value = host.get(name) if isinstance(host, dict) else None
    return value if isinstance(value, str) else ""


def is_bare_metal(experiment: Experiment) -> bool:
    """Whether detection says that the host under test is bare metal."""
    host = experiment.facts.get("host")
    return isinstance(host, dict) and host.get("virtualized") is False


def hypervisor_below(experiment: Experiment) -> str | None:
    """The hypervisor under the host under test; None on bare metal, or if it is unknown."""
    host = experiment.facts.get("host")
    if not isinstance(host, dict) or host.get("virtualized") is not True:
        return None
    return str(host.get("hypervisor") or "an unknown hypervisor")


def other_kernels(experiment: Experiment) -> list[str]:
    """The kernel releases of guests that the host under test does not run, in the order in which they booted."""
    guests = (facts for facts in experiment.facts.values() if isinstance(facts, dict) and GUEST_ONLY_FACT in facts)
    releases = dict.fromkeys(facts.get("kernel_release") for facts in guests)
    return [found for found in releases if isinstance(found, str) and found != _fact(experiment, "kernel_release")]
