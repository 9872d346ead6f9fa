"""What `make prove-migration` counts as a failure."""

from __future__ import annotations

from typing import Any

from tools.prove_migration import CONFIGURATIONS, DOWNTIME, LOST, PLAN, TOTAL, counted, ended_by, wrong
from vmtax.plan.schema import parse


def answer(*rows: tuple[str, int, str], failures: Any = ()) -> dict[str, Any]:
    measured = [{"treatment": name, "round": round, "metric": metric, "value": 1.5} for name, round, metric in rows]
    return {"failures": list(failures), "measurements": measured}


WHOLE = [(name, 1, metric) for name in CONFIGURATIONS for metric in (DOWNTIME, LOST, TOTAL)]


def test_each_move_must_have_all_figures() -> None:
    assert list(wrong(answer(*WHOLE), 1)) == []
    assert list(wrong(answer(*WHOLE[:-1]), 1)) == ["vm net.path=sriov-standby: 0 moves of 1 have a result"]
    assert list(wrong(answer(*WHOLE), 2)) == [f"{name}: 1 moves of 2 have a result" for name in CONFIGURATIONS]


def test_a_failure_is_wrong_and_says_its_reason() -> None:
    failure = {"treatment": "vm", "round": 2, "error": "no end within 300 s"}
    found = answer(*WHOLE, failures=[failure])
    assert list(wrong(found, 1)) == ["vm, round 2: no end within 300 s"]
    virtio, standby = CONFIGURATIONS
    assert list(wrong(found, 2, {(virtio, 2)})) == [f"{standby}: 1 moves of 2 have a result"], "it ended with its lab"


def test_a_lost_lab_excuses_what_the_newest_round_lacks_and_nothing_else() -> None:
    virtio, standby = CONFIGURATIONS
    earlier, now = ({"treatment": virtio, "round": round, "error": "gone"} for round in (1, 2))
    second = [(standby, 2, metric) for metric in (DOWNTIME, LOST, TOTAL)]
    assert ended_by(answer(*WHOLE[3:], *second, failures=[earlier, now])) == {(virtio, 2)}, "not that of round 1"
    assert ended_by(answer(*WHOLE, failures=[now])) == {(virtio, 2), (standby, 2)}, "the second had not begun"
    assert ended_by(answer(*WHOLE)) == set() == ended_by(answer())


def test_a_line_has_every_move() -> None:
    first, second = counted(answer(*WHOLE))
    assert first == "vm: 1 moves; downtime at the peer 1.5 s; packets lost 1.5; in all 1.5 s"
    assert second.startswith("vm net.path=sriov-standby: 1 moves")


def test_the_plan_has_both_guests() -> None:
    plan = parse(PLAN.format(moves=10), "moves")
    assert tuple(each.name for each in plan.treatments()[0]) == CONFIGURATIONS and plan.rounds.max == 10
