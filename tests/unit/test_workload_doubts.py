"""What a tool doubts itself, or what cannot be true, is no figure: on captured output of the real tools, changed."""

from __future__ import annotations

import contextlib
import math
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from vmtax.workload import BadOutput, Command
from vmtax.workload.build import Build, BuildParameters
from vmtax.workload.chess import Chess, ChessParameters
from vmtax.workload.cpuid import Cpuid, CpuidParameters
from vmtax.workload.fio import Disk, DiskParameters
from vmtax.workload.idle import IdleParameters, IdleWorkload
from vmtax.workload.latency import Latency, LatencyParameters
from vmtax.workload.memory import Memory, MemoryParameters
from vmtax.workload.migration import Migration, MigrationParameters, Moved
from vmtax.workload.net import Net, NetParameters
from vmtax.workload.output import MOST
from vmtax.workload.smb import Smb, SmbParameters
from vmtax.workload.tlb import Tlb, TlbParameters
from vmtax.workload.wakeup import Wakeup, WakeupParameters

GOLDEN = Path(__file__).parent.parent / "golden" / "workload"
DISK = Disk(DiskParameters(patterns=("randread-4k-qd1", "randwrite-4k-fsync", "randrw-4k-qd8", "first-write-64k")))
LEAD = Disk(DiskParameters(patterns=("randwrite-4k-qd1",)))
UDP = Net(NetParameters(cases=("udp-in", "udp-out"), rate=19))
TCP = Net(NetParameters())
MEMORY = Memory(MemoryParameters(cases=("stream", "faults", "switches", "forks")))


@dataclass(frozen=True)
class Captured:
    """What a tool really printed."""

    workload: Command[Any]
    case: str
    file: str

    @property
    def text(self) -> str:
        return "5.00 7.00\n15.01 20.00\n" if not self.file else (GOLDEN / self.file).read_text()


CAPTURED = {
    one.file or "idle": one
    for one in (
        Captured(DISK, "randread-4k-qd1", "randread-4k-qd1.json"),
        Captured(DISK, "randwrite-4k-fsync", "randwrite-4k-fsync.json"),
        Captured(DISK, "randrw-4k-qd8", "randrw-4k-qd8.json"),
        Captured(DISK, "first-write-64k", "first-write-64k.json"),
        Captured(LEAD, "randwrite-4k-qd1", "randwrite-4k-qd1-lead.json"),
        Captured(TCP, "tcp-out", "tcp-out.json"),
        Captured(TCP, "tcp-out", "tcp-out-lead.json"),
        Captured(UDP, "udp-in", "udp-in.json"),
        Captured(UDP, "udp-out", "udp-out.json"),
        Captured(Latency(LatencyParameters(seconds=2)), "udp-rr", "sockperf-udp-rr.txt"),
        Captured(MEMORY, "stream", "stream.txt"),
        Captured(MEMORY, "faults", "faults.txt"),
        Captured(MEMORY, "switches", "switches.txt"),
        Captured(Tlb(TlbParameters()), "chase-64m", "ptr-chase.txt"),
        Captured(Cpuid(CpuidParameters()), "", "cpuid.txt"),
        Captured(Wakeup(WakeupParameters()), "", "cyclic.txt"),
        Captured(Chess(ChessParameters()), "one-thread", "chess.txt"),
        Captured(Build(BuildParameters(), emulated=True), "objects", "build-objects.txt"),
        Captured(Smb(SmbParameters(size="16MiB")), "in", "smb-in.txt"),
        Captured(IdleWorkload(IdleParameters()), "", ""),
    )
}


@pytest.mark.parametrize("name", CAPTURED)
def test_what_the_tools_really_printed_is_accepted(name: str) -> None:
    one = CAPTURED[name]
    assert one.workload.parse(one.case, one.text) or name == "idle"


