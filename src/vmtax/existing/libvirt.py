"""Translate libvirt's XML of a domain (https://libvirt.org/formatdomain.html)."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

from vmtax.existing.arguments import handed_on
from vmtax.existing.guest import ExistingGuest, NoGuest, Remarks, shown, whole_of_text
from vmtax.existing.libvirt_devices import cards_of, disks_of
from vmtax.existing.libvirt_guest import levels_of_guest, memory_bytes, placement_of, shape_of, vcpus_of
from vmtax.existing.libvirt_known import list_unknown

OTHER_HYPERVISORS = {
    "xen": "Xen",
    "lxc": "LXC",
    "bhyve": "bhyve",
    "vmware": "VMware",
    "vz": "Virtuozzo",
    "hvf": "macOS",
}
COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)  # \Z: else thousands that never end are each read to the end
LARGEST = 4 * 2**20  # characters of a definition


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
    vcpus = vcpus_of(domain, remarks)
    levels = dict(levels_of_guest(domain, vcpus, remarks, has_cpu="-cpu" in arguments))
    if arguments:
        levels.update(handed_on(arguments, "qemu:commandline", remarks, levels))
    iothreads = whole_of_text(domain.findtext("iothreads")) or len(domain.findall("iothreadids/iothread"))
    disks = tuple(disks_of(domain, remarks))
    if iothreads and not any(disk.levels.get("disk.iothread", "off") != "off" for disk in disks):
        remarks.add("iothreads", str(iothreads), "no disk uses one")
    cards = tuple(cards_of(domain, remarks))
    guest = ExistingGuest(
        "libvirt",
        " ".join((domain.findtext("name") or "").split()) or "guest",
        vcpus,
        memory_bytes(domain, remarks),
        levels,
        disks,
        cards,
        shape=shape_of(domain, vcpus),
        placement=placement_of(domain, vcpus),
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
