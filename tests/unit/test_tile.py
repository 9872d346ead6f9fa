"""Guests that do different work at once: who does what, what each reports, and what the report makes of it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib import resources
from pathlib import Path, PurePosixPath

import pytest

from tests.fake_machine import FakeMachine
from tests.sample import sample_experiment
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.tiles import OfRole, tiles
from vmtax.core.records import Experiment, Measurement, Treatment, Trial
from vmtax.design.iterations import together
from vmtax.plan.schema import PlanError, load, parse
from vmtax.plan.vary import varied
from vmtax.report.answers.run import written_pieces
from vmtax.report.render.markdown import render_markdown
from vmtax.report.sections.tiles import LATE
from vmtax.testbed.host import needs
from vmtax.workload import BadOutput, Site
from vmtax.workload.tile import DONE, P99, ROLES, TileParameters, TileWorkload, role_of

GOLDEN = Path(__file__).parent.parent / "golden/workload"
TILE = TileWorkload(TileParameters(), emulated=True)
COUNTS = {"3": "vm", "6": "vm guest.count=6"}


def output(name: str) -> str:
    return (GOLDEN / name).read_text()


def parsed(text: str) -> dict[str, float]:
    return {one.metric.name: one.value for one in TILE.parse("", text)}


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("host/vm", "database"),
        ("host/vm-2", "web"),
        ("host/vm-3", "idle"),
        ("host/vm-4", "database"),
        ("host/vm-12", "idle"),
        ("host/vm/vm-2", "web"),
        ("host/vm-2/vm", "web"),
        ("lab-3/vm", "database"),
    ],
)
def test_a_guest_s_number_says_what_it_does(path: str, role: str) -> None:
    assert role_of(path) == role


def test_each_role_reports_its_own_metrics_alone() -> None:
    assert parsed(output("tile-database.json")) == {
        "tile.database.p99_seconds": pytest.approx(0.497025024),
        "tile.database.of_asked": pytest.approx(0.83905416),
    }, "a database that cannot keep up is an answer, and no failure"
    assert parsed(output("tile-web.txt")) == {
        "tile.web.p99_seconds": pytest.approx(0.24065519),
        "tile.web.of_asked": 1.0,
    }
    assert parsed(output("tile-idle.txt")) == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        'vmtax requests: {"asked": 9, "answered": 0, "p99": 1.0}\n',
        '{"fio version" : "fio-3.39"}',
        "12.00 1.00\n13.00 1.00\n",
    ],
)
def test_another_output_is_refused(text: str) -> None:
    with pytest.raises(BadOutput):
        TILE.parse("", text)


def test_all_roles_count_the_same_part_of_their_time() -> None:
    for name in ("tile-database.json", "tile-web.txt", "tile-idle.txt"):
        counted = TILE.counted("", output(name))
        assert counted is not None and counted.seconds == pytest.approx(10, abs=0.6) and counted.before > 2


def command(path: str) -> tuple[str, ...]:
    return tuple(TILE.command(Site(FakeMachine(path), "vm", 1, (), disk="/dev/vdb", lead=3), ""))


def test_each_guest_gets_the_command_of_its_role() -> None:
    database, web, idle = map(command, ("host/vm", "host/vm-2", "host/vm-3"))
    assert {"--rate_iops=105,45", "--sync=dsync", "--ramp_time=3"} <= {*database}
    assert web[-5:] == ("150", "10", "3", "32768", "2")
    assert idle[-1] == "16", "as long as the others work, before and after what counts"


def test_programs_start_before_they_wait_for_the_others() -> None:
    directory = PurePosixPath("/tmp/d")
    database, web = (TILE.held("", command(path), directory) for path in ("host/vm", "host/vm-2"))
    assert database[0] == "fio" and "exec_prerun" in database[-1]
    assert web[-1] == "/tmp/d"


def test_the_web_server_that_is_executed_prints_what_is_read() -> None:
    script = resources.files("vmtax.workload").joinpath("requests.py").read_text()
    argv = [sys.executable, "-I", "-S", "-c", script, "2000", "0.05", "0.01", "1024", "2"]
    printed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    found = parsed(printed)
    assert 0 < found["tile.web.p99_seconds"] < 10 and 0 < found["tile.web.of_asked"] <= 1
    assert '"asked": 100,' in printed


def test_requests_that_are_not_served_until_the_end_are_counted_as_late() -> None:
    script = resources.files("vmtax.workload").joinpath("requests.py").read_text()
    # 20 MiB for each of 10,000 requests in a second: no CPU does that
    argv = [sys.executable, "-I", "-S", "-c", script, "10000", "0.02", "0", str(20 * 2**20), "2"]
    found = parsed(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    assert found["tile.web.of_asked"] < 0.5 and found["tile.web.p99_seconds"] > 0.01


@pytest.mark.parametrize("count", ["1", "2", "4", "3,8"])
def test_a_number_of_guests_that_is_no_multiple_of_three_is_refused(count: str) -> None:
    with pytest.raises(PlanError) as caught:
        varied(load("tiles"), [f"guest.count={count}"])
    wrong = ",".join(level for level in count.split(",") if level != "3")
    what = f"tile gives each of 3 guests other work, but guest.count={wrong} is no multiple of 3"
    why = f"{what}; right are 3, 6, 12, 24, 48"
    assert caught.value.problems == [f"--vary: {why}"]


def test_a_plan_that_leaves_the_number_of_guests_open_is_refused() -> None:
    with pytest.raises(PlanError, match=r"guest\.count=1 is no multiple of 3; right are 3, 6, 12, 24, 48"):
        parse("name: mine\nlayers: [vm]\nworkloads: [tile]\n")


def test_rates_too_low_for_a_p99_are_refused() -> None:
    with pytest.raises(PlanError, match=r"web_rate 20 in 10 s are too few for a p99: it takes web_rate 110, or more"):
        parse("name: mine\nlayers: [vm]\nfactors: {guest.count: [3]}\nworkloads: [{tile: {web_rate: 20}}]\n")


def test_each_guest_gets_a_disk_that_was_written_in_full() -> None:
    plan = load("tiles")
    assert needs.disk_size(plan.build_workloads()) == 256 * 2**20
    assert needs.disk_bytes(plan) >= 256 * 2**20


def experiment(rounds: int = 3) -> Experiment:
    """One and two tiles; the second database of two is the worse one, and gets less CPU."""
    treatments = [Treatment(name, "vm", {"guest.count": count}) for count, name in COUNTS.items()]
    trials = []
    for number in range(1, rounds + 1):
        for treatment in treatments:
            for place in range(1, int(treatment.levels["guest.count"]) + 1):
                machine = "host/vm" if place == 1 else f"host/vm-{place}"
                role, tile = role_of(machine), (place + 2) // 3
                measured = (
                    (Measurement(P99[role], 0.01 * tile), Measurement(DONE[role], 1 / tile)) if role in P99 else ()
                )
                one = Trial(number, 1, treatment.name, "tile", "", 1, "ok", 0.0, 10.0, measured, machine=machine)
                trials.append(replace(one, readings={machine: {"clock.steal_seconds": 1.0 * place}}))
    sample = sample_experiment(emulated=False)
    return replace(sample, treatments=tuple(treatments), trials=tuple(trials), boots=())


def of(found: tuple[OfRole, ...], role: str, count: str) -> OfRole:
    return next(one for one in found if (one.role, one.treatment.name) == (role, COUNTS[count]))


def test_the_worst_guest_of_a_role_is_set_against_one_tile() -> None:
    found = tiles(experiment(), {})
    two = of(found, "database", "6")
    assert (two.tiles, two.p99, two.done, two.times) == (2, 0.02, 0.5, 2.0)
    assert two.steal == pytest.approx(0.4), "of the fourth guest"
    idle = of(found, "idle", "6")
    assert (idle.p99, idle.done, idle.steal) == (None, None, pytest.approx(0.6))
    assert of(found, "web", "3").times is None, "one tile is not set against itself"


@pytest.mark.parametrize("shares", [("1", "2"), ("2", "1")])
def test_one_tile_is_the_one_whose_guests_share_cpus_least(shares: tuple[str, ...]) -> None:
    """Whatever the order in which the levels were typed."""
    whole = experiment()
    treatments, trials = [], []
    for share in shares:
        for each in whole.treatments:
            levels = {**each.levels, "cpu.overcommit": share}
            treatments.append(replace(each, name=f"{each.name} {share}", levels=levels))
        for one in whole.trials:
            slower = tuple(replace(it, value=it.value * int(share)) for it in one.measurements)
            trials.append(replace(one, treatment=f"{one.treatment} {share}", measurements=slower))
    found = tiles(replace(whole, treatments=tuple(treatments), trials=tuple(trials)), {})
    times = {one.treatment.name: one.times for one in found if one.role == "database"}
    assert times == {"vm 1": None, "vm 2": 2.0, "vm guest.count=6 1": 2.0, "vm guest.count=6 2": 4.0}


def test_an_execution_in_which_a_guest_failed_counts_for_none() -> None:
    run = experiment(rounds=1)
    trials = tuple(replace(one, status="failed") if one.machine == "host/vm-5" else one for one in run.trials)
    found = tiles(replace(run, trials=trials), {})
    assert {one.treatment.name for one in found} == {"vm"}


def test_a_damaged_run_that_does_not_say_how_many_guests_it_had_has_no_traceback() -> None:
    """It seems to have had one, and so no guest of any other role."""
    run = experiment()
    few = tuple(one for one in run.trials if one.machine == "host/vm-3")
    nameless = tuple(replace(one, levels={}) for one in run.treatments)
    assert all(one.p99 is None for one in tiles(replace(run, treatments=nameless, trials=few), {}) if one.role != "web")


def test_guests_of_one_role_are_compared_though_the_others_lack_its_metrics() -> None:
    six = [one for one in experiment(rounds=1).trials if one.treatment == COUNTS["6"]]
    (one,) = together(six)
    assert {each.metric.name: each.value for each in one.measurements} == {
        "tile.database.p99_seconds": pytest.approx(0.015),
        "tile.database.of_asked": 0.75,
        "tile.web.p99_seconds": pytest.approx(0.015),
        "tile.web.of_asked": 0.75,
    }
    lacking = [replace(each, measurements=()) if each.machine == "host/vm-4" else each for each in six]
    assert not [each for each in together(lacking)[0].measurements if "database" in each.metric.name]


def test_the_table_has_each_role_and_each_number_of_guests() -> None:
    text = render_markdown(Analysis(experiment()))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert ["vm guest.count=6", "20.0 ms", "2×", "50 %", "0.40"] in rows
    assert ["vm, 3 at once", "–", "–", "–", "0.30"] in rows
    assert all(any(role in row[0] for row in rows) for role in ROLES)


def test_the_json_answer_has_each_role() -> None:
    answer = json.loads("".join(written_pieces(Analysis(experiment()))))["data"]["tiles"]
    (row,) = [each for each in answer if (each["role"], each["treatment"]) == ("database", COUNTS["6"])]
    assert (row["tiles"], row["p99_seconds"], row["of_asked"], row["times"]) == (2, 0.02, 0.5, 2.0)


def test_a_guest_far_behind_its_rate_is_explained() -> None:
    run = experiment()
    trials = tuple(replace(one, measurements=one.measurements[1:]) for one in run.trials)
    assert LATE in render_markdown(Analysis(replace(run, trials=trials)))
    assert LATE not in render_markdown(Analysis(run))
