"""Ways into a domain of libvirt: what is read of it, what is plugged in, and what refuses it in one line."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import cast
from unittest.mock import MagicMock

import pytest
from typer.testing import CliRunner

import vmtax.attach
from tests.fake_machine import FakeMachine, Reply, Scripted
from tests.sample import sample_experiment
from vmtax.analysis.analysis import Analysis
from vmtax.attach import agent
from vmtax.attach.agent import AgentRefused
from vmtax.attach.domain import COPIED, FULL, Domain, DomainError, find_domain, script
from vmtax.attach.entry import END, FAILURES, LAUNCH, Entered
from vmtax.attach.libvirt import SOCKET, LibvirtVm, has_two_slots
from vmtax.attach.scratch import plugged_disk, why_not
from vmtax.cli.app import app
from vmtax.cli.work import RunWork, fitted
from vmtax.core.errors import BadInput
from vmtax.experiment.resume import CannotResume
from vmtax.experiment.runner import Options
from vmtax.machine.ssh import SshMachine
from vmtax.plan.errors import PlanError
from vmtax.plan.schema import parse
from vmtax.report.wording.guest_settings import guest_settings
from vmtax.testbed.session.session import ExistingVm, Hosts, TestbedOptions
from vmtax.testbed.session.ways import Plugged
from vmtax.testbed.subjects.existing import refuse_factors

UUID = "8662b4e3-a27d-41ac-868a-c680d4d26354"
INFO = """\
Id:             3
Name:           web1
UUID:           8662b4e3-a27d-41ac-868a-c680d4d26354
OS Type:        hvm
State:          {state}
CPU(s):         {cpus}
CPU time:       19.5s
Max memory:     2097152 KiB
Used memory:    {memory}
Persistent:     yes
"""
XML = """\
<domain type='kvm' id='3'>
  <devices>
    <disk type='file' device='cdrom'><driver name='qemu' type='raw' cache='none'/><target dev='sda' bus='sata'/></disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='writethrough' io='threads' discard='unmap' iothread='1'/>
      <source file='/var/lib/libvirt/images/web1.qcow2' index='1'/>
      <target dev='vda' bus='{bus}'/>
      <address type='pci' domain='0x0000' bus='0x04' slot='0x00' function='0x0'/>
    </disk>
    <controller type='pci' index='0' model='pcie-root'/>
{ports}
    <channel type='unix'>
      <source mode='bind' path='/var/lib/libvirt/qemu/channel/target/domain-3-web1/org.vmtax.0'/>
      <target type='virtio' name='vmtax-port'/>
    </channel>
  </devices>
