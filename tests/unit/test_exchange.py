"""Costs in the formats of other programs, checked against the shapes that these document; and runs without names."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from typer.testing import CliRunner

from tests.sample import sample_experiment, unstarted
from tests.sample_many import ONE_MACHINE, a_run, costs
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.many.costs import RunCosts, run_costs
from vmtax.analysis.redaction import redacted, redacted_costs
from vmtax.cli import app
from vmtax.core.errors import DONE
from vmtax.core.records import Experiment
from vmtax.report.render.exchange import NoCosts, bencher, github_action, textfile
from vmtax.report.render.formats import FORMATS, find
from vmtax.store import Store

NEW = ("bencher", "github-action", "prometheus")
# As https://bencher.dev/bmf.json has it
BENCHER = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"minLength": 1, "maxLength": 1024},
    "additionalProperties": {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"minLength": 1, "maxLength": 64},
        "additionalProperties": {
            "type": "object",
            "properties": {name: {"type": "number"} for name in ("value", "lower_value", "upper_value")},
            "required": ["value"],
            "additionalProperties": False,
        },
    },
}
# As `extractCustomBenchmarkResult` of github-action-benchmark takes it
GITHUB_ACTION = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {
            **{name: {"type": "string"} for name in ("name", "unit", "range", "extra")},
            "value": {"type": "number"},
        },
        "required": ["name", "value", "unit"],
        "additionalProperties": False,
    },
}
SAMPLE = re.compile(r'(?P<name>[a-z_]+)\{(?P<labels>(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (?P<value>\S+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\[\\"n])*)"')


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """(name, labels) -> value, as strictly as the format is defined: each family once, described before its samples."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    described: list[str] = []
    assert text.endswith("\n") and "\r" not in text
    for line in text.splitlines():
        if line.startswith("# "):
            _, kind, name, rest = line.split(" ", 3)
            assert kind in ("HELP", "TYPE") and rest and (kind == "HELP") != (name in described)
            described += [name] * (kind == "HELP")
            continue
        match = SAMPLE.fullmatch(line)
        assert match is not None, line  # so there is no time stamp either
        labels = tuple((name, re.sub(r"\\(.)", r"\1", value)) for name, value in LABEL.findall(match["labels"]))
        key = (match["name"], labels)
        assert match["name"] == described[-1] and key not in found
        found[key] = float(match["value"])
    return found


def test_bencher_gets_each_cost_with_its_interval() -> None:
    found = json.loads(bencher(run := costs(1)))
    jsonschema_rs.validator_for(BENCHER).validate(found)
    assert len(found) == len(run.figures)
    first = found["chess.nodes_per_second: vm against host"]["time-ratio"]
    assert first["value"] == pytest.approx(math.exp(run.figures[0].log))
    assert first["lower_value"] < first["value"] < first["upper_value"]


def test_the_github_action_gets_each_cost_with_its_range() -> None:
    found = json.loads(github_action(run := costs(1)))
    jsonschema_rs.validator_for(GITHUB_ACTION).validate(found)
    assert [entry["value"] for entry in found] == [math.exp(figure.log) for figure in run.figures]
    assert re.fullmatch(r"± 0\.\d{4}", found[0]["range"]) and run.id in found[0]["extra"]


@pytest.mark.parametrize("name", ["web1", 'a "quoted" one', "back\\slash", "two\nlines", "ünï", "x" * 200])
def test_prometheus_gets_each_cost_with_its_bounds_and_the_end_of_the_run(name: str) -> None:
    run = costs(1, host_name=name)
    found = samples(textfile([run]))
    host = {dict(labels)["host"] for _, labels in found}
    assert host == {name.replace("\n", " ")}
    ends = [value for (metric, _), value in found.items() if metric == "vmtax_run_end_seconds"]
    assert ends == [run.ended] and len(found) == 3 * len(run.figures) + 1
    bounds = [value for (metric, labels), value in found.items() if dict(labels).get("bound") == "lower"]
    assert bounds == [math.exp(figure.low) for figure in run.figures if figure.low is not None]


def test_several_hosts_are_in_one_file() -> None:
    runs = [costs(number, host_name=f"web{number}") for number in range(3)]
    assert len(samples(textfile(runs))) == 3 * (3 * len(runs[0].figures) + 1)


def without_intervals(run: RunCosts) -> RunCosts:
    return dataclasses.replace(run, figures=tuple(dataclasses.replace(one, low=None, high=None) for one in run.figures))


def test_a_cost_without_an_interval_has_none_anywhere() -> None:
    run = without_intervals(costs(1))
    assert all(set(measure["time-ratio"]) == {"value"} for measure in json.loads(bencher(run)).values())
    assert all("range" not in entry for entry in json.loads(github_action(run)))
    assert {dict(labels).get("bound") for _, labels in samples(textfile([run]))} == {"estimate", None}


def test_emulated_costs_are_not_taken_for_others() -> None:
    run = run_costs(sample_experiment(rounds=7, emulated=True))
    assert run is not None
    assert all(name.endswith(" (emulated)") for name in json.loads(bencher(run)))
    labels = [dict(labels) for name, labels in samples(textfile([run])) if name == "vmtax_time_ratio"]
    assert {one["emulated"] for one in labels} == {"true"}


