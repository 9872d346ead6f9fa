"""What QEMU, and every other program of an image, can reach of the machine that it runs on. Pure.

A program of an image runs in bubblewrap: it sees the image's own /usr, read-only, and of the machine only the files and
devices that it is given, each under its own name. QEMU, also the machine's own, filters its system calls, as libvirt
has it do for every guest. QEMU that root starts becomes another user once it has opened everything, before the guest's
first instruction.
"""

from __future__ import annotations

from dataclasses import dataclass

# systemd's documentation of user IDs calls 1879048192..2147483646 unused: no user, service or container has them.
FIRST_USER = 1879048192
USERS = 2**28 - 2
RUN_WITH_USER = (9, 1)  # the first QEMU with `-run-with user=`, for which -runas is obsolete
# SIGTERM is for QEMU, which then ends in order, and not for bubblewrap, which would take QEMU with it at once.
PATIENT = ("sh", "-c", 'trap "" TERM; exec "$@"', "sh")


TUN = "/dev/net/tun"  # what makes a tap
VFIO = "/dev/vfio"  # devices that a guest has for itself; a directory, for one may be plugged in later


@dataclass(frozen=True, slots=True)
class Reach:
    """What a program of an image has of the machine's files."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()  # files and directories
    devices: tuple[str, ...] = ()


def image_program(
    tree: str, name: str, reach: Reach = Reach(), *options: str, capabilities: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """What starts a program of an unpacked image; its name alone on a machine that runs from that image.

    `options`: more of bubblewrap's
    `capabilities`: those of root's that it keeps
    """
    if tree == "/":
        return (name,)
    kinds = (("--ro-bind", reach.read), ("--bind", reach.write), ("--dev-bind", reach.devices))
    return (
        *("bwrap", *options, *_only(capabilities)),
        *("--ro-bind", f"{tree}/usr", "/usr", "--symlink", "usr/bin", "/bin"),
        *("--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
        *("--dev", "/dev", "--proc", "/proc", "--ro-bind", "/sys", "/sys", "--tmpfs", "/tmp"),
        *(word for option, paths in kinds for path in paths for word in (option, path, path)),
        *("--", f"/usr/bin/{name}"),
    )


def enter_tree(tree: str, *, root: bool, network: bool = False, capabilities: tuple[str, ...] = ()) -> tuple[str, ...]:
    """What enters an unpacked image on a host, for a workload: the host's kernel, and nothing of its files.

    Without capabilities but those named, and if `root` starts it, which could otherwise reach every file through /proc,
    with no process in view but its own. `network`: it has the network of its parent. It is the first process there:
    bubblewrap, which would be otherwise, leaves it to init, and its CPU time would not be in that of its parent.
    """
    return (
        *("bwrap", *alone(root=root, network=network), *(("--as-pid-1",) if root else ()), *_only(capabilities)),
        *("--ro-bind", tree, "/", "--dev", "/dev", "--proc", "/proc"),
        *("--ro-bind", "/sys", "/sys", "--tmpfs", "/tmp", "--tmpfs", "/run", "--chdir", "/tmp"),
    )


def _only(capabilities: tuple[str, ...]) -> tuple[str, ...]:
    return ("--cap-drop", "ALL", *(word for each in capabilities for word in ("--cap-add", each)))


def alone(*, root: bool, network: bool = False) -> tuple[str, ...]:
    """bubblewrap's options for a program that takes no process but its own, and no network, unless one is asked for.

    `root`: root starts it; elsewhere, as in many containers, no user may mount the /proc of a new PID namespace.
    """
    parts = ("--unshare-ipc", *(() if network else ("--unshare-net",)), *(("--unshare-pid",) if root else ()))
    return ("--die-with-parent", *parts)


def sandbox(*, elevate: bool = False, spawn: bool = False) -> tuple[str, ...]:
    """QEMU's seccomp filter. `elevate`: it may still change its user; `spawn`: it may start programs."""
    allowed = {True: "allow", False: "deny"}
    return (
        "-sandbox",
        f"on,obsolete=deny,elevateprivileges={allowed[elevate]},spawn={allowed[spawn]},resourcecontrol=deny",
    )


def become(user: int, version: tuple[int, ...]) -> tuple[str, ...]:
    """QEMU's option for the user, and group, that it becomes."""
    return ("-run-with", f"user={user}:{user}") if version >= RUN_WITH_USER else ("-runas", f"{user}:{user}")
