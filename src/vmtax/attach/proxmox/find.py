"""Find a running VM of Proxmox VE, read without asking its guest."""

from __future__ import annotations

from collections.abc import Mapping

from vmtax.attach.domain import DomainError
from vmtax.attach.proxmox.config import config_lines, drive_settings, has_windows
from vmtax.attach.proxmox.vm import PROXMOX, SECONDS, ProxmoxVm, words_of_qm
from vmtax.core.machines import Machine, Outcome
from vmtax.machine.answer import object_or_none, whole_of

NOT_FOUND = 127  # exit code of a shell
BY_LOGIN = "log in to the VM: --guest ssh://root@ADDRESS"
AGENT = (
    "its guest agent is not switched on: qm set {0} --agent 1, which takes effect when it is stopped and started, and"
    " install qemu-guest-agent in the guest; or {1}"
)
ANSWERS = {
    "stopped": "is stopped: qm start {}",
    "paused": "is paused: qm resume {}",
    "prelaunch": "has not begun to run: qm resume {}",
    "suspended": "is suspended: qm resume {}",
    "io-error": "was stopped by an error of its storage: qm monitor {}, info block, says which disk",
}


def find_vm(host: Machine, vmid: str) -> ProxmoxVm:
    """The running VM of that number, which can be entered. Raises DomainError, which says what to type, and
    MachineError.
    """
    vm = find_running(host, vmid)
    if (reason := why_not_entered(vmid, vm.config)) is not None:
        raise DomainError(f"{vm.name} {reason}")
    return vm


def find_running(host: Machine, vmid: str) -> ProxmoxVm:
    """The running VM of that number. Raises DomainError, which says what to type, and MachineError."""
    name = f"{PROXMOX}{vmid}"
    said = _asked(host, "pvesh", "get", f"/nodes/localhost/qemu/{vmid}/status/current", "--output-format", "json")
    if said.code == NOT_FOUND:
        raise DomainError(
            f"{host.path}: {name}: pvesh is not there: name the Proxmox VE node on which it runs: --host ssh://root@NODE"
        )
    if not said.ok:
        raise DomainError(f"{name}: {words_of_qm(said)}{_others(host)}")
    status = object_or_none(said.stdout)
    config = _asked(host, "qm", "config", vmid, "--current")
    if status is None or not config.ok:
        why = words_of_qm(config) if status is not None else f"pvesh answered {said.stdout[:80]!r} to its status"
        raise DomainError(f"{name}: {why}")
    lines = config_lines(config.stdout)
    if (reason := why_not_running(vmid, {key: str(value) for key, value in status.items()}, lines)) is not None:
        raise DomainError(f"{name} {reason}")
    what = f"pvesh: {{}} of {name}"
    balloon = status.get("balloon", status.get("maxmem", ""))
    return ProxmoxVm(
        host,
        vmid,
        lines,
        whole_of(host, what.format("cpus"), str(status.get("cpus", "")), most=2**16),
        whole_of(host, what.format("maxmem"), str(balloon), most=2**63),
        whole_of(host, what.format("pid"), str(status.get("pid", "")), most=2**31),
        drive_settings(lines.get("smbios1", ""), "").get("uuid", "").lower(),
    )


def why_not_running(vmid: str, status: dict[str, str], lines: dict[str, str]) -> str | None:
    """Why it does not run by itself, and what to type; None if it does."""
    if lines.get("template") == "1":
        return "is a template, which never runs: name a VM that was made of it"
    # A VM that was suspended to disk is locked, too.
    if (lock := status.get("lock", lines.get("lock", ""))) not in ("", "suspended"):
        return f"is locked, because a job runs on it ({lock}): wait until it has ended"
    state = status.get("qmpstatus", status.get("status", "unknown"))
    if state != "running":
        return ANSWERS.get(state, f"is {state}, and not running: qm status {{}}").format(vmid)
    return None


def why_not_entered(vmid: str, lines: Mapping[str, str]) -> str | None:
    """Why it cannot be entered as it runs, and what to type; None if it can."""
    agent = drive_settings(lines.get("agent", ""), "enabled")
    if agent.get("enabled", "0") != "1":
        login = BY_LOGIN.replace("root", "Administrator") if has_windows(lines) else BY_LOGIN
        return f"cannot be entered: {AGENT.format(vmid, login)}"
    if agent.get("type") == "isa":
        return (
            f"has its guest agent on a serial port (agent: type=isa), beside which no port can be plugged: {BY_LOGIN}"
        )
    return None


def _asked(host: Machine, *argv: str) -> Outcome:
    return host.try_run("env", "LC_ALL=C", *argv, timeout=SECONDS)


def _others(host: Machine) -> str:
    """The numbers of the VMs that there are, for somebody who named another one."""
    rows = [line.split() for line in _asked(host, "qm", "list").stdout.splitlines()]
    found = [row[0] for row in rows if row and row[0].isdigit()]
    return f"; on this node there are: {', '.join(found[:10])}{' …' if len(found) > 10 else ''}" if found else ""
