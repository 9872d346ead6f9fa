"""The parsers, on captured output of the real tools, and on garbage."""

import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_machine import FakeMachine
from vmtax.core.layers import LAYERS, OWNERS
from vmtax.core.machines import Outcome
from vmtax.core.records import Disturbance, Trial
from vmtax.experiment.activity import ACTIVITIES
from vmtax.experiment.trial import _failure, _with_cpu, _work
from vmtax.meter.clock import START_UP_SECONDS, own_time
from vmtax.plan.errors import PlanError
from vmtax.plan.schema import parse
from vmtax.workload import WORKLOADS, BadOutput, Command, touching, words
from vmtax.workload.build import OBJECTS, Build, BuildParameters
from vmtax.workload.chess import Chess, ChessParameters
from vmtax.workload.fio import Disk, DiskParameters
from vmtax.workload.net import Net, NetParameters
from vmtax.workload.site import Link, Site

GOLDEN = Path(__file__).parent.parent / "golden" / "workload"
EVERY = {name: kind(kind.parameters_type()) for name, kind in WORKLOADS.items()}


def parsed(workload: str, case: str, file: str) -> dict[str, float]:
    output = (GOLDEN / file).read_text()
    return {entry.metric.name: entry.value for entry in EVERY[workload].parse(case, output)}


def test_what_has_cases_has_a_command_for_them() -> None:
    """The run's loop passes over a workload that is no Command, but for what is done to guests from outside."""
    outside = [activity.workload for activity in ACTIVITIES]
    assert {name for name, workload in EVERY.items() if not isinstance(workload, Command)} == {*outside}
    assert outside[-1] == "boot", "it ends the guests"


def test_chess_reports_nodes_per_second_and_proves_its_work() -> None:
    assert parsed("chess", "one-thread", "chess.txt") == {"chess.one-thread.nodes_per_second": 706294}
    assert parsed("chess", "", "chess.txt") == {"chess.nodes_per_second": 706294}
    output = (GOLDEN / "chess.txt").read_text()
    assert EVERY["chess"].signature("one-thread", output) == "103119 nodes"
    assert EVERY["chess"].signature("", output) is None, "several threads search differently every time"


def test_memory_adds_up_its_instances() -> None:
    assert parsed("memory", "stream", "stream.txt")["memory.stream.bytes_per_second"] == pytest.approx(
        2 * (12991.96 + 8661.30) * 2**20
    )
    assert parsed("memory", "faults", "faults.txt") == {"memory.faults.per_second": pytest.approx(2 * 64566.03)}
    assert parsed("memory", "switches", "switches.txt") == {"memory.switches.per_second": pytest.approx(419557.48)}
    assert parsed("memory", "forks", "fork.txt") == {"memory.forks.per_second": pytest.approx(2746.27)}


def test_the_first_touch_of_a_page_and_its_reuse_are_two_figures() -> None:
    assert parsed("touch", "", "touch.txt") == {
        "touch.first_seconds": pytest.approx(0.574361842 / 65536),
        "touch.again_seconds": pytest.approx(0.866247438 / 65536),
    }
    touch = EVERY["touch"]
    assert isinstance(touch, Command) and touch.once("") and "existing" not in touch.layers
    with pytest.raises(BadOutput, match="65536 pages"):
        touch.parse("", (GOLDEN / "touch.txt").read_text().replace("65536", "65535"))


def test_a_first_touch_is_not_looked_for_in_the_systems_of_users() -> None:
    assert EVERY["touch"].layers == {*LAYERS} - {*OWNERS}


def test_what_must_come_first_is_refused_after_other_work() -> None:
    text = "{{name: x, layers: [vm], workloads: [{}]}}"
    for legal in ("touch, memory", "boot, touch", "touch"):
        parse(text.format(legal))
    with pytest.raises(PlanError, match="touch is no first use any more after memory: put it before"):
        parse(text.format("memory, touch"))


