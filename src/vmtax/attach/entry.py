"""Enter a domain: by its agent, once, which starts the image's ssh server on a port that is plugged in for it."""

from __future__ import annotations

import re
import shlex
import sys
import time
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath

from vmtax.attach import agent
from vmtax.attach.domain import FULL, SCSI, Bus, Domain, DomainError, IsWindows, script
from vmtax.core.machines import Machine, MachineLost
from vmtax.hypervisor import Credentials
from vmtax.image.place import Placed
from vmtax.machine.local import ISOLATED, LocalMachine
from vmtax.machine.ssh import SshMachine
from vmtax.meter.text import fields

# The guest makes the server's key itself, so that none is on a command line. The socket of the port, which only root of
# its host can reach, says which guest it is.
ANY_KEY = ("-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null")
PORT, IMAGE, CONTROLLER, WAY = "port", "image", "controller", "way"
SELINUX = "/sys/fs/selinux/enforce"
LOGIN_SECONDS = 180.0  # until the image's server answers: a guest reads it from a cold disk
# Starts the script in namespaces of its own, and in a unit of its own where there is systemd: a restart of the agent
# would end it otherwise. Arguments: name of the unit, the script and its arguments. Constant text.
LAUNCH = """\
unit=$1; shift
unshare --help 2> /dev/null | grep -q -e --kill-child || exit 74
set -- unshare --mount --pid --fork --kill-child sh -c "$@"
command -v systemd-run > /dev/null && exec systemd-run --scope --collect --quiet --unit="$unit" "$@"
exec setsid "$@"
"""
# Ends what LAUNCH started, if it still runs. Argument: the name of the unit, which is a word of its command line.
END = """\
for each in /proc/[0-9]*; do
    read -r name 2> /dev/null < "$each/comm" && [ "$name" = unshare ] || continue
    words=$(tr '\\0' ' ' < "$each/cmdline" 2> /dev/null)
    case $words in *unshare" --mount "*" $1 "*) kill -KILL "${each#/proc/}" ;; esac
done
exit 0
"""
FAILURES = {
    71: "its port or its disk did not appear in the guest within a minute: is its kernel's virtio_console missing?",
    72: "the guest's kernel cannot mount erofs: log in to the VM, where the image is copied: --guest ssh://root@ADDRESS",
    74: "the guest's unshare has no --kill-child (util-linux before 2.32, or busybox): log in to the VM, --guest ssh://…",
    75: "the guest has no directory /mnt, over which the image is mounted for its own programs only: make one",
    76: "the guest is a 32-bit system, or not one of x86-64: the image's programs do not run there",
    73: "the guest agent may not mount anything: SELinux may confine it (getsebool -a | grep virt_qemu_ga)",
}
SOCKET = re.compile(r"<source mode='bind' path='([^']+)'/>\s*<target type='virtio' name='([^']+)'")


@dataclass(frozen=True, slots=True)
class Entered:
    """A guest of the user's, entered."""

    domain: Domain
    machine: SshMachine
    bus: Bus  # on which the guest takes a disk
    notes: tuple[str, ...] = ()  # what a reader must know about that disk


def enter(domain: Domain, path: str, local: LocalMachine, image: Placed, directory: PurePosixPath) -> Entered:
    """Plug a port and the image into the domain, and log in through the port. The guard of its host undoes it all.

    image: on the domain's host; directory: on that host, where QEMU can open a file of ours
    Raises DomainError, AgentRefused, MachineLost and CommandFailed.
    """
    host = domain.host
    if fields(domain.ask("guestinfo", "--os").stdout).get("os.id") == "mswindows":
        raise IsWindows(domain)
    domain.before[:] = domain.digests()
    file = directory / local.fresh_name("image")
    domain.later(host.remove_later(file))
    put_image(host, image, file)
    _plug(domain, PORT, f"<channel type='unix'><target type='virtio' name='{domain.serial(PORT)}'/>")
    bus, note = _plug_image(domain, str(file))
    ending = {"path": "/bin/sh", "arg": ["-c", END, "sh", domain.serial(WAY)], "capture-output": False}
    domain.later(host.undo_later(*script("end"), domain.uri, domain.uuid, agent.command("guest-exec", ending)))
    return Entered(domain, log_in(domain, path, local), bus, tuple(filter(None, [note, domain.unlike()])))


