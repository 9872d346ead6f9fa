"""Guests of the user's: what describes them is translated, or it is said what is not, and no secret is printed."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.fake_machine import FakeMachine, Reply
from vmtax.cli import app
from vmtax.existing.advice import advice
from vmtax.existing.guest import HIDDEN, ExistingGuest, NoGuest, shown
from vmtax.existing.pasted import decoded
from vmtax.existing.plan import plan_of, remark_lines
from vmtax.existing.proxmox_storage import storages_of
from vmtax.existing.qemu_words import options_of
from vmtax.existing.source import PARSERS, existing, recognised

XML = """\
<domain type='kvm'>
  <name>web1</name>
  <memory unit='GiB'>4</memory>
  <vcpu>2</vcpu>
  <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os>
  CPU
  <devices>
    DEVICES
    <memballoon model='none'/>
  </devices>
</domain>
"""
DISK = """<disk type='file' device='disk'><driver name='qemu' type='qcow2'DRIVER/><source file='/vm/web1.qcow2'/>
<target dev='vda' bus='virtio'/></disk>"""
HIDES = "<kvm><hidden state='on'/></kvm>"
HYPERVCLOCK = "<clock offset='localtime'><timer name='hypervclock' present='yes'/></clock>"
SHARED = "<blkiotune><weight>800</weight><device><path>/dev/sda</path><weight>900</weight>{}</device></blkiotune>"
CARD = "<interface type='bridge'><source bridge='br0'/><model type='virtio'/></interface>"
CONF = "cores: 4\nmemory: 2048\nmachine: q35\nballoon: 0\nscsihw: virtio-scsi-single\n"
QEMU = "/usr/bin/qemu-system-x86_64 -machine q35 -accel kvm -m 4G -smp 2 "


def xml(devices: str = DISK, cpu: str = "<cpu mode='host-passthrough'/>", driver: str = "") -> str:
    return XML.replace("DEVICES", devices).replace("CPU", cpu).replace("DRIVER", driver)


def dealt(count: int) -> str:
    """The iothreads to which a disk's queues are dealt out."""
    threads = "".join(f"<iothread id='{number}'/>" for number in range(1, count + 1))
    return f"<iothreads>{threads}</iothreads>"


def hyperv(parts: str) -> str:
    return f"<cpu mode='host-passthrough'/><features><hyperv mode='custom'>{parts}</hyperv></features>"


def parsed(text: str) -> ExistingGuest:
    return PARSERS[recognised(text)](text)


def levels(text: str) -> dict[str, str]:
    return dict(plan_of(parsed(text)).levels)


def remarks(text: str) -> list[str]:
    return remark_lines(plan_of(parsed(text)).remarks)


@pytest.mark.parametrize(
    ("text", "kind", "vcpus", "memory"),
    [
        (xml(), "libvirt", 2, 4 << 30),
        (f"# virsh dumpxml web1\n<?xml version='1.0'?>\n{xml()}\n#", "libvirt", 2, 4 << 30),
        (f"<domstatus state='running'>{xml()}</domstatus>", "libvirt", 2, 4 << 30),
        (f"<!-- <domain type='xen'> of old\n-->\n{xml()}", "libvirt", 2, 4 << 30),
        (xml().replace("unit='GiB'>4", ">4194304").replace("<vcpu>2", "<vcpu current='3'>8"), "libvirt", 3, 4 << 30),
        (CONF, "proxmox", 4, 2 << 30),
        (CONF + "sockets: 2\nvcpus: 6\n\n[snapshot]\ncores: 1\nmemory: 16\n", "proxmox", 6, 2 << 30),
        (json.dumps({"data": {"cores": 2, "memory": "current=1024", "sockets": 1}}), "proxmox", 2, 1 << 30),
        ("cores: 1\n", "proxmox", 1, 512 << 20),
        (QEMU, "qemu", 2, 4 << 30),
        (QEMU.replace(" ", "\0"), "qemu", 2, 4 << 30),
        (f"LC_ALL=C PATH=/bin \\\n{QEMU.replace(' -', ' ' + chr(92) + chr(10) + ' -')}", "qemu", 2, 4 << 30),
        ("sudo $HOME/qemu/bin/qemu-system-x86_64 -m 4G \\\n -smp 2 \\\n", "qemu", 2, 4 << 30),
        ("~/src/qemu/build/qemu-system-x86_64 -m 4G -smp 2", "qemu", 2, 4 << 30),
        ("/usr/bin/kvm -id 101 -smp 4,sockets=1,cores=4,maxcpus=4 -m 8192", "qemu", 4, 8 << 30),
        ("qemu-kvm -m size=1048576k,slots=16,maxmem=4194304k -smp cpus=1", "qemu", 1, 1 << 30),
    ],
)
def test_size_and_kind_are_recognised(text: str, kind: str, vcpus: int, memory: int) -> None:
    guest = parsed(text)
    assert (guest.kind, guest.vcpus, guest.memory_bytes) == (kind, vcpus, memory)


