"""What the translation of a domain's XML knows: every other element is listed, wherever it stands."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator

from vmtax.existing.guest import HIDDEN, Remarks, is_secret, shown

UNLIKE = "is not translated: our guest has no such thing"
# They change nothing that is measured, with whatever is in them.
_NEUTRAL = """
    name uuid genid hwuuid title description metadata resource seclabel sysinfo pm on_poweroff on_reboot on_crash
    on_lockfailure id address alias boot privateData emulator serial console parallel channel input graphics video
    sound audio rng redirdev redirfilter hub panic watchdog tpm lease smartcard vsock bootmenu smbios bios wwn product
    vendor auth backingStore mac guest script rom link acpi ip route portForward virtualport shareable kernel initrd
    maxMemory host statistics allowReboot memory currentMemory iothreads loader nvram firmware type stats master
    reservations initiator cookies identity reconnect timeout snapshot
"""
NEUTRAL = frozenset(_NEUTRAL.split())
# The elements that are known within one, by its place; there may be others only in those that are neutral.
CHILDREN = {
    place: frozenset(words.split())
    for place, words in {
        "": """
            name uuid genid hwuuid title description metadata os vcpu memory currentMemory maxMemory on_poweroff
            on_reboot on_crash on_lockfailure pm seclabel resource iothreads iothreadids vcpus devices cpu
            memoryBacking cputune clock features sysinfo id allowReboot qemu:commandline
        """,
        "os": "type loader nvram firmware boot bootmenu bios smbios kernel initrd",
        "vcpus": "vcpu",
        "iothreadids": "iothread",
        "cpu": "model feature topology vendor",
        "memoryBacking": "hugepages source nosharepages access allocation",
        "memoryBacking/hugepages": "page",
        "cputune": "vcpupin",
        "clock": "timer",
        "features": "acpi apic pae vmport smm gic vmcoreinfo hap viridian hyperv kvm",
        "features/hyperv": """
            relaxed vapic spinlocks vpindex runtime synic stimer reset vendor_id frequencies reenlightenment tlbflush
            ipi
        """,
        "features/hyperv/stimer": "direct",
        "features/hyperv/tlbflush": "direct extended",
        "features/kvm": "hidden",
        "devices": """
            emulator disk interface controller serial console parallel channel input vsock graphics video sound audio
            redirdev redirfilter hub rng panic watchdog tpm memballoon lease smartcard
        """,
        "devices/disk": """
            driver target source address alias boot backingStore serial wwn product vendor auth privateData shareable
        """,
        "devices/disk/driver": "iothreads statistics",
        "devices/disk/driver/iothreads": "iothread",
        "devices/disk/source": """
            host address seclabel privateData auth reservations initiator cookies identity reconnect timeout snapshot
        """,
        "devices/interface": """
            mac source model driver target alias address boot mtu guest script link virtualport rom acpi ip route port
            portForward
        """,
        "devices/interface/source": "address reconnect",
        "devices/controller": "address alias driver model target master",
        "devices/controller/model": "",
        "devices/memballoon": "address alias driver stats",
        "qemu:commandline": "qemu:arg qemu:env",
    }.items()
}
# Defaults, which say nothing.
USUAL = frozenset(
    (
        *("ioapic driver=kvm", "bandwidth", "pvspinlock state=on", "pmu state=on"),
        *(f"{part} state=off" for part in ("evmcs", "avic", "emsr_bitmap", "xmm_input")),
    )
)
DRIVER = {
    "devices/controller": ("iothread", "name"),
    "devices/memballoon": (),
}


def list_unknown(element: ET.Element, remarks: Remarks, place: str = "", where: str = "") -> None:
    """A remark for each element within this one that is neither translated nor neutral."""
    known = CHILDREN.get(place, ())
    numbers: dict[str, int] = {}
    for child in element:
        tag = str(child.tag)
        numbers[tag] = numbers.get(tag, 0) + 1
        inner = f"{place}/{tag}".lstrip("/")
        label = f"{where}/{tag}{_name(child, inner, numbers[tag])}".lstrip("/")
        if tag == "readonly" and not len(child) and element.get("device") in ("cdrom", "floppy"):
            continue
        if tag not in known:
            _list(child, place, label, remarks)
        elif tag not in NEUTRAL or inner in CHILDREN:
            list_unknown(child, remarks, inner, label)
    if place.endswith("/driver") and (allowed := DRIVER.get(place.removesuffix("/driver"))) is not None:
        for key, value in element.attrib.items():
            if key not in allowed:
                remarks.add(f"{where}/{key}", value, "is not translated")


def _name(element: ET.Element, place: str, number: int) -> str:
    if place == "devices/disk":
        return f"[{_target(element) or f'disk {number}'}]"
    if place == "devices/interface":
        return f"[{_target(element) or f'card {number}'}]"
    if place == "devices/controller":
        return f"[{element.get('type', '')} {element.get('index', '0')}]"
    return ""


def _target(element: ET.Element) -> str | None:
    target = element.find("target")
    return target.get("dev") if target is not None else None


def _list(element: ET.Element, place: str, label: str, remarks: Remarks) -> None:
    text = " ".join(in_words(element))
    if f"{element.tag} {text}".strip() not in USUAL:
        remarks.add(label, text, UNLIKE if place == "devices" else "is not translated")


def in_words(element: ET.Element) -> Iterator[str]:
    """Its attributes, its text and what is in it, without secrets: "mode=subsystem", "size=64 unit=M"."""
    attributes = dict(element.attrib)
    state = attributes.pop("state", None)
    text = (element.text or "").strip()
    if is_secret(attributes.get("name", "")):  # <entry name='password'>…
        text, attributes = HIDDEN if text else "", {key: HIDDEN for key in attributes if key != "name"}
    if state is not None:
        yield f"state={shown('state', state)}"
    if text:
        yield shown(str(element.tag), text)
    for name, value in attributes.items():
        yield f"{name}={shown(f'{element.tag} {name}', value)}"
    for child in element:
        if child.tag in ("alias", "privateData") or (child.tag == "address" and element.tag == "hostdev"):
            continue
        first, *others = [*in_words(child)] or [""]
        name = str(child.tag)
        yield (
            f"{name}={first.removeprefix('state=')}"
            if first and ("=" not in first or first.startswith("state="))
            else (f"{name} {first}".strip())
        )
        yield from others
