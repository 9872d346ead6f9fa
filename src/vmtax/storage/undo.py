"""Commands that remove what was made for a disk.

The texts are constant, names stay arguments, and each succeeds if there is nothing to undo. If a pool, group or device
of the user's is not visible now, our volume may still exist in it: that is a failure, and it stays listed.
"""

from __future__ import annotations


def _until_gone(there: str, remove: str, before: str = "") -> tuple[str, ...]:
    """Retried for some seconds: a device that was just closed is busy for a moment, because udev reads it."""
    again = 'n=$((n+1)); test $n -lt 25 || { printf "%s\\n" "$error" >&2; exit 1; }; sleep 0.2'
    return (
        "sh",
        "-c",
        f"{before}n=0; while {there} >/dev/null 2>&1; do error=$({remove} 2>&1) && exit; {again}; done",
        "sh",
    )


# Detach loop devices of a file of ours. They are found by the file, because the device may belong to somebody else by
# now.
DETACH = ("sh", "-c", 'losetup -n -O NAME -j "$1" | while read -r loop; do losetup -d "$loop"; done', "sh")
UNMOUNT = _until_gone('mountpoint -q "$1"', 'umount "$1"')
# The package of thin_check is only a recommendation, and our pool is new. The first program to ask for monitoring
# starts dmeventd, which serves all volumes of the host; started by us, it would carry our mark and be ended with the
# run. Our pool does not have to grow anyway.
PLAIN = 'global/thin_check_executable="" activation/monitoring=0'
# Options of LVM for our own volume group, placed after the name in the undo commands. A host may keep a list of the
# devices that LVM sees; ours must not get into it, but must be visible.
ANY_DEVICE = ("--config", f"devices/use_devicesfile=0 {PLAIN}")
ITS_DEVICES = ("--config", PLAIN)
NO_GROUP = _until_gone('vgs "$@" "$name"', 'vgremove -q -f -y "$@" "$name"', "name=$1; shift; ")
NO_VOLUME = _until_gone('lvs "$@" "$name"', 'lvremove -q -f -y "$@" "$name"', "name=$1; shift; ")
NO_VOLUME_OF_YOURS = _until_gone(
    'lvs "$@" "$name"',
    'lvremove -q -f -y "$@" "$name"',
    'name=$1; shift; vgs "$@" "${name%%/*}" >/dev/null 2>&1 '
    '|| { echo "volume group ${name%%/*}, with $name in it, is not there" >&2; exit 1; }; ',
)
NO_POOL = _until_gone('zpool list "$1"', 'zpool destroy -f "$1"')
NO_DATASET = _until_gone('zfs list "$1"', 'zfs destroy -r -f "$1"')
NO_DATASET_OF_YOURS = _until_gone(
    'zfs list "$1"',
    'zfs destroy -r -f "$1"',
    'zpool list "${1%%/*}" >/dev/null 2>&1 || { echo "pool ${1%%/*}, with $1 in it, is not there" >&2; exit 1; }; ',
)
# Removes our partitions and erases what is in them and at both ends of the device: we may use it, and it was empty. Our
# table is identified by its partition names, which contain the run's mark, and is removed last: while the kernel knows
# one of these partitions, there is something left to undo. The run's data is zeroed as far as the time allows.
ZERO_SECONDS = 15
NO_PARTITIONS = (
    *("sh", "-c"),
    # The kernel's name, because partx does not know udev's.
    'device=$(realpath -e "$1"); there=$?; '
    'is_ours() { sfdisk -d "$device" 2>/dev/null | grep -qF "name=\\"$1-"; }; '
    # After a reboot the disk may have another name, and another disk this name.
    'is_ours "$2" || for device in $(lsblk -dnpo NAME) ""; do is_ours "$2" && break; done; '
    'test "$device" || exit $there; '
    'parts() { lsblk -lnpo NAME,TYPE "$device" | sed -n "s/ *part$//p"; }; '
    # Removes signatures, and zeros the first and the last MiB: wipefs erases only the magic bytes of a table. Never
    # creates a file: if a partition's device is gone, the kernel could not make a device of that name any more.
    'zero() { dd if=/dev/zero of="$1" bs=1M count=1 seek="$2" oflag=seek_bytes '
    "conv=nocreat,fsync,notrunc status=none; }; "
    'empty() { wipefs -q -a -f "$1"; zero "$1" 0; zero "$1" $(($(blockdev --getsize64 "$1") - 1048576)); }; '
    'for part in $(parts); do empty "$part"; done; '
    # In steps, because the kernel does not interrupt a step: the guard waits a minute for all of this.
    f"timeout {ZERO_SECONDS} "
    "sh -c 'for part; do blkdiscard -z -p 64M \"$part\"; done' sh $(parts) >/dev/null 2>&1; "
    # Who still has a file system in them, in a copy of all mounts of its own.
    'in_use() { for part in $(parts); do echo "in use: $part" $(grep -lsF "$part " /proc/[0-9]*/mounts); done; }; '
    # The kernel removes them only if no process has one open, as udev may for a moment.
    'forget() { n=0; while [ "$(parts)" ]; do partx -d "$device" 2>/dev/null || sleep 0.2; n=$((n+1)); '
    "test $n -lt 50 || { in_use >&2; return 1; }; done; }; "
    'forget && empty "$device" && forget && ! is_ours "$2"',
    "sh",
)
# Udev may remove the partitions once more to read the table again, so wait until it is done.
WAIT_FOR = (
    *("sh", "-c"),
    "! command -v udevadm >/dev/null || udevadm settle --timeout=20; "
    'n=0; for device; do until test -b "$device"; do n=$((n+1)); test $n -lt 100 || exit 1; sleep 0.1; done; done',
    "sh",
)