BLOCKDEV = (
    QEMU
    + '-blockdev {"driver":"file","filename":"/vm/a.qcow2","node-name":"s","aio":"native","cache":{"direct":true}} '
    '-blockdev {"driver":"qcow2","file":"s","node-name":"f","cache":{"direct":true},"discard":"unmap"} '
    '-device {"driver":"virtio-blk-pci","drive":"f","id":"d0","num-queues":4,"iothread":"io1","write-cache":"on"}'
)


@pytest.mark.parametrize(
    ("text", "has"),
    [
        (xml(), {"disk.cache": "writeback", "disk.aio": "threads", "disk.format": "qcow2", "disk.bus": "virtio"}),
        (xml(driver=" cache='none' io='native' discard='unmap'"), {"disk.cache": "none", "disk.aio": "native"}),
        (xml(driver=" cache='unsafe' iothread='1'"), {"disk.cache": "unsafe", "disk.iothread": "on"}),
        (xml(DISK.replace("DRIVER/>", f">{dealt(2)}</driver>")), {"disk.iothread": "2"}),
        (xml(DISK.replace("DRIVER/>", f">{dealt(3)}</driver>")), {"disk.iothread": "on"}),
        (xml(cpu="<cpu><model>Nehalem</model></cpu>"), {"cpu.model": "Nehalem"}),
        (
            xml(cpu="<cpu mode='host-model'><topology sockets='2' cores='1' threads='1'/></cpu>"),
            {"cpu.topology": "sockets"},
        ),
        (
            xml(cpu="<memoryBacking><hugepages><page size='1' unit='G'/></hugepages></memoryBacking>"),
            {"memory.backing": "1GiB"},
        ),
        (xml(CARD), {"net.path": "vhost"}),
        (xml(CARD.replace("'virtio'/>", "'virtio'/><driver name='qemu' queues='4'/>")), {"net.path": "tap"}),
        (xml(CARD.replace("virtio", "rtl8139")), {"net.path": "rtl8139"}),
        (xml("<interface type='vdpa'><source dev='/dev/vhost-vdpa-0'/></interface>"), {"net.path": "vhost"}),
        (
            xml("<disk type='block'><source dev='/dev/zvol/tank/a'/><target dev='sda' bus='sata'/></disk>"),
            {"disk.volume": "zvol", "disk.filesystem": "none", "disk.bus": "sata"},
        ),
        (xml("<disk type='block'><source dev='/dev/vg0/web'/><target dev='vda'/></disk>"), {"disk.volume": "lvm"}),
        (
            xml("<disk type='file'><source file='/dev/vg0/web'/><target dev='vda'/></disk>"),  # as some write it
            {"disk.volume": "lvm", "disk.filesystem": "none"},
        ),
        (
            CONF + "scsi0: local-lvm:vm-1-disk-0,iothread=1,discard=on\n",
            {
                "disk.volume": "lvm-thin",
                "disk.cache": "none",
                "disk.aio": "io_uring",
                "disk.iothread": "on",
                "disk.discard": "unmap",
                "disk.detect_zeroes": "unmap",
                "cpu.model": "kvm64",
            },
        ),
        (
            CONF + "cpu: host\nide0: local:1/vm-1-disk-0.qcow2,cache=writethrough\n",
            {"disk.format": "qcow2", "disk.bus": "ide", "disk.cache": "writethrough", "cpu.model": "host"},
        ),
        (CONF + "net0: e1000=AA:BB:CC:00:00:01,bridge=vmbr0\n", {"net.path": "e1000e"}),
        (CONF + "net0: virtio=AA:BB:CC:00:00:01,bridge=vmbr0,queues=2\n", {"net.path": "vhost", "net.queues": "2"}),
        (CONF + "hugepages: 2\n", {"memory.backing": "2MiB"}),
        (CONF + "cpu: Icelake-Client-noTSX\n", {"cpu.model": "Icelake-Server-noTSX"}),
        (
            QEMU + "-cpu host -drive file=/vm/a.img,format=raw,if=virtio,cache=none,aio=native",
            {
                "disk.format": "raw",
                "disk.bus": "virtio",
                "disk.cache": "none",
                "disk.aio": "native",
                "cpu.model": "host",
            },
        ),
        (xml(), {"cpu.topology": "sockets"}),  # as libvirt does where nothing is said
        (QEMU.replace("q35", "pc-q35-5.2"), {"cpu.topology": "sockets"}),
        (QEMU.replace("-smp 2", "-smp 4,threads=2"), {"cpu.topology": "threads"}),
        (QEMU.replace("-smp 2", "-smp 4,cores=1"), {"cpu.topology": "sockets"}),
        (QEMU.replace("-smp 2", "-smp 4,sockets=1"), {"cpu.topology": "cores"}),
        (QEMU.replace("-smp 2", "-smp 4,sockets=1,cores=2"), {"cpu.topology": "threads"}),
        (QEMU.replace("-smp 2", "-smp 2,maxcpus=4,sockets=4"), {"cpu.topology": "sockets"}),
        (QEMU.replace("q35", "pc-q35-5.2").replace("-smp 2", "-smp 8,threads=2"), {"cpu.topology": "threads"}),
        (QEMU + "-cpu host,pmu=off\n\n-cpu l3-cache=off", {"cpu.model": "host"}),
        (QEMU + "-drive file=/a,if=virtio,cache.direct=on,cache.no-flush=off", {"disk.cache": "none"}),
        (QEMU + "-drive file=/a,if=virtio,cache.no-flush=on", {"disk.cache": "unsafe"}),
        (
            QEMU + "-drive file=/a.img,format=raw,if=none,id=d,cache=none -device usb-storage,bus=usb.0,drive=d",
            {"disk.format": "raw", "disk.bus": "sata", "disk.cache": "none"},
        ),
        (QEMU + "-hda /vm/a.qcow2", {"disk.format": "qcow2", "disk.bus": "sata", "disk.cache": "writeback"}),
        (
            BLOCKDEV,
            {
                "disk.format": "qcow2",
                "disk.cache": "none",
                "disk.aio": "native",
                "disk.discard": "unmap",
                "disk.iothread": "on",
                "disk.queues": "4",
                "disk.bus": "virtio",
            },
        ),
        (
            QEMU + "-netdev tap,id=n,vhost=on,queues=2 -device virtio-net-pci,netdev=n",
            {"net.path": "vhost", "net.queues": "2"},
        ),
        (QEMU + "-netdev user,id=n -device virtio-net-pci,netdev=n", {"net.path": "user"}),
        (QEMU + "-object memory-backend-file,id=m,size=4G,mem-path=/dev/hugepages/x", {"memory.backing": "2MiB"}),
    ],
)
def test_settings_become_levels(text: str, has: dict[str, str]) -> None:
    assert has.items() <= levels(text).items()


