"""What libvirt's XML of a domain says of the guest itself: CPUs, memory, clock, and where on its host it is to be."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator

from vmtax.existing import enlightenments
from vmtax.existing.guest import (
    MOST_VCPUS,
    CpuShape,
    HostPlacement,
    NoGuest,
    Remarks,
    cpus_of,
    topology_level,
    whole_of_text,
)
from vmtax.existing.libvirt_known import in_words

UNITS = {"b": 1, "bytes": 1, "kb": 10**3, "k": 2**10, "kib": 2**10, "mb": 10**6, "m": 2**20, "mib": 2**20}
UNITS |= {"gb": 10**9, "g": 2**30, "gib": 2**30, "tb": 10**12, "t": 2**40, "tib": 2**40}
# Those that a guest of QEMU has anyway.
USUAL_TIMERS = frozenset(
    (
        *((name, present) for name in ("rtc", "pit", "kvmclock") for present in ("", "yes")),
        *(("hypervclock", present) for present in ("", "yes", "no")),  # read as a part of Hyper-V's interface
    )
)


def _byte_count(element: ET.Element | None) -> int | None:
    if element is None:
        return None
    number, unit = whole_of_text(element.text), UNITS.get((element.get("unit") or "KiB").lower())
    return number * unit if number is not None and unit is not None else None


def memory_bytes(domain: ET.Element, remarks: Remarks) -> int:
    """Its memory as it is now, in bytes. Raises NoGuest."""
    whole, current = _byte_count(domain.find("memory")), _byte_count(domain.find("currentMemory"))
    if whole is None and current is None:
        raise NoGuest("the XML of a guest without its memory: <memory> is missing or no number")
    if current is not None and whole is not None and current < whole:
        remarks.add("currentMemory", f"{current >> 20} of {whole >> 20} MiB", "our guest has that much, and no balloon")
    if domain.find("maxMemory") is not None:
        remarks.add("maxMemory", domain.findtext("maxMemory") or "", "our guest's memory cannot grow")
    return current or whole or 0


def vcpus_of(domain: ET.Element, remarks: Remarks) -> int:
    """Its CPUs as they are now. Raises NoGuest."""
    vcpu = domain.find("vcpu")
    most = whole_of_text(vcpu.text) if vcpu is not None else 1
    current = whole_of_text(vcpu.get("current")) if vcpu is not None else None
    count = current or most
    if not count or count > MOST_VCPUS:
        raise NoGuest(f"<vcpu> must be a number from 1 to {MOST_VCPUS}")
    if vcpu is not None and current and most and current < most:
        remarks.add("vcpu", f"{current} of {most}", "our guest has as many, and none can be added")
    if vcpu is not None and vcpu.get("cpuset"):
        remarks.add("vcpu/cpuset", vcpu.get("cpuset", ""), "vmtax chooses the CPUs; cpu.pinning pins them one to one")
    return count


def levels_of_guest(domain: ET.Element, vcpus: int, remarks: Remarks, *, has_cpu: bool) -> Iterator[tuple[str, str]]:
    """Factor and level of what is the guest's own. has_cpu: arguments of QEMU set the CPU in place of the element."""
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
    counts = [whole_of_text(topology.get(name)) or 1 for name in ("sockets", "cores", "threads")]
    level = topology_level(*counts)
    text = f"{counts[0]} sockets, {counts[1]} cores, {counts[2]} threads"
    if level is None:
        remarks.add("cpu/topology", text, "is measured as one socket with cores")
    else:
        yield "cpu.topology", level
    for name in ("dies", "clusters", "modules"):
        if (whole_of_text(topology.get(name)) or 1) > 1:
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
    size, unit = whole_of_text(page.get("size")), UNITS.get((page.get("unit") or "KiB").lower())
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


def shape_of(domain: ET.Element, vcpus: int) -> CpuShape:
    """A domain without a topology has a socket for each CPU. Source: libvirt's formatdomain."""
    most = max(vcpus, whole_of_text(domain.findtext("vcpu")) or 1)
    topology = domain.find("cpu/topology")
    return CpuShape(most if topology is None else whole_of_text(topology.get("sockets")) or 1, most)


def placement_of(domain: ET.Element, vcpus: int) -> HostPlacement:
    """Where its CPUs are pinned, or the domain as a whole is, and where its memory is bound."""
    whole, memory = domain.find("vcpu"), domain.find("numatune/memory")
    elements = [element for element in (whole, memory) if element is not None]
    pinned = domain.findall("cputune/vcpupin")
    pins = [pin.get("cpuset", "") for pin in pinned if (whole_of_text(pin.get("vcpu")) or 0) < vcpus]
    cpuset = whole.get("cpuset", "") if whole is not None else ""
    if len(pins) < vcpus and cpuset:
        pins.append(cpuset)
    elif len(pins) < vcpus:
        pins = []
    return HostPlacement(
        cpus_of(pins),
        whole_of_text(memory.get("nodeset")) if memory is not None else None,
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