def test_memory_is_touched_page_by_page() -> None:
    script = Path(touching.__file__).read_text()
    argv = [sys.executable, "-I", "-S", "-c", script, str(2**22), str(2**20)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("vmtax touch: 1024 pages, first 0.")
    with touching.mapped(4 * touching.PAGE) as memory:
        touching.touch(memory)
        assert [memory[place] for place in range(0, 4 * touching.PAGE, touching.PAGE)] == [1, 1, 1, 1]


def test_cpuid_reports_the_time_of_one_instruction() -> None:
    assert parsed("cpuid", "", "cpuid.txt") == {"cpuid.instruction_seconds": pytest.approx(6349.14e-9)}


def test_tlb_reports_a_read_at_random_and_the_shootdowns_of_all_instances() -> None:
    assert parsed("tlb", "chase-64m", "ptr-chase.txt") == {"tlb.chase-64m.access_seconds": pytest.approx(1222.53e-9)}
    assert parsed("tlb", "shootdown", "tlb-shootdown.txt") == {"tlb.shootdown.per_second": pytest.approx(1397.34)}


def test_operations_of_stress_ng_are_what_its_figure_counts() -> None:
    def operations(workload: str, case: str, file: str) -> float | None:
        one = EVERY[workload]
        assert isinstance(one, Command)
        return one.operations(case, (GOLDEN / file).read_text())

    assert operations("cpuid", "", "cpuid.txt") == 66 * 5120 == pytest.approx(2.15 / 6349.14e-9, rel=5e-3)
    assert operations("memory", "switches", "switches.txt") == 839218
    assert operations("tlb", "chase-64m", "ptr-chase.txt") == 1512178
    assert operations("memory", "faults", "faults.txt") == pytest.approx(2 * 64566.03 * 2.00)
    assert operations("memory", "stream", "stream.txt") is None, "it counts bytes"
    assert operations("wakeup", "", "cyclic.txt") == 1826


def test_wake_up_latency_has_the_percentiles_that_its_sample_supports() -> None:
    assert parsed("wakeup", "", "cyclic.txt") == {
        "wakeup.p50_seconds": pytest.approx(89005e-9),
        "wakeup.p99_seconds": pytest.approx(153449e-9),
        "wakeup.mean_seconds": pytest.approx(92970.56e-9),
    }
    every = WORKLOADS["wakeup"](WORKLOADS["wakeup"].parameters_type(percentiles=("p50", "p99", "p999")))
    assert isinstance(every, Command)
    output = (GOLDEN / "cyclic.txt").read_text()
    assert "wakeup.p999_seconds" not in {one.metric.name for one in every.parse("", output)}
    more = output.replace("1826 samples", "10000 samples")
    assert "wakeup.p999_seconds" in {one.metric.name for one in every.parse("", more)}
    assert every.latencies("", output)[-1] == (0.99, pytest.approx(153449e-9))


def test_wake_up_latency_takes_one_sleeper_and_all_its_samples() -> None:
    argv = EVERY["wakeup"].command(Site(machine=FakeMachine(), layer="vm", vcpus=2, prefix=()), "")
    assert argv[:3] == ("stress-ng", "--cyclic", "1")
    assert argv[argv.index("--cyclic-samples") + 1] == "3001", "as many as fit the run, or the last would be left out"


def test_chess_is_searched_on_more_numbers_of_threads_where_a_plan_names_them() -> None:
    chess = Chess(ChessParameters(threads=(2, 4)))
    site = Site(machine=FakeMachine(), layer="vm", vcpus=4, prefix=())
    assert chess.cases() == ("one-thread", "", "2-threads", "4-threads")
    assert [chess.command(site, case)[3] for case in chess.cases()] == ["1", "4", "2", "4"]
    assert words.name(chess.reports("2-threads")[0]) == "CPU chess, 2 threads"
    output = (GOLDEN / "chess.txt").read_text()
    assert [one.metric.name for one in chess.parse("4-threads", output)] == ["chess.4-threads.nodes_per_second"]


def test_a_set_of_64_mib_is_as_many_pages_for_one_instance() -> None:
    words = EVERY["tlb"].command(Site(machine=FakeMachine(), layer="vm", vcpus=2, prefix=()), "chase-64m")
    assert words[:5] == ("stress-ng", "--ptr-chase", "1", "--ptr-chase-pages", "16384")


def test_a_kernel_build_reports_its_time_and_proves_its_work() -> None:
    figures = parsed("build", "objects", "build-objects.txt")
    assert figures["build.objects.seconds"] == pytest.approx(6.748560)
    assert figures["build.objects.objects_per_second"] == pytest.approx(10 / 6.748560)
    output = (GOLDEN / "build-objects.txt").read_text()
    signature = EVERY["build"].signature("objects", output)
    assert signature is not None and signature.startswith("objects with sha256 30a72e59fa75d098dddcb974227fa4617")
    assert EVERY["build"].signature("allmodconfig", output) is None, "it has a key of its own in each build"


def test_what_is_compiled_follows_from_the_plan_or_from_the_machine() -> None:
    assert [Build(BuildParameters(), emulated=emulated).cases() for emulated in (False, True)] == [
        ("tinyconfig",),
        ("objects",),
    ]
    for target in ("objects", "tinyconfig", "defconfig", "allmodconfig"):
        workload = Build(BuildParameters(target=target), emulated=True)
        assert workload.cases() == (target,) and [metric.case for metric in workload.metrics()] == [target] * 2
        assert workload.memory_bytes(8)[0] > workload.memory_bytes(2)[0]


def test_a_kernel_build_has_twice_as_many_compilers_as_cpus() -> None:
    site = Site(FakeMachine(), "vm", 3, (), kernel_pack=("bwrap",))
    workload = Build(BuildParameters(target="objects"))
    words = workload.command(site, "objects")
    assert words[3:7] == ("sh", "objects", "6", "none") and words[7:] == OBJECTS
    assert Build(BuildParameters(jobs=5)).command(site, "tinyconfig")[5] == "5"
    assert workload.seat(site)[1][:3] == ("bwrap", "--size", str(64 * 2**20))
    with pytest.raises(ValueError, match="has no kernel pack"):
        workload.seat(Site(FakeMachine(), "vm", 3, ()))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("target objects", "target tinyconfig"), "target tinyconfig was built, not objects"),
        (lambda text: text.replace("objects 10", "objects 0"), "make built 0 objects in 6.7"),
        (lambda text: text.replace("up 419.77", "up 412.02"), "make built 10 objects in -0.99"),
        (lambda text: text.replace("build: sha256 30", "build: sha256 3"), "make did not end well"),
        (lambda text: (GOLDEN / "build-failed.txt").read_text(), "make did not end well"),
    ],
)
def test_a_kernel_build_that_did_not_end_well_is_refused_in_one_line(change: Any, words: str) -> None:
    output = change((GOLDEN / "build-objects.txt").read_text())
    with pytest.raises(BadOutput) as caught:
        EVERY["build"].parse("objects", output)
    assert words in str(caught.value) and len(str(caught.value).splitlines()) == 1