STRESS, LINE = "stress-ng: info:  [21071] ", r"$"
# File, what is there, what is there instead (both as of re.sub), and words of the refusal.
DOUBTS = (
    ("stream.txt", r"untrustworthy: 0", "untrustworthy: 2: stream (2)", "doubts its figures: .*untrustworthy: 2"),
    ("stream.txt", r"skipped: 0", "skipped: 1: stream (1)", "doubts its figures: .*skipped: 1"),
    ("stream.txt", r"failed: 0", "failed: 1: stream (1)", "doubts its figures: .*failed: 1"),
    ("stream.txt", r"mean of 2", "mean of 1", "is of 1 instances of stream, but 2 ran"),
    ("stream.txt", r"\A", "stress-ng: warn: [1] WARNING: finished prematurely after just 0.01s\n", "prematurely"),
    ("switches.txt", r"\A", "stress-ng: fail:  [9] switch: pipe broke\n", "doubts its figures: .*pipe broke"),
    ("switches.txt", r"\A", "stress-ng: error: [9] metrics-check: stressor metrics corrupted\n", "metrics-check"),
    ("faults.txt", r"\A", "stress-ng: warn: [9] metrics may be inaccurate\n", "metrics may be"),
    ("faults.txt", r"\A", "stress-ng: info: [9] fault: killed by the OOM killer\n", "killed by"),
    ("cyclic.txt", r"\A", "stress-ng: info: [9] unsuccessful run completed in 3 secs\n", "unsuccessful"),
    ("cyclic.txt", r"mean: 92970.56", "mean: 292970.56", "cyclic's mean is 292971 ns, which is impossible"),
    ("cyclic.txt", r"99.00%:( +)153449", r"99.00%:\g<1>77", "p99_seconds is 7.7e-08 s, less than"),
    ("switches.txt", r"419557\.48", "nan", "bogo ops/s is nan, which is no number"),
    ("switches.txt", r"419557\.48", "-419557.48", "bogo ops/s is -419557.48, which is no number"),
    ("switches.txt", r"419557\.48", "0.00", r"memory\.switches\.per_second is 0 1/s, which is impossible"),
    ("switches.txt", r"419557\.48", "18446744073709551615.00", "bogo ops/s is 1844|is impossible"),
    ("ptr-chase.txt", r"1222\.53", "1.2.3", "nanosec per pointer is 1.2.3, which is no number"),
    ("ptr-chase.txt", r"(?m)^(.*nanosec.*\n)", r"\g<1>stress-ng: metrc: [2] ptr-chase   9.00 nanosec per pointer "
     "(harmonic mean of 1 instance)\n", "two figures"),
    ("chess.txt", r"Nodes/second.*", "", "no line 'Nodes/second"),
    ("chess.txt", r": 706294", ": 0", "no line 'Nodes/second"),
    ("chess.txt", r": 706294", ": -5", "no line 'Nodes/second"),
    ("chess.txt", r": 706294", ": " + "9" * 5000, "no line 'Nodes/second"),
    ("chess.txt", r"\Z", "Nodes/second    : 5\n", "two figures"),
    ("build-objects.txt", r"\A",
     "make[2]: warning:  Clock skew detected.  Your build may be wrong.\n", "Clock skew"),
    ("smb-in.txt", r"\A", "dd: warning: partial read (512 bytes); suggest iflag=fullblock\n", "partial read"),
    ("smb-in.txt", r"0\.438002", "0.000000", "no '16777216 bytes copied'"),
    ("sockperf-udp-rr.txt", r"duplicated messages = 0", "duplicated messages = 3", "duplicated messages = 3"),
    ("sockperf-udp-rr.txt", r"out-of-order messages = 0", "out-of-order messages = 3", "out-of-order messages = 3"),
    ("sockperf-udp-rr.txt", r"99\.000 =  113\.792", "99.000 =    3.792", "p99_seconds is 3.792e-06 s, less than"),
    ("sockperf-udp-rr.txt", r"\A", "sockperf: WARNING: TSC is not constant\n", "TSC is not constant"),
    ("udp-out.json", r'"lost_packets":\s*\d+', '"lost_packets": 154500', "lost_packets is 154500, which is impossible"),
    ("udp-out.json", r'"lost_packets":\s*\d+', '"lost_packets": -7', "lost_packets is -7, which is impossible"),
    ("udp-out.json", r'"lost_packets":\s*\d+', '"lost_packets": null', "lost_packets is None, which is no number"),
    ("udp-out.json", r'"lost_packets":\s*\d+', '"lost_packets": true', "lost_packets is True, which is no number"),
    ("udp-out.json", r'"lost_percent":\s*[\d.]+', '"lost_percent": 179.65', "lost_percent is 179.65"),
    ("udp-out.json", r'"jitter_ms":\s*[\d.]+', '"jitter_ms": NaN', "jitter_ms is NaN, which is no number"),
    ("udp-out.json", r'"jitter_ms":\s*[\d.]+', '"jitter_ms": -0.5', "jitter_ms is -0.5"),
    ("tcp-out.json", r"\A", "iperf3: warning: this clock is unstable\n", "doubts its figures: iperf3: warning"),
    ("tcp-out.json", r"\}\s*\Z", ', "error": "the server has terminated"}', "the server has terminated"),
    ("tcp-out.json", r'"host_total":\s*[\d.]+', '"host_total": 1e9', "local_cpu is 1e.07, which is impossible"),
    ("tcp-out.json", r'"host_total":\s*[\d.]+', '"host_total": "12"', "host_total is 12, which is no number"),
    ("tcp-out.json", r'"remote_total":\s*[\d.]+', '"remote_total": -1', "remote_total is -1"),
    ("tcp-out.json", r'"bits_per_second":\s*[\d.e+]+', '"bits_per_second": 1e999', "is inf, which is no number"),
    ("tcp-out.json", r'"bits_per_second":\s*[\d.e+]+', '"bits_per_second": 1e300', "which is impossible"),
    ("tcp-out.json", r'"host_total":\s*[\d.]+', '"host_total": 5, "host_total": 6', "5 and 6, which is no number"),
    ("tcp-out.json", r"\Z", '{"end": {}}', "more stands after its JSON"),
    ("tcp-out.json", r"\A", "{" * 3, "its JSON cannot be read"),
    ("tcp-out.json", r"\A", '{"x": ' * 100000, "iperf3"),
    ("randread-4k-qd1.json", r'"error" : 0', '"error" : 5', "fio reports error 5"),
    ("randread-4k-qd1.json", r"\A", "fio: io_u error on file /dev/vdb: Input/output error\n", "io_u error"),
    ("randread-4k-qd1.json", r"\A", "verify: bad magic header 0, wanted acca\n", "bad magic"),
    ("randread-4k-qd1.json", r"\A", "fio: CPU clock is not reliable\n", "not reliable"),
    ("randread-4k-qd1.json", r'"usr_cpu" : [\d.]+', '"usr_cpu" : 250.0', "usr_cpu . sys_cpu is"),
    ("randread-4k-qd1.json", r'"sys_cpu" : [\d.]+', '"sys_cpu" : -3.0', "sys_cpu is -3"),
    ("randread-4k-qd1.json", r'"total_ios" : \d+', '"total_ios" : 0', "fio did no I/O"),
    ("randread-4k-qd1.json", r'"total_ios" : \d+', '"total_ios" : "18017"', "total_ios is 18017, which is no number"),
    ("randread-4k-qd1.json", r'"bw_bytes" : \d+', '"bw_bytes" : -73723908', "bw_bytes is -7"),
    ("randread-4k-qd1.json", r'"bw_bytes" : \d+', '"bw_bytes" : 1' + "0" * 400, "bw_bytes is 1000"),
    ("randread-4k-qd1.json", r'"iops" : [\d.]+', '"iops" : Infinity', "iops is Infinity, which is no number"),
    ("randread-4k-qd1.json", r'"99.000000" : \d+', '"99.000000" : 1', "th percentile is|less than"),
    ("randread-4k-qd1.json", r'"99.000000" : \d+', '"99.000000" : 18446744073709551615', "is 1.84467e.10 s, "),
    ("randwrite-4k-fsync.json", r'"99.000000" : \d+', '"99.000000" : 1', "less than .*fsync_p50|percentile is"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "there", "instead", "words"), DOUBTS, ids=[str(n) for n in range(len(DOUBTS))])