</domain>
"""


def info(state: str = "running", cpus: str = "2", memory: str = "1048576 KiB") -> str:
    return INFO.format(state=state, cpus=cpus, memory=memory)


def xml(bus: str = "virtio", ports: int = 6) -> str:
    lines = [f"    <controller type='pci' index='{n}' model='pcie-root-port'/>" for n in range(1, ports + 1)]
    return XML.format(bus=bus, ports="\n".join(lines))


def host(**answers: Scripted) -> FakeMachine:
    """A host whose virsh answers so; by default, web1 runs and no job does."""
    script = {
        "uri": "qemu:///system\n",
        "dominfo": info(),
        "domjobinfo": "Job type:         None\n",
        "blockjob": "",
        "list": "web1\nmail\n",
        "dumpxml": xml(),
    }
    script |= answers
    verbs = {verb.replace("_", "-"): said for verb, said in script.items()}
    asked = {(lambda argv, verb=verb: "virsh" in argv and verb in argv[4:8]): said for verb, said in verbs.items()}
    return FakeMachine("host", {**asked, (lambda argv: argv[0] in ("tee", "cat")): ""})


def domain(machine: FakeMachine) -> Domain:
    return Domain(machine, "web1", UUID, "qemu:///system", 2, 2**30, token="1234abcd")


def test_a_domain_is_read_without_its_guest() -> None:
    machine = host()
    seen = find_domain(machine, "web1")
    assert (seen.vcpus, seen.memory, seen.uuid[:8]) == (2, 2**30, "8662b4e3")
    assert not any("qemu-agent-command" in word for argv in machine.calls for word in argv)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"uri": Reply(code=127)}, "virsh is missing there"),
        ({"uri": "qemu+ssh://root@other/system\n"}, "leads to another host: --host ssh://root@other"),
        ({"uri": "test:///default\n"}, "leads to no QEMU"),
        ({"dominfo": info().replace("web1", "mail")}, "libvirt takes web1 for mail: name it by that, or by its UUID"),
        ({"dominfo": Reply(stderr="error: failed to get domain 'web1'", code=1)}, "there are: web1, mail"),
        (
            {"dominfo": Reply(stderr="error: failed to get domain 'web1'", code=1), "list": ""},
            "this connection has no domains. Domains of a user",
        ),
        (
            {"dominfo": Reply(stderr="error: failed to connect to the hypervisor", code=1), "list": Reply(code=1)},
            "conn",
        ),
        ({"dominfo": info("shut off")}, "is shut off: virsh start web1; or measure clones of it: --clone"),
        ({"dominfo": info("paused")}, "says why): virsh resume web1"),
        ({"dominfo": info("crashed")}, "has crashed: virsh start web1"),
        ({"dominfo": info("pmsuspended")}, "is suspended: virsh dompmwakeup web1"),
        ({"dominfo": info("in shutdown")}, "is being shut down"),
        ({"dominfo": info("dying")}, "is dying, and not running"),
        ({"dominfo": info("")}, "not running"),
        ({"domjobinfo": "Job type:         Unbounded\n"}, "a job runs on it (Unbounded), such as a backup"),
        ({"domjobinfo": "Job type:         Backup\n"}, "a job runs on it (Backup)"),
    ],
)
def test_a_domain_that_cannot_be_measured_is_refused_in_one_line(answers: dict[str, Scripted], words: str) -> None:
    with pytest.raises(DomainError) as refused:
        find_domain(host(**answers), "web1")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "answer", [info(cpus=""), info(cpus="-2"), info(cpus="2.5"), info(memory="lots"), info(memory="")]
)
def test_an_odd_answer_about_its_size_is_no_traceback(answer: str) -> None:
    with pytest.raises(Exception, match="must stand there") as refused:
        find_domain(host(dominfo=answer), "web1")
    assert "virsh dominfo web1" in str(refused.value)


def test_our_disk_has_the_settings_of_its_own() -> None:
    settings = domain(host()).settings()
    assert settings == {"bus": "virtio", "cache": "writethrough", "io": "threads", "discard": "unmap"}
    text = domain(host()).disk("data", "/var/tmp/a 'b'.raw", "virtio", settings)
    assert 'cache="writethrough" io="threads" discard="unmap"' in text
    assert "readonly" not in text and "iothread" not in text
    assert "file=\"/var/tmp/a 'b'.raw\"" in text
    assert settings.keys() <= {"bus", *COPIED}


def test_the_image_is_plugged_in_read_only_and_keeps_its_owner() -> None:
    text = domain(host()).disk("image", "/var/tmp/root.erofs", "scsi", {}, readonly=True)
    assert "<readonly/>" in text and "relabel='no'" in text and "dev='sdz' bus='scsi'" in text
    assert "controller='0' unit='102'" in text, "libvirt would derive a controller from the name, which is not there"
    assert "<serial>vmtax-1234abcd-image</serial><alias name='ua-vmtax-1234abcd-image'/>" in text


@pytest.mark.parametrize(("ports", "free"), [(0, True), (1, False), (2, False), (3, True), (6, True)])
def test_whether_two_disks_fit_is_known_before_one_is_plugged_in(ports: int, free: bool) -> None:
    """One of the ports carries the VM's own disk."""
    assert has_two_slots(domain(host(dumpxml=xml(ports=ports)))) is free


