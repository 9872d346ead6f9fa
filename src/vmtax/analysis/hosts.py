"""What a reader calls the host under test of a run, and what that host is. Pure."""

from __future__ import annotations

from vmtax.core.records import Experiment

LOCAL = "local"  # what a plan calls the machine on which vmtax runs


def host_name(experiment: Experiment) -> str:
    """What a reader calls the host under test: as the plan does or, where that says "local", by its own name.

    Runs of versions before 2026-11-23 have none recorded: then by the model of its CPU.
    """
    named, comma, imported = experiment.host.partition(",")
    if named == LOCAL:
        named = _fact(experiment, "hostname") or cpu_model(experiment) or LOCAL
    return f"{named}{comma}{imported}"


def cpu_model(experiment: Experiment) -> str:
    """Of the host under test, without what every one of its kind says: "Xeon Gold 6338"; "" if it is not known."""
    words = _fact(experiment, "cpu_model").replace("(R)", "").replace("(TM)", "").partition("@")[0].split()
    return " ".join(word for word in words if word not in ("Intel", "AMD", "CPU", "Processor"))


def _fact(experiment: Experiment, name: str) -> str:
    host = experiment.facts.get("host")
    value = host.get(name) if isinstance(host, dict) else None
    return value if isinstance(value, str) else ""


def is_bare_metal(experiment: Experiment) -> bool:
    """The host under test is no VM, and that was seen."""
    host = experiment.facts.get("host")
    return isinstance(host, dict) and host.get("virtualized") is False


def hypervisor_below(experiment: Experiment) -> str | None:
    """What the host under test is itself a VM of; None if it is bare metal, or that is not known."""
    host = experiment.facts.get("host")
    if not isinstance(host, dict) or host.get("virtualized") is not True:
        return None
    return str(host.get("hypervisor") or "an unknown hypervisor")
