"""What we may do is found by doing it: in real environments that refuse it, each in its own way."""

from __future__ import annotations

import subprocess

import pytest

from tests.integration.conftest import HANGS
from vmtax.machine.local import ISOLATED, PYTHON
from vmtax.machine.rights import Rights, parse, source
from vmtax.testbed.session.examine import enters

DOCKER = ",".join(
    f"+{name}"
    for name in (
        *("chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap", "net_bind_service"),
        *("net_raw", "sys_chroot", "mknod", "audit_write", "setfcap"),
    )
)
AS_DOCKER = ("setpriv", "--bounding-set", f"-all,{DOCKER}")
NOBODY_KNOWS = ("setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups")
# Another user of a user namespace of its own, in which a kind of namespaces is limited to none.
LIMITED = (
    PYTHON,
    "-c",
    """import ctypes, os, sys
pid, (ready, said), (mapped, done) = os.getpid(), os.pipe(), os.pipe()
if os.fork() == 0:
    os.read(ready, 1)
    for kind in ("uid", "gid"):
        open(f"/proc/{pid}/{kind}_map", "w").write("0 0 65536")
    os.write(done, b"x")
    os._exit(0)
assert ctypes.CDLL(None).unshare(0x10000000) == 0
os.write(said, b"x")
os.read(mapped, 1)
open("/proc/sys/" + sys.argv[1], "w").write("0")
os.execvp(sys.argv[2], sys.argv[2:])""",
)
# Refuses unshare and mount, and says so to the process, as Docker's filter does. From linux/filter.h and seccomp.h.
FILTERED = (
    PYTHON,
    "-c",
    """import ctypes, os, struct, sys
code = b"".join(struct.pack("HBBI", *one) for one in (
    (0x20, 0, 0, 0), (0x15, 1, 0, 272), (0x15, 0, 1, 165), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)))
text = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 5, ctypes.addressof(text)))
assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0 and ctypes.CDLL(None).prctl(22, 2, program, 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])""",
)


def mounted(script: str) -> tuple[str, ...]:
    """A prefix that runs a command after that script, in a mount namespace of its own."""
    return ("unshare", "--mount", "sh", "-ec", f'{script}; exec "$@"', "sh")


def tried(within: tuple[str, ...], *names: str, root: bool = True) -> Rights:
    """Try these things, and to enter an image, in such an environment."""
    words = (*within, PYTHON, *ISOLATED, source(), *names, "--", *enters(root=root))
    return parse(subprocess.run(words, capture_output=True, text=True, timeout=HANGS, check=True).stdout)


def node(path: str, numbers: str, mode: str, options: str = "mode=755") -> tuple[str, ...]:
    """An environment with that device node in place of the machine's."""
    above = path.rpartition("/")[0]
    return mounted(f"mount -t tmpfs -o {options} none {above}; mknod -m {mode} {path} {numbers}")


@pytest.mark.parametrize(
    ("within", "name", "why", "cure"),
    [
        (AS_DOCKER, "command", "Operation not permitted", "CAP_SYS_ADMIN"),
        (AS_DOCKER, "tun", "root lacks CAP_SYS_ADMIN there", "CAP_SYS_ADMIN"),
        (AS_DOCKER, "mount", "root lacks CAP_SYS_ADMIN there", "CAP_SYS_ADMIN"),
        (("setpriv", "--bounding-set", "-net_admin"), "tun", "root lacks CAP_NET_ADMIN there", "CAP_NET_ADMIN"),
        (("setpriv", "--bounding-set", "-sys_admin"), "mount", "root lacks CAP_SYS_ADMIN there", "CAP_SYS_ADMIN"),
        (FILTERED, "command", "Operation not permitted", "seccomp"),
        (FILTERED, "tun", "unshare: Operation not permitted", "seccomp"),
        (FILTERED, "mount", "unshare: Operation not permitted", "seccomp"),
        (mounted("mount --bind /proc/sys /proc/sys; mount -o remount,ro,bind /proc/sys"), "caches", "Read-only", ""),
        (mounted("mount --bind /dev/zero /dev/kvm"), "kvm", "Inappropriate ioctl", ""),
        (node("/dev/net/tun", "c 10 200", "666", "mode=755,nodev"), "tun", "Permission denied", "remount,dev /dev/net"),
        (node("/dev/net/tun", "c 10 251", "666"), "tun", "No such device", "modprobe tun"),
        (mounted("mount -t tmpfs none /dev/net"), "tun", "there is no /dev/net/tun", "modprobe tun"),
        (
            (*node("/dev/net/tun", "c 10 200", "600"), *NOBODY_KNOWS),
            "tun",
            "Permission denied",
            "setfacl -m u:54321:rw",
        ),
        (NOBODY_KNOWS, "ssh", "No user exists for uid 54321", "entry in /etc/passwd"),
        (NOBODY_KNOWS, "caches", "Permission denied", "run as root"),
        (NOBODY_KNOWS, "mount", "user 54321 lacks CAP_SYS_ADMIN there", "run as root"),
    ],
)
def test_what_is_refused_is_found_with_its_cause(within: tuple[str, ...], name: str, why: str, cure: str) -> None:
    refused = tried(within, *([] if name == "command" else [name])).refused(name)
    assert refused is not None, "it was granted"
    assert why in refused.why and cure in refused.remedy


@pytest.mark.parametrize(
    ("setting", "cure"),
    [("user/max_user_namespaces", "user.max_user_namespaces"), ("user/max_net_namespaces", "user.max_net_namespaces")],
)
def test_a_limit_of_namespaces_is_named(setting: str, cure: str) -> None:
    refused = tried((*LIMITED, setting, *NOBODY_KNOWS), root=False).refused("command")
    assert refused is not None and refused.remedy == f"sysctl -w {cure}=15000"


@pytest.mark.parametrize(
    ("options", "name", "why"),
    [
        ("ro", "directory", "create: Read-only file system"),
        ("noexec", "programs", "execute: Permission denied"),
        ("mode=700,uid=7", "directory", "create: Permission denied"),
        ("size=4k,nr_inodes=1", "directory", "create: No space left on device"),
    ],
)
def test_a_directory_that_takes_no_file_or_starts_no_program(options: str, name: str, why: str) -> None:
    squashed = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search") if "uid=7" in options else ()
    within = (*mounted(f"mount -t tmpfs -o {options} none /mnt"), *squashed)
    refused = tried(within, f"{name}=/mnt").refused(name)
    assert refused is not None and why in refused.why
    assert ("root_squash" in refused.remedy) == bool(squashed)
    assert ("noexec" in refused.remedy) == (options == "noexec")


def test_where_all_is_granted_nothing_is_refused_and_nothing_is_left() -> None:
    names = ("tun", "mount", "loop", "caches", "ssh", "directory=/var/tmp", "programs=/var/tmp/missing")
    before = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    with_mounts = mounted("true")
    rights = tried(with_mounts, *names)
    assert [str(rights.refused(name.partition("=")[0])) for name in names] == ["None"] * len(names)
    assert rights.may("command") and rights.around.user == 0
    assert subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout == before
    found = subprocess.run(["find", "/var/tmp", "-maxdepth", "1", "-name", ".vmtax-*"], capture_output=True, text=True)
    assert found.stdout == ""