OF_PROXMOX = "relaxed+vapic+spinlocks+runtime+stimer+ipi"


@pytest.mark.parametrize(
    ("text", "level"),
    [
        (xml(), None),
        (xml(cpu=hyperv("")), None),
        (xml(cpu=hyperv("<relaxed state='off'/><vapic/>")), None),
        (xml(cpu=hyperv("<vendor_id state='on' value='x'/><reset state='on'/>")), None),
        (xml(cpu=f"<features>{HIDES}</features>"), "hidden"),
        (xml(cpu=hyperv("<vpindex state='on'/><runtime state='on'/>") + HYPERVCLOCK), "runtime+time"),
        (xml(cpu=hyperv("<stimer state='on'><direct state='on'/></stimer><synic state='on'/>")), "stimer-direct"),
        (xml(cpu=hyperv("<stimer state='on'><direct state='off'/></stimer>")), "stimer"),
        (xml(cpu=hyperv("<spinlocks state='on' retries='8191'/>")), "spinlocks"),
        (xml(cpu="<features><hyperv mode='passthrough'/></features>"), "all"),
        (xml(cpu="<features><hyperv mode='host-model'/></features>"), "all"),
        (CONF, None),
        (CONF + "ostype: l26\n", None),
        (CONF + "ostype: win11\n", OF_PROXMOX),
        (CONF + "ostype: win7\n", OF_PROXMOX),
        (CONF + "ostype: win7\nbios: ovmf\n", None),
        (CONF + "ostype: w2k8\n", "vapic+spinlocks+runtime+time"),
        (CONF + "ostype: wxp\n", None),
        (
            CONF + "ostype: win10\ncpu: host,flags=+hv-tlbflush;+aes\n",
            "relaxed+vapic+spinlocks+runtime+stimer+tlbflush+ipi",
        ),
        (CONF + "ostype: win10\ncpu: host,flags=-hv-tlbflush\n", OF_PROXMOX),
        (CONF + "cpu: host,hidden=1\n", "hidden"),
        (CONF + "args: -cpu host,kvm=off,hv_time,hv_vpindex\n", "time"),
        (QEMU + "-cpu host,kvm=off", "hidden"),
        (QEMU + "-cpu host,hv-time=off", None),
        (QEMU + "-cpu host,hv_relaxed,hv-vapic,+hv_time,hv_vpindex", "relaxed+vapic+time"),
        (QEMU + "-cpu host,hv-passthrough=on", "all"),
        (
            QEMU + "-cpu host,hv-relaxed,hv-vapic,hv-spinlocks=8191,hv-runtime,hv-stimer-direct,hv-frequencies,"
            "hv-reenlightenment,hv-tlbflush,hv-ipi",
            "all",
        ),
    ],
)
def test_what_is_said_of_hyper_v_becomes_one_level(text: str, level: str | None) -> None:
    assert levels(text).get("cpu.hyperv") == level


def by_argument(text: str, *, cpu: str) -> str:
    """The XML of a domain whose CPU an argument of QEMU sets."""
    arguments = "".join(f"<qemu:arg value='{each}'/>" for each in ("-cpu", cpu))
    return text.replace("</domain>", f"<qemu:commandline>{arguments}</qemu:commandline></domain>")


@pytest.mark.parametrize(
    ("text", "model", "hyperv"),
    [
        (by_argument(xml(cpu=""), cpu="Penryn,+aes"), "Penryn", None),
        (by_argument(xml(cpu=hyperv("<vapic state='on'/>")), cpu="Penryn"), "Penryn", "off"),
        (by_argument(xml(cpu=hyperv("<vapic state='on'/>")), cpu="Penryn,hv-time"), "Penryn", "time"),
        (CONF + "ostype: win10\nargs: -cpu Penryn\n", "Penryn", "off"),
    ],
)
def test_a_cpu_that_an_argument_sets_is_the_whole_cpu(text: str, model: str, hyperv: str | None) -> None:
    found = levels(text)
    assert (found["cpu.model"], found.get("cpu.hyperv")) == (model, hyperv)
    assert not any("is missing" in line for line in remarks(text))


