"""How what a disk lies on is taken away again.

Constant texts, names stay arguments; each succeeds where there is nothing to undo.
"""

from __future__ import annotations

# Loop devices of a file of ours. They are found by the file: the device may be somebody else's by now.
DETACH = ("sh", "-c", 'losetup -n -O NAME -j "$1" | while read -r loop; do losetup -d "$loop"; done', "sh")
UNMOUNT = ("sh", "-c", '! mountpoint -q "$1" || exec umount "$1"', "sh")
# A host may keep a list of the devices that LVM sees: ours is not to get into it, and is seen nevertheless.
ANY_DEVICE = ("--config", 'devices/use_devicesfile=0 global/thin_check_executable=""')
NO_GROUP = (
    *("sh", "-c", 'name=$1; shift; ! vgs "$@" "$name" >/dev/null 2>&1 || exec vgremove -q -f -y "$@" "$name"', "sh"),
)
NO_VOLUME = (
    *("sh", "-c", 'name=$1; shift; ! lvs "$@" "$name" >/dev/null 2>&1 || exec lvremove -q -f -y "$@" "$name"', "sh"),
)
NO_POOL = ("sh", "-c", '! zpool list "$1" >/dev/null 2>&1 || exec zpool destroy -f "$1"', "sh")
NO_DATASET = ("sh", "-c", '! zfs list "$1" >/dev/null 2>&1 || exec zfs destroy -r -f "$1"', "sh")
# Partitions, and whatever stands in them and at both ends of the device: it was ours to use, and is empty again.
# Known by the label we gave its table, whose first partition is named after the run.
NO_PARTITIONS = (
    *("sh", "-c"),
    'device=$1 mark=$2; sfdisk -d "$device" 2>/dev/null | grep -q "name=\\"$mark" || exit 0; '
    'lsblk -lnpo NAME,TYPE "$device" | while read -r part type; do [ "$type" != part ] || '
    '{ wipefs -q -a -f "$part"; dd if=/dev/zero of="$part" bs=1M count=1 status=none; }; done; '
    'sfdisk -q --delete "$device" && wipefs -q -a -f "$device" && '
    'dd if=/dev/zero of="$device" bs=1M count=1 status=none',
    "sh",
)
WAIT_FOR = ("sh", "-c", 'n=0; until test -b "$1"; do n=$((n+1)); test $n -lt 100 || exit 1; sleep 0.1; done', "sh")
