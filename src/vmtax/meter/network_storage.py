"""Storage that another machine serves: its caches, its disks and the network are in every figure. Pure.

Names of file systems: filesystems(5) and what their modules register; of devices: devices.txt of Linux's admin-guide.
"""

from __future__ import annotations

import re

from vmtax.core.records import Json

FILE_SYSTEMS = {
    **{"nfs": "NFS", "nfs4": "NFS", "cifs": "SMB", "smb3": "SMB", "ceph": "CephFS", "9p": "9p", "virtiofs": "virtiofs"},
    **{"glusterfs": "GlusterFS", "fuse.glusterfs": "GlusterFS", "fuse.ceph": "CephFS", "fuse.sshfs": "sshfs"},
    **{"lustre": "Lustre", "beegfs": "BeeGFS", "afs": "AFS", "fuse.moosefs": "MooseFS", "gpfs": "GPFS"},
    **{"fuse.juicefs": "JuiceFS", "fuse.s3fs": "s3fs", "fuse.rclone": "rclone", "fuse.vmhgfs-fuse": "shared folders"},
}
TRANSPORTS = {"iscsi": "iSCSI", "fc": "Fibre Channel", "fcoe": "FCoE", "srp": "SRP"}  # as lsblk names them
DEVICES = {"rbd": "Ceph RBD", "nbd": "NBD", "drbd": "DRBD", "aoe": "ATA over Ethernet"}
NOTE = (
    "The disks under test are on {kind}: what serves it and the way there are in their figures, its caches stay warm,"
    " and what others do with it disturbs."
)
_LETTERS = re.compile(r"(?:(rbd|nbd|drbd)\d|etherd!)")


def network_storage(facts: Json) -> str:
    """By what the disks under test are reached over a network, for people: "NFS", "iSCSI"; "" if they are not, as far
    as their machine says. `facts`: of `disk_facts`. NVMe over a network calls itself NVMe.
    """
    named = [(name, disk) for name, disks in facts.get("named", {}).items() for disk in disks]
    kinds = [
        FILE_SYSTEMS.get(facts["file_system"] or "", ""),
        *(_of_disk(disk["name"] or "", disk) for disk in facts["disks"]),
        *(_of_disk(name.removeprefix("/dev/"), disk) for name, disk in named),
    ]
    return ", ".join(dict.fromkeys(kind for kind in kinds if kind))


def _of_disk(name: str, disk: Json) -> str:
    found = _LETTERS.match(name)
    return DEVICES[found[1] or "aoe"] if found else TRANSPORTS.get(disk["transport"] or "", "")
