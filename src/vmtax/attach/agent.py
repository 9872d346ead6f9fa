"""The guest agent of a domain: programs are started by it, and their output is never fetched.

A few MB of captured output break the channel for everybody, and with it the owner's backups, until the agent is
restarted.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from vmtax.attach.domain import Domain, DomainError, words_of_virsh
from vmtax.machine.answer import json_or_none

PATIENCE = 20  # seconds for an answer of the agent
FROZEN = "its file systems are frozen, as for a backup: wait until that has ended"
FORBIDDEN = (
    "its guest agent may not start programs ({}): log in to the VM instead, --guest ssh://root@ADDRESS, or allow"
    " guest-exec in the guest (block-rpcs or allow-rpcs of qemu-ga, /etc/qemu or /etc/sysconfig/qemu-ga)"
)
SILENT = (
    "its guest agent does not answer ({}): install and start qemu-guest-agent in the guest, with a channel"
    " org.qemu.guest_agent.0; or log in to the VM: --guest ssh://root@ADDRESS"
)
# Its channel in the XML of a domain that runs; libvirt says there whether somebody in the guest has opened it.
CHANNEL = re.compile(r"<target type='virtio' name='org\.qemu\.guest_agent\.0'(?: state='(\w+)')?")


@dataclass(frozen=True, slots=True)
class Started:
    """The answer to guest-exec."""

    pid: int


@dataclass(frozen=True, slots=True)
class Status:
    """The answer to guest-exec-status."""

    exited: bool
    exitcode: int = 1
    signal: int | None = None


T = TypeVar("T")


class AgentRefused(DomainError):
    """The agent of a guest does not do what takes it; the text says what to type."""


def refuse_absent(domain: Domain) -> None:
    """Raises AgentRefused if its definition shows that no agent can answer, without asking one."""
    channel = CHANNEL.search(domain.definition())
    if channel is None or channel[1] == "disconnected":
        why = "it has no channel for one" if channel is None else "nothing in the guest has opened its channel"
        raise AgentRefused(f"libvirt:{domain.name}: {SILENT.format(why)}")


def start(domain: Domain, argv: Sequence[str], given: str = "") -> int:
    """Start a program in the guest with `given` as its standard input; returns its process id there.

    Raises AgentRefused.
    """
    arguments: dict[str, object] = {"path": argv[0], "arg": list(argv[1:]), "capture-output": False}
    if given:
        arguments["input-data"] = base64.b64encode(given.encode()).decode()
    return _asked(domain, "guest-exec", arguments, Started).pid


def ended(domain: Domain, pid: int) -> int | None:
    """The exit status of a program that the agent started, which can be read once; None while it runs. 128 and more: a
    signal ended it. Raises AgentRefused.
    """
    status = _asked(domain, "guest-exec-status", {"pid": pid}, Status)
    if not status.exited:
        return None
    return status.exitcode if status.signal is None else 128 + status.signal


def command(name: str, arguments: dict[str, object]) -> str:
    """A command to the agent, as virsh takes it."""
    return json.dumps({"execute": name, "arguments": arguments} if arguments else {"execute": name})


def _asked(domain: Domain, name: str, arguments: dict[str, object], kind: type[T]) -> T:
    said = domain.ask("qemu-agent-command", "--timeout", str(PATIENCE), "--cmd", command(name, arguments))
    if not said.ok:
        words = words_of_virsh(said)
        if "disabled" in words or "not allowed" in words or "has not been found" in words:
            freeze = command("guest-fsfreeze-status", {})
            frozen = domain.ask("qemu-agent-command", "--timeout", str(PATIENCE), "--cmd", freeze)
            text = FROZEN if '"frozen"' in frozen.stdout else FORBIDDEN.format(words)
        elif said.timed_out or "agent" in words.lower():
            text = SILENT.format(words)
        else:
            text = words
        raise AgentRefused(f"libvirt:{domain.name}: {text}")
    answer = json_or_none(said.stdout, dict[str, kind])  # type: ignore[valid-type]  # pydantic takes it
    if not answer or "return" not in answer:
        raise AgentRefused(f"libvirt:{domain.name}: its guest agent answered {said.stdout[:80]!r} to {name}")
    return answer["return"]