def log_in(domain: Domain, path: str, local: LocalMachine) -> SshMachine:
    """Have the agent start the image's ssh server in a domain that has the port and the image, and log in to it.

    Raises DomainError, AgentRefused, MachineLost and CommandFailed.
    """
    credentials, unit = Credentials.make(local), domain.serial(WAY)
    arguments = (unit, script("inside")[2], unit, domain.serial(IMAGE), domain.serial(PORT))
    public = credentials.key.with_suffix(".pub").read_text()
    pid = agent.start(domain, ("/bin/sh", "-c", LAUNCH, "sh", *arguments), public)
    options = (*ANY_KEY, *credentials.options(), "-o", f"ProxyCommand={_through(domain, local)}")
    machine = SshMachine(path, local, "root@vmtax-existing", options, is_guest=True)
    _log_in(machine, domain, pid)
    return machine


def put_image(host: Machine, image: Placed, file: PurePosixPath) -> None:
    """Make that file the root image: QEMU runs as a user that cannot read our cache.

    A copy where SELinux is, whose label libvirt changes. Raises CommandFailed.
    """
    if host.succeeds("test", "-e", SELINUX) or not host.succeeds("ln", image.root, str(file)):
        remedy = "name another directory with --disk-dir"
        host.run("cp", "--reflink=auto", "--sparse=always", image.root, str(file), remedy=remedy)
        host.run("chmod", "444", str(file))


def _plug(domain: Domain, what: str, opening: str) -> None:
    """A device whose XML begins like that."""
    domain.detach_later(what)
    kind = opening[1:].partition(" ")[0]
    domain.attach(f"{opening}<alias name='{domain.alias(what)}'/></{kind}>")


def _plug_image(domain: Domain, file: str) -> tuple[Bus, str]:
    """Plug the image in; returns the bus for further disks, and a note if that is not the one of the VM's own disk.

    A machine of type q35 often has one slot left: then one controller carries both.
    """
    own = domain.settings().get("bus", "")
    attempts: list[Bus] = ["scsi"] if own == "scsi" else ["virtio", "scsi"]
    domain.detach_later(IMAGE)
    for bus in attempts:
        try:
            if bus == "virtio" and not _has_two_slots(domain):
                continue
            if bus == "scsi" and not SCSI.search(domain.definition()):
                _plug(domain, CONTROLLER, "<controller type='scsi' model='virtio-scsi'>")
                domain.detach_later(IMAGE)  # before the controller
            domain.attach(domain.disk(IMAGE, file, bus, {}, readonly=True))
        except DomainError as error:
            if FULL in str(error) and bus != attempts[-1]:
                continue
            raise
        return bus, _why(own, bus) if own not in ("", bus) else ""
    raise AssertionError("the last attempt returns or raises")


def _why(own: str, bus: Bus) -> str:
    """Why its disk under test is on another bus than its own disk."""
    if own in ("virtio", "scsi"):
        return f"The disk under test is on {bus}, because no slot for {own} is free."
    return f"The disk under test is on {bus}, because none can be plugged in on {own} while a VM runs."


def _has_two_slots(domain: Domain) -> bool:
    """Whether two more virtio disks fit: on a pcie machine, each takes a root port of its own."""
    text = domain.definition()
    ports = len(re.findall(r"<controller type='pci' index='\d+' model='pcie-root-port'", text))
    if not ports:
        return True  # a conventional bus has 32 slots, and says if they are used up
    used = set(re.findall(r"<address type='pci' domain='0x0000' bus='0x([0-9a-f]{2})'", text))
    taken = sum(1 for bus in used if bus != "00")
    return ports - taken >= 2


def _through(domain: Domain, local: LocalMachine) -> str:
    """The client's command that connects it to the port's socket. Raises DomainError."""
    found = [path for path, name in SOCKET.findall(domain.definition()) if name == domain.serial(PORT)]
    if not found:
        raise DomainError(f"libvirt:{domain.name}: libvirt does not say where the socket of the port is")
    socket = found[0]
    if isinstance(domain.host, SshMachine):
        here = PurePosixPath(local.scratch) / f"port-{domain.token}"
        domain.host.forward(here, PurePosixPath(socket))
        socket = str(here)
    script = Path(local.scratch) / f"connect-{domain.token}.py"
    script.write_text(resources.files("vmtax.attach").joinpath("connect.py").read_text(encoding="utf-8"))
    return shlex.join([sys.executable, *ISOLATED[:-1], str(script), socket]).replace("%", "%%")


def _log_in(machine: SshMachine, domain: Domain, pid: int) -> None:
    """Wait until the server in the guest answers. Raises DomainError if what starts it has ended, and MachineLost."""
    limit = time.monotonic() + LOGIN_SECONDS
    while True:
        try:
            machine.connect(LOGIN_SECONDS)
            return
        except MachineLost as lost:
            code = agent.ended(domain, pid)
            if code is not None:
                why = FAILURES.get(code, f"what was started in the guest ended with exit code {code}")
                raise DomainError(f"libvirt:{domain.name}: {why}") from lost
            if time.monotonic() > limit:
                raise
        time.sleep(1.0)
