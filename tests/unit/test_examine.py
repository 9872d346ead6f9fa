"""What cannot be measured is said in one line with what would enable it; on a fake machine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests import rights
from tests.fake_machine import Answers, FakeMachine, Reply
from tests.topologies import listed
from tests.userland import asks_tools, programs
from vmtax.hypervisor import Qemu, QemuError
from vmtax.hypervisor.confine import Reach, image_program, sandbox
from vmtax.hypervisor.qemu.detect import ELSEWHERE, FIRST, RIGHTS
from vmtax.machine.packages import READ
from vmtax.plan.schema import GuestSize, load, parse
from vmtax.testbed.host.cpus import QUESTION, read
from vmtax.testbed.machines import provision
from vmtax.testbed.session import examine, room
from vmtax.testbed.session.examine import note_of_below
from vmtax.testbed.session.session import CannotMeasure

QEMU = ("qemu-system-x86_64", "--version")
NOT_ELSEWHERE = (*FIRST, *ELSEWHERE)
MISSING = Reply(stderr="qemu-system-x86_64: No such file or directory", code=127)


def nested_parameter(module: str) -> tuple[str, ...]:
    return ("cat", f"/sys/module/{module}/parameters/nested")


@pytest.mark.parametrize("value", ["0", "N"])
def test_nesting_that_is_off_comes_with_how_to_switch_it_on(value: str) -> None:
    machine = FakeMachine(
        answers={nested_parameter("kvm_intel"): f"{value}\n", nested_parameter("kvm_amd"): Reply(code=1)}
    )
    with pytest.raises(CannotMeasure, match=r"modprobe kvm_intel nested=1.*--layers host,vm"):
        examine._check_nesting(machine)


@pytest.mark.parametrize("value", ["1", "Y"])
def test_nesting_that_is_on_is_fine(value: str) -> None:
    machine = FakeMachine(
        answers={nested_parameter("kvm_amd"): f"{value}\n", nested_parameter("kvm_intel"): Reply(code=1)}
    )
    examine._check_nesting(machine)


def test_another_architecture_and_a_missing_bubblewrap_are_said() -> None:
    arm = FakeMachine(answers={("uname", "-sm"): "Linux aarch64\n"})
    with pytest.raises(CannotMeasure, match="Linux aarch64; vmtax measures Linux on x86-64"):
        examine._check_host(arm)
    bare = FakeMachine(answers={("uname", "-sm"): "Linux x86_64\n", asks_tools: programs("bwrap"), READ: "ID=debian\n"})
    with pytest.raises(CannotMeasure, match="apt-get install bubblewrap"):
        examine._check_host(bare)


@pytest.mark.parametrize(
    ("workload", "refused"),
    [
        (
            "net: {cases: [tcp-in, udp-out], rate: 10}",
            "host: net's case udp-out needs a bridge and a tap, which take root",
        ),
        ("latency", "host: latency needs a bridge and a tap"),
        ("net", ""),
    ],
)
def test_without_root_what_user_networking_does_not_carry_is_refused(workload: str, refused: str) -> None:
    plan = parse(f"name: x\nlayers: [host, vm]\nworkloads:\n  - {workload}\n")
    granted: Answers = {("id", "-u"): "0\n", asks_tools: programs(), rights.asked: rights.answer()}
    examine._check_network(FakeMachine(answers=granted), plan)
    machine = FakeMachine(answers={("id", "-u"): "1000\n"})
    if not refused:
        examine._check_network(machine, plan)
        return
    with pytest.raises(CannotMeasure, match=refused):
        examine._check_network(machine, plan)


def test_a_host_with_fewer_cpus_than_a_guest_is_refused() -> None:
    topology = read(FakeMachine(answers={QUESTION: listed("2-3,8")}))
    few, many = (load("quick").model_copy(update={"guest": GuestSize(vcpus=vcpus)}) for vcpus in (3, 4))
    room.refuse_small(FakeMachine(), topology, few)
    with pytest.raises(CannotMeasure, match=r"has 3 CPUs, the plan gives a guest 4; lower guest\.vcpus"):
        room.refuse_small(FakeMachine(), topology, many)


@pytest.mark.parametrize(
    ("held", "layers", "refused"), [("1f", "host", True), ("1f", "vm", False), ("800000", "host", False)]
)
def test_wake_up_latency_on_the_host_takes_the_right_to_sched_fifo(held: str, layers: str, refused: bool) -> None:
    machine = FakeMachine(
        answers={
            ("uname", "-sm"): "Linux x86_64\n",
            rights.asked: rights.answer(),
            ("id", "-u"): "0\n",
            asks_tools: programs(),
            ("grep", "CapEff", "/proc/self/status"): f"CapEff:\t{held:0>16}\n",
            QUESTION: listed("0-3"),
            ("cat", "/proc/meminfo"): "MemAvailable: 16000000 kB\n",
        }
    )
    plan = parse(f"name: p\nlayers: [{layers}]\nworkloads: [wakeup]\n")
    if refused:
        with pytest.raises(
            CannotMeasure, match=r"takes CAP_SYS_NICE.*measure as root, or without the host: --layers vm"
        ):
            examine.check(machine, plan)
    else:
        examine.check(machine, plan)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (MISSING, r"apt-get install qemu-system-x86, or name another with --qemu"),
        (Reply(stdout="QEMU emulator version 5.2.0\n"), "7.2 or newer is needed"),
        (Reply(stdout="QEMU emulator version 7.1.9\n"), "7.2 or newer is needed"),
        (Reply(stdout="something else\n"), "is no QEMU version"),
    ],
)
def test_qemu_missing_too_old_or_not_qemu(reply: Reply, words: str) -> None:
    with pytest.raises(QemuError, match=words):
        Qemu.probe(
            FakeMachine(
                answers={
                    QEMU: reply,
                    RIGHTS: "",
                    ("cat", "/etc/os-release"): "ID=debian\n",
                    NOT_ELSEWHERE: Reply(code=1),
                }
            )
        )


ROOT = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nSeccomp:\t0\n"
EVERYBODY = "         0          0 4294967295\n"


def examined(version: str, rights: str = ROOT + 2 * EVERYBODY, sandboxed: Reply = Reply()) -> Qemu:  # noqa: B008 (frozen)
    line = f"QEMU emulator version {version}\n"
    answers: Answers = {QEMU: line, RIGHTS: rights, (QEMU[0], *sandbox(), QEMU[1]): sandboxed}
    return Qemu.probe(FakeMachine(answers=answers))


@pytest.mark.parametrize("version", ["7.2", "7.2.0", "7.10.0", "10.0.2"])
def test_the_oldest_qemu_that_is_enough_and_newer_ones_are_taken(version: str) -> None:
    assert examined(version).version == version


def test_qemu_steady_enough_to_emulate() -> None:
    old, new = examined("7.2.22 (Debian 1:7.2+dfsg-7)"), examined("10.0.13")
    assert (old.version, old.emulates_steadily) == ("7.2.22", False)
    assert (new.version, new.emulates_steadily) == ("10.0.13", True)


def test_a_qemu_of_root_becomes_another_user_and_filters_its_system_calls() -> None:
    first, second = examined("7.2.22"), examined("10.0.13")
    assert first.user and second.user and 1879048192 <= first.user != second.user <= 2147483646
    denied = "obsolete=deny,elevateprivileges={},spawn=deny,resourcecontrol=deny"
    words = ("-sandbox", f"on,{denied.format('allow')}")
    assert first.for_guest(Reach()) == (QEMU[0], *words, "-runas", f"{first.user}:{first.user}")
    assert second.for_guest(Reach())[-2:] == ("-run-with", f"user={second.user}:{second.user}")
    assert first.for_guest(Reach(), keeps_user=True) == (QEMU[0], *sandbox())
    assert not first.doubt and "-runas" not in first.without_guest(Reach())


@pytest.mark.parametrize(
    ("rights", "doubt"),
    [
        (ROOT.replace("Uid:\t0", "Uid:\t1000"), ""),
        (ROOT.replace("1ff", "1f7", 1) + 2 * EVERYBODY, ""),
        (ROOT.replace("ffffffffff", "fffff7ffff") + 2 * EVERYBODY, "root lacks CAP_SYS_PTRACE"),
        (ROOT + "0 100000 65536\n" * 2, "root of a user namespace"),
        (ROOT + EVERYBODY, "root of a user namespace"),
        ("Uid:\t0\t0\t0\t0\nSeccomp:\t0\n", "root lacks CAP_KILL"),
        ("Uid:\t1\t1\t1\t1\n", "filters no system calls"),
    ],
)
def test_why_a_qemu_is_less_confined_is_said(rights: str, doubt: str) -> None:
    found = examined("10.0.13", rights)
    assert doubt in found.doubt and bool(doubt) == bool(found.doubt)
    assert (found.user is None) == ("Uid:\t1" in rights or bool(doubt))


def test_a_qemu_without_seccomp_is_used_without() -> None:
    found = examined("10.0.13", sandboxed=Reply(code=1, stderr="-sandbox support is not enabled in this QEMU binary"))
    assert "-sandbox" not in found.for_guest(Reach()) and "filters no system calls" in found.doubt


def test_a_program_of_an_image_sees_what_it_is_given_and_no_more() -> None:
    argv = image_program("/tree", "qemu-img", Reach(("/a",), ("/b",), ("/dev/sdb",)), "--die-with-parent")
    assert argv[0] == "bwrap" and argv[-2:] == ("--", "/usr/bin/qemu-img")
    bound = [argv[n + 1 : n + 3] for n, word in enumerate(argv) if "bind" in word]
    assert bound == [("/tree/usr", "/usr"), ("/sys", "/sys"), ("/a", "/a"), ("/b", "/b"), ("/dev/sdb", "/dev/sdb")]
    tap = Qemu(("/usr/bin/qemu",), "10.0", "", tree="/tree", user=5).for_guest(Reach(devices=("/dev/net/tun",)))
    plain = Qemu(("/usr/bin/qemu",), "10.0", "", tree="/tree", user=5).for_guest(Reach(), outlives=True)
    assert "CAP_NET_ADMIN" in tap and "CAP_NET_ADMIN" not in plain and "CAP_SETUID" in plain
    assert "CAP_IPC_LOCK" not in plain
    assert "--unshare-pid" in tap and not {"--die-with-parent", "--unshare-pid"} & {*plain}, "a lab's runs on"
    assert image_program("/", "qemu-img") == ("qemu-img",), "the image is the machine's own system"


def test_what_the_host_itself_runs_on_is_noted_beside_the_figures() -> None:
    metal = {"virtualized": False, "hypervisor": None, "emulated_cpu": False}
    assert note_of_below(metal) is None
    assert note_of_below(dict.fromkeys(metal)) is None, "what is not known is not claimed"
    guest = note_of_below(metal | {"virtualized": True, "hypervisor": "kvm"}) or ""
    assert "itself a VM (under kvm)" in guest and "what nesting costs" in guest and "emulated" not in guest
    assert "itself emulated (TCG)" in (note_of_below(metal | {"virtualized": True, "emulated_cpu": True}) or "")


@pytest.mark.parametrize(
    ("gib", "cache", "words"),
    [
        (8, "[none, directsync]", ""),
        (8, "[none, writeback]", "below the host's page cache, where that is used (cache writeback): 4.0 GiB of disk"),
        (4, "[writeback, unsafe]", "above the host's page cache, where that is used (cache writeback, unsafe)"),
    ],
)
def test_a_working_set_that_fits_into_the_page_cache_is_called_so(gib: int, cache: str, words: str) -> None:
    text = f"name: x\nlayers: [vm]\nfactors: {{disk.cache: {cache}}}\nworkloads: [disk]"
    plan = parse(text)
    told = {("cat", "/proc/meminfo"): f"MemAvailable: {gib * 2**20} kB\n"}
    host = SimpleNamespace(host=FakeMachine(answers=told), plan=plan, disk_size=4 * 2**30)
    notes = provision._working_set(host, plan.treatments()[0])
    assert words in " ".join(notes) and bool(notes) == bool(words)
    nested = parse(text.replace("[vm]", "[nested]")).treatments()[0]
    assert provision._working_set(host, nested) == [], "its carrier caches that"
