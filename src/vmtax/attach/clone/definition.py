"""What of a domain's definition matters for a clone of it. Pure."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vmtax.attach.domain import COPIED, DomainError

LARGEST = 4 * 2**20  # characters of a definition
FORMATS = ("raw", "qcow2", "qed", "vdi", "vmdk", "vpc", "vhdx")  # of images that qemu-nbd serves
STORES = {"rbd": "Ceph", "iscsi": "iSCSI", "iscsi-direct": "iSCSI", "gluster": "Gluster", "nbd": "NBD", "nfs": "NFS"}
KINDS = {"volume": "a volume of a pool of libvirt's", "nvme": "an NVMe disk of its host", "vhostuser": "vhost-user"}
TPM = "its TPM, so that what depends on a key in it does not start"
INSTEAD = "measure it as it runs, without --clone"


@dataclass(frozen=True, slots=True)
class OwnDisk:
    """A disk of the domain's, on its host."""

    target: str  # as libvirt names it: "vda"
    path: str
    format: str
    is_device: bool


@dataclass(frozen=True, slots=True)
class Definition:
    """A domain's definition, of which a clone can be made."""

    text: str  # XML
    disks: tuple[OwnDisk, ...]  # one or more, the one that it boots from first
    is_emulated: bool  # libvirt runs it without KVM
    files: tuple[str, ...]  # of the host that it boots from: kernel, initramfs, UEFI variables
    left_out: tuple[str, ...]  # what the clone has not, in words
    settings: Mapping[str, str]  # of the first disk, as libvirt names them
    has_no_ide: bool = False

    @classmethod
    def of(cls, text: str, name: str) -> Definition:
        """`text`: of `virsh dumpxml`; `name`: the VM, as it was named. Raises DomainError if it cannot be cloned."""
        domain = read(text, name)
        if (why := why_not_cloned(domain)) is not None:
            raise DomainError(f"{name}: {why}")
        disks = tuple(
            OwnDisk(_target(disk), path, _format(disk), is_device=disk.get("type") == "block")
            for disk in _disks(domain)
            if (path := _path(disk)) is not None
        )
        os = ("os/kernel", "os/initrd", "os/dtb", "os/nvram")
        files = tuple(each.text.strip() for tag in os for each in domain.findall(tag) if each.text)
        driver = _disks(domain)[0].find("driver")
        settings = {} if driver is None else {name: driver.attrib[name] for name in COPIED if name in driver.attrib}
        left_out, is_emulated = tuple(_left_out(domain)), domain.get("type") == "qemu"
        return cls(text, disks, is_emulated, files, left_out, settings, has_no_ide(domain))


def read(text: str, name: str) -> ET.Element:
    """The XML of a domain. Raises DomainError."""
    if len(text) > LARGEST or "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise DomainError(f"{name}: its definition is no XML that libvirt writes")
    try:
        domain = ET.fromstring(text)
    except ET.ParseError as error:
        raise DomainError(f"{name}: its definition cannot be read: {error}") from error
    if domain.tag != "domain":
        raise DomainError(f"{name}: its definition is of a {domain.tag[:40]}, not of a domain")
    return domain


def has_no_ide(domain: ET.Element) -> bool:
    """Whether libvirt gives its type of machine no IDE."""
    kind = domain.find("os/type")
    return kind is not None and "q35" in kind.get("machine", "")


def why_not_cloned(domain: ET.Element) -> str | None:
    """Why a domain cannot be cloned, and what to do instead; None if it can."""
    if domain.find("launchSecurity") is not None:
        return f"its memory is encrypted (launchSecurity), and a clone would be another guest: {INSTEAD}"
    if domain.find("devices/hostdev") is not None:
        return f"it has a device of its host passed through (hostdev), which a clone cannot have too: {INSTEAD}"
    if (why := _why_no_variables(domain)) is not None:
        return why
    reasons = (why for disk in _disks(domain) if (why := _why_no_disk(disk)) is not None)
    if (why := next(reasons, None)) is not None:
        return why
    return None if _disks(domain) else "it has no disk that could be cloned"


def _why_no_variables(domain: ET.Element) -> str | None:
    loader, variables = domain.find("os/loader"), domain.find("os/nvram")
    firmware = domain.find("os")
    is_uefi = (loader is not None and loader.get("type") == "pflash") or (
        firmware is not None and firmware.get("firmware") == "efi"
    )
    if not is_uefi:
        return None
    if variables is None or not (variables.text or "").strip():
        return f"it boots by UEFI, and its definition does not say where its variables are (nvram): {INSTEAD}"
    return None


def _why_no_disk(disk: ET.Element) -> str | None:
    target, kind = _target(disk), disk.get("type", "")
    if disk.get("device") == "lun":
        return f"its disk {target} is a passed-through device (lun), which a clone cannot have too: {INSTEAD}"
    if disk.find("encryption") is not None or disk.find("source/encryption") is not None:
        return f"its disk {target} is encrypted by QEMU, and vmtax takes no keys: {INSTEAD}"
    if kind not in ("file", "block"):
        source = disk.find("source")
        protocol = source.get("protocol", "") if source is not None else ""
        where = STORES.get(protocol, protocol) or KINDS.get(kind, kind) or "no file"
        return f"its disk {target} is on {where[:40]}, and only files and block devices are cloned: {INSTEAD}"
    if disk.find("mirror") is not None:
        return f"a job copies its disk {target} (virsh blockjob): wait until it has ended"
    if disk.find("shareable") is not None:
        return f"its disk {target} is shared with other VMs (shareable), so it has no consistent point: {INSTEAD}"
    if (form := _format(disk)) not in FORMATS:
        return f"its disk {target} has the format {form[:40]}, which qemu-nbd is not asked to serve: {INSTEAD}"
    return None if _path(disk) is not None else f"its disk {target} has no file: {INSTEAD}"


def _disks(domain: ET.Element) -> list[ET.Element]:
    """Its disks, without drives for media, the one that it boots from first."""
    found = [disk for disk in domain.findall("devices/disk") if disk.get("device", "disk") in ("disk", "lun")]

    def order(disk: ET.Element) -> int:
        boot = disk.find("boot")
        number = boot.get("order", "") if boot is not None else ""
        return int(number) if re.fullmatch(r"\d{1,4}", number) else 10**4

    return sorted(found, key=order)


def _target(disk: ET.Element) -> str:
    target = disk.find("target")
    name = target.get("dev", "") if target is not None else ""
    return name if re.fullmatch(r"[a-z0-9]{1,16}", name) else "?"


def _format(disk: ET.Element) -> str:
    driver = disk.find("driver")
    return driver.get("type", "raw") if driver is not None else "raw"


def _path(disk: ET.Element) -> str | None:
    source = disk.find("source")
    return None if source is None else source.get("file") or source.get("dev")


def _left_out(domain: ET.Element) -> Iterator[str]:
    words = {
        "devices/interface": "its network",
        "devices/tpm": TPM,
        "devices/filesystem": "its shared directories",
        "devices/vsock": "its vsock",
        "devices/shmem": "its shared memory",
        "devices/redirdev": "its redirected USB devices",
        "{http://libvirt.org/schemas/domain/qemu/1.0}commandline": "arguments that it hands on to QEMU",
    }
    yield from (text for tag, text in words.items() if domain.find(tag) is not None)
    if any(disk.get("device") in ("cdrom", "floppy") for disk in domain.findall("devices/disk")):
        yield "its drives for media"
