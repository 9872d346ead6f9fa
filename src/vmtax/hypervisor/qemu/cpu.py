"""Ask QEMU, without booting a guest, whether it can provide some CPU model. Pure."""

from __future__ import annotations

import difflib
import json
import re

from vmtax.design.hyperv import OFF
from vmtax.hypervisor.qemu.parts import LEVELS, accelerator_words, cpu_arguments

UNKNOWN = "unable to find CPU model"
QUIT = "".join(json.dumps({"execute": command}) for command in ("qmp_capabilities", "quit"))
NEAREST = 5  # similar names that are suggested
_FEATURE = re.compile(r"doesn't support requested feature: \S*?\.?([\w-]+) \[bit \d+\]")
_NAME = re.compile(r"^\s*(?:x86 )?\s*([A-Za-z0-9][\w.-]*)(?:\s|$)", re.MULTILINE)


def asking(model: str, accelerator: str, machine: str = "q35", hyperv: str = OFF) -> tuple[str, ...]:
    """Arguments for a machine with that CPU, which is created but never runs; QUIT on standard input ends it.

    hyperv: a level of cpu.hyperv
    """
    made = ("-nodefaults", "-no-user-config", "-display", "none", "-S", "-machine", machine, "-m", "64M")
    cpu = cpu_arguments(model, accelerator, hyperv)
    return (*made, "-accel", accelerator_words(accelerator), "-cpu", cpu, "-qmp", "stdio")


def missing_features(words: str) -> list[str]:
    """Missing features, from QEMU's warnings about a CPU that should have all of them."""
    return list(dict.fromkeys(_FEATURE.findall(words)))


def nearest_models(model: str, program: str, listed: str) -> str:
    """Suggestions for a model that a QEMU does not have. `listed`: output of `program -cpu help`."""
    known = _NAME.findall(listed.partition("Recognized CPUID")[0])
    spelt = {name.lower(): name for name in (*LEVELS, *known)}
    close = [spelt[name] for name in difflib.get_close_matches(model.lower(), spelt, n=NEAREST, cutoff=0.5)]
    hint = f"; nearest: {', '.join(close)}" if close else ""
    return f"knows no CPU '{model}'{hint}; `{program} -cpu help` lists its own"
