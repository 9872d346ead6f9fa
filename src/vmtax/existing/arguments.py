"""Arguments of QEMU that another configuration hands on: libvirt's <qemu:commandline>, `args` of Proxmox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmtax.design.hyperv import OFF
from vmtax.existing import enlightenments
from vmtax.existing.guest import NoGuest, Remarks
from vmtax.existing.qemu_words import QemuOptions, options_of, options_of_words, settings_of

USUAL_FEATURES = frozenset((("migratable", "on"), ("kvm", "on"), ("check", "on"), ("enforce", "on")))
PROGRAM = "qemu-system-x86_64"


def handed_on(
    arguments: str | Sequence[str], where: str, remarks: Remarks, before: Mapping[str, str]
) -> dict[str, str]:
    """The levels that they set in place of those of the configuration (`before`); every other argument is listed.

    QEMU takes the last -cpu, with nothing of the configuration's own.
    """
    try:
        line = _line(arguments)
    except NoGuest:
        remarks.add(where, arguments if isinstance(arguments, str) else " ".join(arguments), "cannot be read")
        return {}
    levels: dict[str, str] = {}
    for name, value in line.options:
        if name == "cpu":
            levels = cpu_levels(value, f"{where}: -cpu", remarks)
            if "cpu.hyperv" in before:
                levels.setdefault("cpu.hyperv", OFF)
        else:
            remarks.add(f"{where}: -{name}", value, "is not translated")
    return levels


def cpu_levels(value: str, where: str, remarks: Remarks) -> dict[str, str]:
    """The levels that the value of -cpu sets; its other features are listed."""
    settings = settings_of(value, "model")
    model = settings.pop("model", "qemu64")
    levels = {"cpu.model": "host" if model in ("host", "max") else model}
    hyperv = enlightenments.of_cpu(settings)
    hides_kvm = settings.get("kvm") == "off"
    level = enlightenments.level(hyperv, where, remarks, hides_kvm=hides_kvm)
    if level is not None:
        levels["cpu.hyperv"] = level
    others = {key: each for key, each in settings.items() if not enlightenments.of_cpu({key: each})}
    if hides_kvm:
        del others["kvm"]
    features = [f"{key}={each}" for key, each in others.items() if (key, each) not in USUAL_FEATURES]
    remarks.add_list(where, (each.removesuffix("=on") for each in features), "is not translated")
    return levels


def _line(arguments: str | Sequence[str]) -> QemuOptions:
    if isinstance(arguments, str):
        return options_of(f"{PROGRAM} {arguments}")
    return options_of_words([PROGRAM, *arguments])
