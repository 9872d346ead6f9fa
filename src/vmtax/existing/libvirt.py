"""Translate libvirt's XML of a domain (https://libvirt.org/formatdomain.html)."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import replace

from vmtax.design.disk import THREADS
from vmtax.existing import enlightenments
from vmtax.existing.arguments import handed_on
from vmtax.existing.guest import (
    CpuShape,
    ExistingCard,
    ExistingDisk,
    ExistingGuest,
    HostPlacement,
    NoGuest,
    Remarks,
    cpus_of,
    shown,
    topology_level,
    volume_levels,
)
from vmtax.existing.libvirt_known import in_words, list_unknown

OTHER_HYPERVISORS = {
    "xen": "Xen",
    "lxc": "LXC",
    "bhyve": "bhyve",
    "vmware": "VMware",
    "vz": "Virtuozzo",
    "hvf": "macOS",
}
COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)  # \Z: else thousands that never end are each read to the end
UNITS = {"b": 1, "bytes": 1, "kb": 10**3, "k": 2**10, "kib": 2**10, "mb": 10**6, "m": 2**20, "mib": 2**20}
UNITS |= {"gb": 10**9, "g": 2**30, "gib": 2**30, "tb": 10**12, "t": 2**40, "tib": 2**40}
LARGEST = 4 * 2**20  # characters of a definition
# Those that a guest of QEMU has anyway.
USUAL_TIMERS = frozenset(
    (
        *((name, present) for name in ("rtc", "pit", "kvmclock") for present in ("", "yes")),
        *(("hypervclock", present) for present in ("", "yes", "no")),  # read as a part of Hyper-V's interface
    )
)
USUAL_DRIVER = frozenset(("name", "error_policy", "rerror_policy"))  # attributes that cost nothing
MOST_VCPUS = 1024


def parse(text: str) -> ExistingGuest:
    """The guest that `virsh dumpxml` describes. Raises NoGuest."""
    text = COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)  # lines keep their numbers
    domain = domain_of(text)
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
    arguments = [
        each.get("value", "") for part in _named(domain, "qemu:commandline") for each in _named(part, "qemu:arg")
    ]
    vcpus = _vcpus(domain, remarks)
    levels = dict(_guest_levels(domain, vcpus, remarks, has_cpu="-cpu" in arguments))
    if arguments:
        levels.update(handed_on(arguments, "qemu:commandline", remarks, levels))
    iothreads = _number(domain.findtext("iothreads")) or len(domain.findall("iothreadids/iothread"))
    disks = tuple(_disks(domain, remarks))
    if iothreads and not any(disk.levels.get("disk.iothread", "off") != "off" for disk in disks):
        remarks.add("iothreads", str(iothreads), "no disk uses one")
    cards = tuple(_cards(domain, remarks))
    guest = ExistingGuest(
        "libvirt",
        " ".join((domain.findtext("name") or "").split()) or "guest",
        vcpus,
        _memory(domain, remarks),
        levels,
        disks,
        cards,
        shape=_shape(domain, vcpus),
        placement=_placement(domain, vcpus),
    )
    _rest(domain, remarks)
    return replace(guest, remarks=remarks.all())


def domain_of(text: str) -> ET.Element:
    """The element `domain`, also within what libvirt stores about a running guest or a snapshot, or in a terminal's
    text.
    """
    if len(text) > LARGEST:
        raise NoGuest(f"more than {LARGEST >> 20} MiB of XML: no definition of a guest is as large")
    begin = re.search(r"<domain[\s>]", text)
    if begin is not None and (capabilities := re.search(r"<((?:domainC|c)apabilities)[\s>]", text[: begin.start()])):
        what = f"its element is <{capabilities[1]}>, what the host can do"
        raise NoGuest(f"XML, but not of a guest: {what}; `virsh dumpxml NAME` prints one")
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


def _named(parent: ET.Element, tag: str) -> list[ET.Element]:
    """The elements of that name in it; `find` takes a colon for a name space."""
    return [element for element in parent if element.tag == tag]


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


def _guest_levels(domain: ET.Element, vcpus: int, remarks: Remarks, *, has_cpu: bool) -> Iterator[tuple[str, str]]:
    """`has_cpu`: whether arguments of QEMU set the CPU in place of the element."""
    if not (has_cpu and domain.find("cpu") is None):
        yield from _cpu(domain.find("cpu"), remarks)
    yield from _topology(domain, vcpus, remarks)
    yield from _memory_backing(domain.find("memoryBacking"), remarks)
    yield from _pinning(domain.find("cputune"), remarks)
    yield from _clock(domain.find("clock"), remarks)
    features, clock = domain.find("features"), domain.find("clock")
    parts = dict(enlightenments.of_domain(features, clock))
    hides_kvm = enlightenments.hides_kvm(features)
    level = enlightenments.level(parts, "features/hyperv", remarks, hides_kvm=hides_kvm)
    if level is not None:
        yield "cpu.hyperv", level


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
    features = (f"{each.get('policy', 'require')} {each.get('name', '')}" for each in cpu.findall("feature"))
    remarks.add_list("cpu/feature", features, "is not translated")


def _topology(domain: ET.Element, vcpus: int, remarks: Remarks) -> Iterator[tuple[str, str]]:
    """A domain that says nothing has a socket for each CPU. Source: libvirt's formatdomain."""
    topology = domain.find("cpu/topology")
    if topology is None:
        if vcpus > 1:
            yield "cpu.topology", "sockets"
        return
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
            size = " ".join(in_words(huge[0])) if len(huge) else ""
            remarks.add("memoryBacking/hugepages", size, "no such pages on x86_64")
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
            remarks.add_list("cputune/vcpupin", pins, "vmtax pins to CPUs of its own choice, one to one")
        else:
            remarks.add_list("cputune/vcpupin", pins, "shared CPUs are not translated")


