"""Translate libvirt's XML of a domain (https://libvirt.org/formatdomain.html)."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import replace

from vmtax.existing.guest import (
    ExistingCard,
    ExistingDisk,
    ExistingGuest,
    NoGuest,
    Remarks,
    shown,
    topology_level,
    volume_levels,
)

OTHER_HYPERVISORS = {
    "xen": "Xen",
    "lxc": "LXC",
    "bhyve": "bhyve",
    "vmware": "VMware",
    "vz": "Virtuozzo",
    "hvf": "macOS",
}
UNITS = {"b": 1, "bytes": 1, "kb": 10**3, "k": 2**10, "kib": 2**10, "mb": 10**6, "m": 2**20, "mib": 2**20}
UNITS |= {"gb": 10**9, "g": 2**30, "gib": 2**30, "tb": 10**12, "t": 2**40, "tib": 2**40}
LARGEST = 4 * 2**20  # characters of a definition
MOST_VCPUS = 1024

# Elements that change nothing that is measured: of another guest they would be other names.
NEUTRAL = frozenset(
    (
        *("name", "uuid", "genid", "title", "description", "metadata", "id", "os", "vcpu", "memory", "currentMemory"),
        *("maxMemory", "on_poweroff", "on_reboot", "on_crash", "on_lockfailure", "pm", "seclabel", "resource"),
        *("iothreads", "iothreadids", "vcpus", "devices", "cpu", "memoryBacking", "cputune", "clock", "features"),
    )
)
NEUTRAL_DEVICES = frozenset(
    (
        *("emulator", "disk", "interface", "controller", "serial", "console", "parallel", "channel", "input"),
        *("graphics", "video", "sound", "audio", "redirdev", "redirfilter", "hub", "rng", "panic", "watchdog", "tpm"),
        *("memballoon", "lease", "smartcard"),
    )
)
NEUTRAL_OF_DISK = frozenset(
    (*("driver", "target", "source", "address", "alias", "boot", "backingStore", "serial", "wwn", "product", "vendor"),)
)
NEUTRAL_OF_CARD = frozenset(
    (
        *("mac", "source", "model", "driver", "target", "alias", "address", "boot", "mtu", "guest", "script", "link"),
        *("virtualport", "rom", "acpi", "ip", "route", "backend", "port", "portForward"),
    )
)
# Features that our guests have as well, or that cost nothing.
USUAL_FEATURES = frozenset(("acpi", "apic", "pae", "vmport", "smm", "gic", "vmcoreinfo", "hap", "viridian"))
UNLIKE = "is not translated: our guest has no such thing"


def parse(text: str) -> ExistingGuest:
    """The guest that `virsh dumpxml` describes. Raises NoGuest."""
    domain = _domain(text)
    kind = domain.get("type", "")
    if kind not in ("kvm", "qemu", ""):
        raise NoGuest(f"a guest of {OTHER_HYPERVISORS.get(kind, kind)}, not of KVM: type='{shown('type', kind)}'")
    machine = domain.find("os/type")
    arch = machine.get("arch", "x86_64") if machine is not None else "x86_64"
    remarks = Remarks()
    if arch in ("i686", "i386"):
        remarks.add("os/type/arch", arch, "is measured as x86_64")
    elif arch not in ("x86_64", "amd64"):
        raise NoGuest(f"a guest for {shown('arch', arch)}; guests for x86_64 can be measured")
    others = len(re.findall(r"<domain[\s>]", text)) - 1
    if others > 0:
        remarks.add("domain", f"{others + 1} of them", "the first one is read")
    if kind == "qemu":
        remarks.add("domain", "type='qemu'", "it is emulated, without KVM; our guest has KVM where the host has it")
    levels = dict(_guest_levels(domain, remarks))
    iothreads = _number(domain.findtext("iothreads")) or len(domain.findall("iothreadids/iothread"))
    disks = tuple(_disks(domain, remarks))
    if iothreads and not any(disk.levels.get("disk.iothread") == "on" for disk in disks):
        remarks.add("iothreads", str(iothreads), "no disk uses one")
    cards = tuple(_cards(domain, remarks))
    guest = ExistingGuest(
        "libvirt",
        " ".join((domain.findtext("name") or "").split()) or "guest",
        _vcpus(domain, remarks),
        _memory(domain, remarks),
        levels,
        disks,
        cards,
    )
    _rest(domain, remarks)
    return replace(guest, remarks=remarks.all())


def _domain(text: str) -> ET.Element:
    """The element `domain`, also within what libvirt stores about a running guest or a snapshot, or in a terminal's
    text.
    """
    if len(text) > LARGEST:
        raise NoGuest(f"more than {LARGEST >> 20} MiB of XML: no definition of a guest is as large")
    begin = re.search(r"<domain[\s>]", text)
    if begin is None:
        root = re.search(r"<([A-Za-z][\w:-]*)[\s/>]", text)
        what = f"its element is <{shown('', root[1])}>" if root else "it has no element"
        raise NoGuest(f"XML, but not of a guest: {what}, not <domain>; `virsh dumpxml NAME` prints one")
    end = text.find("</domain>", begin.start())
    if end < 0:
        raise NoGuest("the XML of a guest that is cut off: </domain> is missing")
    body = text[begin.start() : end + len("</domain>")]
    if "<!DOCTYPE" in body or "<!ENTITY" in body:
        raise NoGuest("XML with a document type, which libvirt never writes")
    try:
        return _without_namespaces(ET.fromstring(_with_namespaces(body)))  # no entities, limited in size
    except ET.ParseError as error:
        line = text[: begin.start()].count("\n") + error.position[0]
        raise NoGuest(
            f"line {line}: XML that cannot be read: {error.msg if hasattr(error, 'msg') else error}"
        ) from error


def _with_namespaces(body: str) -> str:
    """The text with every prefix declared that it uses: excerpts in reports have lost the declarations."""
    used = set(re.findall(r"[<\s]/?([A-Za-z][\w.-]*):[A-Za-z]", body)) - {"xmlns", "xml"}
    missing = [prefix for prefix in sorted(used) if f"xmlns:{prefix}=" not in body]
    declared = "".join(f" xmlns:{prefix}='{prefix}'" for prefix in missing)
    return f"<domain{declared}{body[len('<domain') :]}"


def _without_namespaces(root: ET.Element) -> ET.Element:
    for element in root.iter():
        space, is_named, name = element.tag.rpartition("}")
        if is_named:
            parts = [part for part in space.lstrip("{").split("/") if part and not part[:1].isdigit()]
            element.tag = f"{parts[-1] if parts else 'other'}:{name}"
    return root


def _number(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _bytes(element: ET.Element | None) -> int | None:
    if element is None:
        return None
    number, unit = _number(element.text), UNITS.get((element.get("unit") or "KiB").lower())
    return number * unit if number is not None and unit is not None else None


def _memory(domain: ET.Element, remarks: Remarks) -> int:
    whole, current = _bytes(domain.find("memory")), _bytes(domain.find("currentMemory"))
    if whole is None and current is None:
        raise NoGuest("the XML of a guest without its memory: <memory> is missing or no number")
    if current is not None and whole is not None and current < whole:
        remarks.add("currentMemory", f"{current >> 20} of {whole >> 20} MiB", "our guest has that much, and no balloon")
    if domain.find("maxMemory") is not None:
        remarks.add("maxMemory", domain.findtext("maxMemory") or "", "our guest's memory cannot grow")
    return current or whole or 0


def _vcpus(domain: ET.Element, remarks: Remarks) -> int:
    vcpu = domain.find("vcpu")
    most = _number(vcpu.text) if vcpu is not None else 1
    current = _number(vcpu.get("current")) if vcpu is not None else None
    count = current or most
    if not count or count > MOST_VCPUS:
        raise NoGuest(f"<vcpu> must be a number from 1 to {MOST_VCPUS}")
    if vcpu is not None and current and most and current < most:
        remarks.add("vcpu", f"{current} of {most}", "our guest has as many, and none can be added")
    if vcpu is not None and vcpu.get("cpuset"):
        remarks.add("vcpu/cpuset", vcpu.get("cpuset", ""), "vmtax chooses the CPUs; cpu.pinning pins them one to one")
    return count


def _guest_levels(domain: ET.Element, remarks: Remarks) -> Iterator[tuple[str, str]]:
    yield from _cpu(domain.find("cpu"), remarks)
    yield from _memory_backing(domain.find("memoryBacking"), remarks)
    yield from _pinning(domain.find("cputune"), remarks)
    yield from _clock(domain.find("clock"), remarks)


def _cpu(cpu: ET.Element | None, remarks: Remarks) -> Iterator[tuple[str, str]]:
    if cpu is None:
        remarks.add("cpu", "is missing", "QEMU's default qemu64 is measured as model qemu64")
        yield "cpu.model", "qemu64"
        return
    mode, model = cpu.get("mode", "custom"), (cpu.findtext("model") or "").strip()
    if mode in ("host-passthrough", "maximum"):
        yield "cpu.model", "host"
    elif mode == "host-model":
        yield "cpu.model", "host"
        remarks.add("cpu/mode", mode, "the host's own model without what libvirt does not know, measured as `host`")
    elif model:
        yield "cpu.model", model
    else:
        remarks.add("cpu/mode", mode, "names no model: QEMU's default qemu64 is measured")
        yield "cpu.model", "qemu64"
    for feature in cpu.findall("feature"):
        remarks.add("cpu/feature", f"{feature.get('policy', 'require')} {feature.get('name', '')}", "is not translated")
    topology = cpu.find("topology")
    if topology is not None:
        counts = [_number(topology.get(name)) or 1 for name in ("sockets", "cores", "threads")]
        level = topology_level(*counts)
        text = f"{counts[0]} sockets, {counts[1]} cores, {counts[2]} threads"
        if level is None:
            remarks.add("cpu/topology", text, "is measured as one socket with cores")
        else:
            yield "cpu.topology", level
        for name in ("dies", "clusters", "modules"):
            if (_number(topology.get(name)) or 1) > 1:
                remarks.add(f"cpu/topology/{name}", topology.get(name, ""), "is not translated")
    known = ("model", "feature", "topology", "vendor")
    for other in (element for element in cpu if element.tag not in known):
        remarks.add(f"cpu/{other.tag}", _attributes(other), "is not translated")


def _memory_backing(backing: ET.Element | None, remarks: Remarks) -> Iterator[tuple[str, str]]:
    if backing is None:
        return
    huge = backing.find("hugepages")
    if huge is not None:
        pages = [_bytes_of_page(page) for page in huge.findall("page")] or [2 * 2**20]
        level = {2 * 2**20: "2MiB", 2**30: "1GiB"}.get(pages[0] or 0)
        if level:
            yield "memory.backing", level
        else:
            remarks.add("memoryBacking/hugepages", _attributes(huge[0]) if len(huge) else "", "no such pages on x86_64")
        if len(pages) > 1:
            remarks.add("memoryBacking/hugepages", f"{len(pages)} sizes", "the first one is measured")
    source = backing.find("source")
    if source is not None and huge is None:
        if source.get("type") == "memfd":
            yield "memory.backing", "memfd"
        elif source.get("type") != "anonymous":
            remarks.add("memoryBacking/source", source.get("type", ""), "anonymous memory is measured")
    if backing.find("nosharepages") is not None:
        yield "memory.merge", "off"
    for other in backing:
        if other.tag not in ("hugepages", "source", "nosharepages", "access", "allocation"):
            remarks.add(f"memoryBacking/{other.tag}", _attributes(other), "is not translated")


def _bytes_of_page(page: ET.Element) -> int | None:
    size, unit = _number(page.get("size")), UNITS.get((page.get("unit") or "KiB").lower())
    return size * unit if size is not None and unit is not None else None


def _pinning(tune: ET.Element | None, remarks: Remarks) -> Iterator[tuple[str, str]]:
    if tune is None:
        return
    pins = [pin.get("cpuset", "") for pin in tune.findall("vcpupin")]
    if pins:
        if all(pin.strip().isdigit() for pin in pins) and len(set(pins)) == len(pins):
            yield "cpu.pinning", "one-to-one"
            remarks.add("cputune/vcpupin", ", ".join(pins), "vmtax pins to CPUs of its own choice, one to one")
        else:
            remarks.add("cputune/vcpupin", ", ".join(pins), "shared CPUs are not translated")
    for other in (element for element in tune if element.tag != "vcpupin"):
        remarks.add(f"cputune/{other.tag}", other.text or _attributes(other), "is not translated")


def _clock(clock: ET.Element | None, remarks: Remarks) -> Iterator[tuple[str, str]]:
    if clock is None:
        return
    for timer in clock.findall("timer"):
        name, present = timer.get("name", ""), timer.get("present", "")
        if name == "hpet" and present in ("yes", "no"):
            yield "guest.hpet", "on" if present == "yes" else "off"
        elif not (name in ("rtc", "pit") or (name == "kvmclock" and present != "no")):
            remarks.add(f"clock/timer[{name}]", _attributes(timer), "is not translated")


def _disks(domain: ET.Element, remarks: Remarks) -> Iterator[ExistingDisk]:
    scsi = {
        controller.get("index", "0"): controller.get("model", "")
        for controller in domain.findall("devices/controller")
        if controller.get("type") == "scsi"
    }
    orders = {
        disk: _number(boot.get("order"))
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
    scsi: Mapping[str, str],
    path: str,
    where: str,
    remarks: Remarks,
) -> Iterator[tuple[str, str]]:
    said = dict(driver.attrib) if driver is not None else {}
    kind = disk.get("type", "file")
    if kind == "block":
        yield from volume_levels(path).items()
    elif kind != "file":
        remarks.add(where, f"type='{kind}'", "it is measured as a file in --disk-dir")
    form = said.pop("type", "raw" if kind == "block" else "")
    if form in ("raw", "qcow2") and kind != "block":
        yield "disk.format", form
    elif form and form != "raw":
        remarks.add(f"{where}/driver/type", form, "is measured as raw" if kind != "block" else "on a block device: raw")
    yield from _bus(disk, target, scsi, where, remarks)
    cache = said.pop("cache", "default")
    yield "disk.cache", "writeback" if cache == "default" else cache  # QEMU's own default
    yield "disk.aio", said.pop("io", "threads")
    if said.pop("discard", "ignore") == "unmap":
        yield "disk.discard", "unmap"
    zeroes = said.pop("detect_zeroes", "off")
    if zeroes != "off":
        yield "disk.detect_zeroes", zeroes
    if said.pop("iothread", None) is not None or (driver is not None and driver.find("iothreads") is not None):
        yield "disk.iothread", "on"
    queues = said.pop("queues", None)
    if queues is not None:
        yield "disk.queues", queues
    said.pop("name", None)
    for key, value in said.items():
        remarks.add(f"{where}/driver/{key}", value, "is not translated")
    for other in (element for element in disk if element.tag not in NEUTRAL_OF_DISK):
        remarks.add(f"{where}/{other.tag}", _attributes(other), "is not translated")
    backing = disk.find("backingStore")
    if backing is not None and len(backing):
        remarks.add(f"{where}/backingStore", "a chain of files", "is measured as a single file")


def _bus(
    disk: ET.Element, target: ET.Element | None, scsi: Mapping[str, str], where: str, remarks: Remarks
) -> Iterator[tuple[str, str]]:
    bus = (target.get("bus") if target is not None else None) or _bus_by_name(target)
    if bus == "scsi":
        address = disk.find("address")
        model = scsi.get(address.get("controller", "0") if address is not None else "0", "")
        if model not in ("", "virtio-scsi", "virtio-transitional", "virtio-non-transitional"):
            remarks.add(f"{where}/target/bus", f"scsi on {model}", "is measured as virtio-scsi")
        bus = "virtio-scsi"
    if bus in ("virtio", "virtio-scsi", "ide", "sata", "nvme"):
        yield "disk.bus", bus
    else:
        remarks.add(f"{where}/target/bus", bus, "is measured as sata")
        yield "disk.bus", "sata"


def _bus_by_name(target: ET.Element | None) -> str:
    """libvirt's own rule for a disk without a bus: the name of its device tells."""
    name = (target.get("dev") or "") if target is not None else ""
    return {"hd": "ide", "sd": "scsi", "vd": "virtio", "xv": "xen", "ub": "usb", "fd": "fdc"}.get(name[:2], "ide")