@given(
    *(st.integers(10**6, 10**10), st.integers(10**8, 10**15), st.sampled_from([0, 0, 1, -1, 30, -(10**6), 10**6])),
    *(st.integers(1, 10**6), st.integers(1, 9999), st.text(max_size=30)),
)
def test_a_kernel_build_s_figures_are_what_was_printed(
    started: int, nanoseconds: int, step: int, objects: int, jobs: int, before: str
) -> None:
    """`step`: seconds by which the wall clock is set while make runs."""
    ended = (started + step) * 10**9 + nanoseconds
    uptime, later = 7.0, 7.0 + nanoseconds // 10**7 / 100
    output = (
        f"{before}\nbuild: target tinyconfig, jobs {jobs}\n"
        f"build: started {started}.000000000 up {uptime:.2f},"
        f" ended {ended // 10**9}.{ended % 10**9:09} up {later:.2f}\n"
        f"build: objects {objects}\nbuild: sha256 {'0f' * 32}\n\n"
    )
    seconds = EVERY["build"].own_seconds("tinyconfig", output)
    assert seconds == pytest.approx(nanoseconds / 1e9, abs=1e-6 if step == 0 else 0.02001)


def test_memory_refuses_failed_instances() -> None:
    output = (GOLDEN / "stream.txt").read_text().replace("failed: 0", "failed: 1")
    with pytest.raises(BadOutput, match="failed: 1"):
        EVERY["memory"].parse("stream", output)


def test_a_run_that_was_too_short_for_its_figure_says_so_and_what_to_change() -> None:
    output = (GOLDEN / "stream-too-short.txt").read_text()
    with pytest.raises(
        BadOutput, match="run duration too short to reliably determine memory rate; raise the workload's"
    ):
        EVERY["memory"].parse("stream", output)
    with pytest.raises(BadOutput, match="prints no 'MB per sec memory read rate' for stream"):
        EVERY["memory"].parse("stream", output.replace("run duration too short", ""))


