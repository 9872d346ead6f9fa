"""What a run writes to the disks under test: counted, foreseen, and limited."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.changed import scaled
from tests.sample import sample_experiment
from vmtax.core.errors import BadInput
from vmtax.core.records import Trial
from vmtax.experiment.writes import foresee_writes, machines_of, refuse_too_much, why_over, written_by_round
from vmtax.plan.schema import Plan, parse
from vmtax.plan.vary import varied
from vmtax.workload.fio import PATTERNS, Disk

GIB = 2**30
RUN = sample_experiment(rounds=3)


def limited(max_writes: str) -> Plan:
    return parse(f"name: x\nlayers: [vm]\nmax_writes: {max_writes}\nworkloads: [{{disk: {{size: 1GiB}}}}]")


def trial(case: str) -> Trial:
    return next(one for one in RUN.trials if one.case == case and one.status == "ok")


@pytest.mark.parametrize("case", ["randwrite-4k-qd32", "randwrite-4k-fsync", "write-1m", "randrw-4k-qd8"])
def test_a_trial_wrote_its_rate_for_as_long_as_it_took(case: str) -> None:
    one = trial(case if case in {each.case for each in RUN.trials} else "write-1m")
    one = replace(one, case=case)
    rate = next(m.value for m in one.measurements if m.metric.measure == "bytes_per_second")
    assert Disk(limited("500GiB").build_workloads()[0].parameters).written_by(one) == rate * one.wall_seconds


def test_reads_write_nothing_and_a_failed_trial_counts_with_what_it_could_have_written() -> None:
    disk = limited("500GiB").build_workloads()[0]
    assert disk.written_by(trial("randread-4k-qd1")) == disk.written_by(trial("read-1m")) == 0
    failed = replace(trial("write-1m"), status="failed", error="lost", measurements=(), wall_seconds=60.0)
    early = replace(failed, wall_seconds=disk.parameters.seconds / 4)
    assert disk.written_by(early) == disk.written_by(failed) / 4, "no longer than it took"
    assert disk.written_by(failed) == disk.written_bytes("write-1m") > disk.written_bytes("write-1m", usual=True) > 0
    assert disk.written_by(replace(failed, case="of another version")) == 0


def test_a_run_ends_before_a_round_that_may_write_more_than_its_plan_allows() -> None:
    plan = limited("100GiB")
    assert why_over(plan, GIB, {}) is None, "nothing is known before the first round"
    assert why_over(plan, GIB, {1: 30 * GIB, 2: 34 * GIB}) is None, "1 + 64 + 34 is below 100"
    ended = why_over(plan, GIB, {1: 30 * GIB, 2: 35 * GIB})
    assert ended == "after 2 rounds, which wrote up to 66.0 GiB: one more may exceed max_writes, 100.0 GiB"
    assert why_over(plan.model_copy(update={"max_writes": None}), GIB, {1: 10**15}) is None


def test_a_run_whose_first_round_may_exceed_the_limit_is_not_begun() -> None:
    """As much as may be written is allowed; a byte less is not."""
    plan = limited("500GiB")
    machines = plan.treatments()[0]
    first = round(GIB + foresee_writes(plan, machines, 1, 1, None).most)
    refuse_too_much(plan.model_copy(update={"max_writes": first}), GIB, machines)
    refuse_too_much(plan.model_copy(update={"max_writes": None}), GIB, machines)
    with pytest.raises(BadInput, match=r"^max_writes is .* and one round may write"):
        refuse_too_much(plan.model_copy(update={"max_writes": first - 1}), GIB, machines)


def test_rounds_are_summed_over_all_machines() -> None:
    (disk,) = limited("500GiB").build_workloads()
    found = written_by_round(RUN.trials, [disk])
    own = [one for one in RUN.trials if one.workload == "disk"]
    assert set(found) == {1, 2, 3}
    assert sum(found.values()) == pytest.approx(sum(disk.written_by(one) for one in own))
    faster = [scaled(one, 2.0) for one in own]
    assert sum(written_by_round(faster, [disk]).values()) == pytest.approx(2 * sum(found.values()))


def test_no_more_is_expected_than_can_be_written() -> None:
    plan = limited("500GiB")
    machines = plan.treatments()[0]
    first = foresee_writes(plan, machines, 7, 7, None)
    assert 0 < first.expected < first.most and "if that is a SATA SSD" in str(first)
    again = foresee_writes(plan, machines, 7, 7, 10.0**15)
    assert again.expected == again.most and "as when this plan last ran here" in str(again)
    assert any(PATTERNS[case].side == "write" for case in PATTERNS)


@pytest.mark.parametrize(
    ("pattern", "size", "fresh"),
    [("randread-4k-qd1", 0, 0), ("write-1m", 1, 0), ("randwrite-4k-qd32", 1, 0), ("first-write-4k", 0, 1)],
)
def test_the_first_writes_after_a_snapshot_copy_each_image_once_at_most(pattern: str, size: int, fresh: int) -> None:
    disk = f"disk: {{size: 1GiB, fresh_size: 128MiB, patterns: [{pattern}]}}"
    text = f"{{name: x, layers: [vm], workloads: [{disk}]}}"
    plain = parse(text)
    laid = varied(plain, ("disk.snapshots=2",))
    most = [foresee_writes(plan, plan.treatments()[0], 7, 7, None).most for plan in (plain, laid)]
    assert most[1] - most[0] == 7 * (size * GIB + fresh * GIB // 8)
    if most[1] > most[0]:
        limit = round(most[1] / 7)
        refuse_too_much(laid.model_copy(update={"max_writes": limit}), 0, laid.treatments()[0])
        with pytest.raises(BadInput):
            refuse_too_much(laid.model_copy(update={"max_writes": limit - 1}), 0, laid.treatments()[0])


def test_a_run_ends_before_a_round_that_copies_more_than_its_plan_allows() -> None:
    plan = varied(limited("100GiB"), ("disk.snapshots=0,2", "guest.count=3"))
    machines = machines_of(plan.treatments()[0])
    assert [each.name for each in machines] == ["vm"] * 3 + ["vm disk.snapshots=2"] * 3
    assert why_over(plan, GIB, {1: 30 * GIB, 2: 31 * GIB}) is None
    ended = why_over(plan, GIB, {1: 30 * GIB, 2: 31 * GIB}, machines)  # 3 GiB are copied in each
    assert ended == "after 2 rounds, which wrote up to 68.0 GiB: one more may exceed max_writes, 100.0 GiB"
    assert why_over(plan, GIB, {1: 30 * GIB, 2: 30 * GIB}, machines) is None, "1 + 66 + 33 is 100"


def test_few_blocks_copy_few_clusters() -> None:
    plan = parse("{name: x, layers: [vm], workloads: [disk: {size: 64GiB, patterns: [randwrite-4k-fsync]}]}")
    laid = varied(plan, ("disk.snapshots=2",))
    usual = [foresee_writes(each, each.treatments()[0], 7, 7, None).expected for each in (plan, laid)]
    assert usual[1] == pytest.approx(16 * usual[0])
    again = [foresee_writes(each, each.treatments()[0], 7, 7, usual[0] / 7).expected for each in (plan, laid)]
    assert again == pytest.approx(usual)
