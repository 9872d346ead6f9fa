"""The disks and network cards of libvirt's XML of a domain."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping

from vmtax.design.disk import THREADS
from vmtax.existing.guest import ExistingCard, ExistingDisk, Remarks, volume_levels, whole_of_text

USUAL_DRIVER = frozenset(("name", "error_policy", "rerror_policy"))  # attributes that cost nothing


def disks_of(domain: ET.Element, remarks: Remarks) -> Iterator[ExistingDisk]:
    """Every disk, and every drive for CDs, in the order of the definition."""
    scsi = {
        controller.get("index", "0"): controller
        for controller in domain.findall("devices/controller")
        if controller.get("type") == "scsi"
    }
    orders = {
        disk: whole_of_text(boot.get("order"))
        for disk in domain.findall("devices/disk")
        if (boot := disk.find("boot")) is not None
    }
    first = min((order for order in orders.values() if order is not None), default=None)
    for number, disk in enumerate(domain.findall("devices/disk")):
        target, driver = disk.find("target"), disk.find("driver")
        name = (target.get("dev") if target is not None else None) or f"disk {number + 1}"
        where = f"devices/disk[{name}]"
        source = disk.find("source")
        attributes = dict(source.attrib) if source is not None else {}
        path = next(
            (attributes[key] for key in ("file", "dev", "name", "volume", "dir", "path") if key in attributes), ""
        )
        is_cd = disk.get("device", "disk") in ("cdrom", "floppy")
        levels = dict(_disk_levels(disk, driver, target, scsi, path, where, remarks)) if not is_cd else {}
        is_boot = first is not None and orders.get(disk) == first
        yield ExistingDisk(name, levels, path, "", is_cd, is_boot)


def _disk_levels(
    disk: ET.Element,
    driver: ET.Element | None,
    target: ET.Element | None,
    scsi: Mapping[str, ET.Element],
    path: str,
    where: str,
    remarks: Remarks,
) -> Iterator[tuple[str, str]]:
    said = dict(driver.attrib) if driver is not None else {}
    kind = disk.get("type", "file")
    is_device = kind == "block" or (kind == "file" and path.startswith("/dev/"))
    if is_device:
        yield from volume_levels(path).items()
    elif kind != "file":
        remarks.add(where, f"type='{kind}'", "it is measured as a file in --disk-dir")
    form = said.pop("type", "raw" if is_device else "")
    if form in ("raw", "qcow2") and not is_device:
        yield "disk.format", form
    elif form and form != "raw":
        remarks.add(f"{where}/driver/type", form, "is measured as raw" if not is_device else "on a block device: raw")
    controller = _controller(disk, target, scsi)
    yield from _bus(target, controller, where, remarks)
    cache = said.pop("cache", "default")
    yield "disk.cache", "writeback" if cache == "default" else cache  # QEMU's own default
    yield "disk.aio", said.pop("io", "threads")
    if said.pop("discard", "ignore") == "unmap":
        yield "disk.discard", "unmap"
    zeroes = said.pop("detect_zeroes", "off")
    if zeroes != "off":
        yield "disk.detect_zeroes", zeroes
    drivers = [
        each for each in (driver, controller.find("driver") if controller is not None else None) if each is not None
    ]
    dealt = max((len(each.findall("iothreads/iothread")) for each in drivers), default=0)
    if said.pop("iothread", None) is not None or any(each.get("iothread") is not None for each in drivers) or dealt:
        yield "disk.iothread", str(dealt) if str(dealt) in THREADS else "on"
    if dealt > 1 and str(dealt) not in THREADS:
        remarks.add(f"{where}/driver/iothreads", str(dealt), "is measured as one iothread")
    queues = said.pop("queues", None)
    if queues is not None:
        yield "disk.queues", queues
    for key, value in said.items():
        if key not in USUAL_DRIVER:
            remarks.add(f"{where}/driver/{key}", value, "is not translated")
    if disk.get("device") == "lun":
        remarks.add(where, "device='lun'", "the guest's commands go to the device: measured as a disk of QEMU's")
    backing = disk.find("backingStore")
    if backing is not None and len(backing):
        remarks.add(f"{where}/backingStore", "a chain of files", "is measured as a single file")


def _bus(
    target: ET.Element | None, controller: ET.Element | None, where: str, remarks: Remarks
) -> Iterator[tuple[str, str]]:
    bus = (target.get("bus") if target is not None else None) or _bus_by_name(target)
    if bus == "scsi":
        model = controller.get("model", "") if controller is not None else ""
        if model not in ("", "virtio-scsi", "virtio-transitional", "virtio-non-transitional"):
            remarks.add(f"{where}/target/bus", f"scsi on {model}", "is measured as virtio-scsi")
        bus = "virtio-scsi"
    if bus in ("virtio", "virtio-scsi", "ide", "sata", "nvme"):
        yield "disk.bus", bus
    else:
        remarks.add(f"{where}/target/bus", bus, "is measured as sata")
        yield "disk.bus", "sata"


def _controller(disk: ET.Element, target: ET.Element | None, scsi: Mapping[str, ET.Element]) -> ET.Element | None:
    """The SCSI controller that the disk is on."""
    if ((target.get("bus") if target is not None else None) or _bus_by_name(target)) != "scsi":
        return None
    address = disk.find("address")
    return scsi.get(address.get("controller", "0") if address is not None else "0")


def _bus_by_name(target: ET.Element | None) -> str:
    """libvirt's own rule for a disk without a bus: the name of its device tells."""
    name = (target.get("dev") or "") if target is not None else ""
    return {"hd": "ide", "sd": "scsi", "vd": "virtio", "xv": "xen", "ub": "usb", "fd": "fdc"}.get(name[:2], "ide")