def test_with_a_lead_only_what_lies_between_counts() -> None:
    """fio works for three seconds before two that count, and for three after them; iperf3 one, three and one."""
    case, disk = (
        "randwrite-4k-qd1",
        Disk(DiskParameters(patterns=("randwrite-4k-qd1",), percentiles=("p99",), seconds=2)),
    )
    output = (GOLDEN / "randwrite-4k-qd1-lead.json").read_text()
    assert {m.metric.measure: m.value for m in disk.parse(case, output)}["iops"] == pytest.approx(5973.526)
    counted = disk.counted(case, output)
    assert counted is not None and counted.rest == pytest.approx(0.281)
    assert (counted.before, counted.seconds, counted.after) == pytest.approx((3.0, 2.002, 3.001))
    assert disk.operations(case, output) == 11959
    output = (GOLDEN / "tcp-out-lead.json").read_text()
    assert parsed("net", "tcp-out", "tcp-out-lead.json")["net.tcp-out.bits_per_second"] == pytest.approx(
        8 * (55312384 + 65667072 + 58458112) / 3.0041, rel=1e-3
    )
    counted = EVERY["net"].counted("tcp-out", output)
    assert counted is not None and (counted.before, counted.seconds, counted.after) == pytest.approx(
        (1, 3.0041, 1), rel=1e-3
    )


def test_a_rate_below_full_load_is_asked_for_and_must_be_reached() -> None:
    case, output = "randread-4k-qd1", (GOLDEN / "randread-4k-qd1.json").read_text()
    patterns: Any = (case, "randrw-4k-qd8")
    reached = {m.metric.measure: m.value for m in EVERY["disk"].parse(case, output)}["iops"]
    easy, hard = (Disk(DiskParameters(patterns=patterns, rate=round(reached * share))) for share in (1.0, 1.2))
    assert {m.metric.measure for m in easy.parse(case, output)} <= {
        "mean_seconds",
        "p50_seconds",
        "p99_seconds",
        "p999_seconds",
    }
    with pytest.raises(BadOutput, match=r"were reached of the \d+ that were asked for.*lower workloads.disk.rate"):
        hard.parse(case, output)
    limit = reached / 0.95
    assert Disk(DiskParameters(patterns=patterns, rate=math.floor(limit))).parse(case, output)
    with pytest.raises(BadOutput, match="were reached of the"):
        Disk(DiskParameters(patterns=patterns, rate=math.ceil(limit))).parse(case, output)
    site = Site(FakeMachine("host", {}), "vm", 1, (), disk="/dev/vdb")
    mixed = Disk(DiskParameters(patterns=patterns, rate=1000))
    assert "--rate_iops=1000" in mixed.command(site, case) and "--rate_iops=700,300" in mixed.command(
        site, "randrw-4k-qd8"
    )
    with pytest.raises(BadOutput, match="Mbit/s were reached of the 100000 that were asked for"):
        Net(NetParameters(rate=100_000)).parse("tcp-out", (GOLDEN / "tcp-out.json").read_text())
    full, held = (
        Net(NetParameters(rate=rate)).parse("tcp-out", (GOLDEN / "tcp-out.json").read_text()) for rate in (None, 1)
    )
    assert held == Net.derived(full), "the rate is no figure where it is asked for"


def test_a_report_just_after_the_ramp_does_not_count() -> None:
    """Four nested guests on a slow host: fio reported when it had finished four writes and counted no time."""
    case, disk = "randwrite-4k-qd1", Disk(DiskParameters(patterns=("randwrite-4k-qd1",), seconds=2))
    output = (GOLDEN / "randwrite-4k-qd1-lead.json").read_text()
    _ramp, counting, later, whole = split_reports(output)
    early = re.sub('"runtime" : 2002', '"runtime" : 0', counting)
    counted = disk.counted(case, early + later + whole)
    assert counted is not None and (counted.before, counted.seconds, counted.after) == pytest.approx((3, 4.006, 0.997))
    assert disk.operations(case, early + later + whole) == 21626
    counted = disk.counted(case, early + whole)
    assert counted is not None and (counted.before, counted.seconds, counted.after) == pytest.approx((3, 5.003, 0))
    stalled = re.sub('"(runtime|iops)" : [0-9.]+', r'"\1" : 0', whole)
    with pytest.raises(BadOutput, match="fio finished 26958 operations for randwrite-4k-qd1, but counted no time"):
        disk.parse(case, early + stalled)


