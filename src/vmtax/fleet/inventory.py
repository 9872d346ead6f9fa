"""The hosts of a fleet, of an Ansible inventory or of a file with one address in each line. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vmtax.core.errors import BadInput

TEMPLATE = ("{{", "{%", "{#")  # how Jinja, with which Ansible reads variables, marks what it computes
VAULT = "__ansible_vault"  # key of a value that Ansible's vault has encrypted
IGNORED = (  # variables of Ansible's about ssh, which vmtax takes from ~/.ssh/config instead
    *("ansible_ssh_private_key_file", "ansible_private_key_file", "ansible_ssh_common_args", "ansible_ssh_extra_args"),
    *("ansible_ssh_args", "ansible_ssh_executable", "ansible_ssh_pass", "ansible_ssh_password", "ansible_password"),
    *("ansible_host_key_checking", "ansible_ssh_host_key_checking"),
)
BY_SSH = ("", "ssh", "smart", "paramiko", "paramiko_ssh")  # connections of Ansible's that reach what ssh reaches


class NoInventory(BadInput):
    """What should list hosts does not; the text says where, and what would be right."""


@dataclass(frozen=True, slots=True)
class FleetHost:
    """One host, under the name that its inventory gives it."""

    name: str
    address: str  # as --host takes it; "": there is none
    ignored: tuple[str, ...] = ()  # variables that have no effect here
    problem: str = ""  # why there is no address, and what would be right


def hosts_of_inventory(text: str) -> list[FleetHost]:
    """Of the output of `ansible-inventory --list`, in its order. Raises NoInventory."""
    try:
        data = json.loads(text)
        variables = data.get("_meta", {}).get("hostvars", {})
        lists = [group["hosts"] for group in data.values() if isinstance(group, dict) and "hosts" in group]
        names = dict.fromkeys([name for names in lists for name in names] + list(variables))
        hosts = [_host(str(name), variables.get(name, {})) for name in names]
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError) as error:
        raise NoInventory(f"ansible-inventory printed no inventory: {text[:80]!r}") from error
    if not hosts:
        raise NoInventory("the inventory has no hosts: `ansible-inventory -i FILE --graph` shows what it has")
    return hosts


def hosts_of_file(text: str, source: str) -> list[FleetHost]:
    """One address in each line; `#` begins a comment. Raises NoInventory."""
    lines = [(number, line.partition("#")[0].strip()) for number, line in enumerate(text.splitlines(), 1)]
    given = [(number, line) for number, line in lines if line]
    seen: dict[str, int] = {}
    for number, line in given:
        if len(line.split()) > 1:
            raise NoInventory(f"{source}, line {number}: one address in each line, such as ssh://root@host")
        if line in seen:
            raise NoInventory(f"{source}, line {number}: {line} is in line {seen[line]} already")
        seen[line] = number
    if not given:
        raise NoInventory(f"{source}: has no hosts: one address in each line, such as ssh://root@host")
    return [FleetHost(line, line) for line in seen]


def _host(name: str, variables: Mapping[str, Any]) -> FleetHost:
    """The address is what the playbook's `vmtax_host` becomes."""
    ignored = tuple(key for key in IGNORED if key in variables)
    connection = str(variables.get("ansible_connection") or "").rpartition(".")[2]
    if connection == "local":
        return FleetHost(name, "local", ignored)
    if connection not in BY_SSH:
        return FleetHost(name, "", ignored, f"is reached by Ansible's {connection}, and must be by ssh")
    found = {}
    for what, usual in (("host", name), ("user", ""), ("port", "")):
        # As Ansible's ssh: the older names count more
        key = next((key for key in (f"ansible_ssh_{what}", f"ansible_{what}") if variables.get(key)), "")
        value = variables.get(key, usual)
        if isinstance(value, dict) and VAULT in value:
            return FleetHost(name, "", ignored, f"{key} is encrypted by ansible-vault: write it in plain text")
        if any(mark in str(value) for mark in TEMPLATE):
            return FleetHost(name, "", ignored, f"{key} is computed by Ansible: write it in plain text")
        found[what] = str(value)
    at, user, port = found["host"], found["user"], found["port"]
    at = f"[{at}]" if ":" in at and not at.startswith("[") else at
    return FleetHost(name, f"ssh://{user and f'{user}@'}{at}{port and f':{port}'}", ignored)


@dataclass(frozen=True, slots=True)
class HostLook:
    """What was seen of a host before anything is measured."""

    host: FleetHost
    machine: str = ""  # its machine-id; "": unknown
    refused: str = ""  # why it is not measured there; "": it is, as far as the plan is known to fit
    is_twin: bool = False  # because it is measured under another name


def look_of(host: FleetHost, text: str) -> HostLook:
    """What `python -m vmtax.cli.look` printed of that host."""
    try:
        data = json.loads(text)
        return HostLook(host, str(data["machine"]), str(data["refused"]))
    except (ValueError, RecursionError, TypeError, KeyError):
        return HostLook(host, refused="could not be looked at")


def without_twins(looks: list[HostLook]) -> Iterator[HostLook]:
    """The same, where a later name for a machine that an earlier one names is refused."""
    first: dict[str, str] = {}
    for look in looks:
        if look.refused or not look.machine or look.machine not in first:
            if look.machine and not look.refused:
                first[look.machine] = look.host.name
            yield look
        else:
            why = f"is {first[look.machine]} under another name (machine-id), which is measured once"
            yield HostLook(look.host, look.machine, why, is_twin=True)
