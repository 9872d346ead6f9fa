"""Which figures can be compared although the layers ran different builds of a program. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from vmtax.core.layers import CLONE_PATH, EXISTING, EXISTING_PATH, OWNERS
from vmtax.core.records import Json, Metric, Treatment
from vmtax.workload.idle import CPU

OF_COMPILERS = ("chess",)  # workloads whose figures are above all those of the compiler that built the program
PROGRAMS = "windows_programs"  # fact: the digests of builds for Windows
# What each system counts in a way of its own: Windows serves interrupts in no program's time
OF_SYSTEMS = ("local_seconds_per_byte",)


def has_other_builds(facts: Mapping[str, Json]) -> bool:
    """Whether a VM of the user's or its clones ran builds for Windows, and its host others. `facts`: by machine path"""
    used = (facts.get(EXISTING_PATH) or facts.get(CLONE_PATH) or {}).get(PROGRAMS)
    return used is not None and used != (facts.get("host") or {}).get(PROGRAMS)


def runs_windows(facts: Mapping[str, Json]) -> bool:
    """Whether the host under test is a Windows."""
    return PROGRAMS in (facts.get("host") or {})


def is_like(metric: Metric, one: Treatment, another: Treatment, facts: Mapping[str, Json]) -> bool:
    """Whether figures of these two can be compared: the disk's do not depend on the build, the CPU's do."""
    is_watched = (one.layer == EXISTING) != (another.layer == EXISTING)
    if is_watched and metric.name == CPU.name:  # one that idles also does so while another machine is measured
        return False
    of_cpu = metric.workload in OF_COMPILERS or metric.measure in OF_SYSTEMS
    differ = (one.layer in OWNERS) != (another.layer in OWNERS)
    return not (of_cpu and differ and has_other_builds(facts))