@pytest.mark.parametrize(
    ("own", "ports", "bus", "note"),
    [
        ("virtio", 6, "virtio", ""),
        ("virtio", 2, "scsi", "because no slot for virtio is free"),
        ("scsi", 6, "scsi", ""),
        ("sata", 6, "virtio", "because none can be plugged in on sata while a VM runs"),
    ],
)
def test_disks_go_to_the_bus_of_its_own_disk_where_a_slot_is_free(own: str, ports: int, bus: str, note: str) -> None:
    machine = host(dumpxml=xml(own, ports), attach_device="")
    taken, said = LibvirtVm(domain(machine)).plug_image("/var/tmp/root.erofs")
    assert taken == bus
    assert note in said and bool(note) == bool(said)
    listed = [entry.what[-2] for entry in machine.undo_list if isinstance(entry.what, tuple)]
    plugged = [text for argv, text in machine.inputs if argv[0] == "tee"]
    assert len([text for text in plugged if text.startswith("<controller")]) == (bus == "scsi")
    assert listed[-1] == "ua-vmtax-1234abcd-image", "its disk is unplugged before the controller"


def test_a_machine_without_slots_is_refused_with_the_words_of_libvirt_and_what_to_do() -> None:
    machine = host(dumpxml=xml(ports=2), attach_device=Reply(stderr=f"error: internal error: {FULL}", code=1))
    with pytest.raises(DomainError, match=rf"^libvirt:web1: .*{FULL}: unplug one of its devices, or log in"):
        LibvirtVm(domain(machine)).plug_image("/var/tmp/root.erofs")


def test_a_connection_that_may_only_read_is_refused_with_what_to_do() -> None:
    said = Reply(stderr="error: operation forbidden: read only access prevents virDomainAttachDeviceFlags", code=1)
    with pytest.raises(DomainError, match="run as root on that host"):
        domain(host(attach_device=said)).attach("<disk/>")


def test_what_a_security_module_may_have_forbidden_comes_with_where_that_is_said() -> None:
    words = "error: internal error: unable to execute QEMU command 'blockdev-add': '/a': Permission denied"
    with pytest.raises(DomainError, match=r"Permission denied; if no file's mode says so, AppArmor or SELinux forbids"):
        domain(host(attach_device=Reply(stderr=words, code=1))).attach("<disk/>")
    for other in (
        "error: Failed to connect socket to '/run/libvirt/libvirt-sock': Permission denied",
        "error: internal error: unable to execute QEMU agent command 'guest-fsfreeze-freeze': /mnt: Permission denied",
    ):
        with pytest.raises(DomainError) as refused:
            domain(host(attach_device=Reply(stderr=other, code=1))).attach("<disk/>")
        assert "AppArmor" not in str(refused.value)


@pytest.mark.parametrize(
    ("channel", "words"),
    [
        ("", "its guest agent does not answer (it has no channel for one): install and start qemu-guest-agent"),
        (
            "<target type='virtio' name='org.qemu.guest_agent.0' state='disconnected'/>",
            "nothing in the guest has opened",
        ),
        ("<target type='virtio' name='org.qemu.guest_agent.0' state='connected'/>", None),
        ("<target type='virtio' name='org.qemu.guest_agent.0'/>", None),
    ],
)
def test_a_vm_without_an_agent_is_refused_before_anything_is_plugged_into_it(channel: str, words: str | None) -> None:
    machine = host(dumpxml=xml().replace("</devices>", f"<channel type='unix'>{channel}</channel></devices>"))
    if words is None:
        assert LibvirtVm.found(machine, "web1").name == "libvirt:web1"
    else:
        with pytest.raises(AgentRefused, match=re.escape(words)):
            LibvirtVm.found(machine, "web1")
    assert not any("qemu-agent-command" in word for argv in machine.calls for word in argv), "nobody is asked"


def test_a_windows_without_an_agent_is_told_how_to_log_in() -> None:
    defined = xml().replace("<devices>", '<libosinfo:os id="http://microsoft.com/win/11"/><devices>')
    with pytest.raises(AgentRefused, match="--guest ssh://Administrator@ADDRESS"):
        LibvirtVm.found(host(dumpxml=defined), "web1")


def test_a_libvirt_that_does_not_answer_is_said_with_how_to_look() -> None:
    said = Reply(stderr="error: Failed to connect socket to '/run/libvirt/libvirt-sock': No such file", code=1)
    with pytest.raises(DomainError, match=r"libvirt:web1: Failed to connect .*does libvirt run there \(systemctl"):
        find_domain(host(uri=said), "web1")


