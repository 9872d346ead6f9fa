"""What is said before a run: computed from the plan and from what the host tells, and nothing is changed there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from tests import rights
from tests.fake_machine import FakeMachine, Reply
from tests.mounts import only
from tests.topologies import listed
from tests.userland import asks_tools, programs
from vmtax.attach.domain import FIND_QEMU, OFF
from vmtax.core.errors import BadInput
from vmtax.core.units import format_span
from vmtax.experiment import preview
from vmtax.experiment.outlook import Line, outlook
from vmtax.experiment.preview import look
from vmtax.hypervisor.qemu.detect import DEFAULT, ELSEWHERE, FIRST, RIGHTS, QemuError
from vmtax.image.cache import Image, ImageError
from vmtax.image.packs import PackKind, Userland
from vmtax.machine.local import ISOLATED, PYTHON
from vmtax.machine.packages import READ as OS_RELEASE
from vmtax.meter import below
from vmtax.meter.disk import ITSELF, LSBLK
from vmtax.meter.mounts import READ
from vmtax.meter.neighbours import LOAD, PROCESSES, VMMS
from vmtax.meter.text import GREP
from vmtax.plan.estimate import GUESS, Emulation, foresee, seconds_per_round
from vmtax.plan.schema import Plan, Rounds, load, parse
from vmtax.storage import StorageError, Target
from vmtax.storage.absent import HAS_FILE_SYSTEM, HAS_MAPPER
from vmtax.system import ownership
from vmtax.testbed.host.cpus import QUESTION
from vmtax.testbed.parts.network import HAS_VHOST
from vmtax.testbed.session.cloning import Cloning
from vmtax.testbed.session.session import CannotMeasure, Hosts, TestbedOptions
from vmtax.testbed.session.ways import RunByHost

GIB = 2**30


def host(
    *,
    root: bool = True,
    available: int = 8 * GIB,
    free: int = 50 * GIB,
    cpu: str = "",
    cpuid: str = "",
    unsafe: str = "",
    vms: str = "",
    more: dict[Any, Any] | None = None,
) -> FakeMachine:
    """Answers what is read; whatever else is asked fails the test, so nothing is set up."""
    return FakeMachine(
        answers={
            (*GREP, "", *below.FILES): Reply(cpu, code=2),
            below.CPUID: cpuid,
            ("id", "-u"): "0\n" if root else "1000\n",
            HAS_VHOST: Reply(code=1),
            PROCESSES: Reply(vms, code=0 if vms else 1),
            LOAD: "0.42 0.31 0.30 1/200 4711\n",
            ("cat", "/proc/meminfo"): f"MemTotal: 1 kB\nMemAvailable:   {available // 1024} kB\n",
            (*READ, "/var/tmp"): only("xfs", "/dev/nvme0n1p2", free=50 * GIB),
            (*LSBLK, "/dev/nvme0n1p2"): Reply(code=1),
            (PYTHON, *ISOLATED, Path(ownership.__file__).read_text(encoding="utf-8"), "/var/tmp"): (
                Reply(stderr=f"{unsafe}\n", code=1) if unsafe else ""
            ),
            ("mkdir", "-m", "700", "/tmp/vmtax"): "",
            RIGHTS: "",
            ("cat", "/etc/os-release"): "ID=debian\n",
            (*FIRST, *ELSEWHERE): Reply(code=1),
            ("/opt/qemu", "--version"): "QEMU emulator version 10.0.2",
            ("/no/qemu", "--version"): Reply(stderr="/no/qemu: No such file or directory", code=127),
            (DEFAULT, "--version"): "QEMU emulator version 10.0.2",
            ("uname", "-sm"): "Linux x86_64",
            rights.asked: rights.answer(),
            asks_tools: programs(),
            OS_RELEASE: "ID=debian\n",
            QUESTION: listed("0-3"),
            ("cat", "/proc/sys/kernel/random/boot_id"): "never seen before",
            ("stat", "-f", "-c", "%a %S", "/var/tmp"): f"{free // 4096} 4096",
            **(more or {}),
        }
    )


def lines(
    plan: Plan,
    machine: FakeMachine,
    options: TestbedOptions | None = None,
    *,
    other: FakeMachine | None = None,
    emit: Callable[[str], None] = lambda what: None,
    earlier: float | None = None,
    done: int = 0,
    emulated: str = "",
    written: float | None = None,
) -> list[Line]:
    """All that is said before the question."""
    options = options or TestbedOptions()
    places = look(plan, Hosts(cast(Any, machine), machine, other), options, emit)
    treatments = [treatment for place in places for treatment in place.treatments]
    foreseen = foresee(plan, treatments, Emulation(guests=bool(emulated)), measured=earlier, done=done)
    return outlook(plan, places, options, foreseen, emulated=emulated, written=written)


def said(plan: Plan, machine: FakeMachine, earlier: float | None = None, done: int = 0) -> dict[str, str]:
    return {line.what: line.text for line in lines(plan, machine, earlier=earlier, done=done)}


def test_what_how_long_how_much_is_written_where_and_what_it_needs() -> None:
    lines = said(load("quick"), host(), earlier=100.0)
    assert (
        lines["what"]
        == "plan quick on local: 7 rounds, each of 3 configurations (host, vm, nested), vm twice, to show the noise"
    )
    assert lines["how long"] == "about 11 m 40 s for 7 rounds, as when this plan last ran here"
    assert lines["writes"].startswith(
        "0.8 GiB to /var/tmp on /dev/nvme0n1p2 (xfs, 50.0 GiB free), then over it about 21.6 GiB if that is a SATA SSD,"
        " at most 122.2 GiB on any disk; removed again"
    )
    assert lines["needs"] == "2 CPUs, 2.1 GiB of memory at a time (8.0 GiB available)"
    assert "bridge" in lines["as root"]


def test_what_was_written_before_is_expected_again_and_a_limit_is_announced_or_refused() -> None:
    plan = load("quick")
    earlier = {line.what: line.text for line in lines(plan, host(), earlier=100.0, written=3 * GIB)}["writes"]
    assert "about 21.0 GiB as when this plan last ran here, at most 122.2 GiB" in earlier
    limited = plan.model_copy(update={"max_writes": 40 * GIB})
    assert "; the run ends before a round that may exceed 40.0 GiB in all" in said(limited, host())["writes"]
    with pytest.raises(BadInput, match=r"^max_writes is 1.0 GiB, and one round may write 18.2 GiB if the disk is fast"):
        said(plan.model_copy(update={"max_writes": GIB}), host())


def test_storage_that_another_machine_serves_is_named() -> None:
    on_nfs = host(more={(*READ, "/var/tmp"): only("nfs4", "nas:/export/vm", free=50 * GIB)})
    found = said(load("quick"), on_nfs)
    assert found["storage"].startswith("NFS: ") and " on nas:/export/vm (nfs4, 50.0 GiB free)" in found["writes"]
    assert "storage" not in said(load("quick"), host())


def test_helpers_of_qemu_are_no_vms() -> None:
    vms, others = ["qemu-system-x86", "qemu-kvm", "kvm"], ["qemu-ga", "qemu-img", "qemu-nbd", "kvm-nx-lpage-re"]
    assert [name for name in vms + others if re.fullmatch(VMMS, name)] == vms


def test_other_vms_and_the_load_are_named_before_the_question() -> None:
    assert said(load("quick"), host())["beside"] == "load 0.4 in the last minute"
    vms = "/proc/812/comm:qemu-system-x86\n/proc/913/comm:kvm\n"
    assert said(load("quick"), host(vms=vms))["beside"] == (
        "2 other VMs run here (qemu-system-x86 (pid 812), kvm (pid 913)), load 0.4 in the last minute: the run slows"
        " them down, and they falsify its figures"
    )


@pytest.mark.parametrize(
    ("qemu", "vms", "words"),
    [
        ("812\n", "/proc/812/comm:qemu-system-x86\n", "load 0.4 in the last minute"),
        (
            "812\n",
            "/proc/812/comm:qemu-system-x86\n/proc/8/comm:kvm\n",
            "1 other VM runs here (kvm (pid 8)), load 0.4 in the last minute: the run slows it down, and it falsifies"
            " the run's figures",
        ),
        (
            "",
            "/proc/812/comm:qemu-system-x86\n",
            "1 VM runs here, which may be the one that is measured (qemu-system-x86 (pid 812)), load 0.4 in the last"
            " minute: the run slows down any other, and that one falsifies the run's figures",
        ),
    ],
)
def test_the_vm_that_is_measured_as_it_runs_is_no_other(qemu: str, vms: str, words: str) -> None:
    uuid = "284c1ee6-ae5d-441d-93b1-e160cf892dc9"
    machine = host(vms=vms, more={(*FIND_QEMU, uuid): qemu})
    assert str(preview._neighbours(machine, MagicMock(uuid=uuid))) == words


def test_its_process_may_be_known_and_a_vm_that_is_cloned_is_another_one_if_it_runs() -> None:
    machine = host(vms="/proc/812/comm:kvm\n")
    by_proxmox = RunByHost(MagicMock(uuid="", qemu=812))
    assert preview._neighbours(machine, cast(Any, by_proxmox)).vms == ()
    for state, is_crowded in ((OFF, True), ("running", False)):
        cloning = Cloning(MagicMock(), state, PurePosixPath("/var/tmp"), MagicMock())
        seen = preview._neighbours(machine, cloning)
        assert seen.vms == ("kvm (pid 812)",) and seen.is_crowded is is_crowded


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        ("TCGTCGTCGTCG", "its CPU is itself emulated (TCG): every figure is marked so, none is what hardware costs"),
        ("KVMKVMKVM\0\0\0", "is itself a VM (under kvm): the figures say what nesting costs"),
    ],
)
def test_what_the_host_itself_runs_on_is_reported(signature: str, words: str) -> None:
    cpu = "/proc/cpuinfo:flags\t: svm hypervisor\n"
    cpuid = f"{signature.encode().hex()}\n{bytes(12).hex()}\n"
    assert said(load("quick"), host(cpu=cpu, cpuid=cpuid))["host"] == words
    assert "host" not in said(load("quick"), host(cpu="/proc/cpuinfo:flags\t: svm\n")), "bare metal"


@pytest.mark.parametrize("options", [TestbedOptions(qemu="/no/qemu"), TestbedOptions(None, Target(), "/no/qemu")])
def test_a_qemu_that_is_not_there_is_refused_even_where_no_guest_is_measured(options: TestbedOptions) -> None:
    plan = load("quick").model_copy(update={"layers": ("host",)})
    with pytest.raises(BadInput, match=r"host: no usable /no/qemu \(.*No such file.*\); name a QEMU program"):
        lines(plan, host(), options)


def test_a_kernel_pack_that_must_be_built_first_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = load("build")
    monkeypatch.setattr(Userland, "is_there", lambda self: True)
    assert "first" not in said(plan, host())
    monkeypatch.setattr(Userland, "is_there", lambda self: False)
    monkeypatch.setattr("shutil.which", lambda tool: None)
    with pytest.raises(ImageError, match=r"missing mmdebstrap, .*: apt-get install mmdebstrap util-linux erofs-utils"):
        said(plan, host())
    monkeypatch.setattr(PackKind, "refuse", lambda self: None)
    first = said(plan, host())["first"]
    assert first.startswith("builds the kernel pack of compiler and source: about three minutes, once, and 600 MiB")
    assert "first" not in said(load("quick"), host()), "nothing else needs it"


def test_files_are_needed_until_their_image_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = f"{{command: {{run: 'true', files: [{tmp_path}/gone]}}}}"
    plan = parse(f"name: x\nlayers: [host]\nworkloads: [{run}]\nrounds: {{min: 7, max: 7}}")
    here = Image(tmp_path, "5e" * 32, "of other files", "6.12", 300, 1, "", 0.0)
    monkeypatch.setattr("vmtax.image.cache.images", lambda: [here])
    hosts = Hosts(cast(Any, host()), host(), None)
    for image in (None, "another"):
        with pytest.raises(BadInput, match=f"files {tmp_path}/gone: No such file or directory"):
            look(plan, hosts, TestbedOptions(), image=image)
    assert look(plan, hosts, TestbedOptions(), image=here.identity), "a run goes on with the image that it has"


def test_a_kernel_build_on_the_host_takes_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Userland, "is_there", lambda self: True)
    with pytest.raises(CannotMeasure, match=r"on the host needs root, .*; measure as root, or without .*: --layers vm"):
        said(load("build"), host(root=False))
    assert "what" in said(load("build").model_copy(update={"layers": ("vm",)}), host(root=False))


def test_the_rest_is_reported_before_a_run_goes_on() -> None:
    lines = said(load("quick"), host(root=False), earlier=100.0, done=5)
    assert "7 rounds, 5 of them done" in lines["what"] and lines["how long"].startswith("about 3 m 20 s for 2 rounds")
    assert "need root" in lines["as a user"]


@pytest.mark.parametrize(
    ("patterns", "wanted"),
    [
        ("[randread-4k-qd1]", "32 MiB to /var/tmp on /dev/nvme0n1p2 (xfs, 50.0 GiB free); removed"),
        ("[write-1m]", "then over it about 0.9 GiB if that is a SATA SSD, at most 5.6 GiB on any disk;"),
    ],
)
def test_reads_write_nothing(patterns: str, wanted: str) -> None:
    text = (
        "name: x\nlayers: [vm]\nrounds: {min: 1, max: 1}\nworkloads: [{disk: {size: 32MiB, seconds: 1, patterns: %s}}]"
    )
    assert wanted in said(parse(text % patterns), host())["writes"]


def test_what_is_taken_is_reported_where_it_is_more_than_what_is_written() -> None:
    text = (
        "name: x\nlayers: [vm]\nrounds: {min: 1, max: 1}\nfactors: {disk.filesystem: [ext4], disk.format: [qcow2]}\n"
        "workloads: [{disk: {size: 1GiB, seconds: 1, patterns: [randread-4k-qd1]}}]"
    )
    wanted = (
        "2.0 GiB to /var/tmp on /dev/nvme0n1p2 (xfs, 50.0 GiB free), taking up to 2.4 GiB of that directory at a time;"
    )
    more: dict[Any, Any] = {(*HAS_FILE_SYSTEM, "ext4"): ""}
    assert said(parse(text), host(more=more))["writes"].startswith(wanted)


def test_what_is_used_up_and_what_is_lost_of_it_is_reported_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "name: x\nlayers: [vm]\nrounds: {min: 1, max: 1}\nfactors: {disk.volume: [lvm, raidz1-zvol],"
        " disk.filesystem: [none]}\nworkloads: [{disk: {size: 1GiB, seconds: 1, patterns: [randread-4k-qd1]}}]"
    )
    names = tuple(f"/dev/sd{letter}" for letter in "bcde")
    options = TestbedOptions(target=Target(devices=names, erase=frozenset({"/dev/sdc"})))
    looked_at: dict[str, bool] = {}
    monkeypatch.setattr(
        "vmtax.storage.ground.refuse_used", lambda host, name, *, erase: looked_at.update({name: erase})
    )
    more: dict[Any, Any] = {("realpath", "-e", name): name for name in names}
    more |= {("blockdev", "--getsize64", name): str(20 * GIB) for name in names}
    more |= {(*HAS_FILE_SYSTEM, "zfs"): "", HAS_MAPPER: ""}
    iscsi = json.dumps({"blockdevices": [{"type": "disk", "tran": "iscsi"}]})
    more |= {(*ITSELF, name): iscsi if name == "/dev/sdd" else Reply(code=1) for name in names}
    emitted: list[str] = []
    found = lines(parse(text), host(more=more), options, emit=emitted.append)
    told = {line.what: line.text for line in found}
    assert [what.partition(",")[0] for what in emitted] == ["/dev/sdb", "/dev/sdd", "/dev/sde"]
    assert looked_at == {name: name == "/dev/sdc" for name in names}, "no question is asked about a disk in use"
    assert "GiB to /dev/sdb, /dev/sdc, /dev/sdd, /dev/sde (empty afterwards); to /var/tmp on" in told["writes"]
    assert told["erases"] == "what /dev/sdc holds" and told["storage"].startswith("iSCSI: ")


def test_a_budget_that_is_too_small_is_reported_before_it_is_exceeded() -> None:
    text = "name: x\nlayers: [host]\nworkloads: [chess]\nbudget: 1m\nrounds: {min: 7, max: 7}"
    told = said(parse(text), host(), earlier=100.0)
    assert told["budget"].startswith("the plan's budget of 1 m 00 s is too small and will be exceeded: 7 rounds need")
    assert "budget" not in said(parse(text), host(), earlier=1.0)


def test_a_plan_that_compares_nothing_says_so_before_the_question() -> None:
    text = "name: x\nlayers: [%s]\nworkloads: [chess]\nrounds: {min: 7, max: 7}"
    nothing = "nothing to compare: add a layer, or a second level of a factor"
    assert said(parse(text % "host"), host())["note"] == nothing
    assert "note" not in said(parse(text % "host, vm"), host())
    varied = parse(text % "host, vm" + "\nfactors: {disk.cache: none}")
    assert said(varied, host())["note"] == "disk.cache=none in every VM"
    endless = parse("name: x\nlayers: [vm]\nworkloads: [chess]\nrounds: {min: 7, max: 1000}\nbudget: 1h")
    assert "note" not in said(endless, host()), "a calibration compares a guest with itself"


@pytest.mark.parametrize(("workload", "bridge"), [("chess", False), ("net", True)])
def test_a_bridge_is_announced_only_where_the_network_is_measured(workload: str, bridge: bool) -> None:
    plan = parse(f"name: x\nlayers: [host, vm]\nworkloads: [{workload}]")
    root, user = said(plan, host())["as root"], said(plan, host(root=False))["as a user"]
    assert ("bridge" in root, "bridge" in user) == (bridge, bridge)
    assert "drops the page cache" in root and "caches stay warm" in user


def test_without_a_disk_nothing_is_written() -> None:
    assert "writes" not in said(parse("name: x\nlayers: [host]\nworkloads: [chess]"), host())


def test_both_hosts_are_reported_and_both_sides_take_their_time() -> None:
    plan = load("quick").model_copy(update={"budget": None})
    options = TestbedOptions(interleave_with="ssh://b")
    other = host(root=False, available=4 * GIB)
    other.path = "ssh://b"
    found = lines(plan, host(), options, other=other)
    alone = lines(plan, host())
    kinds = [line.what for line in found]
    assert kinds == [
        "what",
        "how long",
        *("on", "beside", "writes", "needs", "as root"),
        *("on", "beside", "writes", "needs", "as a user"),
    ]
    assert "on local and ssh://b, interleaved: 7 rounds, each of 6 configurations" in found[0].text
    assert [line.text for line in found if line.what == "on"] == ["local", "ssh://b"]
    assert "(4.0 GiB available)" in found[10].text and found[4].text == alone[3].text == found[9].text
    seconds = 7 * seconds_per_round(plan)
    for one, wanted in ((alone, seconds), (found, 2 * seconds)):
        span = format_span(wanted * GUESS[0], wanted * GUESS[1])
        assert one[1].text == f"about {span} for 7 rounds, a first guess"


def test_a_second_qemu_writes_to_the_same_disk_and_adds_its_guests_only() -> None:
    plan = parse(
        "name: x\nlayers: [host, vm]\nrounds: {min: 1, max: 1}\n"
        "workloads: [{disk: {size: 32MiB, seconds: 1, patterns: [write-1m]}}]"
    )
    options = TestbedOptions(interleave_with="/opt/qemu")
    both, alone = lines(plan, host(), options), lines(plan, host())
    assert "each of 3 configurations (host, vm, vm with /opt/qemu)" in both[0].text
    more, once = ({line.what: line.text for line in found}["writes"] for found in (both, alone))
    assert once.startswith("32 MiB to") and more.startswith("32 MiB to"), "the disk is filled once"
    assert "at most 8.4 GiB" in once and "at most 14.0 GiB" in more, (
        "host, guest and its A/A; and the two guests once more"
    )


def test_what_qemu_refuses_of_disks_is_left_out_before_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = parse(
        "name: x\nlayers: [vm]\nfactors: {disk.cache: [none, writeback]}\nrounds: {min: 1, max: 1}\n"
        "workloads: [{disk: {size: 32MiB, seconds: 1, patterns: [write-1m]}}]"
    )
    machine, options = host(), TestbedOptions(interleave_with="/opt/qemu")
    places = look(plan, Hosts(cast(Any, machine), machine, None), options)
    own = SimpleNamespace(host=machine, side="", second_qemu=False)
    second = SimpleNamespace(host=machine, side="/opt/qemu", second_qemu=True)
    elsewhere = SimpleNamespace(host=host(), side="ssh://b", second_qemu=False)
    refused = {"": {"vm": "no O_DIRECT"}, "/opt/qemu": {"vm": "no O_DIRECT either"}, "ssh://b": {"vm": "is not asked"}}
    monkeypatch.setattr(preview, "not_opened", lambda side: refused[side.side])
    tried = preview.with_disks_tried(places, cast(Any, [own, second, elsewhere]))
    foreseen = foresee(plan, tried[0].treatments, Emulation())
    said = [line.text for line in outlook(plan, tried, options, foreseen) if line.what == "left out"]
    assert said == ["vm: no O_DIRECT"]
    what = next(line.text for line in outlook(plan, tried, options, foreseen) if line.what == "what")
    assert "of 3 configurations" in what and "(vm disk.cache=writeback" in what, "what is left out is not counted"
    refused[""] = {}
    assert preview.with_disks_tried(places, cast(Any, [own, second]))[0].impossible == {
        "vm": "/opt/qemu: no O_DIRECT either"
    }
    refused[""] = dict.fromkeys(("vm", "vm disk.cache=writeback"), "disk.cache=none needs O_DIRECT")
    with pytest.raises(CannotMeasure, match=r"needs O_DIRECT; nothing of layer vm is left to measure: .* --disk-dir"):
        preview.with_disks_tried(places, cast(Any, [own]))


def test_the_guests_of_both_qemus_are_asked_for() -> None:
    plan = parse("name: x\nlayers: [vm]\nfactors: {cpu.model: [host, Nehalem]}\nworkloads: [cpuid]\n")
    lacks = "qemu: warning: TCG doesn't support requested feature: CPUID.01H:ECX.pcid [bit 17]\n"
    answers: dict[Any, Any] = {
        rights.asked: rights.answer(kvm=rights.NO_KVM),
        lambda argv: argv[0] == DEFAULT and "-cpu" in argv: "",
        lambda argv: argv[0] == "/opt/qemu" and "-cpu" in argv: Reply(stderr=lacks, code=1),
    }
    assert "left out" not in said(plan, host(more=answers))
    both = lines(plan, host(more=answers), TestbedOptions(interleave_with="/opt/qemu"))
    assert [line.text for line in both if line.what == "left out"] == [
        "vm cpu.model=Nehalem: cpu.model=Nehalem: emulation (TCG) lacks pcid"
    ]
    unknown = {**answers, lambda argv: argv[0] == "/opt/qemu" and argv[1:3] == ("-cpu", "help"): "x86 Nehalem-v2  x\n"}
    unknown[next(key for key in reversed(answers))] = Reply(stderr="unable to find CPU model 'Nehalem'", code=1)
    with pytest.raises(QemuError, match="knows no CPU 'Nehalem'"):
        lines(plan, host(more=unknown), TestbedOptions(interleave_with="/opt/qemu"))


@pytest.mark.parametrize("disk", ["[{disk: {size: 32MiB, seconds: 1}}]", "[chess]"])
def test_what_is_named_in_vain_is_refused_before_anybody_is_asked(disk: str) -> None:
    plan = parse(f"name: x\nlayers: [vm]\nrounds: {{min: 1, max: 1}}\nworkloads: {disk}")
    with pytest.raises(StorageError, match="--disk-device /dev/sdb: no disk of this plan would be on it"):
        lines(plan, host(), TestbedOptions(target=Target(devices=("/dev/sdb",))))


def test_a_directory_that_another_user_could_exchange_is_refused_before_anybody_is_asked() -> None:
    wanted = "^host: no disk is laid in /var/tmp: /var belongs to user 7, not to root; name with --disk-dir a directory"
    with pytest.raises(StorageError, match=wanted) as raised:
        said(load("quick"), host(unsafe="/var belongs to user 7, not to root"))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("machine", "wanted"),
    [
        (host(free=GIB // 2), r"host: /var/tmp has 0.5 GiB free, 0.8 GiB are needed"),
        (host(available=GIB), r"1.0 GiB of memory are available, the largest guest takes 2.1 GiB"),
        (host(more={asks_tools: programs("bwrap")}), "host: bwrap is missing there: apt-get install bubblewrap"),
        (host(more={asks_tools: programs("ip")}), "host: ip is missing there: apt-get install iproute2"),
        (
            host(more={rights.asked: rights.answer(command=("start", "EPERM", "Operation not permitted"))}),
            "host: bubblewrap: ",
        ),
        (
            host(more={rights.asked: rights.answer(directory=("create", "EROFS", "Read-only file system"))}),
            "host: /var/tmp: writing a file there: create: Read-only file system; --disk-dir /another/directory",
        ),
        (host(more={QUESTION: listed("0")}), "has 1 CPUs"),
        (host(more={(DEFAULT, "--version"): Reply(stderr="not found", code=127)}), "no usable qemu-system-x86_64"),
    ],
)
def test_what_would_keep_a_run_from_beginning_is_refused_before_the_question(machine: FakeMachine, wanted: str) -> None:
    with pytest.raises((StorageError, CannotMeasure, QemuError), match=wanted):
        lines(load("quick"), machine)


FOUR = (
    "name: x\nlayers: [host, vm]\nguest: {vcpus: 2, memory: 512MiB}\nfactors: {guest.count: ['1', '4']}\n"
    "workloads: [chess]\nrounds: {min: 1, max: 1}"
)


@pytest.mark.parametrize(
    ("layers", "machine", "wanted"),
    [
        (
            "host, vm",
            host(available=2 * GIB),
            r"2.0 GiB of memory are available, and 4 guests x \(512 MiB \+ 128 MiB for its QEMU\) = 2.5 GiB are needed",
        ),
        (
            "host",
            host(more={QUESTION: listed("0-6")}),
            "has 7 CPUs; 4 guests at once x 2 vCPUs = 8; lower guest",
        ),
    ],
)
def test_guests_that_a_host_cannot_hold_are_refused_with_the_sum(
    layers: str, machine: FakeMachine, wanted: str
) -> None:
    with pytest.raises(CannotMeasure, match=wanted):
        lines(parse(FOUR.replace("host, vm", layers)), machine)


def test_rounds_that_a_budget_cuts_off_are_said_with_it() -> None:
    plan = load("quick").model_copy(update={"rounds": Rounds(min=6, max=30), "budget": 20 * 60.0})
    budget = "which its budget of 20 m 00 s allows of up to 30"
    assert said(plan, host(), earlier=100.0)["how long"].startswith(f"about 20 m 00 s for 12 rounds, {budget}, as when")
    assert budget in said(plan, host(), earlier=100.0, done=4)["how long"]
    assert "budget" not in said(plan, host(), earlier=10.0, done=4)["how long"], "26 more are all of them"
