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
from vmtax.fleet.inventory import NoInventory, hosts_of_inventory
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
    older: {ansible_ssh_host: 10.0.0.9, ansible_host: no, ansible_ssh_user: root, ansible_ssh_port: 2200}
    six: {ansible_host: "fd00::1", ansible_user: root, ansible_port: 22}
    seven: {ansible_host: "[fd00::2]", ansible_ssh_common_args: -J x, ansible_ssh_private_key_file: /k}
    near2: {ansible_connection: ansible.builtin.local}
    secret: {note: !vault "$ANSIBLE_VAULT;1.1;AES256\n6231336539"}
  children:
    chassis:
      hosts: {blade1: {ansible_host: blade1}, blade2: {ansible_host: blade2}, blade3: {ansible_host: blade3}}
      vars: {vmtax_exclusive: true}
    racks: {children: {row: {children: {rack: {hosts: {"kvm[01:03]": {}}}}}}}
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
    assert addresses["older"] == "ssh://root@10.0.0.9:2200" and addresses["near2"] == "local"
    assert (addresses["six"], addresses["seven"]) == ("ssh://root@[fd00::1]:22", "ssh://[fd00::2]")
    assert {"ssh://kvm01", "ssh://kvm02", "ssh://kvm03"} < {*addresses.values()}
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


INI = """
kvm[1:3] ansible_ssh_user=root
[web]
web1 ansible_host=fd00::5 note="$(touch OOPS)"
[web:vars]
ansible_port=2222
[every:children]
web
"""


def test_an_inventory_of_the_older_form_is_read_the_same_way(tmp_path: Path) -> None:
    (inventory := tmp_path / "hosts.ini").write_text(INI.replace("OOPS", str(tmp_path / "oops")))
    addresses = {host.name: host.address for host in hosts_of_inventory(read_inventory(str(inventory)))}
    assert addresses == {**{f"kvm{n}": f"ssh://root@kvm{n}" for n in (1, 2, 3)}, "web1": "ssh://[fd00::5]:2222"}
    assert not (tmp_path / "oops").exists()


def test_what_is_encrypted_costs_one_line(tmp_path: Path) -> None:
    """A value of one host costs that host; a file of variables, which Ansible cannot read either, all of them."""
    inventory, key = tmp_path / "hosts.yml", tmp_path / "key"
    key.write_text("x\n")
    words = ["ansible-vault", "encrypt_string", "--vault-password-file", str(key), "10.0.0.1", "--name", "ansible_host"]
    value = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    inventory.write_text(f"all:\n  hosts:\n    plain:\n    a:\n      {value.replace(chr(10), chr(10) + ' ' * 6)}\n")
    plain, secret = sorted(hosts_of_inventory(read_inventory(str(inventory))), key=lambda host: host.name != "plain")
    assert plain.address == "ssh://plain"
    assert secret.problem == "ansible_host is encrypted by ansible-vault: write it in plain text"
    (tmp_path / "group_vars").mkdir()
    (group := tmp_path / "group_vars/all.yml").write_text("ansible_user: root\n")
    subprocess.run(["ansible-vault", "encrypt", "--vault-password-file", str(key), str(group)], check=True)
    with pytest.raises(NoInventory, match=r"cannot read it: .*[Vv]ault") as caught:
        read_inventory(str(inventory))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["all:\n  hosts: [a, b", "", "[web\n", "- a\n- b\n"])
def test_what_is_no_inventory_costs_one_line(text: str, tmp_path: Path) -> None:
    (inventory := tmp_path / "hosts.yml").write_text(text)
    with pytest.raises(NoInventory) as caught:
        hosts_of_inventory(read_inventory(str(inventory)))
    assert "\n" not in str(caught.value)
