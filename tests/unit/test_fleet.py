"""A fleet: who its hosts are, the playbook, and what repeats the command where there is no Ansible."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from tests.sample import sample_experiment, unstarted
from vmtax.cli import fleets
from vmtax.cli.app import app
from vmtax.core.errors import BAD_INPUT, BUSY, FAILED, BadInput
from vmtax.fleet import engine
from vmtax.fleet.engine import Threads
from vmtax.fleet.inventory import FleetHost, HostLook, NoInventory, hosts_of_file, hosts_of_inventory, without_twins
from vmtax.fleet.playbook import playbook
from vmtax.store import Store


def inventory(**hosts: dict[str, object]) -> str:
    return json.dumps(
        {"_meta": {"hostvars": hosts}, "all": {"children": ["ungrouped"]}, "ungrouped": {"hosts": [*hosts]}}
    )


# Hosts


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({}, "ssh://h"),
        ({"ansible_host": "10.0.0.1"}, "ssh://10.0.0.1"),
        ({"ansible_host": "a", "ansible_user": "root", "ansible_port": 2222}, "ssh://root@a:2222"),
        ({"ansible_connection": "local", "ansible_host": "a"}, "local"),
        ({"ansible_connection": "ansible.builtin.local"}, "local"),
        ({"ansible_connection": "ansible.builtin.ssh"}, "ssh://h"),
        ({"ansible_user": "", "ansible_port": None}, "ssh://h"),
        ({"ansible_ssh_host": "a", "ansible_ssh_user": "root", "ansible_ssh_port": 2222}, "ssh://root@a:2222"),
        ({"ansible_ssh_host": "a", "ansible_host": "b", "ansible_user": "u", "ansible_ssh_user": ""}, "ssh://u@a"),
        ({"ansible_host": "fd00::1", "ansible_user": "root", "ansible_port": 22}, "ssh://root@[fd00::1]:22"),
        ({"ansible_host": "[fd00::1]"}, "ssh://[fd00::1]"),
        ({"ansible_host": 7}, "ssh://7"),
    ],
)
def test_the_address_of_a_host_of_an_inventory(variables: dict[str, object], address: str) -> None:
    assert hosts_of_inventory(inventory(h=variables)) == [FleetHost("h", address)]


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"ansible_host": "{{ lookup('dns') }}"}, "ansible_host is computed by Ansible: write it in plain text"),
        ({"ansible_ssh_user": "{% if x %}"}, "ansible_ssh_user is computed by Ansible: write it in plain text"),
        (
            {"ansible_port": {"__ansible_vault": "$ANSIBLE_VAULT;1.1\n6231"}},
            "ansible_port is encrypted by ansible-vault",
        ),
        ({"ansible_connection": "community.docker.docker"}, "is reached by Ansible's docker, and must be by ssh"),
        ({"ansible_connection": "winrm"}, "is reached by Ansible's winrm, and must be by ssh"),
    ],
)
def test_a_host_without_an_address_says_why(variables: dict[str, object], problem: str) -> None:
    [host] = hosts_of_inventory(inventory(h=variables))
    assert host.address == "" and host.problem.startswith(problem) and "\n" not in host.problem
    assert fleets._look(host, "", []).refused == host.problem


def test_hosts_are_those_of_all_groups_each_once_and_in_their_order() -> None:
    text = json.dumps(
        {
            "_meta": {"hostvars": {"d": {"ansible_host": "x"}}, "profile": "inventory_legacy"},
            "all": {"children": ["web", "db"]},
            "web": {"hosts": ["b", "a"]},
            "db": {"hosts": ["a", "c"], "vars": {}},
        }
    )
    assert [host.name for host in hosts_of_inventory(text)] == ["b", "a", "c", "d"]


def test_what_ansible_is_told_about_ssh_and_vmtax_takes_from_elsewhere_is_named() -> None:
    [host] = hosts_of_inventory(inventory(h={"ansible_ssh_common_args": "-J x", "ansible_password": "secret"}))
    assert host.ignored == ("ansible_ssh_common_args", "ansible_password")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        pytest.param(10**5 * "[", id="deep"),
        '{"a": 1}',
        '{"_meta": 3}',
        '{"_meta": {"hostvars": {"a": 3}}}',
        "{}",
    ],
)
def test_what_is_no_inventory_costs_one_line(text: str) -> None:
    with pytest.raises(NoInventory) as caught:
        hosts_of_inventory(text)
    assert "\n" not in str(caught.value)


def test_a_file_has_one_address_in_each_line() -> None:
    text = "# ours\nssh://root@a # the first\n\n  local\n"
    assert [host.address for host in hosts_of_file(text, "hosts")] == ["ssh://root@a", "local"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "hosts: has no hosts"),
        ("# none\n", "hosts: has no hosts"),
        ("a b\n", "hosts, line 1: one address in each line"),
        ("\nssh://a\nssh://a", "hosts, line 3: ssh://a is in line 2 already"),
    ],
)
def test_a_bad_file_of_hosts(text: str, words: str) -> None:
    with pytest.raises(NoInventory, match=words):
        hosts_of_file(text, "hosts")


def test_of_two_names_for_one_machine_the_first_counts() -> None:
    a, b, c, d, e = (FleetHost(name, f"ssh://{name}") for name in "abcde")
    looks = [HostLook(a, "1", "is full"), HostLook(b, "1"), HostLook(c, "2"), HostLook(d, "1"), HostLook(e)]
    after = [*without_twins(looks)]
    assert [look.refused for look in after][:3] == ["is full", "", ""] and after[4].refused == ""
    assert after[3].refused == "is b under another name (machine-id), which is measured once"


# The playbook


def test_the_playbook_is_short_and_has_every_word_as_an_argument_of_its_own() -> None:
    text = playbook("my plan; rm -rf ~.yaml", "$(id)", ["--rounds", "3", "'"], ["/opt/vm tax"])
    [play] = yaml.safe_load(text)
    assert len(text.splitlines()) < 45 and max(map(len, text.splitlines())) <= 120
    values = play["vars"]
    assert (values["vmtax_plan"], values["vmtax_fleet"]) == ("my plan; rm -rf ~.yaml", "$(id)")
    assert (values["vmtax_options"], values["vmtax_command"]) == (["--rounds", "3", "'"], ["/opt/vm tax"])
    assert play["strategy"] == "ansible.builtin.host_pinned" and play["gather_facts"] is False
    every, exclusive = play["tasks"]
    assert exclusive["throttle"] == 1 and "throttle" not in every
    for task in (every, exclusive):
        assert set(task["ansible.builtin.command"]) == {"argv", "chdir"}
        assert task["delegate_to"] == "localhost" and f"!= {BUSY}" in task["until"]


@pytest.mark.parametrize("word", ["{{ x }}", "a{%b", "{#"])
def test_a_word_that_ansible_would_compute_is_refused(word: str) -> None:
    for given in ((word, "f", []), ("p", word, []), ("p", "f", [word])):
        with pytest.raises(BadInput, match="Ansible would compute"):
            playbook(*given)  # type: ignore[arg-type]


# Without Ansible

TASK = """
import sys
from pathlib import Path
name, busy, code = sys.argv[1:]
tries = Path(name)
tries.write_text(tries.read_text() + "." if tries.exists() else ".")
print("busy" if len(tries.read_text()) <= int(busy) else "the last line")
sys.exit(6 if len(tries.read_text()) <= int(busy) else int(code))
"""


def test_threads_repeat_what_is_busy_and_a_host_that_fails_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "DELAY_SECONDS", 0)
    wanted = {"a": ("0", "0"), "b/../x": ("3", "0"), "c": ("0", "1")}
    hosts = [FleetHost(name, f"ssh://{name}") for name in wanted]
    told: list[tuple[str, int, str]] = []

    def argv(host: FleetHost) -> Sequence[str]:
        return [sys.executable, "-c", TASK, f"tries-{host.name.replace('/', '')}", *wanted[host.name]]

    codes = Threads(argv, tmp_path).run(hosts, lambda host, code, line: told.append((host.name, code, line)))
    assert list(codes.values()) == [0, 0, 1]
    assert (tmp_path / "tries-b..x").read_text() == "...."
    assert sorted(told) == [
        ("a", 0, "the last line"),
        ("b/../x", 0, "the last line"),
        ("b/../x", BUSY, "busy"),
        ("c", 1, "the last line"),
    ]
    assert (tmp_path / "b_.._x.log").is_file()


# The commands


def invoked(*words: str) -> Result:
    return CliRunner().invoke(app, ["fleet", *words])


def code_of(done: Result) -> object:
    return getattr(done.exception, "exit_code", getattr(done.exception, "code", done.exit_code))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with hosts, of which the plan fits `ssh://a` and `ssh://c` only, and no Ansible."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VMTAX_STORE", str(tmp_path / "store.sqlite"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "hosts").write_text("ssh://a\nssh://b\nssh://c\nssh://d\n")
    fits = {
        "ssh://a": HostLook(FleetHost("", ""), "1"),
        "ssh://b": HostLook(FleetHost("", ""), "2", "host: nothing free on /var/tmp"),
        "ssh://c": HostLook(FleetHost("", ""), "3"),
        "ssh://d": HostLook(FleetHost("", ""), "1"),
    }

    def look(host: FleetHost, plan: str, options: Sequence[str]) -> HostLook:
        return HostLook(host, fits[host.address].machine, fits[host.address].refused)

    monkeypatch.setattr(fleets, "_look", look)
    return tmp_path


def program(place: Path, name: str, text: str) -> None:
    file = place / "bin" / name
    file.write_text(f"#!{sys.executable}\nimport json, os, sys\n{text}\n")
    file.chmod(0o755)


def test_a_plan_that_fits_half_of_the_hosts_is_said_for_each_before_anything_begins(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []

    def run(threads: Threads, hosts: Sequence[FleetHost], tell: Any) -> dict[FleetHost, int]:
        measured.extend(host.address for host in hosts)
        return dict.fromkeys(hosts, 0)

    monkeypatch.setattr(Threads, "run", run)
    done = invoked("run", "quick", "--hosts", "hosts", "--fleet", "web", "--yes")
    assert measured == ["ssh://a", "ssh://c"]
    assert code_of(done) == FAILED and "1 of 4 hosts were left out, for the reasons above" in done.output
    assert "ssh://b: host: nothing free on /var/tmp\n" in done.output
    assert "ssh://d: is ssh://a under another name (machine-id), which is measured once\n" in done.output
    assert done.output.index("ssh://b: host") < done.output.index("reports: ")


def test_a_second_name_is_no_failure(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "hosts").write_text("ssh://a\nssh://d\n")
    monkeypatch.setattr(Threads, "run", lambda threads, hosts, tell: dict.fromkeys(hosts, 0))
    done = invoked("run", "quick", "--hosts", "hosts", "--fleet", "web", "--yes")
    assert done.exit_code == 0 and "Measure" not in done.output, done.output


@pytest.mark.parametrize("code", [FAILED, -9])
def test_a_host_that_failed_or_was_killed_is_a_failure_of_the_fleet(
    code: int, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "hosts").write_text("ssh://a\nssh://c\n")
    monkeypatch.setattr(Threads, "run", lambda threads, hosts, tell: dict(zip(hosts, (0, code), strict=True)))
    done = invoked("run", "quick", "--hosts", "hosts", "--yes", "--fleet", "my web")
    assert code_of(done) == FAILED and "not all hosts were measured" in done.output, done.output
    assert "`vmtax fleet status 'my web'` lists the runs" in done.output


def test_with_ansible_the_playbook_is_written_and_run_for_those_that_fit(place: Path) -> None:
    hosts = {name: {"ansible_host": name, "x": "$(touch oops)"} for name in "abcd"}
    program(place, "ansible-inventory", f"print({inventory(**hosts)!r})")
    program(place, "ansible-playbook", "open('called', 'w').write(json.dumps(sys.argv[1:]))\nsys.exit(0)")
    done = invoked("run", "quick", "-i", "inv; touch oops", "--fleet", "web", "--yes", "--", "--rounds", "3")
    words = json.loads((place / "called").read_text())
    directory = place / "vmtax-fleet-web"
    assert words == [
        *("-i", "inv; touch oops", "--limit", f"@{directory}/hosts", "--forks", "2", f"{directory}/playbook.yml")
    ]
    assert (directory / "hosts").read_text() == "a\nc\n"
    [play] = yaml.safe_load((directory / "playbook.yml").read_text())
    assert play["vars"]["vmtax_options"] == ["--rounds", "3"]
    assert code_of(done) == FAILED and not (place / "oops").exists(), done.output


# What OpenSSH 9.2 says of a changed key, as a look passes it on
CHANGED_KEY = """\
vmtax: host: ssh root@h17: @@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Add correct host key in /root/.ssh/known_hosts to get rid of this message.
Host key for h17 has changed and you have requested strict checking.
Host key verification failed.
"""
LOOKS = """
case $3 in *h17) cat changed >&2; exit 1;; esac
echo '{"machine": "'$3'", "refused": ""}'
"""
MEASURES = 'case $* in *h23*) echo "vmtax: host: no space left"; exit 1;; esac; echo $4 >> measured'


def test_of_fifty_hosts_one_with_another_key_is_named_and_the_others_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so is one that is full, which each try finds again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VMTAX_STORE", str(tmp_path / "store.sqlite"))
    monkeypatch.setattr(fleets, "LOOK", ("/bin/sh", str(tmp_path / "looks")))
    measured = tmp_path / "vmtax-fleet-web/measured"
    monkeypatch.setattr(fleets, "SELF", ("/bin/sh", "-c", MEASURES, "sh"))
    (tmp_path / "looks").write_text(LOOKS)
    (tmp_path / "changed").write_text(CHANGED_KEY)
    hosts = [f"ssh://root@h{number}" for number in range(50)]
    (tmp_path / "hosts").write_text("\n".join(hosts))
    for _ in range(2):
        done = invoked("run", "quick", "--hosts", "hosts", "--fleet", "web", "--yes")
        assert code_of(done) == FAILED, done.output
        assert sorted(measured.read_text().split()) == sorted({*hosts} - {"ssh://root@h17", "ssh://root@h23"})
        lines = done.output.splitlines()
        (changed,) = (line for line in lines if "h17" in line)
        assert changed.startswith("ssh://root@h17: its host key has changed, or another machine answers there")
        assert "ssh://root@h23: host: no space left" in lines
        measured.unlink()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ("-i", "inv"),
            FAILED,
            r"ansible-inventory is not installed: type `pip install 'vmtax\[fleet\]'`, or .*--hosts",
        ),
        ((), BAD_INPUT, "name the hosts: -i INVENTORY"),
        (("-i", "inv", "--hosts", "hosts"), BAD_INPUT, "name the hosts: -i INVENTORY"),
        (("--hosts", "absent"), BAD_INPUT, "absent: No such file"),
        (("--hosts", "hosts", "--", "--host", "x"), BAD_INPUT, "--host: is given to each run by the fleet"),
        (("--hosts", "hosts", "--", "--output=x"), BAD_INPUT, "--output=x: is given to each run by the fleet"),
        (("--hosts", "hosts", "--fleet", "a,b"), BAD_INPUT, "must neither hold a comma"),
        (("--hosts", "hosts", "--", "{{ x }}"), BAD_INPUT, "Ansible would compute"),
    ],
)
def test_bad_input(place: Path, words: tuple[str, ...], code: int, message: str) -> None:
    done = (
        invoked("run", "quick", "--fleet", "web", "--yes", *words)
        if "--fleet" not in words
        else invoked("run", "quick", "--yes", *words)
    )
    assert code_of(done) == code
    with pytest.raises(Exception, match=message):
        raise done.exception or AssertionError(done.output)


def test_an_address_that_would_be_an_option_of_ssh_is_never_given_to_it() -> None:
    for address in ("ssh://-oProxyCommand=x", "ssh://a b", "sh://x", "; id"):
        assert "its address must be local, ssh://" in fleets._look(FleetHost("h", address), "", []).refused


@pytest.mark.parametrize(("address", "helps"), [("ssh://root@fd00::1", True), ("fd00::1", True), ("ssh://a:b", False)])
def test_an_ipv6_address_without_brackets_is_shown_with_them(address: str, helps: bool) -> None:
    refused = fleets._look(FleetHost("h", address), "", []).refused
    assert refused.endswith(": an IPv6 address is in brackets, as in ssh://root@[fd00::1]") is helps


def test_status_and_stop_work_through_the_store(place: Path) -> None:
    assert "no run has the label web" in invoked("status", "web").output
    with Store() as store:
        store.begin(unstarted(sample_experiment(rounds=1), id="20261127-0900-quick-0001", label="web"))
        done = invoked("stop", "web")
        assert "fleet web is stopped; runs that end within seconds: 1;" in done.output
        assert store.stops.stopped("web").endswith(" UTC")
        (place / "hosts").write_text("ssh://a\n")
        refused = invoked("run", "quick", "--hosts", "hosts", "--yes", "--fleet", "web")
        assert code_of(refused) == FAILED and "was stopped by" in refused.output and store.stops.stopped("web")
        assert "no run has the label wbe yet" in invoked("stop", "wbe").output
        text = invoked("status", "web").output
        assert "stopped by" in text and "20261127-0900-quick-0001" in text
        assert json.loads(invoked("status", "web", "--json").output)["data"][0]["label"] == "web"
        invoked("stop", "web", "--undo")
        assert store.stops.stopped("web") == ""


def test_nothing_of_ansible_is_imported() -> None:
    root = Path(fleets.__file__).parents[1]
    assert not [file for file in root.rglob("*.py") if "import ansible" in file.read_text(encoding="utf-8")]
    assert (root / "fleet/engine.py").exists()