@pytest.mark.parametrize("format", NEW)
def test_a_run_that_compared_nothing_has_no_costs(format: str) -> None:
    with pytest.raises(NoCosts, match="no costs to write: nothing was compared in 2 rounds or more"):
        find(format).render(Analysis(unstarted(sample_experiment())))
    old = a_run(1)
    assert find(format).render(Analysis(dataclasses.replace(old, plan={**old.plan, "workloads": ["gone"]})))


def test_every_format_has_a_file_name_of_its_own() -> None:
    suffixes = [format.suffix for format in FORMATS.values()]
    assert len(set(suffixes)) == len(suffixes)


# --- without names

SECRETS = {
    "hostname": "web1.example.org",
    "kernel_command_line": "root=UUID=1 ip=192.0.2.7::192.0.2.1 BOOTIF=52:54:00:ab:cd:ef",
    "machine_id": ONE_MACHINE,
}


def secret_run(**facts: Any) -> Experiment:
    run = a_run(1, host="ssh://alice@web1.example.org", **(SECRETS | facts))
    return dataclasses.replace(
        run,
        command="vmtax run quick --host ssh://alice@web1.example.org --wire eth1,ssh://bob@db2,eth2",
        label="before",
        notes=("web1: 2001:db8::7 did not answer at 12:30:45; see /home/alice/vm/disk.raw", "PCI 0000:03:00.0 is free"),
        options={"wire": {"card": "eth1", "peer": "ssh://bob@db2", "peer_card": "eth2"}},
    )


def test_names_and_addresses_are_replaced() -> None:
    text = repr(redacted(secret_run()))
    for secret in ("web1", "example.org", "alice", "bob", "db2", "192.0.2", "52:54:00", "2001:db8"):
        assert secret not in text, secret
    for kept in ("host-66666666", "host-2", "12:30:45", "0000:03:00.0", "Xeon(R) Gold 6338", "6.12.48+deb13", "10.0.3"):
        assert kept in text, kept


def test_the_figures_stay_the_same() -> None:
    run = secret_run()
    old, new = run_costs(run), run_costs(redacted(run))
    assert old is not None and new is not None
    assert new.figures == old.figures and new.work == old.work and new.machine_id == old.machine_id


def test_the_same_name_becomes_the_same_other_one() -> None:
    one, other = redacted(secret_run()), redacted(secret_run(hostname="web1"))
    assert one.host == other.host == "ssh://user@host-66666666"
    assert one.facts["host"]["hostname"] == other.facts["host"]["hostname"] == "host-66666666"
    assert redacted(one) == redacted(redacted(one))


@pytest.mark.parametrize("name", ["vm", "host", "nested", "local", "localhost"])
@pytest.mark.varied(2)
def test_a_host_that_is_called_like_a_layer_changes_no_configuration(name: str) -> None:
    run = a_run(1, hostname=name)
    changed = redacted(run)
    assert changed.facts["host"]["hostname"] == "host-66666666"
    assert changed.treatments == run.treatments and [*changed.facts] == [*run.facts]


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("10.0.2.15 and 10.0.2.15", "address-1 and address-1"),
        ("127.0.0.1:22", "127.0.0.1:22"),
        ("QEMU 10.0.3", "QEMU 10.0.3"),
        ("fe80::1%eth0", "address-1%eth0"),
        ("[2001:db8::1]:22", "[address-1]:22"),
        ("999.1.1.1", "999.1.1.1"),
        ("web1x web1 web1.example.org", "web1x host-66666666 host-66666666"),
        ("/home/carol/x", "/home/user/x"),
        ("ssh://carol@other", "ssh://user@other"),
    ],
)
@pytest.mark.varied(4)
def test_what_is_an_address_and_what_is_not(text: str, new: str) -> None:
    changed = redacted(dataclasses.replace(secret_run(kernel_command_line=""), notes=(text,), options={}))
    assert changed.notes == (new,)


def test_costs_lose_the_name_of_their_host() -> None:
    run = costs(3, host_name="web1.example.org")
    changed = redacted_costs(run)
    assert "web1" not in repr(changed) and changed.figures == run.figures
    assert changed.host_name == f"host-{run.machine_id[:8]}" if run.machine_id else False


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("home")
    with Store(path / "vmtax/vmtax.sqlite") as store:
        store.put(secret_run())
    return path


@pytest.mark.parametrize("format", ["html", "json", "github-action", "prometheus"])
@pytest.mark.varied(2)
def test_no_report_has_a_name_if_asked(
    format: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    file = tmp_path / "report"
    argv = ["report", "last", "--format", format, "-o", str(file)]
    assert CliRunner().invoke(app, argv).exit_code == DONE
    assert b"web1" in file.read_bytes()
    assert CliRunner().invoke(app, [*argv, "--redact"]).exit_code == DONE
    assert b"web1" not in file.read_bytes() and b"alice" not in file.read_bytes()


def test_an_export_without_names_has_no_raw_output_and_can_be_imported(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    file = tmp_path / "run.gz"
    done = CliRunner().invoke(app, ["export", "last", "-o", str(file), "--redact"])
    assert done.exit_code == DONE, done.exception
    text = gzip.decompress(file.read_bytes()).decode()
    assert "web1" not in text and "alice" not in text and '"raw":""' in text.replace(" ", "")
    assert not re.search(r'"raw": ?"[^"]', text)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    assert CliRunner().invoke(app, ["import", str(file)]).exit_code == DONE
