"""A clone of a domain: the domain that is read, the clone's definition, its consistent point, and what refuses it."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from unittest.mock import MagicMock

import pytest
from typer.testing import CliRunner

from tests.fake_machine import FakeMachine, Reply, Scripted
from tests.sample import sample_experiment
from tests.sample_storage import storage_experiment
from tests.unit.test_attach import UUID, info
from vmtax.analysis.analysis import Analysis
from vmtax.attach.clone.backup import BackupJob, backup_xml
from vmtax.attach.clone.boot import booted
from vmtax.attach.clone.definition import Definition
from vmtax.attach.clone.edit import CloneDisk, CloneParts, Overlay, edited
from vmtax.attach.clone.guests import LinuxGuest
from vmtax.attach.clone.levels import CHANGES, free_name
from vmtax.attach.clone.point import ClonePoint, ServedDisk, opened, refuse
from vmtax.attach.domain import FIND_QEMU, Domain, DomainError, look_up, script
from vmtax.cli.app import app
from vmtax.cli.existing_vm import on_existing
from vmtax.core.errors import BadInput
from vmtax.core.layers import CLONE
from vmtax.core.machines import MachineLost, Outcome
from vmtax.core.records import Treatment
from vmtax.design.factors import FACTORS
from vmtax.existing.advice import change_of_xml
from vmtax.existing.prices import prices
from vmtax.experiment.signatures import Signatures
from vmtax.experiment.trial import TrialKey, run_trials
from vmtax.image.place import Placed
from vmtax.machine.local import LocalMachine
from vmtax.plan.schema import parse
from vmtax.report.sections.prices import section as prices_section
from vmtax.report.wording.guest_settings import guest_settings
from vmtax.testbed.layers.clone import command_line
from vmtax.testbed.session.base import RunningSubject, RunningTreatment
from vmtax.testbed.session.cloning import INSTEAD_OF, ClonedBoot, Cloning, takes
from vmtax.testbed.session.session import ExistingVm
from vmtax.testbed.subjects.existing import refuse_factors
from vmtax.workload import Site
from vmtax.workload.chess import Chess, ChessParameters

DISK = """<disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='writethrough' io='threads' discard='unmap'/>
      <source file='/srv/web1.qcow2'/><target dev='vda' bus='virtio'/><boot order='1'/><serial>old</serial>
      <address type='pci' domain='0x0000' bus='0x03' slot='0x00' function='0x0'/></disk>"""
SCSI_DISK = """<disk type='block' device='disk'><driver name='qemu' type='raw'/><source dev='/dev/vg/web1'/>
      <target dev='sda' bus='scsi'/><address type='drive' controller='0' bus='0' target='0' unit='0'/></disk>
    <controller type='scsi' index='0' model='virtio-scsi'><driver iothread='1'/>
      <address type='pci' domain='0x0000' bus='0x02' slot='0x00' function='0x0'/></controller>"""
XML = """<domain type='{kind}'>
  <name>web1</name><uuid>8662b4e3-a27d-41ac-868a-c680d4d26354</uuid><title>shop</title>
  <memory unit='KiB'>1048576</memory><vcpu>2</vcpu>{more}
  <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type>{boot}</os>
  <cpu mode='host-model'/>
  <devices>
    {disk}
    <disk type='file' device='cdrom'><target dev='sdb' bus='sata'/></disk>
    <controller type='pci' index='0' model='pcie-root'/><controller type='pci' index='4' model='pcie-root-port'/>
    <interface type='bridge'><mac address='52:54:00:aa:00:01'/></interface>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
    <serial type='file'><source path='/var/log/web1'/></serial>
    <graphics type='vnc'/><video><model type='qxl'/></video>{devices}
  </devices>