def _shape(domain: ET.Element, vcpus: int) -> CpuShape:
    """A domain without a topology has a socket for each CPU. Source: libvirt's formatdomain."""
    most = max(vcpus, _number(domain.findtext("vcpu")) or 1)
    topology = domain.find("cpu/topology")
    return CpuShape(most if topology is None else _number(topology.get("sockets")) or 1, most)


def _placement(domain: ET.Element, vcpus: int) -> HostPlacement:
    """Where its CPUs are pinned, or the domain as a whole is, and where its memory is bound."""
    whole, memory = domain.find("vcpu"), domain.find("numatune/memory")
    elements = [element for element in (whole, memory) if element is not None]
    pinned = domain.findall("cputune/vcpupin")
    pins = [pin.get("cpuset", "") for pin in pinned if (_number(pin.get("vcpu")) or 0) < vcpus]
    cpuset = whole.get("cpuset", "") if whole is not None else ""
    if len(pins) < vcpus and cpuset:
        pins.append(cpuset)
    elif len(pins) < vcpus:
        pins = []
    return HostPlacement(
        cpus_of(pins),
        _number(memory.get("nodeset")) if memory is not None else None,
        len(domain.findall("cpu/numa/cell")) > 1 or any(each.get("placement") == "auto" for each in elements),
    )


def _clock(clock: ET.Element | None, remarks: Remarks) -> Iterator[tuple[str, str]]:
    if clock is None:
        return
    for timer in clock.findall("timer"):
        name, present = timer.get("name", ""), timer.get("present", "")
        if name == "hpet" and present in ("yes", "no"):
            yield "guest.hpet", "on" if present == "yes" else "off"
        elif (name, present) not in USUAL_TIMERS:
            remarks.add(f"clock/timer[{name}]", " ".join(in_words(timer)), "is not translated")


def _disks(domain: ET.Element, remarks: Remarks) -> Iterator[ExistingDisk]:
    scsi = {
        controller.get("index", "0"): controller
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


def _cards(domain: ET.Element, remarks: Remarks) -> Iterator[ExistingCard]:
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


def _rest(domain: ET.Element, remarks: Remarks) -> None:
    """Remarks for everything else that may have an effect, and for what nobody knows."""
    machine = domain.find("os/type")
    kind = machine.get("machine", "") if machine is not None else ""
    if kind and "q35" not in kind:
        remarks.add("os/type/machine", kind, "our guest's machine is q35")
    firmware = [name for name in ("loader", "nvram", "firmware") if domain.find(f"os/{name}") is not None]
    if firmware or domain.find("os[@firmware]") is not None:
        where = ", ".join(f"os/{name}" for name in firmware) or "os/firmware"
        remarks.add(where, "", "our guest boots its kernel without firmware")
    balloon = domain.find("devices/memballoon")
    for name in ("autodeflate", "freePageReporting"):
        if balloon is not None and balloon.get(name) == "on":
            remarks.add(f"devices/memballoon/{name}", "on", "our guest has no balloon")
    list_unknown(domain, remarks)
    disks = [disk for disk in domain.findall("devices/disk") if disk.get("device", "disk") in ("disk", "lun")]
    if len(disks) > 1:
        remarks.add("devices/disk", f"{len(disks)} disks", "one is measured: --disk NAME chooses it")
