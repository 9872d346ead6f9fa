"""The factor `cpu.governor`: what chooses the frequency of the host's CPUs while a configuration's machines are up.

It is set for all CPUs: programs that are not of the run share caches and power with those that are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from vmtax.core.records import Treatment
from vmtax.design.frequency import AS_SET, GOVERNOR, FrequencySettings
from vmtax.hypervisor import BootFailed
from vmtax.machine import Machine, Undoing
from vmtax.meter.text import GREP, Files, parse_files
from vmtax.testbed.parts.part import Part, Request
from vmtax.testbed.session.examine import is_root
from vmtax.testbed.subjects.provisioned import Provisioned

POLICIES = "/sys/devices/system/cpu/cpufreq"  # a directory for each set of CPUs that change their frequency together
NOW, LEGAL = "scaling_governor", "scaling_available_governors"
# $1: the governor that we set; then pairs of a file and the governor that it had. One that somebody else chose since is
# left alone.
PUT_BACK = (
    *("sh", "-c"),
    'ours=$1; shift; while test $# -gt 1; do now=$(cat "$1") && test "$now" = "$ours" && echo "$2" > "$1"; shift 2;'
    " done; true",
    "sh",
)


class Governor(Part):
    """How the host's CPUs choose their frequency."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        wanted = _wanted(request)
        if not wanted:
            return {}
        files, root = read(request.host), is_root(request.host)
        reasons = {name: _why_not(files, level, request, root=root) for name, level in wanted.items()}
        return {name: f"{GOVERNOR}={wanted[name]} {why}" for name, why in reasons.items() if why}

    def announced(self, request: Request) -> Sequence[str]:
        levels = dict.fromkeys(_wanted(request).values())
        if not levels:
            return ()
        return (
            f"the governor {' or '.join(levels)} for all CPUs of the host, in each configuration with it; put back, but"
            " for its own settings, which begin anew",
        )

    def hold(self, on: Provisioned, treatment: Treatment, stack: contextlib.ExitStack) -> None:
        level = FrequencySettings.of(treatment.levels).governor
        if level != AS_SET and (undoing := choose(on.host, level)) is not None:
            stack.callback(undoing.undo)


def choose(host: Machine, level: str, policies: str = POLICIES) -> Undoing | None:
    """Let that governor rule all CPUs until the change is undone; None if it does. Raises MachineError."""
    before = _by_file(read(host, policies))
    others = {file: governor for file, governor in before.items() if governor != level}
    if not others:
        return None
    undoing = host.undo_later(*PUT_BACK, level, *(word for pair in others.items() for word in pair))
    host.run("tee", *others, input=level)
    return undoing


def check(host: Machine, treatment: Treatment, policies: str = POLICIES) -> None:
    """Raises BootFailed if another governor rules some CPUs than the treatment asks for."""
    level = FrequencySettings.of(treatment.levels).governor
    if level == AS_SET:
        return
    for file, found in _by_file(read(host, policies)).items():
        if found != level:
            raise BootFailed(f"{host.path}: {GOVERNOR}={level} was not obtained: {file} is {found}")


def read(host: Machine, policies: str = POLICIES) -> Files:
    """The governors that rule there, and those that could."""
    return parse_files(host.try_run(*GREP, "", policies, f"--include={NOW}", f"--include={LEGAL}").stdout)


def _by_file(files: Files) -> dict[str, str]:
    return {file: text for file, text in files.items() if file.endswith(f"/{NOW}")}


def _wanted(request: Request) -> dict[str, str]:
    """Treatment -> the governor that it asks for."""
    levels = {each.name: FrequencySettings.of(each.levels).governor for each in request.treatments}
    return {name: level for name, level in levels.items() if level != AS_SET}


def _why_not(files: Files, level: str, request: Request, *, root: bool) -> str:
    """Why that governor cannot be chosen; "" if it can."""
    policies = _by_file(files)
    if not policies:
        return f"needs cpufreq, and the host has none in {POLICIES}: a VM leaves frequencies to what is below it"
    for file, now in policies.items():
        if now == "userspace":
            return (
                f"would lose the speed that {file.removesuffix(NOW)}scaling_setspeed was set to: set another one first"
            )
        legal = files.get(file.removesuffix(NOW) + LEGAL, "").split()
        if level not in legal:
            return f"is not offered by the host's cpufreq driver, which has {', '.join(legal) or 'none'}"
    if not root:
        return f"needs root, to write {next(iter(policies))}"
    if request.destination is not None:
        return "is set on the host under test, and not at the destination"
    return ""
