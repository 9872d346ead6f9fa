"""How another host is named, and that no client but the login reaches it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from vmtax.machine.local import LocalMachine
from vmtax.machine.ssh import SshMachine, ssh_route


@pytest.mark.parametrize(
    ("url", "destination", "port"),
    [
        ("ssh://host", "host", ""),
        ("ssh://root@host", "root@host", ""),
        ("ssh://root@host:2222", "root@host", "2222"),
        ("ssh://host:22/", "host", "22"),
        ("ssh://root@[::1]", "root@::1", ""),
        ("ssh://[fe80::1]:2222", "fe80::1", "2222"),
    ],
)
def test_a_url_is_what_ssh_takes(url: str, destination: str, port: str) -> None:
    found = ssh_route(url)
    assert (found.destination, found.options) == (destination, ("-p", port) if port else ())


@pytest.fixture
def machine() -> Iterator[SshMachine]:
    local = LocalMachine()
    yield SshMachine("host", local, "nobody@localhost", is_guest=True)
    local.close()


def test_a_client_without_its_master_fails_and_does_not_log_in_anew(machine: SshMachine) -> None:
    argv = machine.client(("true",))
    settings = subprocess.run(
        [argv[0], "-G", *argv[1 : argv.index("-T")], "nobody@localhost"], capture_output=True, text=True, check=True
    ).stdout
    assert "proxycommand false" in settings.splitlines(), "what ssh itself makes of the options"
    assert subprocess.run(argv, capture_output=True, timeout=20).returncode == 255
