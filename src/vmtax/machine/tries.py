"""Try on a machine, in milliseconds, what a run will do there: that a file exists, or that we are root, proves nothing.

This file also runs by itself, on a host under test (`python3 -I -S -c SOURCE NAME... -- COMMAND`), so it imports the
standard library only. It prints one JSON object. Nothing stays: devices are opened and closed, a network card and a
mount are made in namespaces that end with a child process, and a file is removed at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import grp
import json
import os
import pwd
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

KVM, TUN, LOOP = "/dev/kvm", "/dev/net/tun", "/dev/loop-control"
CACHES = "/proc/sys/vm/drop_caches"
KVM_GET_API_VERSION, KVM_VERSION = 0xAE00, 12
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
MS_PRIVATE = 1 << 18 | 1 << 14  # and what is mounted below
ST_NODEV, ST_NOEXEC = 4, 8
COMMAND_SECONDS = 20.0
ALL = ["0", "0", "4294967295"]  # of a uid_map: not in a user namespace
# The machine's own namespaces have these numbers: include/linux/proc_ns.h
FIRST_NAMESPACES = {"ipc": 0xEFFFFFFF, "uts": 0xEFFFFFFE, "pid": 0xEFFFFFFC, "cgroup": 0xEFFFFFFB}
KNOBS = (
    "kernel/apparmor_restrict_unprivileged_userns",
    "kernel/unprivileged_userns_clone",
    "user/max_user_namespaces",
    "user/max_mnt_namespaces",
    "user/max_pid_namespaces",
    "user/max_net_namespaces",
    "user/max_ipc_namespaces",
)


class Failed(Exception):
    """A step did not succeed."""

    def __init__(self, step: str, number: int | None, words: str) -> None:
        super().__init__(words)
        self.step, self.number, self.words = step, number, words


@contextlib.contextmanager
def step(name: str) -> Any:
    """Name the step that an OSError is of."""
    try:
        yield
    except OSError as error:
        raise Failed(name, error.errno, error.strerror or str(error)) from error


def checked(done: int) -> None:
    """Raises OSError if a function of the C library failed."""
    if done != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def opened(path: str, flags: int) -> int:
    with step("open"):
        return os.open(path, flags | os.O_CLOEXEC)


def kvm() -> None:
    device = opened(KVM, os.O_RDWR)
    try:
        with step("KVM_GET_API_VERSION"):
            version = fcntl.ioctl(device, KVM_GET_API_VERSION, 0)
    finally:
        os.close(device)
    if version != KVM_VERSION:
        raise Failed("KVM_GET_API_VERSION", None, f"it is version {version}, not {KVM_VERSION}")


def tun() -> None:
    """Make a tap in a network namespace of its own."""
    device = opened(TUN, os.O_RDWR)
    os.close(device)
    with step("unshare"):
        checked(ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET))
    device = opened(TUN, os.O_RDWR)
    with step("TUNSETIFF"):
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"", IFF_TAP | IFF_NO_PI))


def mount() -> None:
    """Mount a file system in a mount namespace of its own."""
    system = ctypes.CDLL(None, use_errno=True)
    with step("unshare"):
        checked(system.unshare(CLONE_NEWNS))
    with step("mount"):
        checked(system.mount(b"none", b"/", None, MS_PRIVATE, None))
        checked(system.mount(b"none", b"/tmp", b"tmpfs", 0, None))


def loop() -> None:
    os.close(opened(LOOP, os.O_RDWR))


def caches() -> None:
    """Open for writing what drops the page cache; nothing is written."""
    os.close(opened(CACHES, os.O_WRONLY))


def write(directory: str) -> str:
    """Write a file in a directory; its path."""
    with step("create"):
        handle, path = tempfile.mkstemp(prefix=".vmtax-", dir=directory)
    try:
        with step("write"):
            os.write(handle, b"#!/bin/sh\nexit 0\n")
            os.fchmod(handle, 0o700)
    except Failed:
        os.unlink(path)
        raise
    finally:
        os.close(handle)
    return path


def directory(path: str) -> None:
    os.unlink(write(path))


def programs(path: str) -> None:
    """Write a program into a directory, or into its nearest parent that exists, and start it."""
    while not os.path.isdir(path):
        path = os.path.dirname(path) or "/"
    program = write(path)
    try:
        with step("execute"):
            subprocess.run([program], check=False, stdin=subprocess.DEVNULL, timeout=COMMAND_SECONDS)
    finally:
        os.unlink(program)


def command(argv: list[str]) -> None:
    """Start a program that must succeed."""
    with step("start"):
        done = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/"
        )
    try:
        _, said = done.communicate(timeout=COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        done.kill()
        done.wait()
        raise Failed("run", None, f"it has not ended after {COMMAND_SECONDS:.0f} s") from None
    if done.returncode != 0:
        lines = said.decode(errors="replace").strip().splitlines()
        raise Failed("run", None, lines[-1] if lines else f"it ended with {done.returncode}")


def image_directory() -> str:
    """Where images are unpacked, as vmtax.system.paths says."""
    named, home = os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")
    base = next((path for path in (named, home) if os.path.isabs(path)), "/")
    return os.path.join(base, "vmtax", "images")


def result(act: Callable[[], object]) -> dict[str, Any]:
    """Try it in a child process, whose namespaces end with it."""
    read, written = os.pipe()
    child = os.fork()
    if child == 0:
        found: dict[str, Any] = {"ok": True}
        try:
            act()
        except Failed as failure:
            name = errno.errorcode.get(failure.number or 0, "")
            found = {"ok": False, "step": failure.step, "errno": name, "words": failure.words[:400]}
        except BaseException as error:
            found = {"ok": False, "step": "", "errno": "", "words": repr(error)[:400]}
        os.write(written, json.dumps(found).encode())
        os._exit(0)
    os.close(written)
    with os.fdopen(read, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"ok": False, "step": "", "errno": "", "words": "the child process was killed"}


def ssh() -> None:
    """ssh and ssh-keygen refuse a user without an entry in the user database, whatever they are asked."""
    command(["ssh", "-F", "none", "-G", "localhost"])


def text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4096).strip("\n\0 ")
    except OSError:
        return ""


def node(path: str) -> dict[str, Any]:
    """What stands in the way of opening a device: its mode and its group."""
    try:
        status = os.stat(path)
        options = os.statvfs(os.path.dirname(path)).f_flag
    except OSError:
        return {}
    try:
        group = grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        group = ""
    helps = status.st_mode & 0o060 == 0o060 and status.st_gid != 0
    return {"group": group if helps else "", "gid": status.st_gid if helps else 0, "nodev": bool(options & ST_NODEV)}


def is_first(name: str, number: int) -> bool:
    """Whether we are in the machine's own namespace of that kind; a kernel without the kind has no other."""
    try:
        return os.stat(f"/proc/self/ns/{name}").st_ino == number
    except OSError:
        return True