def split_reports(output: str) -> list[str]:
    """Each of fio's reports alone."""
    return ["{" + report for report in re.split(r"(?m)^\{", output)[1:]]


def test_a_lead_is_asked_of_the_tools() -> None:
    machine = FakeMachine("host", {})
    alone = Site(machine, "vm", 1, (), disk="/dev/vdb", link=Link(machine, (), "10.77.0.1", 5201))
    beside = replace(alone, lead=1)
    disk, net = EVERY["disk"].command, EVERY["net"].command
    assert set(disk(beside, "read-1m")) - set(disk(alone, "read-1m")) == {
        "--ramp_time=1",
        "--status-interval=10000ms",
        "--runtime=11",
    }
    assert set(net(beside, "tcp-in")) - set(net(alone, "tcp-in")) == {"--omit", "1", "11"}


@pytest.mark.parametrize(
    ("workload", "case", "file", "seconds"),
    [
        ("chess", "", "chess.txt", 0.146),
        ("memory", "stream", "stream.txt", 5.02),
        ("memory", "faults", "faults.txt", 2.00),
        ("memory", "switches", "switches.txt", 2.00),
        ("memory", "forks", "fork.txt", 2.00),
        ("cpuid", "", "cpuid.txt", 2.15),
        ("tlb", "chase-64m", "ptr-chase.txt", 2.03),
        ("tlb", "shootdown", "tlb-shootdown.txt", 1.99),
        ("wakeup", "", "cyclic.txt", 2.00),
        ("build", "objects", "build-objects.txt", pytest.approx(6.748559883)),
        ("disk", "randread-4k-qd1", "randread-4k-qd1.json", 1.001),
        ("disk", "randwrite-4k-fsync", "randwrite-4k-fsync.json", 2.001),
        ("net", "tcp-out", "tcp-out.json", 1.001473),
        ("net", "udp-out", "udp-out.json", 2.002393),
        ("latency", "tcp-rr", "sockperf-tcp-rr.txt", 1.550),
    ],
)
def test_every_tool_reports_its_own_time(workload: str, case: str, file: str, seconds: float) -> None:
    assert EVERY[workload].own_seconds(case, (GOLDEN / file).read_text()) == seconds


@pytest.mark.parametrize(
    "workload, case, file, own, around",
    [
        ("disk", "randwrite-4k-qd1", "randwrite-4k-qd1-lead.json", 2.002, 6.282),
        ("net", "tcp-out", "tcp-out-lead.json", 3.0056, 2.0),
        ("net", "udp-in", "udp-in-lead.json", 2.9999, 1.0),
        ("net", "tcp-out", "tcp-out.json", 1.0015, 0.0),
    ],
)
def test_what_a_tool_does_before_and_after_what_counts_is_not_called_late(
    workload: str, case: str, file: str, own: float, around: float
) -> None:
    tool, output = EVERY[workload], (GOLDEN / file).read_text()
    assert isinstance(tool, Command)

    def said(seconds: float) -> tuple[str, ...]:
        work = _work(Trial(1, 1, "vm", workload, case, 1, "ok", 0.0, seconds, raw=output), tool, emulated=False)
        assert (work.own_seconds, work.around_seconds) == pytest.approx((own, around), abs=0.001)
        return own_time(work)

    assert said(own + around + START_UP_SECONDS) == ()
    (warning,) = said(own + around + START_UP_SECONDS + 1)
    assert f"accounts for {own + around:.1f} s of" in warning


@pytest.mark.parametrize("workload", [one for one in EVERY.values() if isinstance(one, Command)], ids=lambda w: w.name)
@given(output=st.one_of(st.text(), st.just('{"jobs": []}'), st.just('{"end": {"sum_received": 1}}')))
def test_garbage_is_bad_output_and_nothing_else(workload: Command, output: str) -> None:
    for case in workload.cases():
        with pytest.raises(BadOutput):
            workload.parse(case, output)


