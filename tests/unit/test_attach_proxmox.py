"""A VM of Proxmox VE: what `qm` and `pvesh` print of it, what is plugged in, and what refuses it in one line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fake_machine import FakeMachine, Reply, Scripted
from vmtax.attach.agent import AgentRefused
from vmtax.attach.domain import DomainError, script
from vmtax.attach.proxmox import ProxmoxVm, find_vm
from vmtax.attach.proxmox.config import config_lines, disk_settings, first_disk
from vmtax.core.machines import MachineError

UUID = "7b10d7af-b932-4c66-b2c3-3996152ec465"
CONFIG = f"""\
agent: 1
boot: order=scsi1;ide2;net0
cores: 2
ide2: local:iso/debian.iso,media=cdrom,size=631M
memory: 1024
name: web
net0: virtio=BC:24:11:00:00:01,bridge=vmbr0
ostype: l26
scsi0: local-lvm:vm-101-disk-0,size=8G
scsi1: local:101/vm-101-disk-1.qcow2,cache=writethrough,discard=on,iothread=1,iops_rd=100,size=32G
scsihw: virtio-scsi-single
smbios1: uuid={UUID.upper()}
"""
STATUS: dict[str, Any] = {"vmid": 101, "status": "running", "qmpstatus": "running", "name": "web", "cpus": 2, "pid": 77}
STATUS |= {"maxmem": 2**30, "balloon": 2**29, "ha": {"managed": 0}, "agent": 1, "cpu": 0.01}
RUNNING = "/usr/bin/kvm\0-drive\0file=/x,if=none,id=drive-scsi1,cache=writethrough,aio=threads,detect-zeroes=unmap\0"


def says(*words: str) -> Any:
    return lambda argv: all(word in argv for word in words)


def host(**changes: Scripted) -> FakeMachine:
    """A node whose programs answer so; by default, VM 101 runs."""
    script: dict[str, Scripted] = {
        "status": json.dumps(STATUS),
        "config": CONFIG,
        "list": "VMID NAME\n 101 web\n 7 x\n",
    }
    script |= changes
    answers: dict[Any, Any] = {
        says("/nodes/localhost/qemu/101/status/current"): script["status"],
        (lambda argv: "drive_add" in monitored(argv)): '"OK\\r\\n"',
        says("pvesh", "create"): script.get("monitor", '""'),
        says("qm", "config", "101"): script["config"],
        says("qm", "list"): script["list"],
        says("qm", "status", "101"): "status: running\n",
        says("qm", "guest"): script.get("guest", '{\n   "pid" : 812\n}\n'),
        says("cat", "/proc/77/cmdline"): RUNNING,
    }
    return FakeMachine("host", answers)


def monitored(argv: tuple[str, ...]) -> str:
    return argv[argv.index("--command") + 1] if "--command" in argv else ""


def vm(**changes: Scripted) -> ProxmoxVm:
    return find_vm(host(**changes), "101")


def asked(machine: Any) -> list[str]:
    return [said for argv in machine.calls if (said := monitored(argv))]


def test_a_vm_is_read_without_its_guest() -> None:
    machine = host()
    seen = find_vm(machine, "101")
    assert (seen.name, seen.vcpus, seen.memory, seen.qemu, seen.uuid) == ("proxmox:101", 2, 2**29, 77, UUID)
    assert seen.disk == "scsi1", "the one that it boots from, not the first one"
    assert not [argv for argv in machine.calls if "guest" in argv or "create" in argv]


def test_its_settings_are_those_of_the_configuration_and_what_proxmox_chose() -> None:
    settings = vm().settings()
    assert settings == {
        **{"bus": "scsi", "cache": "writethrough", "io": "threads", "discard": "unmap", "detect_zeroes": "unmap"}
    }
    new = '-blockdev\0{"driver":"raw","file":{"aio":"native"},"node-name":"drive-scsi1"}\0'
    assert disk_settings(config_lines(CONFIG), "scsi1", new)["io"] == "native", "machines from version 10 on"
    assert disk_settings({"virtio0": "local-lvm:vm-1-disk-0"}, "virtio0", "") == {
        **{"cache": "none", "io": "io_uring", "discard": "ignore", "detect_zeroes": "on"}
    }
    assert first_disk({"sata0": "a:b", "ide2": "none,media=cdrom", "boot": "order=ide2"}) == "sata0"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": Reply(code=127)}, "pvesh is not there: name the Proxmox VE node on which it runs: --host ssh://"),
        (
            {"status": Reply(stderr="Configuration file 'nodes/pve1/qemu-server/101.conf' does not exist\n", code=2)},
            "does not exist; on this node there are: 101, 7",
        ),
        ({"status": json.dumps(STATUS | {"qmpstatus": "stopped", "status": "stopped"})}, "is stopped: qm start 101"),
        ({"status": json.dumps(STATUS | {"qmpstatus": "paused"})}, "is paused: qm resume 101"),
        ({"status": json.dumps(STATUS | {"qmpstatus": "io-error"})}, "error of its storage"),
        ({"status": json.dumps(STATUS | {"qmpstatus": "guest-panicked"})}, "is guest-panicked, and not running"),
        ({"status": json.dumps(STATUS | {"lock": "backup"})}, "a job runs on it (backup): wait until it has ended"),
        (
            {"status": json.dumps(STATUS | {"lock": "suspended", "qmpstatus": "stopped"})},
            "is stopped: qm start 101",
        ),
        ({"config": CONFIG.replace("agent: 1\n", "")}, "not switched on: qm set 101 --agent 1"),
        ({"config": CONFIG.replace("agent: 1", "agent: enabled=0")}, "not switched on: qm set 101 --agent 1"),
        ({"config": CONFIG.replace("agent: 1", "agent: 1,type=isa")}, "agent on a serial port"),
        ({"config": CONFIG.replace("l26", "win11").replace("agent: 1", "agent: 0")}, "ssh://Administrator@ADDRESS"),
        ({"config": CONFIG + "template: 1\n"}, "is a template, which never runs"),
        ({"status": "[]"}, "pvesh answered '[]' to its status"),
        ({"config": Reply(stderr="ipcc_send_rec[1] failed: Connection refused\n", code=111)}, "Connection refused"),
        ({"status": Reply(stderr="", code=1)}, "pvesh ended with 1"),
    ],
)
def test_a_vm_that_cannot_be_measured_is_refused_in_one_line(changes: dict[str, Scripted], words: str) -> None:
    with pytest.raises(DomainError) as refused:
        find_vm(host(**changes), "101")
    assert words in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("status", [{"cpus": "two"}, {"cpus": None}, {"balloon": -1}, {"pid": "x"}, {"pid": None}])
def test_an_odd_answer_about_its_size_is_no_traceback(status: dict[str, Any]) -> None:
    with pytest.raises(MachineError, match="must stand there"):
        find_vm(host(status=json.dumps(STATUS | status)), "101")


def test_windows_is_what_its_type_says() -> None:
    assert [vm(config=CONFIG.replace("l26", kind)).is_windows for kind in ("win11", "w2k8", "l26")] == [
        True,
        True,
        False,
    ]


def test_numbers_that_perl_keeps_as_words_are_read() -> None:
    assert find_vm(host(status=json.dumps(STATUS | {"cpus": "3"})), "101").vcpus == 3


def test_each_device_is_listed_before_it_is_plugged_in_and_taken_out_in_reverse() -> None:
    here = vm()
    machine: Any = here.host
    here.plug_port()
    assert here.plug_image('/var/tmp/a,b "c".erofs') == ("scsi", "")
    done = asked(machine)
    token = here.token
    assert done[0] == f"chardev-add socket,id=vmtax-{token}-port,path={here.socket()},server=on,wait=off"
    assert done[1].startswith("device_add virtserialport,bus=qga0.0,")
    assert done[2:4] == [
        f"object_add iothread,id=vmtax-{token}-iothread",
        f"device_add virtio-scsi-pci,id=vmtax-{token}-controller,bus=pci.0,iothread=vmtax-{token}-iothread",
    ]
    assert 'file=/var/tmp/a,,b \\"c\\".erofs,if=none,' in done[4] and "readonly=on" in done[4]
    removals = [entry.what[5:] for entry in machine.undo_list if isinstance(entry.what, tuple)]
    assert [device.removeprefix(f"vmtax-{token}-") for device, *_ in removals] == ["port", "", "controller", "image"]
    removal = here.plug_data("/var/tmp/data.raw", "scsi", {"cache": "none"})
    assert "cache=none,aio=threads,discard=unmap,detect-zeroes=unmap" in asked(machine)[-2]
    assert f"scsi-hd,bus=vmtax-{token}-controller.0,scsi-id=1" in asked(machine)[-1]
    here.plug_data("/var/tmp/data.raw", "scsi", {"discard": "ignore"})
    assert "discard=ignore,detect-zeroes=on" in asked(machine)[-2], "QEMU refuses unmap"
    removal.undo()
    data = f"vmtax-{token}-data"
    assert machine.undone[-1] == (*script("proxmox/detach"), "101", data, f"drive_del {data}-drive")


@pytest.mark.parametrize(
    ("config", "bus", "note"),
    [
        (CONFIG.replace("virtio-scsi-single", "virtio-scsi-pci"), "scsi", ""),
        (CONFIG.replace("virtio-scsi-single", "lsi"), "scsi", "none can be plugged in on lsi while"),
        (CONFIG.replace("scsi1", "virtio1"), "virtio", ""),
        (CONFIG.replace("scsi1", "sata1"), "scsi", "none can be plugged in on sata while"),
    ],
)
def test_disks_go_to_the_bus_of_its_own_disk_where_that_can_be(config: str, bus: str, note: str) -> None:
    here = vm(config=config)
    taken, said = here.plug_image("/var/tmp/root.erofs")
    assert taken == bus and note in said and bool(note) == bool(said)
    has_thread = any("object_add" in command for command in asked(here.host))
    assert has_thread == (bus == "virtio"), "an iothread has an effect with virtio, or a controller for each disk"


def test_what_a_plugged_disk_lacks_and_that_nobody_tried_it_is_said() -> None:
    lacks, untried = vm().notes
    assert "the format qcow2, limits of I/O" in lacks
    assert "never run on Proxmox VE itself" in untried


def test_a_monitor_that_refuses_is_told_in_one_line() -> None:
    with pytest.raises(DomainError, match=r"monitor said to `chardev-add`: Error: address in use$"):
        vm(monitor=json.dumps("Error: address in use\r\n")).plug_port()
    with pytest.raises(DomainError, match="VM 101 not running"):
        vm(monitor=Reply(stderr="VM 101 not running\n", code=255)).plug_port()
    with pytest.raises(DomainError, match=r"pvesh answered '\{\}' to"):
        vm(monitor="{}").plug_port()


def test_nothing_that_a_program_prints_is_kept_and_no_key_is_on_a_command_line() -> None:
    here = vm()
    assert here.start(("/bin/sh", "-c", "x"), "a key\n") == 812
    machine: Any = here.host
    argv, given = machine.inputs[-1]
    assert argv[2:8] == ("qm", "guest", "exec", "101", "--synchronous", "0") and given == "a key\n"
    assert "--pass-stdin" in argv and 'exec "$@" > /dev/null 2>&1' in argv


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (["QEMU guest agent is not running"], "does not answer (QEMU guest agent is not running)"),
        (["No QEMU guest agent configured"], "does not answer"),
        (["Agent error: Command guest-exec has been disabled", "thawed"], "may not start programs"),
        (["Agent error: Command guest-exec has been disabled", "frozen"], "frozen, as for a backup"),
        (["VM 101 is not running"], "VM 101 is not running"),
    ],
)
def test_an_agent_that_refuses_is_told_in_one_line(said: list[str], words: str) -> None:
    first, *frozen = said
    answers: Any = [Reply(stderr=f"{first}\n", code=255), *(f"{each}\n" for each in frozen)]
    with pytest.raises(AgentRefused) as refused:
        vm(guest=answers).start(("/bin/true",))
    assert words in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("said", "code"),
    [('{"exited" : 0}', None), ('{"exited" : 1, "exitcode" : 72}', 72), ('{"exited" : 1, "signal" : 9}', 137)],
)
def test_how_a_program_ended_is_read(said: str, code: int | None) -> None:
    assert vm(guest=said).ended(812) == code


def test_it_is_compared_with_what_it_was() -> None:
    here = vm()
    here.remember()
    assert here.leave() == {"definition_sha256": here.before, "changed": [], "state": "running"}
    here.before[1] = "another"
    assert here.leave()["changed"] == ["devices as it runs"]
