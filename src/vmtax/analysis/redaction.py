"""A run without the names and addresses of the machines that it ran on, so that it can be given to others. Pure.

Texts are searched for the names that the run itself records (of hosts, users and VMs), for addresses of networks and
cards, and for home directories. What tools printed is left out by the caller: nobody knows what is in it. The digest
that tells one machine from others stays, because a name cannot be computed from it; it also makes the new name, so that
several runs of a host still belong together.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any

from vmtax.analysis.many.costs import CostFigure, RunCosts
from vmtax.core.layers import LAYERS
from vmtax.core.records import Experiment, Measurement
from vmtax.store.choice import IMPORTED

KEPT = frozenset(("", "local", "localhost", "lab", "host", *LAYERS))  # words that say nothing of a machine
DIGITS = 8  # of a machine's digest, in its new name
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]|\.\d)", re.ASCII)
_MAC = re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:])", re.ASCII)
_COLONS = re.compile(r"(?<![\w:.])[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?![\w:])", re.ASCII)
_HOME = re.compile(r"/home/[^/\s'\"]+")
_LOGIN = re.compile(r"(?<=ssh://)[^@/\s]+(?=@)")
HOST_OPTIONS = ("interleave_with", "destination", "wire", "existing")  # of a run, that name machines


def redacted(run: Experiment) -> Experiment:
    """The run with other names for its machines."""
    host = run.facts.get("host") or {}
    hostname, first = host.get("hostname"), _new_name(host.get("machine_id"))
    own = [*_names_in(run.host.removesuffix(IMPORTED)), *_names_in(hostname)]
    others = [name for name in dict.fromkeys(_others(run)) if name not in own]
    names = dict.fromkeys(own, first) | {name: f"host-{n}" for n, name in enumerate(others, start=2)}
    changed: Experiment = _Changes(names, first).of_record(run)
    return changed


def redacted_costs(costs: RunCosts) -> RunCosts:
    """The costs of a run with another name for its machine."""
    first = _new_name(costs.machine_id)
    names = dict.fromkeys((*_names_in(costs.host.removesuffix(IMPORTED)), *_names_in(costs.host_name)), first)
    changed: RunCosts = _Changes(names, first).of_record(costs)
    return dataclasses.replace(changed, host_name=first)


def _new_name(digest: object) -> str:
    return f"host-{digest[:DIGITS]}" if isinstance(digest, str) else "host-1"


class _Changes:
    """The replacements in one run; the same name always becomes the same other one.

    names: name -> another one, for whole words; hostname: what the fact of that name becomes
    """

    def __init__(self, names: Mapping[str, str], hostname: str) -> None:
        self.names = {name: new for name, new in names.items() if name not in KEPT}
        longest_first = sorted(self.names, key=lambda name: (-len(name), name))
        self.named = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, longest_first)) or '(?!)'})(?![\w-])")
        self.hostname = hostname
        self.addresses: dict[str, str] = {}

    def of_record(self, record: Any) -> Any:
        """A record with its texts changed."""
        changed = {one.name: self.of(getattr(record, one.name)) for one in dataclasses.fields(record)}
        return dataclasses.replace(record, **changed)

    def of(self, value: Any) -> Any:
        """Any value of a record, with its texts changed."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(key): self.of_key(key, entry) for key, entry in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.of, value))
        if dataclasses.is_dataclass(value) and not isinstance(value, (Measurement, CostFigure)):
            return self.of_record(value)
        return value

    def of_key(self, key: str, value: Any) -> Any:
        """A host may be called like a layer, which no text can show: its own fact is changed in any case."""
        return self.hostname if key == "hostname" and isinstance(value, str) else self.of(value)

    def text(self, text: str) -> str:
        text = self.named.sub(lambda found: self.names[found[0]], text)
        text = _LOGIN.sub("user", _HOME.sub("/home/user", text))
        text = _MAC.sub(lambda found: self._numbered("card", found[0]), text)
        for pattern in (_IPV4, _COLONS):
            text = pattern.sub(lambda found: self._address(found[0]), text)
        return text

    def _address(self, found: str) -> str:
        if not _is_address(found) or ipaddress.ip_address(found).is_loopback:
            return found
        return self._numbered("address", found)

    def _numbered(self, kind: str, found: str) -> str:
        return self.addresses.setdefault(found, f"{kind}-{len(self.addresses) + 1}")


def _others(run: Experiment) -> Iterator[str]:
    """Names of all other machines that the run's options give."""
    for option in HOST_OPTIONS:
        value = run.options.get(option)
        for entry in value.values() if isinstance(value, Mapping) else [value]:
            yield from _names_in(entry)
    for path, facts in run.facts.items():
        if path != "host" and isinstance(facts, Mapping) and path.startswith("ssh://"):
            yield from _names_in(facts.get("hostname"))


def _names_in(given: object) -> Iterator[str]:
    """The names in "ssh://user@web1.example:22": the whole one of the host, and its first part."""
    if not isinstance(given, str) or given.startswith("/"):
        return
    host = given.partition(",")[0].removeprefix("ssh://").rpartition("@")[2]
    if not _is_address(host):
        host = host.partition(":")[0]
    if host:
        yield host
        if not _is_address(host):
            yield host.partition(".")[0]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