def test_its_removal_is_listed_before_a_device_is_plugged_in() -> None:
    machine = host()
    domain(machine).detach_later("port")
    assert [entry.what for entry in machine.undo_list] == [
        (*script("saved", "detach"), "qemu:///system", UUID, "ua-vmtax-1234abcd-port", "web1")
    ]


def test_the_socket_of_our_port_is_read_from_its_definition() -> None:
    assert SOCKET.findall(xml()) == [("/var/lib/libvirt/qemu/channel/target/domain-3-web1/org.vmtax.0", "vmtax-port")]


def test_nothing_that_a_program_prints_is_fetched_through_the_agent() -> None:
    machine = host(qemu_agent_command='{"return":{"pid":77}}')
    assert agent.start(domain(machine), ("/bin/sh", "-c", LAUNCH), "a key\n") == 77
    sent = json.loads(machine.calls[-1][-1])
    assert sent["execute"] == "guest-exec"
    assert sent["arguments"]["capture-output"] is False
    assert base64.b64decode(sent["arguments"]["input-data"]) == b"a key\n"
    assert "a key" not in " ".join(machine.calls[-1]), "a key is on no command line in the guest"


@pytest.mark.parametrize(
    ("said", "frozen", "words"),
    [
        ("Command guest-exec has been disabled: the command is not allowed", "thawed", "may not start programs"),
        ("Command guest-exec has been disabled", "frozen", "frozen, as for a backup"),
        ("The command guest-exec has not been found", "thawed", "may not start programs"),
        ("Guest agent is not responding: QEMU guest agent is not connected", "thawed", "does not answer"),
        ("argument unsupported: QEMU guest agent is not configured", "thawed", "org.qemu.guest_agent.0"),
        ("QEMU guest agent is not available due to an error", "thawed", "--guest ssh://root@ADDRESS"),
        ("Requested operation is not valid: domain is not running", "thawed", "domain is not running"),
    ],
)
def test_an_agent_that_refuses_is_told_in_one_line_with_what_to_type(said: str, frozen: str, words: str) -> None:
    first = Reply(stderr=f"error: {said}", code=1)
    machine = host(qemu_agent_command=[first, f'{{"return":"{frozen}"}}'])
    with pytest.raises(agent.AgentRefused) as refused:
        agent.start(domain(machine), ("/bin/true",))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("answer", ["", "null", "[]", '{"return":1}', '{"return":{"pid":"x"}}', "{" * 100])
def test_an_odd_answer_of_the_agent_is_no_traceback(answer: str) -> None:
    with pytest.raises(agent.AgentRefused):
        agent.start(domain(host(qemu_agent_command=answer)), ("/bin/true",))


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ('{"return":{"exited":false}}', None),
        ('{"return":{"exited":true,"exitcode":72}}', 72),
        ('{"return":{"exited":true,"signal":9}}', 137),
        ('{"return":{"exited":true}}', 1),
    ],
)
def test_how_a_program_ended_is_read(answer: str, code: int | None) -> None:
    assert agent.ended(domain(host(qemu_agent_command=answer)), 77) == code


@pytest.mark.parametrize("started", ["/usr/bin/unshare --mount --pid x", "unshare --mount x", "sh -c x"])
def test_only_what_this_run_started_is_ended(started: str) -> None:
    """systemd-run starts a program by its whole path, and its child is a shell; the real shells, without a guest."""
    words = f"exec -a '{started} {{0}}-way {{0}}-image {{0}}-port' sleep 60"
    runs = [subprocess.Popen(["/bin/bash", "-c", words.format(token)]) for token in ("vmtax-1", "vmtax-2")]
    try:
        while not all(started.encode() in Path(f"/proc/{run.pid}/cmdline").read_bytes()[:40] for run in runs):
            pass
        subprocess.run(["/bin/sh", "-c", END, "sh", "vmtax-1-way"], check=True)
        assert runs[0].wait(10) == -9 and runs[1].poll() is None
    finally:
        for run in runs:
            run.kill()
            run.wait()


def test_it_is_left_in_the_reverse_order_and_compared() -> None:
    machine = host(domstate="running\n")
    entered = domain(machine)
    entered.before[:] = entered.digests()
    for what in ("port", "image"):
        entered.detach_later(what)
    assert entered.leave()["changed"] == []
    assert [what[-2] for what in machine.undone if isinstance(what, tuple)] == [
        entered.alias("image"),
        entered.alias("port"),
    ]
    entered.before[0] = "another"
    assert entered.leave()["changed"] == ["definition as it runs"]


