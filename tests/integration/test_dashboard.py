"""The dashboard for Grafana: its queries in a real PostgreSQL, and its form as Grafana's own library reads it."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_exchange import installed
from tests.postgresql import PostgresqlServer
from tests.sample import sample_experiment
from tests.sample_many import a_run
from vmtax.analysis.many.costs import run_costs
from vmtax.core.layers import CONTRASTS
from vmtax.core.records import Experiment
from vmtax.fleet.dashboard import dashboard
from vmtax.store import Store
from vmtax.store.address import ServerAddress
from vmtax.store.queries import costs

pytestmark = pytest.mark.machines
RUNS = tuple(a_run(n, 7.0 * n, 0.05 * n, host=f"ssh://h{n % 2}", label="autumn") for n in range(4))
OTHERS = (
    dataclasses.replace(sample_experiment(rounds=7), id="20261121-0412-quick-ffff", label="autumn"),  # emulated
    dataclasses.replace(a_run(8), label="autumn", state="interrupted"),
    dataclasses.replace(a_run(9, rounds=5), label="autumn"),  # too few rounds
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    with PostgresqlServer() as started:
        yield started


@pytest.fixture(scope="module")
def address(server: PostgresqlServer) -> ServerAddress:
    address = server.database()
    with Store(address) as store:
        for run in (*RUNS, *OTHERS):
            store.put(run)
    return address


def expected(run: Experiment) -> dict[tuple[str, str, str, str], float]:
    """(run, figure, layer, baseline) -> logarithm, as `vmtax show` computes it."""
    return {
        (run.id, figure.subject.metric.name, figure.subject.treatment, figure.subject.baseline): figure.log
        for figure in run_costs(run).figures
        if (figure.subject.baseline, figure.subject.treatment) in CONTRASTS
    }


def test_the_costs_are_those_that_show_has_and_of_no_other_runs(
    server: PostgresqlServer, address: ServerAddress
) -> None:
    text = server.sql(address, f"SELECT run, figure, layer, baseline, log FROM ({costs()}) AS costs")
    rows = [line.split("|") for line in text.splitlines()]
    found = {(run, figure, layer, baseline): float(log) for run, figure, layer, baseline, log in rows}
    wanted = {key: log for run in RUNS for key, log in expected(run).items()}
    assert len(wanted) > 20 and {key: found.get(key) for key in wanted} == pytest.approx(wanted, abs=1e-9)
    assert {run for run, *_ in found} == {run.id for run in RUNS}


def test_every_query_of_it_runs_and_the_newest_run_of_each_host_is_shown(
    server: PostgresqlServer, address: ServerAddress
) -> None:
    made = dashboard()
    chosen = {
        "'$plan'": "'quick'",
        "$fleet": "'autumn', 'spring'",
        "'$figure'": "'chess.nodes_per_second'",
        "$__unixEpochFilter(experiment.created)": "experiment.created > 0",
        "$__unixEpochFilter(created)": "created > 0",
    }

    def rows(query: str) -> list[list[str]]:
        for name, value in chosen.items():
            query = query.replace(name, value)
        assert "$" not in query
        return [line.split("|") for line in server.sql(address, query).splitlines()]

    over_time, newest, whole, runs = (rows(panel["targets"][0]["rawSql"]) for panel in made["panels"])
    assert len(over_time) == 3 * len(RUNS) and over_time == sorted(over_time, key=lambda row: row[0])
    layers = ("nested against host", "nested against vm", "vm against host")
    assert [host for host, _ in newest] == [f"ssh://h{n}, {layer}" for n in (0, 1) for layer in layers]
    assert {row[2] for row in whole} == {RUNS[2].id, RUNS[3].id}
    of_vm = {host: float(cost) for host, cost in newest}["ssh://h1, vm against host"]
    assert of_vm == pytest.approx(math.expm1(expected(RUNS[3])[RUNS[3].id, "chess.nodes_per_second", "vm", "host"]))
    assert len(runs) == len(RUNS) + len(OTHERS)
    plans, fleets, figures = (rows(each["query"]) for each in made["templating"]["list"][1:])
    assert ["quick"] in plans and fleets == [["autumn"]] and ["chess.nodes_per_second"] in figures


# Prints what of a dashboard Grafana's library does not know: it would be lost on the way through it.
READ = """
import json, sys
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
given = json.load(open(sys.argv[1]))
read = json.loads(json.dumps(Dashboard.from_json(given), cls=JSONEncoder))
def lost(one, other, at=""):
    if isinstance(one, dict):
        for key, value in one.items():
            if not isinstance(other, dict) or key not in other:
                print(f"{at}.{key}")
            else:
                lost(value, other[key], f"{at}.{key}")
    elif isinstance(one, list):
        for number, value in enumerate(one):
            lost(value, other[number], f"{at}[{number}]")
    elif one != other:
        print(at, one, other)
lost(given, read)
"""


def test_grafana_s_own_library_knows_all_of_it(tmp_path: Path) -> None:
    env = installed(tmp_path / "packages", "grafana-foundation-sdk")
    (tmp_path / "vmtax.json").write_text(json.dumps(dashboard()))
    argv = [sys.executable, "-c", READ, str(tmp_path / "vmtax.json")]
    assert subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout == ""
