"""The playbook of a fleet by a real ansible-playbook; what stands for vmtax says what it was called with."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vmtax.fleet.engine import read_inventory
from vmtax.fleet.inventory import hosts_of_inventory
from vmtax.fleet.playbook import playbook

pytestmark = pytest.mark.machines
INVENTORY = """
all:
  vars: {ansible_become: true}
  hosts:
    plain: {ansible_host: 10.0.0.1, ansible_user: root, ansible_port: 2222}
    named:
    near: {ansible_connection: local}
    odd: {ansible_host: "a$(touch OOPS) `touch OOPS`; touch OOPS", ansible_user: "x y"}
    busy: {ansible_host: busy}
    failing: {ansible_host: failing}
  children:
    chassis:
      hosts: {blade1: {ansible_host: blade1}, blade2: {ansible_host: blade2}, blade3: {ansible_host: blade3}}
      vars: {vmtax_exclusive: true}
"""
# Notes its arguments and when it ran; the host `busy` is so twice.
STANDS_IN = """
import json, sys, time
from pathlib import Path
begun = time.monotonic()
host = sys.argv[sys.argv.index("--host") + 1]
if "blade" in host:
    time.sleep(0.5)
calls = Path(sys.argv[1])
with calls.open("a") as file:
    file.write(json.dumps([host, sys.argv[2:], begun, time.monotonic()]) + "\\n")
tries = sum(json.loads(line)[0] == host for line in calls.read_text().splitlines())
print("done already: run x" if host == "local" else "measured", file=sys.stderr)
sys.exit(6 if host == "ssh://busy" and tries < 3 else 1 if host == "ssh://failing" else 0)
"""


def test_every_host_of_an_inventory_is_measured_with_words_that_no_shell_reads(tmp_path: Path) -> None:
    inventory, program, calls, book = (tmp_path / name for name in ("hosts.yml", "vmtax.py", "calls", "playbook.yml"))
    inventory.write_text(INVENTORY.replace("OOPS", str(tmp_path / "oops")))
    program.write_text(STANDS_IN)
    text = playbook("my plan.yaml", "$(id) fleet", ["--rounds", "3"], [sys.executable, str(program), str(calls)])
    book.write_text(re.sub(r"\bdelay: \d+", "delay: 0", text))
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1", "HOME": str(tmp_path)}
    argv = ["ansible-playbook", "-i", str(inventory), "--forks", "9", str(book)]
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "WARNING" not in done.stderr and "DEPRECATION" not in done.stderr, done.stderr
    seen = [json.loads(line) for line in calls.read_text().splitlines()]
    # What is looked at beforehand is what is measured then.
    addresses = {host.name: host.address for host in hosts_of_inventory(read_inventory(str(inventory)))}
    assert {host for host, *_ in seen} == set(addresses.values())
    assert addresses["plain"] == "ssh://root@10.0.0.1:2222" and addresses["named"] == "ssh://named"
    for host, words, *_ in seen:
        assert words == [*("run", "my plan.yaml", "--host", host, "--fleet", "$(id) fleet", "--yes", "--rounds", "3")]
    assert not (tmp_path / "oops").exists()
    assert [host for host, *_ in seen].count("ssh://busy") == 3
    recap = dict(re.findall(r"^(\S+)\s+: (ok=\d+ +changed=\d+ +unreachable=0 +failed=\d)", done.stdout, re.M))
    assert len(recap) == len(addresses)
    assert [name for name, counts in recap.items() if "failed=1" in counts] == ["failing"]
    assert "changed=0" in recap["near"] and "changed=1" in recap["plain"]
    blades = sorted((begun, ended) for host, _, begun, ended in seen if "blade" in host)
    assert len(blades) == 3
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(blades)), "one after another"
