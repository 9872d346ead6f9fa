"""The level of cpu.hyperv for what a configuration says of Hyper-V's interface, and of KVM's own."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping

from vmtax.design.hyperv import ALL, BASE, ENLIGHTENMENTS, SPINS, level_of
from vmtax.existing.guest import Remarks

# They change what a guest can read, and nothing that is measured.
NEUTRAL = frozenset(("vendor-id", "reset", "crash", "enforce-cpuid"))
ALL_OF_HOST = "passthrough"  # QEMU's and libvirt's word for all that the host's KVM offers
OFF = ("off", "no", "false", "0")
# What Proxmox gives to a Windows guest (get_hyperv_enlightenments in CPUConfig.pm of qemu-server 9): to older ones,
# and in addition to Windows 7 and later.
OLDER = ("spinlocks", "vapic", "time", "vpindex", "runtime")
LATER = ("relaxed", "synic", "stimer", "ipi")
WINDOWS = {"wvista": 6, "w2k8": 6, "win7": 7, "win8": 8, "win10": 10, "win11": 11}


def level(found: Mapping[str, str], where: str, remarks: Remarks, *, hides_kvm: bool = False) -> str | None:
    """The level for these parts of Hyper-V's interface; None if nothing is said of it.

    found: the name in QEMU without "hv-" -> "on", "off", or the number of attempts of "spinlocks"
    """
    present = {name: value for name, value in found.items() if value not in OFF and name not in NEUTRAL}
    present = {name: value for name, value in present.items() if not name.startswith("version-id-")}
    if present.pop(ALL_OF_HOST, None):
        remarks.add(where, ALL_OF_HOST, "is measured with all that cpu.hyperv=all has")
        return ALL
    spins = present.get("spinlocks", "on")
    if spins != "on" and _whole(spins) != SPINS:
        remarks.add(f"{where}: spinlocks", spins, f"is measured with {SPINS} attempts")
    remarks.add_list(where, (name for name in present if name not in ENLIGHTENMENTS), "is not translated")
    parts = [name for name in ENLIGHTENMENTS if name in present]
    if not parts:
        return level_of(()) if hides_kvm else None
    if BASE not in parts:
        remarks.add(where, BASE, "is added: without it, our guest's Linux uses none of the others")
    return level_of(parts)


def _whole(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None


def of_cpu(features: Mapping[str, str]) -> dict[str, str]:
    """What the features of QEMU's -cpu say of it, as `level` takes it: of hv-relaxed, hv_relaxed or +hv-relaxed."""
    named = {key.lstrip("+").replace("_", "-"): value for key, value in features.items()}
    return {key.removeprefix("hv-"): value for key, value in named.items() if key.startswith("hv-")}


def of_domain(features: ET.Element | None, clock: ET.Element | None) -> Iterator[tuple[str, str]]:
    """What libvirt's <features> and <clock> say of it, as `level` takes it."""
    hyperv = features.find("hyperv") if features is not None else None
    if hyperv is not None and hyperv.get("mode") in ("passthrough", "host-model"):
        yield ALL_OF_HOST, "on"
    for part in hyperv if hyperv is not None else ():
        name, state = str(part.tag), part.get("state", "off")
        if name not in ENLIGHTENMENTS:
            continue
        yield name, part.get("retries", "on") if name == "spinlocks" and state == "on" else state
        for inner in part if state == "on" else ():  # <direct>, <extended>
            yield f"{name}-{inner.tag}", inner.get("state", "off")
    for timer in clock.findall("timer") if clock is not None else ():
        if timer.get("name") == "hypervclock":
            yield "time", "on" if timer.get("present") == "yes" else "off"


def hides_kvm(features: ET.Element | None) -> bool:
    """Whether libvirt's <features> hide KVM."""
    hidden = features.find("kvm/hidden") if features is not None else None
    return hidden is not None and hidden.get("state") == "on"


def of_windows(ostype: str, firmware: str) -> dict[str, str]:
    """What Proxmox gives by itself to a guest of that `ostype`, as `level` takes it."""
    version = WINDOWS.get(ostype, 0)
    if version == 0 or (firmware == "ovmf" and version < 8):
        return {}
    return dict.fromkeys((*OLDER, *(LATER if version >= 7 else ())), "on")
