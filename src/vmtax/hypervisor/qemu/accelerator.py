"""Choose KVM or TCG: /dev/kvm is used only after a guest really booted with it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from vmtax.core.events import Event, Step
from vmtax.hypervisor.base import BootFailed, BootPatience, GuestSpec, Hypervisor, boot
from vmtax.hypervisor.credentials import Credentials
from vmtax.image.place import Placed
from vmtax.machine import Machine, MachineLost, Reader
from vmtax.machine.local import LocalMachine
from vmtax.machine.rights import why_not
from vmtax.system.paths import cache_home, make_private

# Most guests boot in a few seconds, on an emulated host in ten; a silent kernel is fastest. A working KVM three levels
# deep needed 22 s but kept printing; a guest that hangs prints nothing.
SOON = BootPatience(ready=30.0)
PATIENCE = BootPatience(ready=120.0, silence=20.0)
REMEMBERED = 50  # probe results, each for one boot of the host, QEMU and kernel


@dataclass(frozen=True, slots=True)
class Accelerator:
    """What guests on one host run on, and why."""

    name: Literal["kvm", "tcg"]
    reason: str  # one line: why TCG was chosen, or how KVM was verified
    tried: bool = True  # with a guest; another kernel may boot even if this one did not


def choose(
    machine: Machine,
    spec: GuestSpec,
    credentials: Credentials,
    local: LocalMachine,
    emit: Callable[[Event], None],
    *,
    again: bool = False,
) -> Accelerator:
    """KVM if `spec` boots with it on `machine`, remembered per (host boot, QEMU, guest kernel); TCG otherwise.

    `again`: try even if the result is remembered, because KVM may have been repaired since.
    """
    if (closed := _closed(machine)) is not None:
        return closed
    key = f"{_key(_boot_id(machine), spec.hypervisor)} {spec.kernel}"
    probed = _remembered()
    if again or key not in probed:
        emit(Step("probing /dev/kvm", "booting a guest on it; a minute at most"))
        probed[key] = _probe(machine, spec, credentials, local)
        _remember(local, probed)
    return _judged(probed[key])


def known(machine: Reader, hypervisor: Hypervisor) -> Accelerator | None:
    """What guests of `hypervisor` run on there, as far as known without a boot; None: it was not tried yet."""
    if (closed := _closed(machine)) is not None:
        return closed
    failure = remembered(_boot_id(machine), hypervisor)
    return None if failure is None else _judged(failure)


def _closed(machine: Reader) -> Accelerator | None:
    """TCG if /dev/kvm cannot even be opened; None if it can, or if that cannot be tried."""
    refused = why_not(machine, "kvm")
    return Accelerator("tcg", refused, tried=False) if refused else None


def _boot_id(machine: Reader) -> str:
    return machine.try_run("cat", "/proc/sys/kernel/random/boot_id").stdout.strip()


def _judged(failure: str) -> Accelerator:
    """The choice for a failure of guests on KVM; "" means that one boots."""
    if not failure:
        return Accelerator("kvm", "a guest booted on /dev/kvm")
    again = "remembered until the host is rebooted; `vmtax doctor --try` tries again"
    return Accelerator("tcg", f"/dev/kvm opens, but no guest boots on it: {failure} ({again})")


def probe_spec(hypervisor: Hypervisor, placed: Placed) -> GuestSpec:
    """A small guest that shows whether guests boot at all."""
    return GuestSpec(
        name="probe",
        vcpus=1,
        memory_bytes=512 * 2**20,
        accelerator="kvm",
        hypervisor=hypervisor,
        kernel=placed.kernel,
        initrd=placed.initrd,
        root=placed.root,
    )


def remembered(boot_id: str, hypervisor: Hypervisor) -> str | None:
    """Why no guest boots on KVM in this boot of a host; "": one does; None: it was not tried yet."""
    reasons = [reason for key, reason in _remembered().items() if key.startswith(f"{_key(boot_id, hypervisor)} ")]
    return reasons[-1] if reasons else None


def _key(boot_id: str, hypervisor: Hypervisor) -> str:
    return f"{boot_id} {' '.join(hypervisor.identity)} {hypervisor.version}"


def _probe(machine: Machine, spec: GuestSpec, credentials: Credentials, local: LocalMachine) -> str:
    """Why no guest boots on KVM, in one line; "" if one does. Tried twice, because the result is stored."""
    reason = ""
    for patience, talkative in ((SOON, False), (PATIENCE, True)):
        try:
            with boot(machine, replace(spec, talkative=talkative), credentials, local, patience=patience):
                return ""
        except BootFailed as failure:
            # Silence is retried as well: on an emulated host, a guest is sometimes lost this way.
            silent = f"its console fell silent for {PATIENCE.silence:.0f} s"
            reason = silent if failure.silent else _short(str(failure))
        except MachineLost as failure:
            if not machine.succeeds("true"):
                raise  # the host itself is lost
            reason = _short(str(failure))
    return reason


def _short(text: str) -> str:
    """The most informative line: QEMU's own error if there is one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines[1:] if "error" in line.lower() or "Assertion" in line]
    return (errors or lines)[0][:200]


def _file() -> Path:
    return cache_home() / "kvm.json"


def _remembered() -> dict[str, str]:
    try:
        entries = json.loads(_file().read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _remember(local: LocalMachine, known: dict[str, str]) -> None:
    """Best effort: if the cache cannot be written, a later run probes again."""
    path = _file()
    temporary = path.with_suffix(f".{local.token}")
    unfinished = local.remove_later(PurePosixPath(temporary))
    with contextlib.suppress(OSError):
        make_private(path.parent)
        newest = dict([*known.items()][-REMEMBERED:])
        temporary.write_text(json.dumps(newest, indent=1))
        temporary.replace(path)
    unfinished.undo()
