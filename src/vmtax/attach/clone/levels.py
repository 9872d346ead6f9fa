"""How a level of a factor is written into the definition of a clone. Pure."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from string import ascii_lowercase

from vmtax.attach.domain import COPIED
from vmtax.design.hyperv import OFF, SPINS, parts_of

OF_VIRTIO = ("ioeventfd", "event_idx", "iommu", "ats", "packed", "page_per_vq")  # attributes of a driver
BUSES = {"virtio-scsi": "scsi"}  # factor disk.bus -> libvirt's word, where they differ
LARGE_PAGES = {"2MiB": "2048", "1GiB": "1048576"}  # memory.backing -> KiB
SWITCHED = {"on": "yes", "off": "no"}
Change = Callable[[ET.Element, ET.Element | None, str], None]  # of a clone and its disk under test, to a level


def free_name(domain: ET.Element, bus: str) -> str:
    """The first name of a disk on that bus that none has. On virtio its letter is nobody's either: libvirt makes the
    device's id of that alone, and a disk "hda" may be on virtio too.
    """
    used = {name_of(disk) for disk in domain.findall("devices/disk")}
    start = {"virtio": "vd", "ide": "hd"}.get(bus, "sd")
    used |= {start + name[2:] for name in used} if bus == "virtio" else set()
    return next(name for letter in ascii_lowercase if (name := start + letter) not in used)


def name_of(disk: ET.Element) -> str:
    """Its name, as libvirt has it: "vda"."""
    target = disk.find("target")
    return target.get("dev", "") if target is not None else ""


def add_controller(domain: ET.Element, data: ET.Element, driver: Mapping[str, str]) -> None:
    """Put the disk under test on a SCSI controller of its own, with these settings of its driver."""
    devices = domain.find("devices")
    assert devices is not None
    used = [each.get("index", "") for each in devices.findall("controller") if each.get("type") == "scsi"]
    index = str(1 + max((int(each) for each in used if re.fullmatch(r"\d{1,3}", each)), default=-1))
    controller = ET.SubElement(devices, "controller", type="scsi", model="virtio-scsi", index=index)
    if driver:
        ET.SubElement(controller, "driver", dict(driver))
    ET.SubElement(data, "address", type="drive", controller=index, bus="0", target="0", unit="0")


# One function for each factor that a clone can be given: the clone, its disk under test, and the level.


def _driver(data: ET.Element | None) -> dict[str, str]:
    driver = None if data is None else data.find("driver")
    return {} if driver is None else driver.attrib


def _attribute(name: str) -> Change:
    assert name in COPIED

    def change(domain: ET.Element, data: ET.Element | None, level: str) -> None:
        _driver(data)[name] = level

    return change


def _bus(domain: ET.Element, data: ET.Element | None, level: str) -> None:
    if data is None:
        return
    bus, target = BUSES.get(level, level), data.find("target")
    assert target is not None
    if target.get("bus") == bus:
        return
    target.attrib.clear()
    target.attrib |= {"bus": bus, "dev": free_name(domain, bus)}
    for name in OF_VIRTIO:
        _driver(data).pop(name, "")
    address = data.find("address")
    moved = {name: value for name in ("iothread", "queues") if (value := _driver(data).pop(name, ""))}
    if address is not None:  # it was on SCSI, with a controller of its own
        data.remove(address)
        moved |= _controller_driver(domain, address.get("controller", ""))
    if bus == "scsi":
        add_controller(domain, data, moved)
    elif bus == "virtio":
        _driver(data).update(moved)


def _controller_driver(domain: ET.Element, index: str) -> dict[str, str]:
    """Remove our SCSI controller; returns what it had."""
    devices = domain.find("devices")
    assert devices is not None
    for each in devices.findall("controller"):
        if each.get("type") == "scsi" and each.get("index") == index:
            devices.remove(each)
            driver = each.find("driver")
            return {} if driver is None else dict(driver.attrib)
    return {}


def _of_controller(domain: ET.Element, data: ET.Element) -> dict[str, str]:
    """Where iothread and queues of the disk under test are written: on SCSI, at its controller."""
    address = data.find("address")
    if address is None:
        return _driver(data)
    found = (each for each in domain.findall("devices/controller") if each.get("type") == "scsi")
    controller = next(each for each in found if each.get("index") == address.get("controller"))
    driver = controller.find("driver")
    return (ET.SubElement(controller, "driver") if driver is None else driver).attrib


def _iothread(domain: ET.Element, data: ET.Element | None, level: str) -> None:
    if data is None:
        return
    where = _of_controller(domain, data)
    where.pop("iothread", None)
    if level == "off":
        return
    count, own = domain.find("iothreads"), domain.find("iothreadids")
    if count is None:
        count = ET.SubElement(domain, "iothreads")
    number = int(count.text or "0") + 1  # of its own: another disk may have the first
    count.text = str(number)
    if own is not None:
        taken = {each.get("id") for each in own}
        number = next(each for each in range(1, len(taken) + 2) if str(each) not in taken)
        ET.SubElement(own, "iothread", id=str(number))
    where["iothread"] = str(number)


def _queues(domain: ET.Element, data: ET.Element | None, level: str) -> None:
    if data is None:
        return
    where = _of_controller(domain, data)
    where.pop("queues", None)
    if level != "auto":
        where["queues"] = level


def _backing(domain: ET.Element, data: ET.Element | None, level: str) -> None:
    memory = domain.find("memoryBacking")
    memory = ET.SubElement(domain, "memoryBacking") if memory is None else memory
    for each in [one for one in memory if one.tag in ("hugepages", "source", "access", "allocation")]:
        memory.remove(each)
    if size := LARGE_PAGES.get(level):
        ET.SubElement(ET.SubElement(memory, "hugepages"), "page", size=size, unit="KiB")
    elif level == "memfd":
        ET.SubElement(memory, "source", type="memfd")
        ET.SubElement(memory, "access", mode="shared")


def _merge(domain: ET.Element, data: ET.Element | None, level: str) -> None:
    memory = domain.find("memoryBacking")
    memory = ET.SubElement(domain, "memoryBacking") if memory is None else memory
    for each in memory.findall("nosharepages"):
        memory.remove(each)
    if level == "off":
        ET.SubElement(memory, "nosharepages")


def _model(domain: ET.Element, data: ET.Element | None, level: str) -> None:
    cpu = _cpu(domain)
    for each in [one for one in cpu if one.tag not in ("topology", "numa", "cache", "maxphysaddr")]:
        cpu.remove(each)
    cpu.attrib.clear()
    if level == "host":
        cpu.set("mode", "maximum" if domain.get("type") == "qemu" else "host-passthrough")
        cpu.set("check", "none")
    else:
        cpu.attrib |= {"mode": "custom", "match": "exact", "check": "none"}
        ET.SubElement(cpu, "model", fallback="forbid").text = level


def _topology(domain: ET.Element, data: ET.Element | None, level: str) -> None:
    cpu, vcpu = _cpu(domain), domain.find("vcpu")
    for each in cpu.findall("topology"):
        cpu.remove(each)
    count = int((vcpu.text if vcpu is not None else None) or "1")
    shape = {"sockets": 1, "dies": 1, "cores": 1, "threads": 1}
    if level == "threads":
        shape |= {"cores": count // 2, "threads": 2}
    else:
        shape[level] = count
    ET.SubElement(cpu, "topology", {name: str(number) for name, number in shape.items()})


def _cpu(domain: ET.Element) -> ET.Element:
    return _child(domain, "cpu")


def _child(parent: ET.Element, tag: str) -> ET.Element:
    found = parent.find(tag)
    return ET.SubElement(parent, tag) if found is None else found


def _timer(domain: ET.Element, name: str, present: str) -> None:
    """Whether it has that timer: "yes" or "no"."""
    clock = _child(domain, "clock")
    if not clock.attrib:
        clock.set("offset", "utc")
    for each in [one for one in clock.findall("timer") if one.get("name") == name]:
        clock.remove(each)
    ET.SubElement(clock, "timer", name=name, present=present)


def _hpet(domain: ET.Element, data: ET.Element | None, level: str) -> None:
    if level in SWITCHED:
        _timer(domain, "hpet", SWITCHED[level])


def _hyperv(domain: ET.Element, data: ET.Element | None, level: str) -> None:
    """As the factor has it: wherever it is offered, KVM's own interface is hidden."""
    features, parts = _child(domain, "features"), parts_of(level)
    for each in features.findall("hyperv"):
        features.remove(each)
    kvm = _child(features, "kvm")
    for each in kvm.findall("hidden"):
        kvm.remove(each)
    ET.SubElement(kvm, "hidden", state="off" if level == OFF else "on")
    _timer(domain, "hypervclock", SWITCHED["on" if "time" in parts else "off"])
    if not parts:
        return
    hyperv = ET.SubElement(features, "hyperv", mode="custom")
    for name in (each for each in parts if each not in ("time", "stimer-direct")):
        part = ET.SubElement(hyperv, name, state="on")
        if name == "spinlocks":
            part.set("retries", str(SPINS))
        if name == "stimer" and "stimer-direct" in parts:
            ET.SubElement(part, "direct", state="on")


# Factor -> how its level is written into the definition. The bus comes before what depends on it.
CHANGES: Mapping[str, Change] = {
    "disk.bus": _bus,
    "disk.cache": _attribute("cache"),
    "disk.aio": _attribute("io"),
    "disk.discard": _attribute("discard"),
    "disk.detect_zeroes": _attribute("detect_zeroes"),
    "disk.iothread": _iothread,
    "disk.queues": _queues,
    "memory.backing": _backing,
    "memory.merge": _merge,
    "cpu.model": _model,
    "cpu.topology": _topology,
    "cpu.hyperv": _hyperv,
    "guest.hpet": _hpet,
}
