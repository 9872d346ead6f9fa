"""The definition of a clone: that of a domain, with other disks, another name, and settings of choice. Pure."""

from __future__ import annotations

import copy
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmtax.attach.clone.definition import Definition, has_no_ide, read
from vmtax.attach.clone.levels import CHANGES, add_controller, free_name, name_of
from vmtax.attach.domain import DomainError

AGENT = "org.qemu.guest_agent.0"
QEMU_WORDS = "{http://libvirt.org/schemas/domain/qemu/1.0}"
# What would meet the owner's own guest, or its host's users, or takes something that only one guest can have.
DROPPED = (
    *("interface", "hostdev", "redirdev", "redirfilter", "channel", "console", "serial", "parallel", "graphics"),
    *("video", "audio", "sound", "filesystem", "smartcard", "tpm", "vsock", "shmem", "lease", "hub", "nvram"),
)
OF_PERSON = ("title", "description", "metadata", "seclabel", "genid")
# Of the domain's first disk, not of a disk of ours.
OF_ITS_FILE = (
    *("backingStore", "mirror", "boot", "encryption", "auth", "readonly", "shareable", "transient", "serial", "wwn"),
    *("vendor", "product", "alias", "address", "source", "reservations", "throttlefilters"),
)


@dataclass(frozen=True, slots=True)
class CloneDisk:
    """A disk of the clone."""

    path: str
    format: str = "raw"
    is_device: bool = False
    size: int = 0  # bytes that are measured of it


@dataclass(frozen=True, slots=True)
class Overlay:
    """A disk of the clone's own that changes nothing of the owner's: a file over an export by NBD."""

    path: str
    export: str  # name of the export
    socket: str


@dataclass(frozen=True, slots=True)
class CloneParts:
    """What a clone is made of; paths are its host's."""

    name: str
    uuid: str
    overlays: Mapping[str, Overlay]  # name of the domain's disk -> what the clone has in its place
    copies: Mapping[str, str]  # file that the domain boots from -> its copy
    image: str  # file with the root image; "": it is not entered by that
    image_serial: str
    port: str  # name of the port by which it is entered
    console: str  # file with what its serial port prints
    data: CloneDisk | None = None  # the disk under test
    data_serial: str = ""
    disc: str = ""  # file with a disc for its drive; "": it has no drive


def edited(definition: Definition, parts: CloneParts, levels: Mapping[str, str]) -> str:
    """The XML of the clone with these levels of factors; what is not named stays as the domain has it."""
    domain = read(definition.text, parts.name)
    devices = domain.find("devices")
    assert devices is not None, "it has disks"
    _rename(domain, parts)
    had_screen = devices.find("video") is not None
    for device in [each for each in devices if each.tag in DROPPED or _is_medium(each) or _takes_a_file(each)]:
        devices.remove(device)
    first = next(disk for disk in devices.findall("disk") if name_of(disk) == definition.disks[0].target)
    data = None if parts.data is None else _data_disk(first, parts)
    for disk in devices.findall("disk"):
        _put_over(disk, parts.overlays[name_of(disk)])
    if had_screen:  # a screen that nobody sees: programs in the firmware may want one
        ET.SubElement(ET.SubElement(devices, "video"), "model", type="vga")
    _add_ways(domain, devices, parts)
    if data is not None:
        devices.append(data)
        _place(domain, data, first)
    for factor, change in CHANGES.items():
        if factor in levels:
            change(domain, data, levels[factor])
    _put_last(domain, [each for each in devices if _is_new(each, parts)])
    return ET.tostring(domain, encoding="unicode")


def _rename(domain: ET.Element, parts: CloneParts) -> None:
    for tag in (*OF_PERSON, f"{QEMU_WORDS}commandline"):
        for each in domain.findall(tag):
            domain.remove(each)
    for tag, text in (("name", parts.name), ("uuid", parts.uuid)):
        element = domain.find(tag)
        (ET.SubElement(domain, tag) if element is None else element).text = text
    for system in domain.findall("sysinfo/system"):  # libvirt refuses one that differs from the UUID
        for entry in [each for each in system if each.get("name") == "uuid"]:
            system.remove(entry)
    for tag in ("on_reboot", "on_crash"):  # a guest that restarts by itself would be another one than was measured
        element = domain.find(tag)
        (ET.SubElement(domain, tag) if element is None else element).text = "destroy"
    for element in domain.findall("os/*"):
        if (text := (element.text or "").strip()) in parts.copies:
            element.text = parts.copies[text]
            element.attrib.pop("template", None)


def _is_medium(device: ET.Element) -> bool:
    return device.tag == "disk" and device.get("device", "disk") != "disk"


def _takes_a_file(device: ET.Element) -> bool:
    """A device behind which is a file or a program of the host that the owner's guest has too."""
    if device.tag == "input":  # a tablet, which a guest polls, is nobody's; these are of the host
        return device.get("type") in ("passthrough", "evdev")
    if device.tag == "rng":
        backend = device.find("backend")
        return backend is None or backend.get("model") not in ("random", "builtin")
    return device.tag == "memory" and device.get("model") in ("nvdimm", "virtio-pmem")


