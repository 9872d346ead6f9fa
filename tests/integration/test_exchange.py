"""Costs as the programs read them for which they are written; those that a registry has."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sample_many import costs
from vmtax.analysis.many.history import history
from vmtax.report.render.exchange import textfile
from vmtax.report.render.formats import find_history

pytestmark = pytest.mark.machines  # they are downloaded, 250 MB

CHANGE = 8  # place of the first run that is slower


def installed(directory: Path, *names: str) -> dict[str, str]:
    """The environment of a program that uses these packages."""
    argv = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--target",
        str(directory),
    ]
    subprocess.run([*argv, *names], check=True)
    return {**os.environ, "PYTHONPATH": str(directory)}


def test_otava_finds_the_change_where_it_is(tmp_path: Path) -> None:
    env = installed(tmp_path / "packages", "apache-otava==0.8.0", "aiohttp")
    runs = [costs(n, 7 * n, 0.05 if n >= CHANGE else 0.0) for n in range(14)]
    (tmp_path / "history.csv").write_text(find_history("csv")(history(runs), False))
    (tmp_path / "otava.yaml").write_text(
        textwrap.dedent("""\
            tests:
              quick:
                type: csv
                file: history.csv
                time_column: time
                attributes: [run, kernel]
                metrics:
                  chess: {column: chess_nodes_per_second_vm_against_host, direction: -1, scale: 1}
            """)
    )
    argv = [sys.executable, "-W", "ignore", "-m", "otava.main", "analyze", "quick", "--config-file", "otava.yaml"]
    span = ("--since", "2026-01-01", "--until", "2028-01-01")
    done = subprocess.run([*argv, *span], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    before = next(number for number, line in enumerate(lines) if runs[CHANGE - 1].id in line)
    assert lines[before + 2].strip().startswith("+5"), done.stdout
    assert runs[CHANGE].id in lines[before + 4] and done.stdout.count("%") == 1


def test_the_parser_of_prometheus_reads_every_sample(tmp_path: Path) -> None:
    env = installed(tmp_path / "packages", "prometheus-client")
    runs = [costs(number, host_name=name) for number, name in enumerate(('a "b"', "back\\slash", "plain"))]
    (tmp_path / "vmtax.prom").write_text(textfile(runs))
    program = (
        "import sys; from prometheus_client.parser import text_string_to_metric_families as parse\n"
        "for family in parse(open(sys.argv[1]).read()):\n"
        "    for s in family.samples: print(s.name, s.labels['host'], s.value, s.timestamp)\n"
    )
    argv = [sys.executable, "-c", program, str(tmp_path / "vmtax.prom")]
    read = subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(read) == 3 * (3 * len(runs[0].figures) + 1)
    assert f"vmtax_run_end_seconds plain {runs[2].ended} None" in read
    assert any(line.startswith('vmtax_time_ratio a "b" ') for line in read)


@contextlib.contextmanager
def node_exporter(directory: Path) -> Iterator[str]:
    """The address of one that reads the files in that directory; it ends with the block."""
    subprocess.run(["apt-get", "download", "prometheus-node-exporter"], cwd=directory, check=True, capture_output=True)
    (package,) = directory.glob("prometheus-node-exporter_*.deb")
    subprocess.run(["dpkg", "-x", str(package), str(directory / "exporter")], check=True)
    argv = [
        str(directory / "exporter/usr/bin/prometheus-node-exporter"),
        *("--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={directory}"),
        "--web.listen-address=127.0.0.1:0",
    ]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            heard = next(line for line in process.stderr if "Listening on" in line)
            yield heard.rpartition("address=")[2].strip()
        finally:
            process.terminate()


def test_node_exporter_serves_the_file(tmp_path: Path) -> None:
    run = costs(1, host_name="web1")
    (tmp_path / "vmtax.prom").write_text(textfile([run]))
    with node_exporter(tmp_path) as address, urllib.request.urlopen(f"http://{address}/metrics") as answer:
        read = answer.read().decode()
    assert "node_textfile_scrape_error 0" in read
    assert sum(line.startswith("vmtax_time_ratio{") for line in read.splitlines()) == 3 * len(run.figures)
    assert time.time() - float(read.partition('vmtax.prom"} ')[2].split()[0]) < 3600