def test_the_balloon_and_the_agents_connection_are_no_changes_of_a_definition() -> None:
    plain = "<memory>1</memory><currentMemory unit='KiB'>{}</currentMemory><target name='a' state='{}'/>"
    first, second = (domain(host(dumpxml=plain.format(*pair))) for pair in ((1, "connected"), (2, "disconnected")))
    assert first.digests() == second.digests()
    assert first.digests() != domain(host(dumpxml=plain.replace("<memory>1", "<memory>2"))).digests()


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ({}, None),
        ({"cache": "directsync"}, None),
        ({"cache": "writeback"}, "name disk.aio too"),
        ({"cache": "writeback", "io": "threads"}, None),
        ({"cache": "writeback", "io": "native"}, "leave out one of them"),
        ({"io": "io_uring"}, None),
    ],
)
def test_two_settings_never_change_at_once_unsaid(named: dict[str, str], why: str | None) -> None:
    """How I/O is submitted depends on the cache mode; where only that is named, nothing else may follow in silence."""
    refused = why_not({"cache": "none", "io": "native"}, named)
    assert refused is None if why is None else why in str(refused)


@pytest.mark.parametrize(
    "factors",
    [
        *("guest.vcpus: ['1', '2']", "guest.memory: [1GiB, 2GiB]", "guest.count: ['1', '2']"),
        *("disk.filesystem: [ext4]", "cpu.governor: [performance]"),
    ],
)
def test_a_vm_is_not_compared_with_a_host_of_other_levels(factors: str) -> None:
    plan = parse(f"{{name: x, layers: [host, existing, vm], factors: {{{factors}}}, workloads: [disk]}}")
    with pytest.raises(BadInput, match="in which libvirt:web1 stays as it is"):
        refuse_factors(plan, ExistingVm("libvirt:web1"))


@pytest.mark.parametrize(("name", "advised"), [("quick", False), ("density", True)])
def test_a_plan_is_not_advised_in_its_own_place(name: str, advised: bool) -> None:
    plan = parse(f"{{name: {name}, layers: [host, vm], factors: {{guest.count: ['1', '2']}}, workloads: [disk]}}")
    with pytest.raises(BadInput) as refused:
        refuse_factors(plan, ExistingVm("libvirt:web1"))
    assert str(refused.value).endswith("such as quick" if advised else "leave them out")


def test_each_way_in_which_entering_fails_has_its_sentence() -> None:
    codes = {int(code) for text in (script("inside")[2], LAUNCH) for code in re.findall(r"exit (7\d)", text)}
    assert codes == FAILURES.keys() and len(codes) > 5


VIRSH_STUB = """\
#!/bin/sh
echo "$*" >> "$0.log"
case "$*" in
    *detach-device-alias*) touch "$0.asked"; exit 0 ;;
    *managedsave-dumpxml*)
        if grep -qx saved "$0.says"; then echo "<source file='$2/plugged'/><alias name='ua-x'/>"; exit 0; fi
        grep -qx other "$0.says" && echo "<alias name='ua-y'/>" && exit 0
        echo "error: Requested operation is not valid: domain does not have managed save image" >&2; exit 1 ;;
    *domstate*) grep -qx -e file -e other "$0.says" && echo "shut off (saved)" || echo "shut off (shutdown)"; exit 0 ;;
esac
case "$(cat "$0.says")" in
    has) echo "<alias name='ua-x'/>" ;;
    released) [ -e "$0.asked" ] || echo "<alias name='ua-x'/>" ;;
    off | saved | file | other) echo "<domain/>" ;;
    gone) echo "error: failed to get domain '1234'" >&2; exit 1 ;;
    down) echo "error: failed to connect to the hypervisor" >&2; exit 1 ;;
esac
"""