def container() -> str:
    """The kind of container that we are in; empty if we are in the machine's own namespaces, whatever files are there:
    a machine that was made of a container's files has them too.
    """
    if all(is_first(name, number) for name, number in FIRST_NAMESPACES.items()):
        return ""
    inside = "docker" if os.path.exists("/.dockerenv") else "podman" if os.path.exists("/run/.containerenv") else ""
    return inside or text_of("/run/systemd/container") or text_of("/run/host/container-manager")


def surroundings() -> dict[str, Any]:
    """What decides what we may do."""
    fields = dict(line.split(":\t", 1) for line in text_of("/proc/self/status").splitlines() if ":\t" in line)
    try:
        named = bool(pwd.getpwuid(os.geteuid()).pw_name)
    except KeyError:
        named = False
    return {
        "user": os.geteuid(),
        "named": named,
        "capabilities": int(fields.get("CapEff", "0").strip() or "0", 16),
        "filtered": fields.get("Seccomp", "0").strip() == "2",
        "profile": text_of("/proc/self/attr/current"),
        "container": container(),
        "whole": all(text_of(f"/proc/self/{kind}_map").split() == ALL for kind in ("uid", "gid")),
        "namespaces": os.path.exists("/proc/self/ns/user"),
        "knobs": {name.replace("/", "."): text_of("/proc/sys/" + name) for name in KNOBS},
        "nodes": {path: node(path) for path in (KVM, TUN, LOOP)},
        "system": text_of("/etc/os-release"),
    }


TRIES: dict[str, Callable[[], object]] = {
    "kvm": kvm,
    "tun": tun,
    "mount": mount,
    "loop": loop,
    "caches": caches,
    "ssh": ssh,
}


def main(words: list[str]) -> None:
    """`words`: names of TRIES, directory=PATH, programs, programs=PATH; after "--" a command to start."""
    split = words.index("--") if "--" in words else len(words)
    names, argv = words[:split], words[split + 1 :]
    found = {}
    for word in names:
        name, _, path = word.partition("=")
        if name == "directory":
            found[name] = result(partial(directory, path))
        elif name == "programs":
            found[name] = result(partial(programs, path or image_directory()))
        else:
            found[name] = result(TRIES[name])
    if argv:
        found["command"] = result(partial(command, argv))
    sys.stdout.write(json.dumps({"tries": found, "around": surroundings()}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
