"""The hosts of a fleet, of an Ansible inventory or of a file with one address in each line. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vmtax.core.errors import BadInput

TEMPLATE = ("{{", "{%", "{#")  # how Jinja, with which Ansible reads variables, marks what it computes
IGNORED = (  # variables of Ansible's about ssh, which vmtax takes from ~/.ssh/config instead
    *("ansible_ssh_private_key_file", "ansible_private_key_file", "ansible_ssh_common_args", "ansible_ssh_extra_args"),
    *("ansible_ssh_pass", "ansible_password"),
)


class NoInventory(BadInput):
    """What should list hosts does not; the text says where, and what would be right."""


@dataclass(frozen=True, slots=True)
class FleetHost:
    """One host, under the name that its inventory gives it."""

    name: str
    address: str  # as --host takes it; "" if the inventory computes it
    ignored: tuple[str, ...] = ()  # variables that have no effect here


def hosts_of_inventory(text: str) -> list[FleetHost]:
    """Of the output of `ansible-inventory --list`, in its order. Raises NoInventory."""
    try:
        data = json.loads(text)
        variables = data.get("_meta", {}).get("hostvars", {})
        lists = [group["hosts"] for group in data.values() if isinstance(group, dict) and "hosts" in group]
        names = dict.fromkeys([name for names in lists for name in names] + list(variables))
        hosts = [_host(str(name), variables.get(name, {})) for name in names]
    except (ValueError, AttributeError, TypeError, KeyError) as error:
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
    if variables.get("ansible_connection") == "local":
        return FleetHost(name, "local", ignored)
    user, port = variables.get("ansible_user"), variables.get("ansible_port")
    at = variables.get("ansible_host") or name
    address = f"ssh://{f'{user}@' if user else ''}{at}{f':{port}' if port else ''}"
    return FleetHost(name, "" if any(mark in address for mark in TEMPLATE) else address, ignored)


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
    except (ValueError, TypeError, KeyError):
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
