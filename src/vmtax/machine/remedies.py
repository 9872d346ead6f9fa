"""What grants what a machine refused: only about what was seen there. Pure.

A capability, a system call filter, an AppArmor profile, a switch of the kernel, a device that a container was not
given, the mode of a device, a module that is not loaded: each refuses in its own way, and has its own cure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vmtax.core.packages import install

# Numbers of capabilities in CapEff: linux/capability.h
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_SYS_NICE": 23}
DEVICES = {"kvm": "/dev/kvm", "tun": "/dev/net/tun", "loop": "/dev/loop-control"}
NUMBERS = {"kvm": "10:232", "tun": "10:200", "loop": "10:237"}
MODULES = {"kvm": "kvm_intel || modprobe kvm_amd", "tun": "tun", "loop": "loop"}
CACHES = "/proc/sys/vm/drop_caches"
RESTRICTED = "kernel.apparmor_restrict_unprivileged_userns"
CLONE = "kernel.unprivileged_userns_clone"
PROFILE = (
    "printf 'abi <abi/4.0>,\\nprofile bwrap /usr/bin/bwrap flags=(unconfined) { userns, }\\n'"
    " > /etc/apparmor.d/bwrap && apparmor_parser -r /etc/apparmor.d/bwrap"
)
ENOUGH = 15000  # namespaces of a kind, where the kernel's limit is 0
LIKE_DOCKER = ("docker", "podman")
WHAT = {
    "kvm": "/dev/kvm",
    "tun": "a tap on /dev/net/tun",
    "mount": "a mount of our own",
    "loop": "loop devices",
    "caches": "dropping the page cache",
    "directory": "writing a file there",
    "programs": "a program among the images",
    "command": "bubblewrap",
    "ssh": "ssh",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """How a try failed."""

    step: str  # what was done: "open", "unshare", "mount", "TUNSETIFF", "create", "execute", "start", "run"
    errno: str  # the kernel's reason, such as "EACCES"; empty: none is known
    words: str  # in the kernel's or the program's own words


@dataclass(frozen=True, slots=True)
class Around:
    """What decides what we may do on a machine."""

    user: int | None = None  # effective user; None: nothing is known of that machine
    whole: bool = True  # its root is the machine's, not that of a user namespace
    named: bool = True  # that user has an entry in the user database
    capabilities: int = 0  # effective ones, as bits
    filtered: bool = False  # a seccomp filter refuses system calls
    profile: str = ""  # AppArmor profile or SELinux context that confines us: "docker-default (enforce)"
    container: str = ""  # "docker", "podman", "lxc", …; empty: none is seen
    namespaces: bool = True  # the kernel has user namespaces
    knobs: Mapping[str, str] = field(default_factory=dict)  # sysctl -> value; empty if the kernel has none
    nodes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # device -> group that may use it, gid, nodev
    system: str = ""  # text of /etc/os-release

    @staticmethod
    def parse(answer: object) -> Around:
        """What `tries.py` printed about it; what is missing or of another kind is unknown."""
        if not isinstance(answer, dict):
            return Around()
        blank = {"user": 0, **{name: getattr(Around(), name) for name in Around.__slots__ if name != "user"}}
        return Around(**{name: answer[name] for name, like in blank.items() if _alike(answer.get(name), like)})

    def has(self, capability: str) -> bool:
        return bool(self.capabilities >> CAPABILITIES[capability] & 1)


def _alike(value: object, like: object) -> bool:
    return type(value) is type(like) and not (isinstance(value, int) and value < 0)


def seen(name: str, failure: Failure, around: Around) -> str:
    """What was tried and how it failed, in one line."""
    if failure.step == "open" and failure.errno == "ENOENT" and name in DEVICES:
        return f"there is no {DEVICES[name]}"
    done = {"open": "opening it", "run": "", "start": "starting it"}.get(failure.step, failure.step)
    who = "root" if around.user == 0 else f"user {around.user}"
    lacking = [one for one in _wanted(name, failure) if around.user is not None and not around.has(one)]
    why = f" ({who} lacks {', '.join(lacking)} there)" if lacking and failure.errno == "EPERM" else ""
    return f"{WHAT.get(name, name)}: {f'{done}: ' if done else ''}{failure.words}{why}"


def remedy(name: str, failure: Failure, around: Around) -> str:
    """What grants it; one line for each step, empty if nothing is known to help."""
    if name == "command":
        return _of_namespaces(failure, around)
    if name == "ssh":
        return "" if around.named else "give the user an entry in /etc/passwd, or run as one that has one"
    if name in ("directory", "programs"):
        return _of_files(name, failure, around)
    if failure.step == "open" and name in DEVICES:
        return _of_device(name, failure, around)
    return _of_rights(_wanted(name, failure), around)


def _wanted(name: str, failure: Failure) -> tuple[str, ...]:
    """The capabilities that the step takes."""
    if failure.step == "TUNSETIFF":
        return ("CAP_NET_ADMIN",)
    if failure.step in ("unshare", "mount"):
        return ("CAP_SYS_ADMIN",)
    return ()


def _of_device(name: str, failure: Failure, around: Around) -> str:
    """A device that does not open."""
    device, node = DEVICES[name], around.nodes.get(DEVICES[name], {})
    if failure.errno == "ENOENT" and around.container:
        return _given_device(name, around)
    if failure.errno == "ENOENT" and name == "kvm":
        return ""  # the CPU, the firmware, the hypervisor below, or a module: see the doctor
    if failure.errno in ("ENOENT", "ENODEV", "ENXIO"):
        return f"modprobe {MODULES[name]}   # after an upgrade of the kernel: reboot first"
    if failure.errno == "EPERM":
        return _given_device(name, around)
    if failure.errno != "EACCES":
        return ""
    if node.get("nodev"):
        return f"mount -o remount,dev {device.rpartition('/')[0]}   # it is mounted nodev"
    if around.user == 0 and around.whole:
        return _given_device(name, around) if around.container else ""
    if around.container in LIKE_DOCKER:
        group = node.get("gid")
        return f"{around.container} run --group-add {group} …" if group else f"chmod 666 {device}   # outside"
    if node.get("group") and around.named:
        return f'usermod -aG {node["group"]} "$USER"   # then log in anew'
    return f"setfacl -m u:{around.user}:rw {device}   # as root"


def _given_device(name: str, around: Around) -> str:
    """A device that a container or a service was not given."""
    device = DEVICES[name]
    if around.container in LIKE_DOCKER:
        return f"{around.container} run --device {device} …"
    if around.container == "lxc":
        return f"lxc.cgroup2.devices.allow = c {NUMBERS[name]} rwm   # and lxc.mount.entry, in the container's file"
    return f"DeviceAllow={device} rw   # in the unit, or in what started the container"


def _of_rights(wanted: tuple[str, ...], around: Around) -> str:
    """Something that needs root and its capabilities."""
    if around.user not in (0, None):
        return "run as root"
    if not around.whole:
        return "run as the machine's root: this is the root of a user namespace, as in a rootless container"
    lacking = [one for one in wanted if not around.has(one)]
    if around.container in LIKE_DOCKER:
        return _options(around, lacking)
    if lacking:
        return f"grant {', '.join(lacking)} where this is started, as with AmbientCapabilities= in a unit"
    return _confined(around)


def _options(around: Around, lacking: list[str]) -> str:
    """Options of `docker run` for what a container lacks."""
    words = [f"--cap-add {one.removeprefix('CAP_')}" for one in lacking]
    words += ["--security-opt seccomp=unconfined"] if around.filtered else []
    words += ["--security-opt apparmor=unconfined"] if _profile(around) else []
    words += [] if around.container == "podman" else ["--security-opt systempaths=unconfined"]
    words += ["--security-opt unmask=ALL"] if around.container == "podman" else []
    return f"{around.container} run {' '.join(words)} …   # or --privileged"


def _profile(around: Around) -> str:
    """The name of the AppArmor profile that confines us; empty if none does."""
    name, _, mode = around.profile.partition(" (")
    return name if mode.startswith("enforce") else ""


def _confined(around: Around) -> str:
    if name := _profile(around):
        return f"aa-complain {name}   # the AppArmor profile that confines this, or lift it where this is started"
    if around.filtered:
        return "lift the filter of system calls (seccomp) where this is started"
    return ""


def _of_namespaces(failure: Failure, around: Around) -> str:
    """bubblewrap, which makes namespaces and mounts in them."""
    if failure.errno == "ENOENT":
        return install(around.system, "bwrap")
    if failure.step == "start" or "execvp" in failure.words:
        return _of_files("programs", Failure("execute", failure.errno or "EACCES", failure.words), around)
    if around.user == 0 and around.whole:
        return _of_rights(("CAP_SYS_ADMIN",), around)
    if around.container in LIKE_DOCKER:
        return _options(around, [])
    if around.user is None:
        return ""
    if "mount proc" in failure.words:
        return "run as root, or show all of /proc: something is mounted below it"
    if not around.namespaces:
        return "run as root, or a kernel with CONFIG_USER_NS"
    if around.knobs.get(CLONE) == "0":
        return f"sysctl -w {CLONE}=1"
    if none := next(
        (name for name, value in around.knobs.items() if name.startswith("user.max_") and value == "0"), ""
    ):
        return f"sysctl -w {none}={ENOUGH}"
    if around.knobs.get(RESTRICTED, "0") not in ("", "0"):
        return f"{PROFILE}\nsysctl -w {RESTRICTED}=0   # or this, for all programs"
    return _confined(around) or "run as root"


def _of_files(name: str, failure: Failure, around: Around) -> str:
    """A directory that refuses a file, or a program in it."""
    elsewhere = "--disk-dir /another/directory" if name == "directory" else "export XDG_CACHE_HOME=/another/directory"
    if failure.step == "execute" or name == "programs":
        noexec = failure.step == "execute" and failure.errno == "EACCES"
        return elsewhere + ("   # that one is mounted noexec" if noexec else "")
    if failure.errno in ("EACCES", "EPERM") and around.user == 0:
        return f"{elsewhere}   # root has no right there: NFS with root_squash, or a container's mount"
    return elsewhere