</domain>
"""
PARTS = CloneParts(
    name="copy",
    uuid="9c7aacbd-c8d8-4ef5-a7fe-150f667d0be5",
    overlays={
        "vda": Overlay("/var/tmp/o/vda", "point", "/var/tmp/o/s"),
        "sda": Overlay("/var/tmp/o/sda", "sda", "/var/tmp/o/s"),
    },
    copies={"/boot/vmlinuz": "/var/tmp/o/file0", "/nvram/web1.fd": "/var/tmp/o/file1"},
    image="/var/tmp/o/image",
    image_serial="vmtax-1-image",
    port="vmtax-1-port",
    console="/var/tmp/o/console",
    data=CloneDisk("/var/tmp/d/data.raw"),
    data_serial="vmtax-1-data",
)


def xml(disk: str = DISK, *, kind: str = "kvm", more: str = "", boot: str = "", devices: str = "") -> str:
    return XML.format(disk=disk, kind=kind, more=more, boot=boot, devices=devices)


def clone_of(text: str, **levels: str) -> ET.Element:
    named = {name.replace("__", "."): level for name, level in levels.items()}
    return ET.fromstring(edited(Definition.of(text, "web1"), PARTS, named))


def data_of(clone: ET.Element) -> ET.Element:
    return next(disk for disk in clone.findall("devices/disk") if disk.findtext("serial") == PARTS.data_serial)


def test_a_clone_has_nothing_by_which_it_meets_its_original() -> None:
    clone = clone_of(xml(boot="<kernel>/boot/vmlinuz</kernel>", more="<seclabel type='dynamic'/><genid>1</genid>"))
    assert (clone.findtext("name"), clone.findtext("uuid")) == (PARTS.name, PARTS.uuid)
    assert clone.findtext("os/kernel") == "/var/tmp/o/file0"
    text = ET.tostring(clone, encoding="unicode")
    for theirs in ("52:54:00", "interface", "graphics", "/var/log/web1", "/srv/", "seclabel type", "genid", "shop"):
        assert theirs not in text, theirs
    assert {each.get("device") for each in clone.findall("devices/disk")} == {"disk"}, "no drives for media"
    names = [each.get("name") for each in clone.findall("devices/channel/target")]
    assert names == ["org.qemu.guest_agent.0", PARTS.port]


def test_its_own_disk_is_an_overlay_in_the_same_place() -> None:
    own = clone_of(xml()).findall("devices/disk")[0]
    assert ET.tostring(own.find("target"), encoding="unicode").strip() == '<target dev="vda" bus="virtio" />'
    assert own.find("source").get("file") == "/var/tmp/o/vda" and own.find("driver").get("type") == "qcow2"  # type: ignore[union-attr]
    assert own.find("backingStore/source/host").get("socket") == "/var/tmp/o/s"  # type: ignore[union-attr]
    assert own.find("address").get("bus") == "0x03"  # type: ignore[union-attr]
    assert own.find("boot") is not None and own.find("driver").get("cache") is None  # type: ignore[union-attr]


def test_the_disk_under_test_is_like_the_first_one_and_comes_behind_all_others() -> None:
    clone = clone_of(xml(DISK.replace("<boot", "<iotune><total_iops_sec>9</total_iops_sec></iotune><boot")))
    data = data_of(clone)
    attributes = {"name": "qemu", "type": "raw", "cache": "writethrough", "io": "threads", "discard": "unmap"}
    assert data.find("driver").attrib == attributes  # type: ignore[union-attr]
    assert data.find("boot") is None and data.findtext("iotune/total_iops_sec") == "9"
    buses = [int(each.get("bus", ""), 16) for each in clone.findall("devices/disk/address")]
    assert buses == sorted(buses) and buses[0] == 3 and buses[1] > 4, "a guest may boot from its disk by number"
    old = clone_of(xml().replace("pcie-root'/>", "pci-root'/>").replace("pcie-root-port", "pci-bridge"))
    slots = [(each.get("bus"), int(each.get("slot", ""), 16)) for each in old.findall("devices/disk/address")]
    assert slots[1:] == [("0x00", 0x1E), ("0x00", 0x1F)]


# Path below the disk under test ("data:") or the clone; an attribute, or "text" -> what it must be; None: nothing there
@pytest.mark.parametrize(
    ("disk", "levels", "where", "attribute", "value"),
    [
        (DISK, {"disk__cache": "none"}, "data:driver", "cache", "none"),
        (DISK, {"disk__aio": "io_uring"}, "data:driver", "io", "io_uring"),
        (DISK, {"disk__discard": "ignore"}, "data:driver", "discard", "ignore"),
        (DISK, {"disk__detect_zeroes": "unmap"}, "data:driver", "detect_zeroes", "unmap"),
        (DISK, {"disk__queues": "4"}, "data:driver", "queues", "4"),
        (DISK, {"disk__queues": "auto"}, "data:driver", "queues", None),
        (DISK, {"disk__iothread": "on"}, "data:driver", "iothread", "1"),
        (DISK, {"disk__iothread": "on"}, "iothreads", "text", "1"),
        (SCSI_DISK, {"disk__iothread": "off"}, "data:driver", "iothread", None),
        (DISK, {"disk__bus": "sata"}, "data:target", "bus", "sata"),
        (DISK, {"disk__bus": "sata"}, "data:driver", "queues", None),
        (DISK, {"disk__bus": "virtio-scsi"}, "data:target", "bus", "scsi"),
        (DISK, {"disk__bus": "virtio-scsi"}, "data:address", "controller", "0"),
        (
            DISK,
            {"disk__bus": "virtio-scsi", "disk__iothread": "on"},
            "devices/controller[@type='scsi']/driver",
            "iothread",
            "1",
        ),
        (
            DISK,
            {"disk__bus": "virtio-scsi", "disk__queues": "2"},
            "devices/controller[@type='scsi']/driver",
            "queues",
            "2",
        ),
        (SCSI_DISK, {}, "devices/controller[@type='scsi'][@index='1']/driver", "iothread", "1"),
        (SCSI_DISK, {"disk__iothread": "off"}, "devices/controller[@index='1']/driver", "iothread", None),
        (SCSI_DISK, {"disk__bus": "virtio"}, "devices/controller[@type='scsi'][@index='1']", "index", None),
        (SCSI_DISK, {"disk__bus": "virtio"}, "data:driver", "iothread", "1"),
        (DISK, {"memory__backing": "2MiB"}, "memoryBacking/hugepages/page", "size", "2048"),
        (DISK, {"memory__backing": "1GiB"}, "memoryBacking/hugepages/page", "size", "1048576"),
        (DISK, {"memory__backing": "memfd"}, "memoryBacking/source", "type", "memfd"),
        (DISK, {"memory__merge": "off"}, "memoryBacking/nosharepages", "text", None),
        (DISK, {"cpu__model": "host"}, "cpu", "mode", "host-passthrough"),
        (DISK, {"cpu__model": "Nehalem"}, "cpu/model", "text", "Nehalem"),
        (DISK, {"cpu__topology": "sockets"}, "cpu/topology", "sockets", "2"),
        (DISK, {"cpu__topology": "threads"}, "cpu/topology", "threads", "2"),
    ],
)
def test_a_level_is_written_into_the_definition(
    disk: str, levels: dict[str, str], where: str, attribute: str, value: str | None
) -> None:
    clone = clone_of(xml(disk), **levels)
    root = data_of(clone) if where.startswith("data:") else clone
    found = root.find(where.removeprefix("data:"))
    got = None if found is None else found.text if attribute == "text" else found.get(attribute)
    assert got == value


def test_pages_that_the_domain_has_are_taken_from_it_and_an_emulated_one_gets_the_largest_cpu() -> None:
    large = xml(more="<memoryBacking><hugepages/><locked/><nosharepages/></memoryBacking>")
    clone = clone_of(large, memory__backing="thp", memory__merge="on")
    assert [each.tag for each in clone.find("memoryBacking") or ()] == ["locked"]
    assert clone_of(xml(kind="qemu"), cpu__model="host").find("cpu").get("mode") == "maximum"  # type: ignore[union-attr]


def test_iothreads_of_other_disks_stay_theirs() -> None:
    more = "<iothreads>2</iothreads><iothreadids><iothread id='1'/><iothread id='3'/></iothreadids>"
    clone = clone_of(xml(more=more), disk__iothread="on")
    assert data_of(clone).find("driver").get("iothread") == "2" and clone.findtext("iothreads") == "3"  # type: ignore[union-attr]


def test_every_factor_of_a_clone_can_be_written_and_nothing_else_is_taken() -> None:
    named = {name for name, factor in FACTORS.items() if CLONE in factor.layers and takes(name)}
    assert {*CHANGES} <= named
    for name in CHANGES:
        for level in FACTORS[name].levels:
            if (name, level) not in INSTEAD_OF:
                clone_of(xml(), **{name.replace(".", "__"): level})
    others = {name for name, factor in FACTORS.items() if CLONE in factor.layers and not takes(name)}
    assert others == {"guest.vcpus", "guest.memory", "guest.count", "host.kernel_arguments"} & others, others


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (xml(devices="<hostdev mode='subsystem' type='pci'/>"), "passed through (hostdev)"),
        (xml(DISK.replace("device='disk'", "device='lun'")), "passed-through device (lun)"),
        (xml(DISK.replace("<boot", "<encryption format='luks'/><boot")), "vda is encrypted"),
        (
            xml("<disk type='network' device='disk'><source protocol='rbd' name='p/i'/><target dev='vda'/></disk>"),
            "Ceph",
        ),
        (xml("<disk type='network' device='disk'><source protocol='iscsi'/><target dev='vda'/></disk>"), "on iSCSI"),
        (
            xml("<disk type='volume' device='disk'><source pool='a'/><target dev='vda'/></disk>"),
            "vda is on a volume of a pool",
        ),
        (xml(DISK.replace("<boot", "<mirror type='file'/><boot")), "virsh blockjob"),
        (xml(DISK.replace("<boot", "<shareable/><boot")), "shared with other VMs"),
        (xml(DISK.replace("qcow2' cache", "luks' cache")), "the format luks"),
        (xml(""), "has no disk"),
        (xml("<disk type='file' device='disk'><target dev='vda'/></disk>"), "vda has no file"),
        (xml(boot="<loader type='pflash'>/usr/share/OVMF/OVMF_CODE.fd</loader>"), "UEFI"),
        (xml().replace("<os>", "<os firmware='efi'>"), "UEFI"),
        (xml(more="<launchSecurity type='sev'/>"), "launchSecurity"),
        ("<domain type='kvm'>", "cannot be read"),
        ("<network/>", "not of a domain"),
        ("<!DOCTYPE x [<!ENTITY a 'b'>]><domain/>", "no XML that libvirt writes"),
    ],
)
def test_a_domain_that_cannot_be_cloned_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(DomainError) as refused:
        Definition.of(text, "libvirt:web1")
    assert words in str(refused.value) and str(refused.value).startswith("libvirt:web1: ")
    assert "\n" not in str(refused.value)


def test_what_is_left_out_or_copied_is_known() -> None:
    boot = "<loader type='pflash'>/c.fd</loader><nvram template='/t.fd'>/nvram/web1.fd</nvram>"
    known = Definition.of(xml(boot=boot, devices="<tpm model='tpm-crb'/><filesystem/>", kind="qemu"), "web1")
    assert known.files == ("/nvram/web1.fd",) and known.is_emulated
    assert [each.split(",")[0] for each in known.left_out] == [
        *("its network", "its TPM", "its shared directories", "its drives for media")
    ]
    variables = ET.fromstring(edited(known, PARTS, {})).find("os/nvram")
    assert variables is not None and variables.text == "/var/tmp/o/file1" and not variables.attrib


ROOMY = "      Avail\n99999999999\n"


def host(**answers: Scripted) -> FakeMachine:
    """A host whose virsh answers so; web1 runs by default."""
    script: dict[str, Scripted] = {
        "uri": "qemu:///system\n",
        "dominfo": info(),
        "domjobinfo": "Job type:         None\n",
        "dumpxml": xml(),
        "domfsinfo": " /  vda  ext4  vda\n",
        "domblkinfo": "Capacity:       2147483648\nAllocation:     1\nPhysical:       1\n",
        "domstate": "running\n",
        "backup-dumpxml": "",
        "blockjob": "",
        "guestinfo": "os.id               : debian\n",
    }
    df, free = answers.pop("df", ROOMY), answers.pop("other", "")
    script |= {verb.replace("_", "-"): said for verb, said in answers.items()}
    asked = {(lambda argv, verb=verb: "virsh" in argv and verb in argv[4:8]): said for verb, said in script.items()}
    others = ("sh", "tee", "mkdir", "chown", "chmod", "test", "stat", "sha256sum", "qemu-img", "ln", "cp", "tail")
    return FakeMachine(
        "host",
        {**asked, (lambda argv: argv[0] == "df"): df, (lambda argv: argv[0] in others): free},
    )


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"dominfo": info("paused")}, "is paused"),
        ({"dominfo": info("in shutdown")}, "is being shut down"),
        ({"dominfo": info("crashed")}, "has crashed: virsh start web1"),
        ({"dominfo": info("pmsuspended")}, "is suspended: virsh dompmwakeup web1; or shut it down"),
        ({"uri": "qemu:///session\n"}, "qemu:///session is a user's own"),
        ({"uri": "qemu+unix:///session?socket=/run/user/1000/libvirt/libvirt-sock\n"}, "is a user's own"),
        ({"domjobinfo": "Job type:         Unbounded\n"}, "a job runs on it (Unbounded), such as a backup"),
        ({"domfsinfo": Reply(stderr="error: command guest-get-fsinfo has been disabled", code=1)}, "they are frozen"),
        ({"domfsinfo": Reply(stderr="error: QEMU guest agent is not connected", code=1)}, "or shut the VM down"),
        (
            {"df": "      Avail\n3000000000\n"},
            "has 2.8 GiB free, and 4.0 GiB may be needed, because what it overwrites",
        ),
        ({"dumpxml": Reply(stderr="error: failed to get domain", code=1)}, "failed to get domain"),
    ],
)
def test_a_state_in_which_nothing_can_be_cloned_is_refused_in_one_line(
    answers: dict[str, Scripted], words: str
) -> None:
    machine = host(**answers)
    domain, state = look_up(machine, "web1")
    with pytest.raises(DomainError) as refused:
        refuse(domain, state, PurePosixPath("/var/tmp"))
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_a_domain_that_is_off_needs_no_agent_and_room_for_an_overlay_only() -> None:
    machine = host(dominfo=info("shut off"), domfsinfo=Reply(code=1), df="      Avail\n3000000000\n")
    refuse(*look_up(machine, "web1"), PurePosixPath("/var/tmp"))
    asked = [argv for argv in machine.calls if "dumpxml" in argv]
    assert "--inactive" in asked[-1]
    with pytest.raises(DomainError, match=r"2.0 GiB may be needed: name another"):
        refuse(*look_up(host(dominfo=info("shut off"), df=" Avail\n3000\n"), "web1"), PurePosixPath("/var/tmp"))


def test_the_thaw_and_the_end_of_the_job_are_listed_before_anything_is_frozen() -> None:
    socket = "/var/tmp/vmtax-1-clone/job/vmtax-1-clone"
    machine = host(backup_dumpxml=f"<server socket='{socket}'/>")
    local = MagicMock()
    local.fresh_name.return_value = "vmtax-1-clone"
    domain, state = look_up(machine, "web1")
    listed: list[str] = []
    undo_later, remove_later, try_run = machine.undo_later, machine.remove_later, machine.try_run

    def list_undo(*argv: str, lasting: bool = False) -> object:
        listed.append(argv[3])
        return undo_later(*argv, lasting=lasting)

    def list_removal(path: PurePosixPath) -> object:
        listed.append(str(path))
        return remove_later(path)

    def run(*argv: str, **how: object) -> object:
        if argv[3:4] == ("vmtax-freeze",):
            listed.append("freeze")
        return try_run(*argv, **how)  # type: ignore[arg-type]

    machine.undo_later, machine.remove_later, machine.try_run = list_undo, list_removal, run  # type: ignore[method-assign,assignment]
    point = opened(domain, refuse(domain, state, PurePosixPath("/var/tmp")), state, PurePosixPath("/var/tmp"), local)
    assert listed[-4:] == [socket, "vmtax-end", "vmtax-thaw", "freeze"], "it is removed once the job has ended"
    assert point.exports == {"vda": ServedDisk("vda", socket, 2**31)}
    assert len(point.undoings) == 3, "the thaw is undone at once: later it would be somebody else's"


def test_a_connection_that_may_only_read_makes_no_point_and_is_thawed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = "error: operation forbidden: read only access prevents virDomainFSFreeze"
    machine = host(backup_dumpxml=Reply(stderr="error: no domain backup job", code=1))
    local = MagicMock()
    local.fresh_name.return_value = "vmtax-1-clone"
    domain, state = look_up(machine, "web1")
    definition, asked = refuse(domain, state, PurePosixPath("/var/tmp")), machine.try_run
    refused = Outcome("host", ("sh",), 1, "", words, 0.1)
    monkeypatch.setattr(
        machine, "try_run", lambda *argv, **how: refused if "vmtax-freeze" in argv else asked(*argv, **how)
    )
    with pytest.raises(DomainError, match=r"no consistent point of it: .* run as root on that host"):
        opened(domain, definition, state, PurePosixPath("/var/tmp"), local)
    assert any("vmtax-thaw" in what for what in machine.undone)


def test_an_image_that_cannot_be_served_is_said_before_a_clone_is_made_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "qemu-nbd: Failed to blk_new_open '...': Image is not in qcow2 format"
    machine = host(dominfo=info("shut off"), domstate="shut off\n", other="99999999999 bytes, now\n")
    answer = machine._answer
    says = {"qemu-nbd": Reply(stderr=words, code=1), "qemu-img": Reply(stderr="Connection refused", code=1)}
    chain = Reply('[{"filename": "/srv/web1.qcow2"}, {"filename": "/srv/base.img"}, {"filename": "nbd://a/b"}]')

    seen: list[Sequence[str]] = []

    def said(argv: Sequence[str]) -> Reply:
        seen.append(argv)
        return chain if "--backing-chain" in argv else says.get(argv[0]) or answer(argv)

    monkeypatch.setattr(machine, "_answer", said)
    local = MagicMock()
    local.fresh_name.return_value = "vmtax-1-clone"
    domain, state = look_up(machine, "web1")
    definition = refuse(domain, state, PurePosixPath("/var/tmp"))
    with pytest.raises(DomainError, match=r"qemu-nbd does not serve its disk vda: .* not in qcow2 format"):
        opened(domain, definition, state, PurePosixPath("/var/tmp"), local)
    served = next(argv for argv in seen if argv[0] == "qemu-nbd")[-1]
    assert served.endswith("file.filename=/srv/web1.qcow2,file.locking=off,backing.file.locking=off"), (
        "its owner can merge it into the file that it stands on; NBD has no locks"
    )
    assert any(argv[0] == "stat" and argv[-1] == "/srv/base.img" for argv in seen), "whether that changes"
    chain = Reply(stderr="qemu-img: Could not open '/srv/base.img': No such file or directory", code=1)
    with pytest.raises(DomainError, match=r"its disk vda cannot be read: .*base.img': No such file"):
        opened(domain, definition, state, PurePosixPath("/var/tmp"), local)


def test_a_point_is_void_once_the_owner_does_something_with_the_domain() -> None:
    def point(machine: FakeMachine, *, is_off: bool) -> ClonePoint:
        known = Definition.of(xml(), "web1")
        domain = Domain(machine, "web1", UUID, "qemu:///system", 2, 2**30)
        disks = {"/srv/web1.qcow2": "9 bytes, now, sha256 1"} if is_off else {}
        return ClonePoint(domain, known, PurePosixPath("/var/tmp/p"), is_off, disks=disks, mark="vmtax-1-nbd")

    off = {"domstate": "shut off\n", "other": "9 bytes, now"}
    assert point(host(**off), is_off=True).why_void() == ""
    assert "was started while it was cloned" in point(host(**off | {"domstate": "running\n"}), is_off=True).why_void()
    assert "was written while it was" in point(host(**off | {"other": "9 bytes, later"}), is_off=True).why_void()
    socket = "/var/lib/libvirt/qemu/domain-3-Bob&apos;s/vmtax-1-nbd"
    job = {"backup_dumpxml": f"<server transport='unix' socket='{socket}'/>"}
    assert point(host(**job), is_off=False).why_void() == ""
    assert "was stopped while it was cloned" in point(host(backup_dumpxml=""), is_off=False).why_void()
    gone = host(domstate=Reply(stderr="error: failed to get domain", code=1))
    assert "cannot be asked any more" in point(gone, is_off=False).why_void()


def test_a_trial_on_a_void_point_does_not_count() -> None:
    machine = FakeMachine("host/clone", {(lambda argv: True): "Nodes searched  : 100\nNodes/second    : 50\n"})
    boot = ClonedBoot(None, lambda: "libvirt:web1 was started", "tcg", (), 1.0, UUID)
    subject = RunningSubject(Site(machine, CLONE, 1, ()), offers=(boot,), path="host/clone")  # type: ignore[arg-type]
    running = RunningTreatment((subject,), machine, meters=())
    workload = Chess(ChessParameters())
    (trial,) = run_trials(TrialKey(1, 1, "clone"), running, workload, "", Signatures(), iteration=1)
    assert trial.status == "failed" and not trial.measurements


def test_a_run_whose_point_is_void_ends_with_the_reason() -> None:
    point = MagicMock(**{"why_void.return_value": "libvirt:web1 was started"})
    cloning = Cloning(MagicMock(), "shut off", PurePosixPath("/"), Definition.of(xml(), "web1"), [point])
    with pytest.raises(MachineLost, match="was started"):
        cloning.check()
    point.why_void.return_value = ""
    cloning.check()


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (
            {"create": Reply(stderr="error: internal error: no such CPU", code=1)},
            "a clone of libvirt:web1: internal error",
        ),
        (
            {"qemu_agent_command": Reply(code=1, seconds=400)},
            "had no guest agent that answered within 300 s: qemu-guest",
        ),
        (
            {"qemu_agent_command": Reply(code=1), "domstate": Reply(code=1)},
            "ended by itself; its console said: a | b | c",
        ),
    ],
)
def test_a_clone_that_does_not_come_up_is_undone_at_once(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, Scripted], words: str
) -> None:
    machine = host(**{"create": "", "other": "x\na\nb\nc\n", **answers})
    monkeypatch.setattr(
        "vmtax.attach.clone.boot.time", MagicMock(monotonic=machine.clock.time, sleep=machine.clock.sleep)
    )
    domain = Domain(machine, "web1", UUID, "qemu:///system", 2, 2**30)
    point = ClonePoint(domain, Definition.of(xml(), "web1"), PurePosixPath("/var/tmp/p"), is_off=True)
    point.exports["vda"] = ServedDisk("point", "/var/tmp/p/nbd-vda", 2**31)
    local = MagicMock()
    local.fresh_name.return_value = "vmtax-1-clone-2"
    with (
        pytest.raises(DomainError) as refused,
        booted(point, "host/clone", local, LinuxGuest(Placed("/root", "/k", "/i")), {}, None),
    ):
        pass
    assert words in str(refused.value)
    created = next(number for number, argv in enumerate(machine.calls) if "create" in argv and "virsh" in argv)
    assert not machine.undo_list, "nothing of it is left"
    assert [str(each) for each in machine.undone if isinstance(each, PurePosixPath)] == [
        *("/var/tmp/p/vmtax-1-clone-2", "/var/log/libvirt/qemu/vmtax-1-clone-2.log")
    ]
    assert "vmtax-destroy" in machine.undone[0] and created, "it ends before its files are removed"
    made = next(argv for argv in machine.calls if argv[:2] == ("qemu-img", "create"))
    assert made[-3:-1] == ("nbd+unix:///point?socket=/var/tmp/p/nbd-vda", "/var/tmp/p/vmtax-1-clone-2/vda")


def test_the_command_line_of_a_qemu_is_read_where_it_runs() -> None:
    machine = LocalMachine()
    sleeper = machine.start("sleep", "30", "0")
    try:
        while command_line(machine, sleeper.pid)[:1] != ("sleep",):  # what starts it becomes it
            assert sleeper.poll() is None
        assert command_line(machine, sleeper.pid) == ("sleep", "30", "0")
        assert command_line(machine, None) == () and command_line(machine, 2**22) == ()
    finally:
        sleeper.stop()
        machine.close()


OF_QEMU = "/var/lib/libvirt/qemu/domain-12-web1"


@pytest.mark.parametrize(
    ("pids", "words", "socket"),
    [
        ("7\n", f'json:{{"file":"{OF_QEMU}/master-key.aes"}}', OF_QEMU),
        ("7\n", f"secret,format=raw,file={OF_QEMU}/master-key.aes", OF_QEMU),
        ("7\n", "-name guest=web1", "/var/tmp/p/job"),
        ("7\n", f"file=/{'ä' * 50}/master-key.aes", "/var/tmp/p/job"),  # too long for a socket
        ("7\n", "file=/srv/a,,b/master-key.aes", "/var/tmp/p/job"),
        ("", "", "/var/tmp/p/job"),
        ("7\n8\n", "", "/var/tmp/p/job"),
    ],
)
def test_a_qemu_that_apparmor_confines_makes_the_socket_where_libvirt_lets_it(
    pids: str, words: str, socket: str
) -> None:
    """The profile of Debian's and Ubuntu's libvirt forbade it elsewhere: no VM that runs was cloned there."""
    machine = FakeMachine("host", {(*FIND_QEMU, UUID): pids, ("cat", "/proc/7/cmdline"): words.replace(" ", "\0")})
    domain = Domain(machine, "web1", UUID, "qemu:///system", 2, 2**30)
    job = BackupJob.of(domain, PurePosixPath("/var/tmp/p"), "vmtax-1-nbd")
    assert job.socket == f"{socket}/vmtax-1-nbd" and job.mark == "vmtax-1-nbd"
    assert job.qemu == ("7" if pids == "7\n" else "")


def test_the_job_serves_every_disk_and_no_drive() -> None:
    job = ET.fromstring(backup_xml(Definition.of(xml(), "web1"), PurePosixPath("/var/tmp/a&b"), "/var/tmp/a&b/nbd"))
    assert job.get("mode") == "pull" and [each.get("name") for each in job.iter("disk")] == ["vda"]
    assert job.find("server").get("socket") == "/var/tmp/a&b/nbd"  # type: ignore[union-attr]


STUB = """#!/bin/sh
echo "$*" >> "$0.log"
case "$*" in
    *domfsthaw*) [ ! -e "$0.thaw" ] || { cat "$0.thaw" >&2; exit 1; } ;;
    *domfsfreeze*) [ ! -e "$0.freeze" ] || { cat "$0.freeze" >&2; exit 1; } ;;
    *backup-begin*) [ ! -e "$0.begin" ] || { cat "$0.begin" >&2; exit 1; } ;;
    *backup-dumpxml*) if [ ! -e "$0.ended" ] && [ -e "$0.job" ]; then cat "$0.job"
        else echo "error: $(cat "$0.none")" >&2; exit 1; fi ;;
    *domjobabort*|*destroy*) touch "$0.ended" ;;
    *domstate*) [ ! -e "$0.ended" ] && echo running || { echo "error: failed to get domain 'x'" >&2; exit 1; } ;;
