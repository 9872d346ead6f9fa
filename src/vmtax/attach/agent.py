"""The guest agent of a VM, and that of a domain of libvirt: programs are started by it, and of their output no more is
fetched than is known to be little.

A few MB of captured output break the channel for everybody, and with it the owner's backups, until the agent is
restarted.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from vmtax.attach.domain import WINDOWS, Domain, DomainError, words_of_virsh
from vmtax.attach.pluggable import Agent, AgentAnswer
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
# What libvirt puts before an agent's own words.
ITS_WORDS = re.compile(r"^.*unable to execute QEMU agent command '[\w-]+': ")
DISABLED = re.compile(r"disabled|not allowed|ommand \S+ has not been found")
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


class AgentSilent(AgentRefused):
    """It does not answer now: whether it did what it was asked for is not known."""


@dataclass(frozen=True, slots=True)
class DomainAgent:
    """That of a domain of libvirt."""

    domain: Domain

    @property
    def name(self) -> str:
        return f"libvirt:{self.domain.name}"

    def answer(self, request: str) -> AgentAnswer:
        said = self.domain.ask("qemu-agent-command", "--timeout", str(PATIENCE), "--cmd", request)
        if said.ok:
            return AgentAnswer(said.stdout)
        words = words_of_virsh(said)
        own = ITS_WORDS.sub("", words)
        return AgentAnswer(said.stdout, own, said.timed_out or (own == words and "agent" in words.lower()))


def refuse_absent(domain: Domain) -> None:
    """Raises AgentRefused if its definition shows that no agent can answer, without asking one."""
    definition = domain.definition()
    channel = CHANNEL.search(definition)
    if channel is None or channel[1] == "disconnected":
        why = "it has no channel for one" if channel is None else "nothing in the guest has opened its channel"
        user = "Administrator@" if WINDOWS.search(definition) else "root@"
        raise AgentRefused(f"libvirt:{domain.name}: {SILENT.format(why).replace('root@', user)}")


def start(domain: Domain, argv: Sequence[str], given: str = "") -> int:
    """Start a program in the guest with `given` as its standard input; returns its process id there.

    Raises AgentRefused.
    """
    arguments: dict[str, object] = {"path": argv[0], "arg": list(argv[1:]), "capture-output": False}
    if given:
        arguments["input-data"] = base64.b64encode(given.encode()).decode()
    return asked(DomainAgent(domain), "guest-exec", arguments, Started).pid


def ended(domain: Domain, pid: int) -> int | None:
    """The exit status of a program that the agent started, which can be read once; None while it runs. 128 and more: a
    signal ended it. Raises AgentRefused.
    """
    status = asked(DomainAgent(domain), "guest-exec-status", {"pid": pid}, Status)
    if not status.exited:
        return None
    return status.exitcode if status.signal is None else 128 + status.signal


def command(name: str, arguments: Mapping[str, object]) -> str:
    """A command to the agent, as virsh takes it."""
    return json.dumps({"execute": name, "arguments": arguments} if arguments else {"execute": name})


def asked(agent: Agent, name: str, arguments: Mapping[str, object], kind: type[T]) -> T:
    """The answer of an agent to one command. Raises AgentRefused."""
    said = agent.answer(command(name, arguments))
    if DISABLED.search(said.words):
        is_frozen = '"frozen"' in agent.answer(command("guest-fsfreeze-status", {})).text
        raise AgentRefused(f"{agent.name}: {FROZEN if is_frozen else FORBIDDEN.format(said.words)}")
    if said.is_silent:
        raise AgentSilent(f"{agent.name}: {SILENT.format(said.words)}")
    if said.words:
        raise AgentRefused(f"{agent.name}: {said.words}")
    answer = json_or_none(said.text, dict[str, kind])  # type: ignore[valid-type]  # pydantic takes it
    if not answer or "return" not in answer:
        raise AgentRefused(f"{agent.name}: its guest agent answered {said.text[:80]!r} to {name}")
    return answer["return"]
