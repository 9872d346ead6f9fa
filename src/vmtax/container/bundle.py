"""What a runtime must know of a container: the OCI runtime configuration. Pure.

Specification: https://github.com/opencontainers/runtime-spec/blob/main/config.md
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePosixPath

from vmtax.core.errors import CannotDo
from vmtax.core.records import Json
from vmtax.machine.processes import MARK

# Those that both Docker and podman give: Docker adds AUDIT_WRITE, MKNOD and NET_RAW.
CAPABILITIES = (
    *("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE"),
    *("CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT"),
)
# Files of the kernel that are about the machine and not the container: Docker and podman hide or protect the same.
MASKED = (
    *("/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug"),
    *("/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/firmware", "/sys/devices/virtual/powercap"),
)
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
DIRECTORY = "/tmp"  # where commands start, as in the host's userland
ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=/tmp")


class ContainerError(CannotDo):
    """A container cannot be started, or is not confined as requested; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container in which workloads run one after another."""

    name: str
    tree: str  # the image's files on the host; nothing is written there
    cpus: str  # as taskset takes them
    memory_bytes: int  # limit; there is no swap beyond it
    token: str  # of the machine, whose guard finds the container's processes by it
    network: str | None = None  # name of a network namespace; None: a new one, with a loopback only
    data: str | None = None  # file, directory or block device of the host that the container can reach
    inside: str | None = None  # its path in the container; a device's is below /dev
    more_capabilities: tuple[str, ...] = ()  # beyond the default ones
    node: int | None = None  # NUMA node of its memory; None: any

    @property
    def capabilities(self) -> tuple[str, ...]:
        return (*CAPABILITIES, *self.more_capabilities)

    @property
    def environment(self) -> tuple[str, ...]:
        return (*ENVIRONMENT, f"{MARK}={self.token}")

    @property
    def cgroup(self) -> str:
        """The name of its cgroup, directly below the root of each hierarchy."""
        return f"vmtax-{self.token}-{self.name}"


def configuration(container: Container, seccomp: Json, device: tuple[int, int] | None = None) -> Json:
    """The content of config.json.

    `seccomp`: the filter in the specification's form
    `device`: major and minor number of the data, if it is a block device
    """
    return {
        "ociVersion": "1.0.2",
        "hostname": container.name,
        "root": {"path": container.tree, "readonly": True},
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": ["sleep", "infinity"],
            "cwd": DIRECTORY,
            "env": list(container.environment),
            "capabilities": {kind: list(container.capabilities) for kind in ("bounding", "effective", "permitted")},
            "noNewPrivileges": True,
        },
        "mounts": [*_own_file_systems(), *([] if device else _data(container))],
        "linux": {
            "namespaces": _namespaces(container),
            "cgroupsPath": f"/{container.cgroup}",
            "resources": _resources(container, device),
            "devices": [_node(container, device)] if device else [],
            "seccomp": seccomp,
            "maskedPaths": list(MASKED),
            "readonlyPaths": list(READ_ONLY),
        },
    }


def mount_points(config: Json) -> list[str]:
    """The mount points that must exist in the image: a runtime would create a missing one there."""
    own: list[str] = []
    needed = []
    for mount in config["mounts"]:
        path = mount["destination"]
        if not is_below(path, own):
            needed.append(path)
        if mount["type"] != "bind":
            own.append(path)
    return needed


def is_below(path: str, directories: Collection[str]) -> bool:
    return any(PurePosixPath(path).is_relative_to(directory) for directory in directories)


def bind(source: str, destination: str, mode: str) -> Json:
    """A mount that shows a file or directory of the host. `mode`: ro or rw."""
    options = ["rbind", "rprivate", "nosuid", "nodev", mode]
    return {"destination": destination, "type": "bind", "source": source, "options": options}


def _mount(kind: str, destination: str, *options: str) -> Json:
    return {"destination": destination, "type": kind, "source": kind, "options": ["nosuid", *options]}


def _own_file_systems() -> list[Json]:
    closed = ("noexec", "nodev")
    return [
        _mount("proc", "/proc", *closed),
        _mount("tmpfs", "/dev", "strictatime", "mode=755", "size=65536k"),
        _mount("devpts", "/dev/pts", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
        _mount("tmpfs", "/dev/shm", *closed, "mode=1777", "size=65536k"),
        _mount("mqueue", "/dev/mqueue", *closed),
        _mount("sysfs", "/sys", *closed, "ro"),
        _mount("cgroup", "/sys/fs/cgroup", *closed, "relatime", "ro"),
        _mount("tmpfs", "/tmp", "nodev", "mode=1777"),
        _mount("tmpfs", "/run", "nodev", "mode=755"),
    ]


def _data(container: Container) -> list[Json]:
    """The mounts that bring in the data, if it is a file or a directory."""
    if container.data is None:
        return []
    if container.inside is None:
        raise ValueError(f"container {container.name}: where is {container.data} inside it?")
    parent = str(PurePosixPath(container.inside).parent)
    is_ours = parent == "/" or is_below(parent, ("/dev", "/tmp", "/run"))
    room = [] if is_ours else [_mount("tmpfs", parent, "nodev", "mode=755")]  # for the mount point, not in the image
    return [*room, bind(container.data, container.inside, "rw")]


def _node(container: Container, device: tuple[int, int]) -> Json:
    if container.inside is None or not is_below(container.inside, ("/dev",)):
        raise ValueError(f"container {container.name}: the device {container.data} must be below /dev inside it")
    major, minor = device
    return {
        "path": container.inside,
        "type": "b",
        "major": major,
        "minor": minor,
        "fileMode": 0o600,
        "uid": 0,
        "gid": 0,
    }


def _namespaces(container: Container) -> list[Json]:
    network = {"type": "network"} | ({"path": f"/run/netns/{container.network}"} if container.network else {})
    return [*({"type": kind} for kind in ("pid", "ipc", "uts", "mount", "cgroup")), network]


def _resources(container: Container, device: tuple[int, int] | None) -> Json:
    rules: list[Json] = [{"allow": False, "access": "rwm"}]  # a runtime adds the usual devices
    if device:
        rules.append({"allow": True, "type": "b", "major": device[0], "minor": device[1], "access": "rw"})
    return {
        "cpu": {"cpus": container.cpus, **({} if container.node is None else {"mems": str(container.node)})},
        # The specification counts memory and swap together.
        "memory": {"limit": container.memory_bytes, "swap": container.memory_bytes},
        "devices": rules,
    }
