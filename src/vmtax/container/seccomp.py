"""The default filter of system calls that containers have, read from the package that ships it. `translate` is pure.

Its format is that of containers/common (package pkg/seccomp, as in Docker's profiles): rules with conditions on the
container's capabilities, on the architecture and on the kernel's version. Runtimes take rules without conditions:
https://github.com/opencontainers/runtime-spec/blob/main/config-linux.md#seccomp
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from vmtax.container.bundle import ContainerError
from vmtax.core.records import Json
from vmtax.machine import Machine, Reader
from vmtax.machine.packages import install

FILTER = "/usr/share/containers/seccomp.json"
# Docker's own filter allows it. That of Debian 12 refuses it with EPERM, which libaio takes for the disk's error.
ALSO_ALLOWED = ("io_pgetevents",)
ARCHITECTURE, OF_LIBSECCOMP = "amd64", "SCMP_ARCH_X86_64"


def why_missing(machine: Reader) -> str:
    """That there is no filter, and what installs it."""
    return f"{FILTER} is missing, the default filter of system calls: {install(machine, 'seccomp.json')}"


def read_filter(machine: Machine, capabilities: Collection[str]) -> Json:
    """The filter for a container with those capabilities on that machine. Raises ContainerError if there is none."""
    outcome = machine.try_run("cat", FILTER)
    if not outcome.ok:
        raise ContainerError(f"{machine.path}: {why_missing(machine)}")
    try:
        return translate(outcome.stdout, capabilities, machine.run("uname", "-r"))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ContainerError(
            f"{machine.path}: {FILTER} is not understood ({error}); install its package anew:"
            f" {install(machine, 'seccomp.json')}"
        ) from error


def translate(text: str, capabilities: Collection[str], kernel: str) -> Json:
    """The rules that apply to a container with those capabilities on x86-64, in the form of the OCI specification.

    Raises ValueError, TypeError, LookupError or AttributeError if it is no such filter.
    `kernel`: its release, as "6.1.0-18-amd64"
    """
    profile = json.loads(text)
    if profile["defaultAction"] != "SCMP_ACT_ERRNO":
        raise ValueError(f"it allows by default: {profile['defaultAction']}")
    (sub,) = (
        each.get("subArchitectures") or [] for each in profile["archMap"] if each["architecture"] == OF_LIBSECCOMP
    )
    applying = [rule for rule in profile["syscalls"] if _applies(rule, frozenset(capabilities), _version(kernel))]
    rules = [_rule(rule) for rule in applying]
    if not any(rule["action"] == "SCMP_ACT_ALLOW" for rule in rules):
        raise ValueError("it allows nothing")
    number = _error_number(profile, "defaultErrnoRet", "defaultErrno")
    return {
        "defaultAction": profile["defaultAction"],
        **({} if number is None else {"defaultErrnoRet": number}),
        "architectures": [OF_LIBSECCOMP, *sub],
        "syscalls": [
            *(rule for rule in rules if rule["names"]),
            {"names": [*ALSO_ALLOWED], "action": "SCMP_ACT_ALLOW"},
        ],
    }


def _rule(rule: Mapping[str, Any]) -> Json:
    number = _error_number(rule, "errnoRet", "errno")
    return {
        "names": [name for name in rule["names"] if name not in ALSO_ALLOWED],
        "action": rule["action"],
        **({} if number is None else {"errnoRet": number}),
        **({"args": rule["args"]} if rule.get("args") else {}),
    }


def _error_number(rule: Mapping[str, Any], number: str, name: str) -> int | None:
    """The error that a refused call gets: as a number, or by its name; None: the runtime's default, EPERM."""
    if rule.get(number) is not None:
        return int(rule[number])
    return int(getattr(errno, rule[name])) if rule.get(name) else None


def _applies(rule: Mapping[str, Any], capabilities: frozenset[str], kernel: tuple[int, ...]) -> bool:
    """Whether all conditions of `includes` hold, and none of `excludes`."""
    wanted, unwanted = rule.get("includes") or {}, rule.get("excludes") or {}
    architectures = wanted.get("arches") or [ARCHITECTURE]
    if ARCHITECTURE not in architectures or ARCHITECTURE in (unwanted.get("arches") or []):
        return False
    if not capabilities.issuperset(wanted.get("caps") or []) or capabilities & set(unwanted.get("caps") or []):
        return False
    least, too_new = wanted.get("minKernel"), unwanted.get("minKernel")
    return (not least or kernel >= _version(least)) and not (too_new and kernel >= _version(too_new))


def _version(release: str) -> tuple[int, ...]:
    """Its first two numbers."""
    return tuple(int(number) for number in re.findall(r"\d+", release)[:2])