@pytest.mark.parametrize("name", EVERY)
def test_every_measurement_is_an_announced_metric(name: str) -> None:
    names = [metric.name for metric in EVERY[name].metrics()]
    assert len(names) == len(set(names))
    assert all(entry.startswith(f"{name}.") for entry in names)


def test_host_cpu_of_an_operation_is_that_of_its_own_time_not_of_the_tool_s_start() -> None:
    """Two CPUs busy for 4 s, of which fio's operations took one: two CPU seconds are theirs."""
    output = (GOLDEN / "randread-4k-qd1.json").read_text()
    busy = Disturbance(4.004, 8.008, 0.0, None, None, None, None, None)
    done = Trial(1, 1, "vm", "disk", "randread-4k-qd1", 1, "ok", 0.0, 4.0, raw=output, disturbance=busy)
    (cost,) = _with_cpu([done], EVERY["disk"], "host", is_alone=False)[0].measurements
    assert cost.metric.name == "disk.randread-4k-qd1.host_cpu_seconds"
    assert cost.value == pytest.approx(2 * 1.001 / 18017)
    slower = replace(done, disturbance=replace(busy, wall_seconds=0.5, busy_seconds=1.0))
    assert _with_cpu([slower], EVERY["disk"], "host", is_alone=False)[0].measurements[0].value == pytest.approx(
        1.0 / 18017
    ), "never more than all"


def test_what_the_host_does_beside_guest_code_is_by_its_ledger_and_only_of_guests_on_kvm() -> None:
    """A test of ten seconds in a ledger of twelve: five sixths of what served the guest are the payload's."""
    output = (GOLDEN / "tcp-out.json").read_text()
    net = EVERY["net"]
    own, moved = net.own_seconds("tcp-out", output), net.operations("tcp-out", output)
    assert own and moved
    ledger = {
        "ledger.guest": 5.0,
        "ledger.vhost": 1.0,
        "ledger.soft_irq": 0.2,
        "ledger.other": 9.0,
        "ledger.idle_irq": 0.3,
    }
    busy = Disturbance(1.2 * own, 8.0, 0.0, None, None, None, None, None)
    done = Trial(1, 1, "vm", "net", "tcp-out", 1, "ok", 0.0, 4.0, raw=output, disturbance=busy)
    on_kvm = replace(done, readings={"host": {**ledger, "ledger.seconds": 1.2 * own}})
    values = {m.metric.measure: m.value for m in _with_cpu([on_kvm], net, "host", is_alone=False)[0].measurements}
    assert values == pytest.approx({"host_cpu_seconds": 8.0 / 1.2 / moved, "host_side_seconds": 1.5 / 1.2 / moved})
    emulated = replace(done, readings={"host": {"ledger.emulator": 5.0, "ledger.seconds": 1.2 * own}})
    assert [m.metric.measure for m in _with_cpu([emulated], net, "host", is_alone=False)[0].measurements] == [
        "host_cpu_seconds"
    ]


def test_a_title_in_a_sentence_keeps_its_abbreviations() -> None:
    titles = [words.within(kind.title) for kind in WORKLOADS.values()]
    assert {"CPU", "VM exits", "memory", "TLB", "wake-up", "kernel build"} <= set(titles)
    assert words.within("Disk 4 KiB random reads") == "disk 4 KiB random reads"


@pytest.mark.parametrize(
    ("case", "said", "told"),
    [
        ("randwrite-512-qd1", "Invalid argument", "refused there: its sectors have 4 KiB"),
        ("randwrite-512-qd1", "No space left on device", "io_u error on file /mnt/d: No space left on device"),
        ("randwrite-4k-qd1", "Invalid argument", "io_u error on file /mnt/d: Invalid argument"),
    ],
)
def test_a_disk_that_takes_no_512_bytes_is_no_riddle(case: str, said: str, told: str) -> None:
    """The words are fio's on a dataset of ZFS 2.3."""
    words = f"fio: io_u error on file /mnt/d: {said}: write offset=3026432, buflen=512\n"
    why = _failure(Outcome("host", ("fio",), 1, "", words, 1.0), Disk(DiskParameters(patterns=(case,))), case, "")
    assert why.startswith("host: exit code 1: fio: ") and told in why
    assert ("leave randwrite-512-qd1 out" in why) == ("4 KiB" in told)