def _cards(domain: ET.Element, remarks: Remarks) -> Iterator[ExistingCard]:
    for number, card in enumerate(domain.findall("devices/interface")):
        target = card.find("target")
        name = (target.get("dev") if target is not None else None) or f"card {number + 1}"
        where = f"devices/interface[{name}]"
        yield ExistingCard(name, dict(_card_levels(card, where, remarks)))


def _card_levels(card: ET.Element, where: str, remarks: Remarks) -> Iterator[tuple[str, str]]:
    kind = card.get("type", "")
    model = card.find("model")
    device = model.get("type", "rtl8139") if model is not None else "rtl8139"  # libvirt's default on x86
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
    elif device in ("e1000", "e1000e", "rtl8139"):
        yield "net.path", "rtl8139" if device == "rtl8139" else "e1000e"
        if device == "e1000":
            remarks.add(f"{where}/model", device, "is measured as e1000e")
    else:
        remarks.add(f"{where}/model", device, "is measured as virtio on a tap")
        yield "net.path", "tap"
    if kind in ("vhostuser", "vdpa", "null", "vds", "server", "client", "mcast", "udp", "internal"):
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
    for other in (element for element in card if element.tag not in NEUTRAL_OF_CARD):
        remarks.add(f"{where}/{other.tag}", _attributes(other), "is not translated")


