"""Names of treatments as tables and pictures show them, and patterns in words."""

from __future__ import annotations

import pytest

from tests.unit.test_report_pictures import EXPERIMENT, TAIL
from vmtax.core.records import Metric, Treatment
from vmtax.report.wording.treatment_labels import WRAPPED, factor_words, shortened
from vmtax.workload.fio import Disk
from vmtax.workload.words import label, phrase, spoken


def test_names_become_columns_of_what_differs() -> None:
    found = shortened([t for t in EXPERIMENT.treatments if t.layer == "vm"])
    assert found.head and found.head.plain.split(" · ") == ["filesystem", "format", "cache", "bus"]
    assert found.labels["vm"].plain.split(" · ") == ["ext4", "raw", "none", "virtio"]
    lines = [label.lines[0] for label in (found.head, *found.labels.values())]
    assert len({*map(len, lines)}) == 1 and " " not in "".join(lines), "a browser makes one of several spaces"


def test_names_that_make_too_wide_columns_are_wrapped() -> None:
    levels = {f"disk.factor-{number}": "a long level" for number in range(5)}
    other = dict.fromkeys(levels, "another")
    name = "vm " + " ".join(f"{factor}={level}" for factor, level in other.items())
    found = shortened([Treatment("vm", "vm", levels), Treatment(name, "vm", other)])
    assert found.head is None and found.labels["vm"].lines == ("vm, all first levels",)
    label = found.labels[name]
    assert len(label.lines) > 1 and all(len(line) <= WRAPPED for line in label.lines)
    assert label.plain == " ".join(label.lines) == name.removeprefix("vm ").replace("disk.", "")


def test_factors_with_the_same_last_word_keep_their_names() -> None:
    assert factor_words(["disk.cache", "zfs.cache", "disk.bus"]) == {
        "disk.cache": "disk.cache",
        "zfs.cache": "zfs.cache",
        "disk.bus": "bus",
    }


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("randwrite-4k-qd1", "4 KiB random writes (one at a time)"),
        ("randread-512-qd1", "512 B random reads (one at a time)"),
        ("randrw-4k-qd8", "4 KiB mixed random reads and writes (8 at once)"),
        ("randwrite-4k-fsync", "4 KiB random writes (each with fsync)"),
        ("read-1m", "1 MiB sequential reads"),
        ("first-write-64k", "first writes of 64 KiB"),
        ("something-else", ""),
    ],
)
def test_patterns_are_given_in_words(case: str, words: str) -> None:
    assert Disk.operations_of(case) == words


def test_what_is_no_pattern_is_called_as_in_the_tables() -> None:
    assert phrase(Metric("disk.randwrite-4k-fsync.iops", "1/s", "higher")) == "synchronous 4 KiB writes per second"
    assert spoken(Metric("boot.ready_seconds", "s", "lower")) == "Boot launch to first answer"
    unknown = Metric("tape.first.wind_seconds", "s", "lower")  # of another version
    assert (spoken(unknown), phrase(unknown)) == ("Tape first wind seconds", "tape.first.wind_seconds")
    assert spoken(Metric("net.tcp-out.bits_per_second", "bit/s", "higher")) == "Network throughput, outbound"
    cpu = Metric("net.tcp-in.local_seconds_per_byte", "s/B", "lower")
    assert spoken(cpu) == "iperf3's CPU time per GB, inbound"
    assert phrase(cpu) == "CPU time of iperf3 per GB, inbound"
    lost = Metric("net.udp-in.lost", "1", "lower")
    assert phrase(lost) == "share of datagrams lost, inbound UDP" and label(lost) == "loss"
    assert spoken(Metric("disk.odd.iops", "1/s", "higher")) == "Disk odd operations"
    assert spoken(Metric(TAIL, "s", "lower")) == "the p99 latency of 4 KiB random writes (one at a time)"