esac
"""
NONE = "Domain backup job id not found: no domain backup job present"


def run_script(name: str, directory: Path, *arguments: str, **says: str) -> tuple[int, str]:
    """Exit code of a script, and the verbs that virsh was asked."""
    stub = directory / "virsh"
    stub.write_text(STUB)
    stub.chmod(0o755)
    for what, text in {"none": NONE, **says}.items():
        (directory / f"virsh.{what}").write_text(text)
    environment = {"PATH": f"{directory}:/usr/bin:/bin"}
    done = subprocess.run(
        [*script(f"clone/{name}"), "qemu:///system", "u", *arguments], env=environment, capture_output=True
    )
    verbs = [line.split()[3] for line in (directory / "virsh.log").read_text().splitlines()]
    return done.returncode, " ".join(verbs)


@pytest.mark.parametrize(
    ("name", "arguments", "says", "code", "verbs"),
    [
        ("freeze", ("job.xml",), {}, 0, "domfsfreeze backup-begin domfsthaw"),
        ("freeze", ("job.xml",), {"begin": "error: no"}, 1, "domfsfreeze backup-begin domfsthaw"),
        ("freeze", ("job.xml",), {"freeze": "error: no"}, 1, "domfsfreeze domfsthaw"),
        ("thaw", ("web1",), {}, 0, "domfsthaw"),
        ("thaw", ("web1",), {"thaw": "error: failed to get domain 'u'"}, 0, "domfsthaw"),
        ("thaw", ("web1",), {"thaw": "error: Requested operation is not valid: domain is not running"}, 0, "domfsthaw"),
        (
            "end",
            ("vmtax-1-nbd", "web1"),
            {"job": "socket='/s/Bob&apos;s/vmtax-1-nbd'"},
            0,
            "backup-dumpxml backup-dumpxml domjobabort backup-dumpxml backup-dumpxml",
        ),
        ("end", ("vmtax-1-nbd", "web1"), {"job": "socket='/another'"}, 0, "backup-dumpxml"),
        ("end", ("vmtax-1-nbd", "web1"), {}, 0, "backup-dumpxml"),
        ("end", ("vmtax-1-nbd", "web1"), {"none": "failed to get domain 'u'"}, 0, "backup-dumpxml"),
        ("end", ("vmtax-1-nbd", "web1"), {"none": "failed to connect to the hypervisor"}, 1, "backup-dumpxml"),
        ("destroy", (), {}, 0, "domstate destroy domstate"),
        ("destroy", (), {"ended": ""}, 0, "domstate"),
    ],
)
@pytest.mark.varied(6)
def test_what_undoes_a_point_and_a_clone_can_be_done_at_any_time(
    tmp_path: Path, name: str, arguments: tuple[str, ...], says: dict[str, str], code: int, verbs: str
) -> None:
    assert run_script(name, tmp_path, *arguments, **says) == (code, verbs)


PLAN = "{{name: x, layers: [host, vm], factors: {{{}}}, workloads: [chess, disk, net]}}"


def test_a_plan_of_a_vm_is_measured_in_its_clone_with_the_same_factors() -> None:
    plan = on_existing(parse(PLAN.format("disk.cache: [writethrough, none], cpu.model: [host, Nehalem]")), None, CLONE)
    assert plan.layers == ("host", CLONE) and [each.name for each in plan.workloads] == ["chess", "disk"]
    assert not plan.has_guests, "libvirt boots it, and no QEMU of ours is needed"
    names = [each.name for each in plan.treatments()[0]]
    assert names[:2] == ["host", "clone"] and "clone disk.cache=none" in names and "clone cpu.model=Nehalem" in names
    assert plan.treatments()[0][1].levels == {"disk.cache": "writethrough", "cpu.model": "host"}, (
        "the rest stays its own"
    )
    refuse_factors(plan, ExistingVm("libvirt:web1", clone=True))
    assert plan.entries()[-1].repeats == "clone"
    carded = on_existing(parse(PLAN.format("net.path: [user, vhost], disk.cache: [none]")), None, CLONE)
    assert carded.factors == {"disk.cache": ("none",)}, "a plan that was made from a VM has its card, and a clone none"
    both = on_existing(parse(PLAN.format("disk.format: [raw, qcow2]")), None, CLONE)
    refuse_factors(both, ExistingVm("libvirt:web1", clone=True))
    sizes = on_existing(parse(PLAN.format("guest.vcpus: ['1', '2']")), None, CLONE)
    with pytest.raises(BadInput, match=r"guest.vcpus, in which libvirt:web1 stays as it is"):
        refuse_factors(sizes, ExistingVm("libvirt:web1", clone=True))


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ({"disk.cache": "none", "disk.iothread": "on", "cpu.model": "Nehalem"}, None),
        ({"disk.discard": "ignore", "disk.detect_zeroes": "off"}, None),
        ({"disk.discard": "unmap", "disk.detect_zeroes": "unmap"}, None),
        ({"disk.bus": "nvme"}, "libvirt has no NVMe disk"),
        ({"memory.backing": "4k"}, "libvirt has no word"),
        ({"disk.aio": "native"}, "io=native goes with cache none and directsync, not with writethrough"),
        ({"disk.aio": "native", "disk.cache": "none"}, None),
    ],
)
def test_levels_that_a_clone_cannot_have_are_known_before(levels: dict[str, str], words: str | None) -> None:
    cloning = Cloning(MagicMock(), "shut off", PurePosixPath("/"), Definition.of(xml(), "web1"))
    why = cloning.why_not(levels)
    assert why is None if words is None else words in str(why)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--clone"], "--clone: of which VM is what --guest says"),
        (["--clone", "--guest", "ssh://root@web1"], "only a domain of libvirt is cloned"),
        (["--clone", "--guest", "libvirt:web1", "--layers", "host,existing"], "layer existing: leave out --clone"),
        (["--guest", "libvirt:web1", "--layers", "host,clone"], "layer clone: add --clone"),
        (["--layers", "host,clone"], "layer clone is of a VM of yours: name it with --guest and --clone"),
    ],
)
def test_options_that_do_not_go_together_are_one_line(argv: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["run", "quick", *argv])
    assert done.exit_code != 0 and words in str(done.exception)


def test_each_setting_stands_with_its_price_and_the_change_that_makes_it() -> None:
    sample = sample_experiment()
    names = {"host": "host", "vm": "clone", "nested": "clone disk.cache=writeback"}
    run = replace(
        sample,
        treatments=(
            *(one for one in sample.treatments if one.layer == "host"),
            Treatment("clone", CLONE, {"disk.cache": "none"}),
            Treatment("clone disk.cache=writeback", CLONE, {"disk.cache": "writeback"}),
        ),
        boots=tuple(replace(each, treatment=names[each.treatment]) for each in sample.boots),
        trials=tuple(replace(each, treatment=names[each.treatment]) for each in sample.trials),
        options={"existing": {"name": "libvirt:web1", "clone": True}},
    )
    (found,) = prices(Analysis(run))
    assert (found.factor, found.first, found.level) == ("disk.cache", "none", "writeback")
    assert found.change == "<driver … cache='writeback'/>" and found.costs
    assert {(one.baseline, one.treatment) for one in found.costs} == {("clone", "clone disk.cache=writeback")}
    section = prices_section(Analysis(run))
    assert section is not None and section.blocks[1].lines == ("virsh edit web1   # <driver … cache='writeback'/>",)  # type: ignore[union-attr]
    assert section.blocks[0].text.startswith("disk.cache=writeback in place of none: CPU, chess ")  # type: ignore[union-attr]
    assert prices_section(Analysis(replace(run, trials=()))) is None, "nothing was measured"
    assert prices_section(Analysis(sample)) is None, "it measured no VM of the user's"


def test_the_setting_that_is_shown_to_save_most_stands_first() -> None:
    sample = storage_experiment(rounds=6, emulated=False, host=False, few=True)
    levels = {"disk.format": "raw", "disk.cache": "none", "disk.bus": "virtio", "disk.filesystem": "ext4"}

    def found(first: dict[str, str]) -> list[str]:
        """Factors of the prices, if that was the VM's own configuration."""
        wanted = [first, *({**first, name: level} for name, level in levels.items() if first[name] != level)]
        chosen = [one for each in wanted for one in sample.treatments if each.items() <= one.levels.items()]
        run = replace(sample, treatments=tuple(replace(one, layer=CLONE) for one in chosen))
        return [each.factor for each in prices(Analysis(run))]

    assert found({**levels, "disk.bus": "ide", "disk.cache": "writethrough"}) == ["disk.cache", "disk.bus"]
    assert found({**levels, "disk.format": "qcow2", "disk.cache": "writethrough"}) == ["disk.cache", "disk.format"]