@pytest.mark.parametrize(
    ("says", "code", "words", "detaches"),
    [
        ("released", 0, "", True),
        ("off", 0, "", False),
        ("saved", 1, "web1 was saved with ua-x in it: virsh start web1 (or virsh restore)", False),
        ("file", 1, "web1 was saved with ua-x in it", False),
        ("other", 0, "", False),
        ("gone", 0, "", False),
        ("down", 1, "whether web1 still has ua-x is not known: error: failed to connect", False),
        ("has", 1, "web1 does not let go of ua-x: virsh detach-device-alias 1234 ua-x --live", True),
    ],
)
@pytest.mark.varied(4)
def test_a_device_counts_as_gone_only_if_libvirt_says_so(
    tmp_path: Path, says: str, code: int, words: str, detaches: bool
) -> None:
    done = by_stub(tmp_path, says, "detach", "ua-x")
    assert (done.returncode, words in done.stderr) == (code, True)
    asked = (tmp_path / "virsh.log").read_text()
    assert ("detach-device-alias" in asked) is detaches
    assert "elsewhere" not in asked, "who undoes it may have another environment"


def by_stub(directory: Path, says: str, name: str, what: str) -> subprocess.CompletedProcess[str]:
    """The script of that name about web1 and something that was plugged into it, by a virsh that says so."""
    stub, quick = directory / "virsh", directory / "sleep"
    stub.write_text(VIRSH_STUB.replace("$2", str(directory)))
    quick.write_text("#!/bin/sh\n")
    for program in (stub, quick):
        program.chmod(0o755)
    (directory / "virsh.says").write_text(says)
    argv = [*script("saved", name), "qemu:///system", "1234", what, "web1"]
    environment = {"PATH": f"{directory}:{os.environ['PATH']}", "LIBVIRT_DEFAULT_URI": "qemu+ssh://elsewhere/system"}
    return subprocess.run(argv, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("says", "stays"),
    [("off", False), ("saved", True), ("file", True), ("other", False), ("gone", False), ("released", False)],
)
def test_a_file_with_which_a_vm_was_saved_stays_until_it_runs_again(tmp_path: Path, says: str, stays: bool) -> None:
    """Without it, its owner could not start the VM any more."""
    file = tmp_path / "plugged"
    file.touch()
    done = by_stub(tmp_path, says, "remove", str(file))
    assert (done.returncode, file.exists()) == (int(stays), stays)
    assert ("web1 was saved with" in done.stderr) is stays
    file.unlink(missing_ok=True)
    assert by_stub(tmp_path, says, "remove", str(file)).returncode == 0, "it was never made"


def test_a_plugged_disk_has_a_name_of_its_own_which_its_vm_may_keep() -> None:
    vm = MagicMock(**{"host.succeeds.return_value": True, "serial.return_value": "vmtax-1-data"})
    guest = cast(SshMachine, FakeMachine("vm", {(lambda argv: argv[0] == "sh"): "/dev/sdb\n"}))
    inside = Entered(vm, guest, "scsi", PurePosixPath("/var/tmp"))
    with plugged_disk(inside, "/srv/run/data.raw", {}) as device:
        assert device == "/dev/sdb"
    did = [call[0] for call in vm.mock_calls if call[0] in ("removal_of", "host.succeeds", "plug_data")]
    assert did == ["removal_of", "host.succeeds", "plug_data"], "its removal is listed first"
    vm.plug_data.assert_called_once_with("/var/tmp/vmtax-1-data", "scsi", {})
    vm.host.succeeds.return_value = False
    with plugged_disk(inside, "/dev/vg/data", {}):
        assert vm.plug_data.call_args.args[0] == "/dev/vg/data", "a device has no second name"


