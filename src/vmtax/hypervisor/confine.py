"""Confine QEMU, and every other program of an image, on the machine that it runs on. Pure.

A program of an image runs in bubblewrap: it sees the image's own /usr, read-only, and only those files and devices of
the machine that are passed to it, under their own names. QEMU, including the machine's own, filters its system calls,
as it does for guests of libvirt. If root starts QEMU, it switches to another user after opening everything, before the
guest's first instruction.
"""

from __future__ import annotations

from dataclasses import dataclass

# systemd's documentation of user IDs lists 1879048192..2147483646 as unused: no user, service or container has them.
FIRST_USER = 1879048192
USERS = 2**28 - 2
RUN_WITH_USER = (9, 1)  # the first QEMU with `-run-with user=`, which made -runas obsolete
# Ignores SIGTERM, which is meant for QEMU to end in order; bubblewrap would end at once and take QEMU with it.
PATIENT = ("sh", "-c", 'trap "" TERM; exec "$@"', "sh")


BUBBLEWRAP = ("bwrap",)  # the machine's own
TUN = "/dev/net/tun"  # device for taps
VFIO = "/dev/vfio"  # devices that are passed to a guest; a directory, because one may be plugged in later


@dataclass(frozen=True, slots=True)
class Reach:
    """Files of the machine that a program of an image can reach."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()  # files and directories
    devices: tuple[str, ...] = ()


def image_program(
    tree: str,
    name: str,
    reach: Reach = Reach(),
    *options: str,
    capabilities: tuple[str, ...] = (),
    bubblewrap: tuple[str, ...] = BUBBLEWRAP,
) -> tuple[str, ...]:
    """Command line that starts a program of an unpacked image; just its name on a machine that runs from that image.

    `options`: additional options of bubblewrap
    `capabilities`: those of root's that it keeps
    `bubblewrap`: the command that starts it
    """
    if tree == "/":
        return (name,)
    kinds = (("--ro-bind", reach.read), ("--bind", reach.write), ("--dev-bind", reach.devices))
    return (
        *(*bubblewrap, *options, *_only(capabilities)),
        *("--ro-bind", f"{tree}/usr", "/usr", "--symlink", "usr/bin", "/bin"),
        *("--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
        *("--dev", "/dev", "--proc", "/proc", "--ro-bind", "/sys", "/sys", "--tmpfs", "/tmp"),
        *(word for option, paths in kinds for path in paths for word in (option, path, path)),
        *("--", name if name.startswith("/") else f"/usr/bin/{name}"),
    )


MOST_FILES = 100  # in a /tmp with a limit, directories included; each takes a KB of the kernel's memory
# bubblewrap bounds the bytes of a file system, and not its files. In a mount namespace of its own; constant text.
LIMITED = 'mount -t tmpfs -o "size=$1,nr_inodes=$2,mode=700" none /dev/shm && shift 2 && exec "$@"'


def enter_tree(
    tree: str,
    *,
    root: bool,
    network: bool = False,
    capabilities: tuple[str, ...] = (),
    room: int | None = None,
    bubblewrap: tuple[str, ...] = BUBBLEWRAP,
) -> tuple[str, ...]:
    """Command prefix that enters an unpacked image on a host for a workload: with the host's kernel, and none of its
    files.

    The workload has only the given capabilities. If `root` starts it, it sees only its own processes, because it could
    otherwise reach every file through /proc. `network`: it keeps the network of its parent. It is the first process of
    its PID namespace: otherwise bubblewrap would be, its children would be left to init, and their CPU time would be
    missing from that of the parent. `room`: bytes that it may write into /tmp, in MOST_FILES at most, and as many bytes
    into /run, which both are in memory; None: half of the host's memory each, for programs that nobody else can reach.
    `bubblewrap`: the command that starts it.
    """
    limited: tuple[str, ...] = ()
    places: tuple[str, ...] = ("--tmpfs", "/tmp", "--tmpfs", "/run")
    if room is not None:
        limited = ("unshare", "--mount", "sh", "-c", LIMITED, "sh", str(room), str(MOST_FILES))
        places = ("--bind", "/dev/shm", "/tmp", "--size", str(room), "--tmpfs", "/run")
    return (
        *(*limited, *bubblewrap, *alone(root=root, network=network), *(("--as-pid-1",) if root else ())),
        *_only(capabilities),
        *("--ro-bind", tree, "/", "--dev", "/dev", "--proc", "/proc"),
        *("--ro-bind", "/sys", "/sys", *places, "--chdir", "/tmp"),
    )


def _only(capabilities: tuple[str, ...]) -> tuple[str, ...]:
    return ("--cap-drop", "ALL", *(word for each in capabilities for word in ("--cap-add", each)))


def alone(*, root: bool, network: bool = False) -> tuple[str, ...]:
    """bubblewrap's options for a program that needs no other process, and no network unless it is requested.

    `root`: root starts it; elsewhere, as in many containers, users cannot mount the /proc of a new PID namespace.
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
    """QEMU's option for the user and group that it switches to."""
    return ("-run-with", f"user={user}:{user}") if version >= RUN_WITH_USER else ("-runas", f"{user}:{user}")