def test_a_doubt_or_an_impossible_figure_is_refused_in_one_line(
    name: str, there: str, instead: str, words: str
) -> None:
    one = CAPTURED[name]
    changed = re.sub(there, instead, one.text)
    assert changed != one.text
    with pytest.raises(BadOutput, match=words) as caught:
        one.workload.parse(one.case, changed)
    assert one.workload.tool.split()[0] in str(caught.value)
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)


def test_the_public_examples_are_refused() -> None:
    loss = (
        '{"start": {"test_start": {"protocol": "UDP", "omit": 2, "duration": 12, "reverse": 1}}, "intervals": [],'
        ' "end": {"sum": {"jitter_ms": 0.01, "lost_packets": 154500, "packets": 86000, "lost_percent": 179.65},'
        ' "sum_sent": {"bits_per_second": 1e8}, "sum_received": {"seconds": 10.0, "bits_per_second": 1e8},'
        ' "cpu_utilization_percent": {"host_total": 5.0, "remote_total": 4.0}}}'
    )
    with pytest.raises(BadOutput, match=r"lost_packets is 154500, which is impossible: it is from 0 to 86000"):
        Net(NetParameters(cases=("udp-in",), rate=100)).parse("udp-in", loss)
    fine = re.sub(r"154500|179.65", "0", loss)
    assert Net(NetParameters(cases=("udp-in",), rate=100)).parse("udp-in", fine)[1].value == 0