def test_a_guest_without_namespaces_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "unshare").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "unshare").chmod(0o755)
    done = subprocess.run(["/bin/sh", "-c", LAUNCH, "sh", "unit", "true"], env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.returncode == 74 and 74 in FAILURES


@pytest.mark.parametrize("knows", [True, False])
def test_old_programs_are_given_only_options_that_they_know(tmp_path: Path, knows: bool) -> None:
    """The unshare of busybox and of an old util-linux, and an old systemd."""
    runs = tmp_path / "runs"
    runs.mkdir()
    for name, option in (("unshare", "--kill-child"), ("systemd-run", "--collect")):
        (tmp_path / name).write_text(
            f"#!/bin/sh\n[ $1 = --help ] && echo '{option if knows else ''}' || echo {name} $*\n"
        )
        (tmp_path / name).chmod(0o755)
    argv = ["/bin/sh", "-c", LAUNCH.replace("/run/systemd/system", str(runs)), "sh", "unit", "true"]
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    said = subprocess.run(argv, env=path, capture_output=True, text=True).stdout
    assert said.startswith("systemd-run --scope ") and " unshare --mount --pid --fork " in said
    assert ("--kill-child" in said, "--collect" in said) == (knows, knows)


def test_a_unit_is_made_only_where_systemd_runs(tmp_path: Path) -> None:
    """It may be installed and not run, as beside sysvinit."""
    runs = tmp_path / "runs"
    for name in ("systemd-run", "setsid", "unshare"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} --kill-child\n")
        (tmp_path / name).chmod(0o755)
    argv = ["/bin/sh", "-c", LAUNCH.replace("/run/systemd/system", str(runs)), "sh", "unit", "true"]
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for starter in ("setsid", "systemd-run"):
        done = subprocess.run(argv, env=path, capture_output=True, text=True)
        assert done.stdout.split()[0] == starter
        runs.mkdir(exist_ok=True)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (" type=Block Pull\n bandwidth=1\n cur=2621440\n end=2147483648\n", "a job works on its disk sda (Block Pull)"),
        ("", ""),
        (Reply(stderr="error: argument unsupported", code=1), ""),
    ],
)
def test_a_job_on_a_disk_is_waited_for(said: Scripted, words: str) -> None:
    """As virsh 9.0 says it; such a job is none of the domain's."""
    machine = host(blockjob=said)
    if not words:
        find_domain(machine, "web1")
        return
    with pytest.raises(DomainError) as refused:
        find_domain(machine, "web1")
    assert words in str(refused.value) and "virsh blockjob web1 sda" in str(refused.value)


def test_no_key_is_on_a_command_line_of_the_host() -> None:
    machine = host(qemu_agent_command='{"return":{"pid":77}}')
    agent.start(domain(machine), ("/bin/sh", "-c", LAUNCH), "ssh-ed25519 AAAA\n")
    assert "PRIVATE" not in (
        script("inside")[2] + base64.b64decode(json.loads(machine.calls[-1][-1])["arguments"]["input-data"]).decode()
    )
    assert "ssh-keygen" in script("inside")[2], "the guest makes its server's key"


def test_an_existing_vm_is_compared_in_the_settings_of_a_plugged_disk_only() -> None:
    text = "{{name: x, layers: [host, existing], factors: {{{}}}, workloads: [disk]}}"
    plan = parse(text.format("disk.cache: [writethrough, none]"))
    assert [(each.name, dict(each.levels)) for each in plan.treatments()[0] if each.layer == "existing"] == [
        ("existing", {"disk.cache": "writethrough"}),
        ("existing disk.cache=none", {"disk.cache": "none"}),
    ]
    refuse_factors(plan, ExistingVm("libvirt:web1"))
    with pytest.raises(BadInput, match="keeps its disk as it is: name it as libvirt:NAME or proxmox:VMID"):
        refuse_factors(plan, ExistingVm("ssh://vm"))
    with pytest.raises(PlanError, match="is about vm and nested and clone, but layers has host, existing"):
        parse(text.format("cpu.model: [host]"))


def test_the_first_screen_says_which_vm_was_measured() -> None:
    facts = {"host/existing": {"cpus_online": 2, "memory_bytes": 2**30, "os": None, "kernel_release": "6.1.0-18"}}
    sample = sample_experiment()
    run = dataclasses.replace(sample, options={"existing": {"name": "libvirt:web1"}}, facts={**sample.facts, **facts})
    assert guest_settings(Analysis(run)).startswith("Existing VM: libvirt:web1, 2 CPUs, 1.0 GiB, kernel 6.1.0-18.")
    assert not guest_settings(Analysis(sample)).startswith("Existing VM")


