"""Keys for one run: new for each run, passed to guests in their initramfs, removed with the run. Never logged.

Stored only beside the saved state of a lab, which accepts no others, in a private directory.
"""

from __future__ import annotations

import itertools
import shutil
from dataclasses import dataclass
from pathlib import Path

from vmtax.image import initramfs
from vmtax.machine.local import LocalMachine

HOST_KEY_ALIAS = "vmtax-guest"  # ssh identifies guests by their run's host key, on whatever port
SSHD_CONFIG = """\
HostKey /run/vmtax/host_key
AuthorizedKeysFile /run/vmtax/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
StrictModes no
MaxSessions 100
"""


KEY, KNOWN_HOSTS = "key", "known-hosts"


_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Credentials:
    """The run's key pair and its guests' host key."""

    key: Path  # path of the private key, in the run's private directory
    known_hosts: Path
    archive: bytes = b""  # cpio that precedes the image's initramfs; empty: the guest has the keys already

    @staticmethod
    def make(local: LocalMachine) -> Credentials:
        directory = _new_directory(local)
        key, host_key = directory / KEY, directory / "host-key"
        for path in (key, host_key):
            local.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "vmtax", "-f", str(path))
        known_hosts = directory / KNOWN_HOSTS
        known_hosts.write_text(f"{HOST_KEY_ALIAS} {host_key.with_suffix('.pub').read_text()}")
        entries = {
            "vmtax": initramfs.directory(0o700),
            "vmtax/host_key": initramfs.file(host_key.read_bytes(), 0o600),
            "vmtax/authorized_keys": initramfs.file(key.with_suffix(".pub").read_bytes(), 0o600),
            "vmtax/sshd_config": initramfs.file(SSHD_CONFIG.encode(), 0o600),
        }
        return Credentials(key, known_hosts, initramfs.archive(entries))

    @staticmethod
    def stored(local: LocalMachine, directory: Path) -> Credentials:
        """The credentials of a saved guest, kept in `directory` by `store`."""
        scratch = _new_directory(local)
        for name in (KEY, KNOWN_HOSTS):
            # With its mode: ssh rejects private keys that others may read
            shutil.copy(directory / name, scratch / name)
        return Credentials(scratch / KEY, scratch / KNOWN_HOSTS)

    def store(self, directory: Path) -> None:
        for path in (self.key, self.known_hosts):
            shutil.copy(path, directory / path.name)

    def options(self) -> tuple[str, ...]:
        """ssh options for a guest: no configuration of the user's, no other key, no questions."""
        settings = {
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": str(self.known_hosts),
            "GlobalKnownHostsFile": "none",
            "HostKeyAlias": HOST_KEY_ALIAS,
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "LogLevel": "ERROR",
            # The connection is a loopback or a private pipe; the fastest key exchange saves half a second under
            # emulation.
            "KexAlgorithms": "curve25519-sha256",
        }
        options = [f"-o{name}={value}" for name, value in settings.items()]
        return ("-F", "none", "-i", str(self.key), *options)


def _new_directory(local: LocalMachine) -> Path:
    directory = Path(local.scratch) / f"keys-{next(_numbers)}"
    directory.mkdir(mode=0o700)
    return directory