OUTSIDE_QEMU = ("vhostuser", "vdpa")  # types of cards whose packets another program or a device carries


def cards_of(domain: ET.Element, remarks: Remarks) -> Iterator[ExistingCard]:
    """Every network card, in the order of the definition."""
    for number, card in enumerate(domain.findall("devices/interface")):
        target = card.find("target")
        name = (target.get("dev") if target is not None else None) or f"card {number + 1}"
        where = f"devices/interface[{name}]"
        yield ExistingCard(name, dict(_card_levels(card, where, remarks)))


def _card_levels(card: ET.Element, where: str, remarks: Remarks) -> Iterator[tuple[str, str]]:
    kind = card.get("type", "")
    model = card.find("model")
    # libvirt's default on x86; it has no other card than virtio behind these two
    default = "virtio" if kind in OUTSIDE_QEMU else "rtl8139"
    device = model.get("type", default) if model is not None else default
    driver = card.find("driver")
    said = dict(driver.attrib) if driver is not None else {}
    if kind == "hostdev":
        yield "net.path", "sriov"
    elif device.startswith("virtio"):
        if kind == "direct":
            yield "net.path", "macvtap"
        elif kind == "user":
            yield "net.path", "user"
        else:
            yield "net.path", "tap" if said.get("name") == "qemu" else "vhost"
    elif device == "rtl8139" or device.startswith("e1000"):
        yield "net.path", "rtl8139" if device == "rtl8139" else "e1000e"
        if device not in ("e1000e", "rtl8139"):
            remarks.add(f"{where}/model", device, "is measured as e1000e")
    else:
        remarks.add(f"{where}/model", device, "is measured as virtio on a tap")
        yield "net.path", "tap"
    if kind in OUTSIDE_QEMU:
        remarks.add(where, f"type='{kind}'", "is measured as vhost on a bridge")
    if kind in ("null", "vds", "server", "client", "mcast", "udp", "internal"):
        remarks.add(where, f"type='{kind}'", "is measured as a tap on a bridge")
    queues = said.pop("queues", None)
    if queues and queues != "1":
        yield "net.queues", queues
    said.pop("name", None)
    for key, value in said.items():
        remarks.add(f"{where}/driver/{key}", value, "is not translated")
    mtu = card.find("mtu")
    if mtu is not None:
        yield "net.mtu", mtu.get("size", "1500")
