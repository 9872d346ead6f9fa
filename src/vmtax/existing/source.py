"""Where the description of a guest comes from: a file of any kind, or a guest of this host."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from vmtax.attach.domain import VIRSH, domains_of, words_of_virsh
from vmtax.core.machines import Reader
from vmtax.existing import libvirt, proxmox, qemu_line
from vmtax.existing.guest import KINDS, ExistingGuest, Kind, NoGuest, cpus_of
from vmtax.existing.pasted import IN_VARIABLES, OF_SCRIPT, added_to, decoded
from vmtax.existing.proxmox_storage import FILE, ProxmoxStorage, storages_of
from vmtax.existing.qemu_words import is_command_line

LARGEST = 4 * 2**20  # bytes of a file
PARSERS: Mapping[Kind, Callable[[str], ExistingGuest]] = {
    "libvirt": libvirt.parse,
    "proxmox": proxmox.parse,
    "qemu": qemu_line.parse,
}
OF_PROXMOX = re.compile(
    r"^[\s│|]*(?:cores|memory|sockets|ostype|scsihw|boot|(?:net|scsi|virtio|ide|sata)\d+)(?::| *[│|]) ?\S", re.MULTILINE
)
PROGRAMS = {"libvirt": "virsh", "proxmox": "qm", "qemu": "cat"}
NOT_FOUND = 127  # exit code of a shell
ALLOWED = re.compile(r"^Name:\s*CPU \d+/.*\nCpus_allowed_list:\s*(\S+)$", re.MULTILINE)  # of a thread that is a CPU
SECONDS = 30.0  # for one question to libvirt or Proxmox
NAME = re.compile(r"[A-Za-z0-9_.+@:%-][A-Za-z0-9_.+@:% -]{0,199}")
HOW = "libvirt:NAME, proxmox:VMID, qemu:PID, or a file with a domain's XML, a qm.conf or QEMU's command line"


def existing(source: str, reader: Reader) -> ExistingGuest:
    """The guest that `source` names: one of the machine behind `reader`, or a file here. Raises NoGuest."""
    scheme, _, name = source.partition(":")
    if is_of_host(source):
        if not NAME.fullmatch(name):
            raise NoGuest(f"{source}: no guest can be called that; right would be {HOW}")
        return _named(source, scheme, name, reader)  # type: ignore[arg-type]  # it is one of KINDS
    path = Path(source)
    if not _exists(path):
        raise NoGuest(f"{source}: there is no such file; right would be {HOW}")
    try:
        with path.open("rb") as stream:
            content = stream.read(LARGEST + 1)
    except OSError as error:
        raise NoGuest(f"{source}: {error.strerror}") from error
    if len(content) > LARGEST:
        raise NoGuest(f"{source}: more than {LARGEST >> 20} MiB: no description of a guest is as large")
    text = decoded(content)
    try:
        return PARSERS[recognised(text)](text)
    except NoGuest as error:
        raise NoGuest(f"{source}: {error}") from error


def is_of_host(source: str) -> bool:
    """Whether it names a guest of a host, and no file here."""
    scheme, is_named, _ = source.partition(":")
    return bool(is_named) and scheme in KINDS and not _exists(Path(source))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # such as a name that is too long
        return False


def recognised(text: str) -> Kind:
    """What kind of description a text is. Raises NoGuest."""
    head = text.lstrip()
    if not head:
        raise NoGuest(f"the file is empty; right would be {HOW}")
    if re.search(r"<domain[\s>]|<\?xml|^<", head):
        return "libvirt"
    if len(OF_PROXMOX.findall(text)) > 1:
        return "proxmox"  # `args` and descriptions may have a command line
    if added_to(text):
        raise NoGuest(IN_VARIABLES)
    if is_command_line(text):
        return "qemu"
    if re.search(r"^\s*[a-z][a-z0-9_.]*:\s?\S", text, re.MULTILINE) or head[:1] == "{":
        return "proxmox"
    if OF_SCRIPT.search(text):
        raise NoGuest(IN_VARIABLES)
    raise NoGuest(f"is no description of a guest; right would be {HOW}")


def _named(source: str, kind: Kind, name: str, reader: Reader) -> ExistingGuest:
    """A guest of the machine; nothing is asked of the guest itself."""
    commands = {
        "libvirt": (*VIRSH, "--readonly", "dumpxml", "--", name),
        "proxmox": ("qm", "config", name, "--current"),
        "qemu": ("cat", f"/proc/{name}/cmdline"),
    }
    if kind != "libvirt" and not (name.isascii() and name.isdigit()):
        raise NoGuest(f"{source}: must be a number, {'such as proxmox:101' if kind == 'proxmox' else 'a process id'}")
    outcome = reader.try_run(*commands[kind], timeout=SECONDS)
    if outcome.code == NOT_FOUND:
        raise NoGuest(f"{source}: {PROGRAMS[kind]} is not there, so no guest of its can be; right would be {HOW}")
    if not outcome.ok and kind == "libvirt":
        raise NoGuest(f"{source}: {words_of_virsh(outcome)}{domains_of(reader)}")
    if not outcome.ok:
        words = (outcome.stderr.strip() or outcome.stdout.strip()).splitlines()
        why = words[-1].removeprefix("error: ") if words else f"exit code {outcome.code}"
        raise NoGuest(f"{source}: {PROGRAMS[kind]}: {why}")
    try:
        if kind == "proxmox":
            return proxmox.parse(outcome.stdout, _storages(reader))
        if kind == "qemu":
            guest = qemu_line.parse(outcome.stdout)
            return replace(guest, placement=replace(guest.placement, cpus=_allowed(reader, name)))
        return PARSERS[kind](outcome.stdout)
    except NoGuest as error:
        raise NoGuest(f"{source}: {error}") from error


def _allowed(reader: Reader, pid: str) -> frozenset[int] | None:
    """The CPUs on which those of a QEMU may run; None if that is not known. Raises MachineLost."""
    words = ("-rhsE", "--include=status", "^(Name|Cpus_allowed_list):", f"/proc/{pid}/task")
    return cpus_of(ALLOWED.findall(reader.try_run("grep", *words, timeout=SECONDS).stdout)) or None


def _storages(reader: Reader) -> dict[str, ProxmoxStorage] | None:
    """Those of a host of Proxmox VE; None if it does not show them."""
    outcome = reader.try_run("cat", FILE, timeout=SECONDS)
    return storages_of(outcome.stdout) if outcome.ok else None