@pytest.mark.parametrize(("vcpus", "uuid", "goes_on"), [(2, UUID, True), (4, UUID, False), (2, "another", False)])
def test_a_run_goes_on_in_the_same_vm_only(vcpus: int, uuid: str, goes_on: bool) -> None:
    plan = parse("{name: x, layers: [host, existing], workloads: [disk], guest: {vcpus: 2, memory: 1GiB}}")
    sample = sample_experiment()
    resumed = dataclasses.replace(sample, facts={**sample.facts, "host/existing": {"uuid": uuid}})
    machine = host()
    way = Plugged(LibvirtVm(dataclasses.replace(domain(machine), vcpus=vcpus)), PurePosixPath("/var/tmp"))
    work = RunWork(plan, Options("vmtax run", TestbedOptions()), resumed)
    hosts = Hosts(machine, machine, existing=way)  # type: ignore[arg-type]
    if goes_on:
        assert fitted(work, hosts).plan.guest.vcpus == 2
        return
    with pytest.raises(CannotResume, match="has another size now, or is another VM"):
        fitted(work, hosts)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--guest-dir /x", "add --guest"),
        ("--guest foo", "must be libvirt:NAME, proxmox:VMID, or ssh://"),
        ("--guest ssh://", "must be libvirt:NAME, proxmox:VMID, or ssh://"),
        ("--guest qemu:00", "can log in to the VM; or, with plan idle, qemu:PID"),
        ("--guest lab:x", "must be libvirt:NAME, proxmox:VMID, or ssh://"),
        ("--guest proxmox:1x", "must be proxmox:VMID, such as proxmox:101"),
        ("--guest proxmox:101 --clone", "or compare its settings in a guest of ours: vmtax plan from proxmox:101"),
        ("--guest proxmox:101 --guest-dir /x", "--disk-dir says where on its host"),
        ("--guest qemu:4711", "`vmtax plan from qemu:4711` takes its settings"),
        ("--guest libvirt:", "no domain can be called that"),
        ("--guest libvirt:x --guest-dir /x", "--disk-dir says where on its host"),
        ("--guest ssh://h --guest-dir x", "must be absolute"),
        ("--guest libvirt:x --vcpus 3", "has its own size"),
        ("--guest libvirt:x --disk-device /dev/sdx", "the host alone would have such a disk"),
        ("--guest libvirt:x --disk-pool tank", "the host alone would have such a disk"),
        ("--guest libvirt:x --interleave-with ssh://b", "leave out --interleave-with"),
        ("--guest libvirt:x --layers existing", "a VM alone is compared with nothing"),
        ("--layers host,existing", "name it with --guest"),
        ("--guest ssh://h --vary disk.cache=none,writeback", "keeps its disk as it is"),
        ("--guest libvirt:x --vary guest.vcpus=1,2", "in which libvirt:x stays as it is"),
        ("--guest libvirt:x --vary cpu.model=host,max", "is about vm and nested"),
    ],
)
def test_what_the_command_line_says_of_a_vm_is_done_or_refused(
    words: str, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    done = CliRunner().invoke(app, ["plan", "check", "quick", *words.split()])
    assert isinstance(done.exception, BadInput) and why in str(done.exception)
    assert "\n" not in str(done.exception)


@pytest.mark.parametrize("plan", ["pages", "storage", "density"])
def test_a_plan_about_guests_of_ours_is_refused_in_one_line(
    plan: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    done = CliRunner().invoke(app, ["plan", "check", plan, "--guest", "libvirt:x"])
    assert isinstance(done.exception, BadInput) and f"plan {plan} compares" in str(done.exception)
    assert "\n" not in str(done.exception)


def test_a_port_that_is_unplugged_under_a_connection_is_its_quiet_end(tmp_path: Path) -> None:
    """QEMU resets it: the client of ssh must say nothing then."""
    with socket.socket(socket.AF_UNIX) as port:
        port.bind(str(tmp_path / "port"))
        port.listen()
        argv = [sys.executable, str(Path(vmtax.attach.__file__).parent / "connect.py"), str(tmp_path / "port")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(argv, **pipes) as client:  # type: ignore[call-overload]
            link, _ = port.accept()
            client.stdin.write(b"not read")
            client.stdin.flush()
            link.recv(1, socket.MSG_PEEK)
            link.sendall(b"said")
            assert client.stdout.read(4) == b"said"
            link.close()  # with unread bytes: a reset
            assert client.wait(20) == 0
            assert client.stderr.read() == b""
