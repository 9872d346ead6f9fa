"""fio's figures of a disk, from its captured output."""

import re
from typing import Any

import pytest

from tests.unit.test_workload import EVERY, GOLDEN, parsed
from vmtax.workload.fio import Disk, DiskParameters


def test_disk_reports_rate_and_latency() -> None:
    figures = parsed("disk", "randread-4k-qd1", "randread-4k-qd1.json")
    assert figures["disk.randread-4k-qd1.iops"] == pytest.approx(17999.0)
    assert figures["disk.randread-4k-qd1.mean_seconds"] == pytest.approx(52.34e-6, rel=1e-3)
    assert figures["disk.randread-4k-qd1.p99_seconds"] == pytest.approx(76.288e-6)
    assert figures["disk.randread-4k-qd1.p999_seconds"] == pytest.approx(199.68e-6)


def test_disk_reports_reads_and_writes_together() -> None:
    figures = parsed_with("randrw-4k-qd8")
    assert figures["disk.randrw-4k-qd8.iops"] > 0
    assert figures["disk.randrw-4k-qd8.p99_seconds"] >= figures["disk.randrw-4k-qd8.p50_seconds"]


def test_disk_reports_the_first_write_beside_the_second() -> None:
    figures = parsed_with("first-write-64k")
    share = figures["disk.first-write-64k.iops"] / figures["disk.first-write-64k.rewrite_iops"]
    assert figures["disk.first-write-64k.of_rewrite"] == pytest.approx(share)
    workload = Disk(DiskParameters(patterns=("first-write-64k",)))
    output = (GOLDEN / "first-write-64k.json").read_text()
    assert workload.operations("first-write-64k", output) == 2 * 256
    assert workload.own_seconds("first-write-64k", output) is None
    assert workload.once("first-write-64k") and workload.layers_of("first-write-64k") == {"vm"}


def parsed_with(pattern: Any) -> dict[str, float]:
    workload = Disk(DiskParameters(patterns=(pattern,)))
    output = (GOLDEN / f"{pattern}.json").read_text()
    return {entry.metric.name: entry.value for entry in workload.parse(pattern, output)}


def test_disk_reports_the_distribution_of_latency() -> None:
    output = (GOLDEN / "randread-4k-qd1.json").read_text()
    found = EVERY["disk"].latencies("randread-4k-qd1", output)
    assert dict(found)[0.99] == pytest.approx(76.288e-6)
    assert list(found) == sorted(found) and found[-1][0] == 0.999, "18,017 samples say nothing about 99.99 %"
    assert EVERY["disk"].latencies("randwrite-4k-fsync", (GOLDEN / "randwrite-4k-fsync.json").read_text()) == ()


def test_disk_leaves_out_percentiles_of_too_few_samples() -> None:
    output = (GOLDEN / "randread-4k-qd1.json").read_text().replace('"total_ios" : 18017', '"total_ios" : 999')
    names = {entry.metric.name for entry in EVERY["disk"].parse("randread-4k-qd1", output)}
    assert "disk.randread-4k-qd1.p50_seconds" in names
    assert "disk.randread-4k-qd1.p99_seconds" not in names


def test_disk_reports_only_the_percentiles_that_are_asked_for() -> None:
    disk = Disk(DiskParameters(percentiles=("p50",)))
    output = (GOLDEN / "randread-4k-qd1.json").read_text()
    measures = {entry.metric.measure for entry in disk.parse("randread-4k-qd1", output)}
    assert {measure for measure in measures if re.match("p[0-9]", measure)} == {"p50_seconds"}
    assert not any("p99" in metric.name for metric in disk.metrics())


def test_disk_counts_the_wait_for_fsync() -> None:
    figures = parsed("disk", "randwrite-4k-fsync", "randwrite-4k-fsync.json")
    iops = figures["disk.randwrite-4k-fsync.iops"]
    # One at a time: the rate and the wait per write must agree, but for fio's own work between two writes.
    assert figures["disk.randwrite-4k-fsync.mean_seconds"] == pytest.approx(1 / iops, rel=0.2)
    assert figures["disk.randwrite-4k-fsync.fsync_p99_seconds"] == pytest.approx(101.888e-6)
    assert "disk.randwrite-4k-fsync.p99_seconds" not in figures, "of the writes alone it means nothing"


def test_a_disk_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="16MiB"):
        Disk(DiskParameters(size="1MiB"))
