"""Enter a VM: by its agent, once, which starts the image's ssh server on a port that is plugged in for it."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath

from vmtax.attach.domain import DomainError, script
from vmtax.attach.pluggable import IMAGE, PORT, WAY, Bus, Pluggable
from vmtax.core.machines import Machine, MachineLost
from vmtax.hypervisor import Credentials
from vmtax.image.place import Placed
from vmtax.machine.local import ISOLATED, LocalMachine
from vmtax.machine.ssh import SshMachine

# The guest makes the server's key itself, so that none is on a command line. The socket of the port, which only root of
# its host can reach, says which guest it is.
ANY_KEY = ("-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null")
SELINUX = "/sys/fs/selinux/enforce"
LOGIN_SECONDS = 180.0  # until the image's server answers: a guest reads it from a cold disk
# Starts the script in namespaces of its own, and in a unit of its own where systemd runs: a restart of the agent
# would end it otherwise. Arguments: name of the unit, the script and its arguments. Constant text.
LAUNCH = """\
unit=$1; shift
unshare --mount --pid --fork true > /dev/null 2>&1 || exit 74
child=
unshare --help 2>&1 | grep -q -e --kill-child && child=--kill-child # not in busybox; END kills the child itself, too
set -- unshare --mount --pid --fork $child sh -c "$@"
collect=
[ -d /run/systemd/system ] && command -v systemd-run > /dev/null && {
    systemd-run --help | grep -q -e --collect && collect=--collect # from systemd 236 on
    exec systemd-run --scope $collect --quiet --unit="$unit" "$@"
}
exec setsid "$@"
"""
# Ends what LAUNCH started, if it still runs: unshare, and its child, the first process of its namespace. Argument: the
# name of the unit, which is a word of their command lines, before the serial number of the image.
END = """\
for each in /proc/[0-9]*; do
    words=$(tr '\\0' ' ' < "$each/cmdline" 2> /dev/null)
    case $words in *unshare" --mount "*" $1 vmtax-"* | "sh -c "*" $1 vmtax-"*) kill -KILL "${each#/proc/}" ;; esac
done
exit 0
"""
FAILURES = {
    71: "its port or its disk did not appear in the guest within a minute: is its kernel's virtio_console missing?",
    72: "the guest's kernel cannot mount erofs: log in to the VM, where the image is copied: --guest ssh://root@ADDRESS",
    74: "the guest's unshare starts nothing in namespaces of its own, or is missing: log in to the VM, --guest ssh://…",
    75: "the guest has no directory /mnt, over which the image is mounted for its own programs only: make one",
    76: "the guest is a 32-bit system, or not one of x86-64: the image's programs do not run there",
    73: "the guest agent may not mount anything: SELinux may confine it (getsebool -a | grep virt_qemu_ga)",
}


@dataclass(frozen=True, slots=True)
class Entered:
    """A guest of the user's, entered."""

    vm: Pluggable
    machine: SshMachine
    bus: Bus  # on which the guest takes a disk
    directory: PurePosixPath  # on the VM's host, where QEMU can open a file of ours
    notes: tuple[str, ...] = ()  # what a reader must know about that disk


def enter(vm: Pluggable, path: str, local: LocalMachine, image: Placed, directory: PurePosixPath) -> Entered:
    """Plug a port and the image into the VM, and log in through the port. The guard of its host undoes it all.

    image: on the VM's host; directory: on that host, where QEMU can open a file of ours
    Raises DomainError, AgentRefused, MachineLost and CommandFailed.
    """
    vm.remember()
    file = directory / local.fresh_name("image")
    vm.later(vm.removal_of(str(file)))
    put_image(vm.host, image, file)
    vm.plug_port()
    bus, note = vm.plug_image(str(file))
    vm.later(vm.ends_later(("/bin/sh", "-c", END, "sh", vm.serial(WAY))))
    return Entered(vm, log_in(vm, path, local), bus, directory, tuple(filter(None, [note, *vm.notes])))


def log_in(vm: Pluggable, path: str, local: LocalMachine) -> SshMachine:
    """Have the agent start the image's ssh server in a VM that has the port and the image, and log in to it.

    Raises DomainError, AgentRefused, MachineLost and CommandFailed.
    """
    credentials, unit = Credentials.make(local), vm.serial(WAY)
    arguments = (unit, script("inside")[2], unit, vm.serial(IMAGE), vm.serial(PORT))
    public = credentials.key.with_suffix(".pub").read_text()
    pid = vm.start(("/bin/sh", "-c", LAUNCH, "sh", *arguments), public)
    options = (*ANY_KEY, *credentials.options(), "-o", f"ProxyCommand={_through(vm, local)}")
    machine = SshMachine(path, local, "root@vmtax-existing", options, is_guest=True)
    _log_in(machine, vm, pid)
    return machine


def put_image(host: Machine, image: Placed, file: PurePosixPath) -> None:
    """Make that file the root image: QEMU runs as a user that cannot read our cache.

    A copy where SELinux is, whose label libvirt changes. Raises CommandFailed.
    """
    if host.succeeds("test", "-e", SELINUX) or not host.succeeds("ln", image.root, str(file)):
        remedy = "name another directory with --disk-dir"
        host.run("cp", "--reflink=auto", "--sparse=always", image.root, str(file), remedy=remedy)
        host.run("chmod", "444", str(file))


def _through(vm: Pluggable, local: LocalMachine) -> str:
    """The client's command that connects it to the port's socket. Raises DomainError."""
    socket = str(vm.socket())
    if isinstance(vm.host, SshMachine):
        here = PurePosixPath(local.scratch) / f"{vm.serial(PORT)}.socket"
        vm.host.forward(here, PurePosixPath(socket))
        socket = str(here)
    script = Path(local.scratch) / f"{vm.serial(PORT)}.py"
    script.write_text(resources.files("vmtax.attach").joinpath("connect.py").read_text(encoding="utf-8"))
    return shlex.join([sys.executable, *ISOLATED[:-1], str(script), socket]).replace("%", "%%")


def _log_in(machine: SshMachine, vm: Pluggable, pid: int) -> None:
    """Wait until the server in the guest answers. Raises DomainError if what starts it has ended, and MachineLost."""
    limit, codes = time.monotonic() + LOGIN_SECONDS, list[int]()

    def has_ended() -> bool:
        if not codes:  # the code can be read once
            codes.extend(code for code in [vm.ended(pid)] if code is not None)
        return bool(codes)

    def is_hopeless() -> bool:
        with contextlib.suppress(DomainError):  # a slow agent is asked again
            return has_ended()
        return False

    while True:
        try:
            machine.connect(LOGIN_SECONDS, is_hopeless)
            return
        except MachineLost as lost:
            if has_ended():
                why = FAILURES.get(codes[0], f"what was started in the guest ended with exit code {codes[0]}")
                raise DomainError(f"{vm.name}: {why}") from lost
            if time.monotonic() > limit:
                raise
        time.sleep(1.0)