@pytest.mark.parametrize("factor", CHANGES)
def test_every_factor_of_a_clone_has_its_change_in_words(factor: str) -> None:
    for level in FACTORS[factor].levels:
        if (factor, level) not in INSTEAD_OF:
            assert change_of_xml(factor, level), level


def test_the_first_screen_says_of_what_the_clone_was() -> None:
    facts = {"host/clone": {"cpus_online": 2, "memory_bytes": 2**30, "os": None, "kernel_release": "6.1.0-18"}}
    sample = sample_experiment()
    options = {"existing": {"name": "libvirt:web1", "clone": True}}
    run = replace(sample, options=options, facts={**sample.facts, **facts})
    assert guest_settings(Analysis(run)).startswith("Cloned VM: libvirt:web1, 2 CPUs, 1.0 GiB, kernel 6.1.0-18.")


@pytest.mark.parametrize(
    ("names", "bus", "free"),
    [
        (["vda"], "virtio", "vdb"),
        (["hda"], "virtio", "vdb"),  # with an id that libvirt makes of "a" alone
        (["sda", "vdb"], "virtio", "vdc"),
        (["vda"], "ide", "hda"),  # its four places are those of its names
        (["sda", "hda"], "scsi", "sdb"),
    ],
)
def test_a_disk_of_ours_has_a_name_and_an_id_that_none_has(names: list[str], bus: str, free: str) -> None:
    disks = "".join(f"<disk><target dev='{name}'/></disk>" for name in names)
    assert free_name(ET.fromstring(f"<domain><devices>{disks}</devices></domain>"), bus) == free