def test_a_windows_guest_of_proxmox_has_no_hpet() -> None:
    has = {kind: levels(f"{CONF}ostype: {kind}\n").get("guest.hpet") for kind in ("win11", "w2k8", "wxp", "l26")}
    assert has == {"win11": "off", "w2k8": "off", "wxp": None, "l26": None}


@pytest.mark.parametrize(
    ("lines", "hpet"),
    [
        ("machine: pc-q35-10.1+pve0\n", "off"),
        ("machine: pc-q35-9.2\nmeta: creation-qemu=10.1.2,ctime=1\n", None),
        ("meta: creation-qemu=10.1.2,ctime=1\n", "off"),
        ("meta: creation-qemu=9.0.2,ctime=1\n", None),  # which a newer QEMU may run: the file does not say
    ],
)
def test_a_linux_guest_of_proxmox_has_no_hpet_from_a_version_on(lines: str, hpet: str | None) -> None:
    assert levels(CONF.replace("machine: q35\n", "") + f"ostype: l26\n{lines}").get("guest.hpet") == hpet


@pytest.mark.parametrize(
    "text",
    [
        "qemu-system-x86_64 \\\n  -m 4G \\\n  -nographic\necho it has ended\nexit 0\n# -vga none \\\n",
        "qemu-system-x86_64 \\\n  -m 4G \n  -nographic\n\nexit 0\n",  # one mark was forgotten
        "```sh\n$ sudo qemu-system-x86_64 -m 4G \\\n    -nographic\n```\nThen log in to the guest.\n",
        "  qemu-system-x86_64 -m 4G\n    # ======= the display\n    -nographic\n",
        "$ qemu-system-x86_64 -m 4G -nographic\n$ ssh root@10.0.0.5\n",
    ],
)
def test_a_command_ends_where_its_text_goes_on_with_something_else(text: str) -> None:
    assert options_of(text).options == [("m", "4G"), ("nographic", "")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (xml(driver=" io='native'"), "disk.aio (native): "),  # with a cache of the host's
        (xml().replace("</devices>", "<shmem name='x'/><new-thing a='1'/></devices>"), "devices/new-thing (a=1): "),
        (xml().replace("</domain>", "<launchSecurity type='sev'/></domain>"), "launchSecurity (type=sev): is not"),
        (
            xml(DISK.replace("<target", "<iotune><total_iops_sec>5</total_iops_sec></iotune><target")),
            "iotune (total_iops_sec=5)",
        ),
        (xml(cpu="<features><hyperv><evmcs state='on'/></hyperv></features>"), "features/hyperv/evmcs (state=on): "),
        (xml(cpu=hyperv("<spinlocks state='on' retries='4096'/>")), "spinlocks (4096): is measured with 8191 attempts"),
        (xml(cpu=hyperv("<relaxed state='on'/>")), "features/hyperv (vpindex): is added: without it"),
        (
            xml(cpu=hyperv("<tlbflush state='on'><direct state='on'/></tlbflush>")),
            "(tlbflush-direct): is not translated",
        ),
        (QEMU + "-cpu host,hv_passthrough", "-cpu (passthrough): is measured with all"),
        (QEMU + "-cpu host,hv-vpindex,hv-evmcs", "-cpu (evmcs): is not translated"),
        (CONF + "ostype: win11\ncpu: host,flags=+hv-evmcs;-aes\n", "cpu: flags (-aes): is not translated"),
        (xml(CARD.replace("virtio", "vmxnet3")), "vmxnet3): is measured as virtio on a tap"),
        (xml(DISK.replace("</disk>", "<unheard/></disk>")), "devices/disk[vda]/unheard: is not translated"),
        (xml(DISK + DISK.replace("vda", "vdb")), "devices/disk (2 disks): one is measured"),
        (xml().replace("pc-q35-7.2", "pc-i440fx-7.2"), "our guest's machine is q35"),
        (xml(driver=" queues='3'"), "disk.queues (3): cannot be measured"),
        (CONF + "hostpci0: 0000:01:00\n", "hostpci0 (0000:01:00): is not translated"),
        (CONF + "unknown_thing: 7\n", "unknown_thing (7): is not translated"),
        (CONF + "scsi0: ceph:vm-1-disk-0,iops_rd=100\n", "scsi0: iops_rd (100): is not translated"),
        (CONF + "scsi0: ceph:vm-1-disk-0\n", "nothing here says what that is"),
        (CONF.replace("virtio-scsi-single", "lsi") + "scsi0: local:1/a.raw,iothread=1\n", "has no effect without"),
        (QEMU + "-device newthing,a=1", "-device (newthing,a=1): is not translated"),
        (QEMU + "-newoption x", "-newoption (x): is not translated"),
        (QEMU + "-drive file=/a,if=none,id=d -device usb-storage,drive=d,id=u", "u usb-storage: is measured as sata"),
        (QEMU.replace("q35", "pc-q35-rhel8.2.0"), "-smp (2): is measured as cores of one socket, which QEMU has from"),
        (QEMU.replace("-smp 2", "-smp 4,cores=2"), "-smp (4,cores=2): is measured as one socket with cores"),
        (
            QEMU + "-blockdev preallocate,node-name=n,file.driver=file,file.filename=/a -device virtio-blk-pci,drive=n",
            "n driver (preallocate): is not translated",
        ),
        (QEMU + "-cpu host,-avx2,+aes", "-cpu (-avx2, +aes): is not translated"),
        (QEMU + "-drive file=rbd:pool/a,format=raw", "is measured as a file in --disk-dir"),
        (
            QEMU + "-cpu host,pmu=off\n\n-cpu l3-cache=off",
            "-cpu (l3-cache=off): is given as well: host is measured",
        ),
        (f"{CONF}cores: 2\n", "cores (4): is given again further down, which counts"),
        (f"{CONF}ostype: win10\nostype: l26\n", "ostype (win10): is given again further down, which counts"),
        (QEMU + "-cpu host $MORE", "options ($MORE): whoever wrote this left something out"),
        (QEMU + "-cpu host -cpu max,-avx2", "-cpu (host): is given as well: max is measured"),
    ],
)
def test_what_is_not_translated_is_listed(text: str, said: str) -> None:
    assert any(said in line for line in remarks(text)), remarks(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the file is empty"),
        ("hello world\n", "is no description of a guest"),
        ("root:x:0:0:root:/root:/bin/bash\nmail:x:8:\n", "is no description of a guest"),
        (xml().replace("type='kvm'", "type='xen'"), "a guest of Xen, not of KVM"),
        (xml().replace("type='kvm'", "type='lxc'"), "a guest of LXC, not of KVM"),
        (xml().replace("x86_64", "aarch64"), "a guest for aarch64"),
        (xml()[:300], "cut off: </domain> is missing"),
        (
            xml().replace("</cpu>", "</cp>").replace("<cpu mode='host-passthrough'/>", "<cpu>"),
            "line 12: XML that cannot be read",
        ),
        (f"<!DOCTYPE a [<!ENTITY x 'y'>]>{xml()}".replace("<domain", "<domain><!DOCTYPE a>", 1), "document type"),
        ("<network><name>default</name></network>", "its element is <network>, not <domain>"),
        (
            "<domainCapabilities>\n  <domain>kvm</domain>\n</domainCapabilities>",
            "its element is <domainCapabilities>, what the host can do",
        ),
        (
            "<capabilities><guest><arch name='x86_64'><domain type='kvm'/></arch></guest></capabilities>",
            "its element is <capabilities>, what the host can do",
        ),
        (xml().replace("<memory unit='GiB'>4</memory>", ""), "<memory> is missing"),
        (xml().replace("<vcpu>2", "<vcpu>0"), "<vcpu> must be a number from 1"),
        ("arch: amd64\nhostname: ct\nrootfs: local:1/a\nmemory: 512\n", "a container (pct)"),
        (CONF + "template: 1\n", "a template, which never runs"),
        (CONF + "this line has no key\n", "line 6: must be `key: value`"),
        (CONF.replace("cores: 4", "cores: many"), "cores: must be a number from 1 to 1024"),
        ('{"cores": 1', "JSON that cannot be read"),
        ("qemu-system-aarch64 -m 1G", "a guest for aarch64"),
        ("qemu-system-x86_64 -m lots", "must be a size, such as 4G"),
        ("qemu-system-x86_64 -M xenfv -m 1G", "a guest of Xen"),
        (QEMU + '-blockdev {"driver":"file"', "JSON that cannot be read"),
        (
            "qemu-system-x86_64 -m 4G -nographic\nThen log in to the guest\n",
            "('Then log in to the guest'): give the command line alone",
        ),
        (f"{QEMU}\nor:\nqemu-system-x86_64 $ARGS\n", "give the command line alone"),
        ('args=(-m "$RAM" -cpu host)\nqemu-system-x86_64 "${args[@]}"\n', "has QEMU's options in variables"),
        ("qemu-system-x86_64 -S -readconfig /run/incus/v1/qemu.conf", "the guest's settings stand in that file"),
    ],
)
def test_what_describes_no_guest_is_refused_in_a_line(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "guest"
    file.write_text(text)
    with pytest.raises(NoGuest) as caught:
        existing(str(file), FakeMachine())
    assert str(caught.value).startswith(f"{file}: ") and why in str(caught.value)
    assert "\n" not in str(caught.value)


SECRETS = (
    xml(
        "<graphics type='vnc' passwd='hunter2'/>"
        + DISK.replace("<source", "<auth username='u'><secret uuid='hunter2'/></auth><source")
    ),
    xml(
        "<disk type='network'><source protocol='rbd' name='pool/a:key=hunter2'/><target dev='vda' bus='virtio'/></disk>"
    ),
    xml().replace(
        "</domain>",
        "<qemu:commandline><qemu:arg value='secret,id=a,data=hunter2'/></qemu:commandline></domain>",
    ),
    CONF
    + "cipassword: hunter2\nsshkeys: ssh-rsa%20hunter2\nargs: -vnc :1,password=hunter2 -object secret,data=hunter2\n",
    CONF + "new_password: hunter2\napi_token: hunter2\n",
    QEMU + "-spice port=5900,password=hunter2 -object secret,id=s,data=hunter2 -fw_cfg name=a,string=hunter2",
    QEMU + "-drive file=https://user:hunter2@host/a.img,format=raw -newoption password=hunter2",
)


@pytest.mark.parametrize("text", SECRETS)
def test_no_secret_is_printed(text: str, tmp_path: Path) -> None:
    (tmp_path / "guest").write_text(text)
    for command in (("plan", "from"), ("doctor",)):
        for more in ((), ("--json",)):
            done = CliRunner().invoke(app, [*command, str(tmp_path / "guest"), *more])
            assert done.exit_code == 0, done.output
            assert "hunter2" not in done.output, done.output


def test_what_is_hidden_says_so() -> None:
    assert shown("passwd", "x") == HIDDEN
    assert shown("args", "-vnc :1,password=x,to=9") == f"-vnc :1,password={HIDDEN},to=9"
    assert shown("uri", "nbd://me:x@host/a") == f"nbd://{HIDDEN}@host/a"
    assert shown("cache", "none") == "none" and len(shown("a", "b" * 999)) == 201


def test_the_plan_has_the_guest_s_level_first_and_only_what_is_as_safe() -> None:
    text = plan_of(parsed(xml(driver=" cache='writethrough'"))).text
    assert "disk.cache: [writethrough, none, writeback]" in text and "unsafe" not in text
    assert "disk.aio: [threads, io_uring]" in text, "native does not go with a cache of the host's"
    assert "disk.bus: [virtio]" in text


def test_a_disk_is_chosen_by_its_name_or_by_the_boot_order() -> None:
    disks = DISK + DISK.replace("vda", "vdb").replace("<target", "<boot order='1'/><target").replace(
        "DRIVER", " cache='none'"
    )
    guest = parsed(xml(disks))
    assert "with its disk vdb" in plan_of(guest).text and plan_of(guest).levels["disk.cache"] == "none"
    assert plan_of(guest, "vda").levels["disk.cache"] == "writeback"
    with pytest.raises(NoGuest, match="web1: has no disk 'sda'; it has vda, vdb"):
        plan_of(guest, "sda")


@pytest.mark.parametrize(
    ("source", "answers", "why"),
    [
        ("libvirt:web1", {}, ""),
        (
            "libvirt:gone",
            {("dumpxml",): Reply("", "error: failed to get domain 'gone'\n", 1), ("list",): Reply("web1\nweb2\n")},
            "libvirt:gone: failed to get domain 'gone'; there are: web1, web2",
        ),
        (
            "libvirt:mine",
            {("dumpxml",): Reply("", "error: failed to get domain 'mine'\n", 1), ("list",): Reply("\n")},
            "this connection has no domains. Domains of a user's own are reached with LIBVIRT_DEFAULT_URI=",
        ),
        (
            "libvirt:mine",
            {("virsh",): Reply("", "error: Failed to connect socket to '/run/libvirt/libvirt-sock-ro'\n", 1)},
            "reached with LIBVIRT_DEFAULT_URI=qemu:///session",
        ),
        ("libvirt:web1", {("virsh",): Reply("", "virsh: not found", 127)}, "virsh is not there"),
        ("proxmox:web1", {}, "must be a number, such as proxmox:101"),
        ("qemu:abc", {}, "must be a number, a process id"),
        ("libvirt:", {}, "no guest can be called that"),
        ("libvirt:--help", {}, ""),
        ("nosuch", {}, "there is no such file; right would be libvirt:NAME"),
    ],
)
def test_a_guest_of_the_host_is_asked_of_its_tool(source: str, answers: dict[Any, Reply], why: str) -> None:
    script = {(lambda argv, program=program[0]: program in argv): reply for program, reply in answers.items()}
    machine = FakeMachine(answers=script or {lambda argv: "virsh" in argv: Reply(xml())})
    if not why:
        assert existing(source, machine).name == "web1"
        assert machine.calls[0][-2:] == ("--", source.partition(":")[2])
        return
    with pytest.raises(NoGuest) as caught:
        existing(source, machine)
    assert why in str(caught.value)


STORAGE = """\
dir: local
\tpath /var/lib/vz

lvm: san
\tvgname san
btrfs: butter
\tpath /butter
btrfs: nocow
\tpath /hard
\tnocow
zfspool: tank-ssd
\tpool tank
\tblocksize 16k
cifs: share
\tserver 192.0.2.1
rbd: ceph
\tkrbd yes
"""


@pytest.mark.parametrize(
    ("line", "has", "said"),
    [
        ("san:vm-1-disk-0", {"disk.volume": "lvm", "disk.cache": "none", "disk.aio": "native"}, ""),
        ("san:vm-1-disk-0,cache=writeback", {"disk.cache": "writeback", "disk.aio": "threads"}, ""),
        ("san:vm-1-disk-0,aio=io_uring", {"disk.aio": "io_uring"}, ""),
        ("tank-ssd:vm-1-disk-0", {"disk.volume": "zvol", "disk.filesystem": "none", "disk.aio": "io_uring"}, ""),
        ("local:1/vm-1-disk-0.qcow2", {"disk.format": "qcow2", "disk.aio": "io_uring"}, ""),
        ("butter:1/vm-1-disk-0.raw", {"disk.cache": "writeback", "disk.aio": "io_uring"}, "with a --disk-dir on Btrfs"),
        ("nocow:1/vm-1-disk-0.raw", {"disk.cache": "none"}, "with a --disk-dir on Btrfs"),
        ("share:1/vm-1-disk-0.raw,cache=directsync", {"disk.aio": "native"}, "is on a storage of kind cifs"),
        ("ceph:vm-1-disk-0,cache=writeback", {"disk.aio": "threads"}, "is on a storage of kind rbd"),
        ("ceph:vm-1-disk-0", {"disk.aio": "io_uring"}, "is on a storage of kind rbd"),
        ("local:1/a.raw", {"disk.aio": "io_uring"}, ""),
        ("gone:vm-1-disk-0", {"disk.aio": "io_uring"}, "/etc/pve/storage.cfg has no such storage"),
    ],
)
def test_a_guest_of_proxmox_has_the_settings_of_its_storage(line: str, has: dict[str, str], said: str) -> None:
    config = f"{CONF}scsi0: {line}\n"
    script = {lambda argv: "config" in argv: Reply(config), lambda argv: "/etc/pve/storage.cfg" in argv: Reply(STORAGE)}
    guest = existing("proxmox:101", FakeMachine(answers=script))
    assert has.items() <= guest.disks[0].levels.items()
    remarks = [f"{each.where}: {each.why}" for each in guest.remarks if each.where.startswith("scsi0: ")]
    assert said in "\n".join(remarks)
    assert bool(said) == bool(remarks)


def test_a_configuration_alone_does_not_say_what_a_disk_has() -> None:
    """No storage.cfg: neither in a file, nor on a host that does not show it."""
    config = CONF + "scsi0: san:vm-1-disk-0\n"
    script = {lambda argv: "config" in argv: Reply(config), lambda argv: "cat" in argv: Reply(code=1)}
    alone = existing("proxmox:101", FakeMachine(answers=script))
    lines = [f"{each.where} ({each.text}): {each.why}" for each in alone.remarks]
    assert "scsi0: aio (not set): is measured as most storages have it, other than LVM, CIFS and krbd" in lines
    assert "scsi0: cache (not set): is measured as most storages have it, other than Btrfs" in lines


@pytest.mark.parametrize(
    ("text", "storages"),
    [
        ("rbd: ceph\n\tkrbd 0\n\nmy-plugin: foo\n\tkrbd 1\n", {"ceph": ("rbd", "0"), "foo": ("my-plugin", "1")}),
        ("rbd: ceph\r\n\tkrbd\t1\r\n", {"ceph": ("rbd", "1")}),
        ("LVM: San\nnonsense\n\tkrbd 1\n# lvm: no\n", {"San": ("lvm", None)}),
        ("", {}),
        ("dir: local\n\tkrbd\n", {"local": ("dir", "1")}),
        ("\x00\n\t\n:\n: \n\tkrbd 1", {}),
    ],
)
def test_storages_are_read_as_proxmox_does(text: str, storages: dict[str, tuple[str, str | None]]) -> None:
    found = {name: (each.kind, each.settings.get("krbd")) for name, each in storages_of(text).items()}
    assert found == {"local": ("dir", None), **storages}


def test_a_path_s_ending_is_no_format_for_proxmox() -> None:
    assert levels(CONF + "scsi0: /mnt/a.qcow2\n")["disk.format"] == "raw"


@pytest.mark.parametrize("text", [CONF.replace("4", "4" * 5000), QEMU.replace("-smp 2", f"-smp {'2' * 5000}")])
def test_a_number_of_thousands_of_digits_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(NoGuest, match="must be a number from 1 to 1024"):
        parsed(text)


def test_numbers_of_versions_may_be_long() -> None:
    assert parsed(QEMU.replace("q35", f"pc-q35-{'5' * 5000}.2")).vcpus == 2
    assert parsed(CONF + f"ostype: l26\nmeta: creation-qemu={'9' * 5000}.1\n").vcpus == 4
    assert parsed(CONF + f"affinity: {'0-9999,' * 5000}0\n").placement.cpus is None


def test_a_name_that_no_file_can_have_is_asked_of_the_host() -> None:
    with pytest.raises(NoGuest, match="no guest can be called that"):
        existing(f"libvirt:{'a' * 300}", FakeMachine(answers={}))


def test_texts_of_windows_are_read() -> None:
    assert decoded(b"\xff\xfe" + "cores: 1".encode("utf-16-le")) == "cores: 1"
    assert decoded(b"\xef\xbb\xbfcores: 1\r\n") == "cores: 1\n"


SCRIPT = "ARGS='-enable-kvm -m 4G'\nARGS=\"${ARGS} -smp 3\"\nexec qemu-system-x86_64 $ARGS\n"


def test_the_options_that_a_script_adds_up_are_read() -> None:
    assert parsed(decoded(SCRIPT.encode())).vcpus == 3
    joined = SCRIPT.replace("exec", "ARGS+=',maxcpus=9'\nexec").encode()
    assert any("maxcpus (9)" in line for line in remark_lines(parsed(decoded(joined)).remarks))
    called = SCRIPT.replace("exec", 'echo "ARGS: $ARGS"\nsudo').encode()
    assert parsed(decoded(called)).vcpus == 3
    beside = b'CFLAGS="$CFLAGS -O2"\nif cc $CFLAGS a.c; then\nqemu-system-x86_64 -m 1G -smp 5\nfi\n'
    assert parsed(decoded(beside)).vcpus == 5


@pytest.mark.parametrize(
    "script",
    [
        SCRIPT.replace('ARGS="', 'if true; then\nARGS="').replace("\nexec", "\nfi\nexec"),
        SCRIPT.replace('ARGS="', 'test -e /dev/kvm && ARGS="'),
        SCRIPT.replace("'-enable-kvm", "'-enable-kvm \\\n"),
        SCRIPT.replace("$ARGS", "$ARGS $MORE"),
        SCRIPT.replace("$ARGS", "$ARGS -nographic"),
        f"{SCRIPT}ARGS='-m 1G'\nqemu-system-x86_64 $ARGS\n",
        "CMD='qemu-system-x86_64 -m 4G'\nCMD+=' -smp 2'\n$CMD -drive file=a.img\n",
    ],
)
def test_options_that_depend_on_anything_else_are_refused(script: str) -> None:
    with pytest.raises(NoGuest, match="has QEMU's options in variables"):
        parsed(decoded(script.encode()))


def test_a_quoted_configuration_is_read() -> None:
    for mark in ("> ", ">> ", "> > "):
        assert parsed(decoded("".join(f"{mark}{line}\n" for line in CONF.splitlines()).encode())) == parsed(CONF)


def test_a_redirection_is_no_prompt_of_a_terminal() -> None:
    assert parsed(decoded(f"{QEMU} \\\n > /tmp/log\n".encode())) == parsed(QEMU)


def test_a_whole_command_is_read_beside_one_in_variables() -> None:
    assert parsed(f"$ {QEMU}\n$ qemu-system-x86_64 $ARGS\n") == parsed(QEMU)


def test_two_configurations_in_a_file_are_not_taken_for_one() -> None:
    with pytest.raises(
        NoGuest, match="name is given twice, 'web1' and 'web2': give the configuration of one guest alone"
    ):
        parsed(f"{CONF}name: web1\n\n{CONF}name: web2\n")


def test_a_line_that_a_terminal_wrapped_is_whole_again() -> None:
    line = QEMU + "-cpu host -drive file=/var/lib/libvirt/images/web1.img,format=raw,if=virtio,cache=none,aio=native"
    wrapped = "\n".join(line[start : start + 80] for start in range(0, len(line), 80))
    assert levels(wrapped) == levels(line)


def test_plan_from_writes_a_plan_that_can_be_checked(tmp_path: Path) -> None:
    (tmp_path / "web1.xml").write_text(xml(DISK))
    done = CliRunner().invoke(app, ["plan", "from", str(tmp_path / "web1.xml"), "-o", str(tmp_path / "plan.yaml")])
    assert done.exit_code == 0 and f"vmtax run {tmp_path / 'plan.yaml'}" in " ".join(done.output.split())
    checked = CliRunner().invoke(app, ["plan", "check", str(tmp_path / "plan.yaml")])
    assert checked.exit_code == 0, checked.output
    printed = CliRunner().invoke(app, ["plan", "from", str(tmp_path / "web1.xml")])
    assert printed.output == (tmp_path / "plan.yaml").read_text()
    answer = json.loads(CliRunner().invoke(app, ["plan", "from", str(tmp_path / "web1.xml"), "--json"]).output)
    assert answer["kind"] == "guest" and answer["data"]["plan"] == printed.output


@pytest.mark.parametrize(("clock", "asked"), [("", True), (HYPERVCLOCK, False)])
def test_a_clock_that_the_guest_has_is_not_asked_for(clock: str, asked: bool) -> None:
    guest = parsed(xml(cpu=hyperv("<vapic state='on'/>") + clock))
    (patch,) = [each.patch(guest) for each in advice(guest) if each.factor == "cpu.hyperv"]
    assert ("hypervclock" in patch) == asked and "<stimer state='on'/> in <hyperv>" in patch


@pytest.mark.parametrize(
    "text",
    ["<domain>" + 50_000 * "<!--", "qemu-system-x86_64 -m 1 " + 50_000 * "\n", 50_000 * "kvm -a "],
    ids=["comments without an end", "empty lines", "commands"],
)
@pytest.mark.varied(1)
def test_a_long_text_takes_no_longer_than_it_is(text: str) -> None:
    """Read line by line from its beginning, each of them would take a minute of CPU time."""
    before = time.process_time()
    for parse in PARSERS.values():
        with contextlib.suppress(NoGuest):
            parse(text)
    assert time.process_time() - before < 5
