"""A backup job of libvirt's, which serves the disks of a domain that runs as they are at one moment."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from xml.sax.saxutils import quoteattr

from vmtax.attach.clone.definition import Definition
from vmtax.attach.domain import FIND_QEMU, SECONDS, Domain, DomainError, script, words_of_virsh
from vmtax.core.machines import Undoing

# The key that libvirt puts into the directory that it has for one QEMU, on that QEMU's command line.
KEY = re.compile(r"file(?:=|\":\")(/[^\",]+)/master-key\.aes")
LONGEST_SOCKET = 107  # bytes of the path of one: unix(7)


@dataclass(frozen=True, slots=True)
class BackupJob:
    """The job of one domain, which ends with the run."""

    domain: Domain
    directory: PurePosixPath  # of the run, on the domain's host
    qemu: str  # the domain's process; "": not known
    socket: str  # at which the disks are served, by NBD

    @classmethod
    def of(cls, domain: Domain, directory: PurePosixPath, name: str) -> BackupJob:
        """The job that is to begin. `name`: of the socket, which nothing else has

        Where AppArmor confines QEMU, as on Debian and Ubuntu, it may make a socket only in the directory that libvirt
        has for it.
        """
        found = domain.host.try_run(*FIND_QEMU, domain.uuid).stdout.split()
        if len(found) != 1:
            return cls(domain, directory, "", str(directory / "job" / name))
        own = KEY.search(domain.host.try_run("cat", f"/proc/{found[0]}/cmdline").stdout)
        socket = f"{own[1]}/{name}" if own else ""
        fits = 0 < len(socket.encode()) <= LONGEST_SOCKET
        return cls(domain, directory, found[0], socket if fits else str(directory / "job" / name))

    @property
    def mark(self) -> str:
        """By which the job is known: libvirt writes a directory's name otherwise if characters of XML are in it."""
        return PurePosixPath(self.socket).name

    def begin(self, definition: Definition, undoings: list[Undoing]) -> None:
        """Begin it with frozen file systems. Its end, and the thaw before it, are listed first. Raises DomainError."""
        domain, host, job = self.domain, self.domain.host, self.directory / "job"
        whom = (domain.uri, domain.uuid)
        host.run("mkdir", "-m", "1777", str(job))
        if self.qemu:  # which writes there
            host.run("chown", f"--reference=/proc/{self.qemu}", str(job))
            host.run("chmod", "711", str(job))
        text = self.directory / "job.xml"
        host.run("tee", str(text), input=backup_xml(definition, job, self.socket))
        undoings.append(host.remove_later(PurePosixPath(self.socket)))  # once the job has ended
        undoings.append(host.undo_later(*script("clone/end"), *whom, self.mark, domain.name))
        thawing = host.undo_later(*script("clone/thaw"), *whom, domain.name)
        said = host.try_run(*script("clone/freeze"), *whom, str(text), timeout=SECONDS)
        thawing.undo()  # at once: a later thaw would be one of somebody else's backup
        if not said.ok:
            raise DomainError(f"libvirt:{domain.name}: no consistent point of it: {words_of_virsh(said)}")


def backup_xml(definition: Definition, directory: PurePosixPath, socket: str) -> str:
    """The job that serves the domain's disks as they are now, by NBD; what is overwritten is copied to `directory`."""
    disks = "".join(
        f"<disk name='{disk.target}' backup='yes' type='file' exportname='{disk.target}'>"
        f"<scratch file={quoteattr(str(directory / disk.target))}/></disk>"
        for disk in definition.disks
    )
    server = f"<server transport='unix' socket={quoteattr(socket)}/>"
    return f"<domainbackup mode='pull'>{server}<disks>{disks}</disks></domainbackup>\n"
