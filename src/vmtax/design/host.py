"""How the host under test is booted. Each field is a factor of plans. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from vmtax.core.layers import LAYERS
from vmtax.core.records import Treatment
from vmtax.design.settings import OtherLevels, Settings, setting

AS_USUAL = "none"  # the level for a host that is booted with its usual arguments only
_ARGUMENT = r"[A-Za-z][A-Za-z0-9_.-]{0,60}(=[A-Za-z0-9_.,:/+@%=-]{0,60})?"
ARGUMENTS = rf"{_ARGUMENT}( {_ARGUMENT}){{0,7}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings(Settings):
    """The settings of a treatment for the boot of its host."""

    kernel_arguments: str = setting(
        "host.kernel_arguments",
        (AS_USUAL, "mitigations=auto", "mitigations=off", "nosmt"),
        str,
        "arguments of the host's own kernel, such as mitigations=off; spaces separate several of them; none: without"
        " any of the arguments that the other levels name. The host is rebooted for each level in each round: `vmtax"
        " run` says when, and a lab reboots automatically",
        layers=tuple(LAYERS),
        scope="reboot",
        others=OtherLevels(ARGUMENTS),
    )


KERNEL_ARGUMENTS = HostSettings.factors()["kernel_arguments"].name


def of_boot(treatment: Treatment) -> str:
    """The level with which the treatment's host is booted."""
    return treatment.levels.get(KERNEL_ARGUMENTS, AS_USUAL)


def boots_asked(treatments: Sequence[Treatment]) -> tuple[str, ...]:
    """The levels with which the host must be rebooted, in the plan's order; empty if no reboot is needed."""
    levels = tuple(dict.fromkeys(map(of_boot, treatments)))
    return () if levels == (AS_USUAL,) else levels


def reboots_itself(host: str) -> bool:
    """Whether vmtax itself reboots a host, given its name in a plan: only labs."""
    return host == "lab" or host.startswith("lab:")


def arguments(level: str) -> tuple[str, ...]:
    """Arguments that a level adds to the kernel's command line."""
    return () if level == AS_USUAL else tuple(level.split())


def named(command_line: str, levels: Collection[str]) -> tuple[str, ...]:
    """The arguments of a kernel's command line that any of the levels sets, whatever their values."""
    about = {_key(word) for level in levels for word in arguments(level)}
    return tuple(word for word in command_line.split() if _key(word) in about)


def others(command_line: str, levels: Collection[str]) -> tuple[str, ...]:
    """The arguments that no level sets: they are the same in every boot of a run."""
    about = {_key(word) for level in levels for word in arguments(level)}
    return tuple(word for word in command_line.split() if _key(word) not in about)


def is_booted(level: str, levels: Collection[str], command_line: str) -> bool:
    """Whether a kernel's command line has exactly the arguments of this one of the levels."""
    return set(map(_same, named(command_line, levels))) == set(map(_same, arguments(level)))


def in_words(level: str, levels: Collection[str]) -> str:
    """How to boot for a level: "with mitigations=off", "without mitigations"."""
    if level != AS_USUAL:
        return f"with {level}"
    keys = dict.fromkeys(word.partition("=")[0] for other in levels for word in arguments(other))
    return f"without {' and '.join(keys)}"


def _key(word: str) -> str:
    """The name of an argument; the kernel treats - and _ in it as equal."""
    return word.partition("=")[0].replace("-", "_")


def _same(word: str) -> str:
    return re.sub("^[^=]*", _key(word), word)