def possible(one: Captured, text: str) -> None:
    """It is refused, or all that is read of it lies within its range."""
    workload = one.workload
    try:
        found = workload.parse(one.case, text)
    except BadOutput as refusal:
        assert str(refusal)
        return
    for each in found:
        assert math.isfinite(each.value) and 0 <= each.value <= MOST[each.metric.unit]
    for seconds in (workload.own_seconds(one.case, text), workload.operations(one.case, text)):
        assert seconds is None or (math.isfinite(seconds) and seconds >= 0)
    assert all(0 <= share <= 1 and seconds >= 0 for share, seconds in workload.latencies(one.case, text))
    workload.signature(one.case, text)
    workload.counted(one.case, text)


INSTEAD = (
    *("", "0", "-1", "NaN", "Infinity", "1e999", "1e300", "null", "true", '"7"', "[]", "{}", "9" * 25, "9" * 5000),
    *("1.2.3", "0x10", "١", "\r", "\0", "�", "18446744073709551615", "-0.0", "12abc", "[[[[", "\n"),
)


@pytest.mark.parametrize("name", CAPTURED)
@pytest.mark.varied(6)
def test_any_damage_is_refused_or_leaves_possible_figures(name: str) -> None:
    one, source = CAPTURED[name], random.Random(20)
    text = one.text
    numbers = list(re.finditer(r"\d[\d.]*", text))
    for _ in range(60):
        place, instead = source.choice(numbers), source.choice(INSTEAD)
        possible(one, text[: place.start()] + instead + text[place.end() :])
    for _ in range(25):
        possible(one, text[: source.randrange(len(text))])
        possible(one, text[source.randrange(len(text)) :])
        start = source.randrange(len(text))
        possible(one, text[:start] + text[start + source.randrange(200) :])
    for whole in (
        text + text,
        text.replace("\n", "\r\n"),
        text.encode().decode("utf-16", errors="replace"),
        text[::-1],
    ):
        possible(one, whole)


def test_a_migration_has_no_impossible_figure_either() -> None:
    text = (GOLDEN / "migration.txt").read_text()
    migration, moved = Migration(MigrationParameters(rate=200)), {"total_seconds": 0.6, "downtime_seconds": 0.1}
    good = Moved(**moved, sent_bytes=10_000_000.0)
    assert migration.measured(good, text)
    for name, value in (("total_seconds", math.nan), ("downtime_seconds", -1.0), ("sent_bytes", 1e300)):
        with pytest.raises(BadOutput, match="migration"):
            migration.measured(Moved(**{**moved, "sent_bytes": 1e7, name: value}), text)
    source = random.Random(20)
    for _ in range(30):
        cut = text[source.randrange(len(text)) :]
        with contextlib.suppress(BadOutput):
            assert all(math.isfinite(one.value) for one in migration.measured(good, cut))