def _rest(domain: ET.Element, remarks: Remarks) -> None:
    """Remarks for everything else that may have an effect, and for what nobody knows."""
    machine = domain.find("os/type")
    kind = machine.get("machine", "") if machine is not None else ""
    if kind and "q35" not in kind:
        remarks.add("os/type/machine", kind, "our guest's machine is q35")
    for name in ("loader", "nvram", "firmware"):
        if domain.find(f"os/{name}") is not None or (name == "firmware" and domain.find("os[@firmware]") is not None):
            remarks.add(f"os/{name}", "", "our guest boots its kernel without firmware")
    for feature in domain.findall("features/*"):
        if feature.tag not in USUAL_FEATURES:
            inner = " ".join(f"{each.tag}={each.get('state', 'on')}" for each in feature)
            remarks.add(f"features/{feature.tag}", inner or _attributes(feature), "is not translated")
    for element in domain:
        if element.tag not in NEUTRAL:
            words = [each.get("value", "") for each in element] if str(element.tag).startswith("qemu:") else []
            words = words or [element.text or "", _attributes(element), *(each.tag for each in element)]
            remarks.add(str(element.tag), " ".join(words), "is not translated")
    for device in domain.findall("devices/*"):
        if device.tag not in NEUTRAL_DEVICES:
            remarks.add(f"devices/{device.tag}", _attributes(device), UNLIKE)
    balloon = domain.find("devices/memballoon")
    if balloon is not None and balloon.get("model", "virtio") != "none":
        remarks.add("devices/memballoon", balloon.get("model", "virtio"), "our guest has no balloon")
    disks = [disk for disk in domain.findall("devices/disk") if disk.get("device", "disk") in ("disk", "lun")]
    if len(disks) > 1:
        remarks.add("devices/disk", f"{len(disks)} disks", "one is measured: --disk NAME chooses it")


def _attributes(element: ET.Element) -> str:
    """Its attributes and text, and those of the elements in it, without secrets."""
    parts = [f"{name}='{shown(name, value)}'" for name, value in element.attrib.items()]
    text = (element.text or "").strip()
    if text:
        parts.append(shown(element.tag, text))
    for child in element:
        inner = _attributes(child)
        parts.append(f"{child.tag}: {inner}" if inner else child.tag)
    return " ".join(parts)