def _put_over(disk: ET.Element, overlay: Overlay) -> None:
    """An overlay in place of the domain's own disk, with its bus and place, so that the guest knows it again."""
    for each in [one for one in disk if one.tag in ("source", "backingStore", "mirror", "transient", "iotune")]:
        disk.remove(each)
    disk.set("type", "file")
    driver = disk.find("driver")
    driver = ET.SubElement(disk, "driver") if driver is None else driver
    bus = driver.get("iothread"), driver.get("queues")
    driver.attrib.clear()
    driver.attrib |= {"name": "qemu", "type": "qcow2"}
    driver.attrib |= {name: value for name, value in zip(("iothread", "queues"), bus, strict=True) if value}
    ET.SubElement(disk, "source", file=overlay.path)
    store = ET.SubElement(disk, "backingStore", type="network")
    ET.SubElement(store, "format", type="raw")
    source = ET.SubElement(store, "source", protocol="nbd", name=overlay.export)
    ET.SubElement(source, "host", transport="unix", socket=overlay.socket)


def _data_disk(first: ET.Element, parts: CloneParts) -> ET.Element:
    """The disk under test: everything that the domain's first disk has, but its file."""
    disk, data = copy.deepcopy(first), parts.data
    assert data is not None
    for each in [one for one in disk if one.tag in OF_ITS_FILE]:
        disk.remove(each)
    disk.set("type", "block" if data.is_device else "file")
    disk.set("device", "disk")
    disk.set("snapshot", "no")
    driver = disk.find("driver")
    driver = ET.SubElement(disk, "driver") if driver is None else driver
    for each in list(driver):  # of a format that ours may not have
        driver.remove(each)
    driver.attrib |= {"name": "qemu", "type": data.format}
    ET.SubElement(disk, "source", {"dev" if data.is_device else "file": data.path})
    ET.SubElement(disk, "serial").text = parts.data_serial
    return disk


def _place(domain: ET.Element, data: ET.Element, first: ET.Element) -> None:
    """Give it a name, and on SCSI a controller of its own, like that of the first disk."""
    target = data.find("target")
    assert target is not None, "the first disk has one"
    bus = target.get("bus", "virtio")
    target.set("dev", free_name(domain, bus))
    if bus != "scsi":
        return
    address = first.find("address")
    index = address.get("controller", "0") if address is not None else "0"
    known = (each for each in domain.findall("devices/controller") if each.get("type") == "scsi")
    own = next((each for each in known if each.get("index") == index), None)
    driver = own.find("driver") if own is not None else None
    add_controller(domain, data, dict(driver.attrib) if driver is not None else {})


def _is_new(device: ET.Element, parts: CloneParts) -> bool:
    """Whether it is one of ours that takes a slot of PCI."""
    if device.tag == "controller":
        return device.get("type") == "scsi" and device.find("address") is None
    target, serial = device.find("target"), device.findtext("serial")
    ours = device.tag == "disk" and serial in (parts.image_serial, parts.data_serial)
    return ours and target is not None and target.get("bus") == "virtio"


def _put_last(domain: ET.Element, new: Sequence[ET.Element]) -> None:
    """Put devices behind all that the domain has: a guest numbers its disks by their places, and may boot by number."""
    devices = domain.find("devices")
    assert devices is not None
    controllers = [each for each in devices.findall("controller") if each.get("type") == "pci"]
    is_express = any(each.get("model") == "pcie-root" for each in controllers)
    used = {each.get("slot") for each in domain.findall("devices/*/address") if each.get("bus") == "0x00"}
    free = iter([slot for slot in (f"0x{number:02x}" for number in range(0x1F, 2, -1)) if slot not in used])
    index = max((int(each.get("index") or "0") for each in controllers), default=0)
    places = []
    for _ in new:
        index += 1
        slot = "0x00" if is_express else next(free, "")
        if not slot:
            raise DomainError(
                "no slot for a disk is free on its PCI bus: remove a device from a copy of it, and clone that"
            )
        places.append((f"0x{index:02x}" if is_express else "0x00", slot))
        if is_express:
            ET.SubElement(devices, "controller", type="pci", index=str(index), model="pcie-root-port")
    for device, (bus, slot) in zip(new, places if is_express else reversed(places), strict=True):
        ET.SubElement(device, "address", type="pci", domain="0x0000", bus=bus, slot=slot, function="0x0")


def _add_ways(domain: ET.Element, devices: ET.Element, parts: CloneParts) -> None:
    """The root image or the disc, the agent's channel, the port by which the guest is entered, and its console."""
    if parts.image:
        image = ET.SubElement(devices, "disk", type="file", device="disk", snapshot="no")
        ET.SubElement(image, "driver", name="qemu", type="raw")
        source = ET.SubElement(image, "source", file=parts.image)
        ET.SubElement(source, "seclabel", model="dac", relabel="no")
        ET.SubElement(image, "target", dev=free_name(domain, "virtio"), bus="virtio")
        ET.SubElement(image, "readonly")
        ET.SubElement(image, "serial").text = parts.image_serial
    if parts.disc:
        _add_disc(domain, devices, parts.disc)
    for name in (AGENT, *([parts.port] if parts.image else [])):
        channel = ET.SubElement(devices, "channel", type="unix")
        ET.SubElement(channel, "target", type="virtio", name=name)
    serial = ET.SubElement(devices, "serial", type="file")
    ET.SubElement(serial, "source", path=parts.console)
    ET.SubElement(serial, "target", port="0")


def _add_disc(domain: ET.Element, devices: ET.Element, file: str) -> None:
    """A drive with that disc, on the bus for which every system has a driver."""
    bus = "sata" if has_no_ide(domain) else "ide"
    drive = ET.SubElement(devices, "disk", type="file", device="cdrom")
    ET.SubElement(drive, "driver", name="qemu", type="raw")
    source = ET.SubElement(drive, "source", file=file)
    ET.SubElement(source, "seclabel", model="dac", relabel="no")
    ET.SubElement(drive, "target", dev=free_name(domain, bus), bus=bus)
    ET.SubElement(drive, "readonly")
