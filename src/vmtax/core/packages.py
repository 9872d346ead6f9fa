"""Which package has a program, and the command that installs it, by what /etc/os-release says. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

RELEASE = "/etc/os-release"
# The command of each family of systems; os-release's ID, then each word of ID_LIKE, picks the family.
COMMANDS = {
    "debian": "apt-get install",
    "fedora": "dnf install",
    "suse": "zypper install",
    "arch": "pacman -S",
    "alpine": "apk add",
    "nixos": "nix-shell -p",
    "gentoo": "emerge",
}
FAMILIES = {
    **{name: name for name in COMMANDS},
    **dict.fromkeys(("ubuntu", "proxmox", "pve", "raspbian", "linuxmint", "devuan", "kali"), "debian"),
    **dict.fromkeys(("rhel", "centos", "rocky", "almalinux", "ol", "amzn", "mariner", "azurelinux"), "fedora"),
    **dict.fromkeys(("opensuse", "opensuse-leap", "opensuse-tumbleweed", "sles", "sled", "sle-micro"), "suse"),
    **dict.fromkeys(("archlinux", "manjaro", "endeavouros"), "arch"),
    "postmarketos": "alpine",
}
# Systems whose own files are read-only: os-release's ID or VARIANT_ID -> command.
IMAGES = {
    **dict.fromkeys(("coreos", "iot", "silverblue", "kinoite", "sericea", "onyx"), "rpm-ostree install"),
    **dict.fromkeys(("opensuse-microos", "sle-micro", "sl-micro"), "transactional-update pkg install"),
}
# Program, or what else is needed -> package, in the order of COMMANDS, then what it is called by those who write it.
# "=": the same as upstream; "-": the family has none.
TABLE = """\
bwrap              = = = = = = sys-apps/bubblewrap  bubblewrap
python3            = = = python = = dev-lang/python  python3
ip                 = iproute = = = = sys-apps/iproute2  iproute2
taskset            = = = = = = sys-apps/util-linux  util-linux
fallocate          = = = = = = sys-apps/util-linux  util-linux
lsblk              = = = = = = sys-apps/util-linux  util-linux
wipefs             = = = = = = sys-apps/util-linux  util-linux
timeout            = = = = = = sys-apps/coreutils  coreutils
unshare            = = = = = = sys-apps/util-linux  util-linux
losetup            mount = = = = util-linux sys-apps/util-linux  util-linux
sfdisk             fdisk = = = = util-linux sys-apps/util-linux  util-linux
tar                = = = = = gnutar app-arch/tar  tar
zstd               = = = = = = app-arch/zstd  zstd
ssh                openssh-client openssh-clients openssh-clients = openssh-client = net-misc/openssh  openssh
ssh-keygen         openssh-client = openssh-clients = openssh-keygen = net-misc/openssh  openssh
mmdebstrap         = = - - - = -  mmdebstrap
mkfs.erofs         = = = = = = sys-fs/erofs-utils  erofs-utils
qemu-system-x86_64 qemu-system-x86 qemu-kvm qemu-x86 qemu-system-x86 qemu-system-x86_64 = app-emulation/qemu  qemu
runc               = = = = = = app-containers/runc  runc
seccomp.json       golang-github-containers-common = libcontainers-common = = - app-containers/containers-common  containers-common
zfs                zfsutils-linux = = zfs-utils = = =  zfs
virsh              libvirt-clients libvirt-client libvirt-client libvirt libvirt-client libvirt app-emulation/libvirt  libvirt
zfs.ko             zfs-dkms = zfs-kmp-default zfs-dkms zfs-lts = sys-fs/zfs-kmod  zfs
mkfs.ext4          = = = = = = sys-fs/e2fsprogs  e2fsprogs
mkfs.xfs           = = = = = = sys-fs/xfsprogs  xfsprogs
mkfs.btrfs         = = btrfsprogs = = = sys-fs/btrfs-progs  btrfs-progs
lvcreate           = = = = = = sys-fs/lvm2  lvm2
thin_check         = device-mapper-persistent-data = = = = sys-block/thin-provisioning-tools  thin-provisioning-tools
mdadm              = = = = = = sys-fs/mdadm  mdadm
zpool              zfsutils-linux = = zfs-utils = = =  zfs
pip                = = = python-pip py3-pip = dev-python/pip  python3-pip
GenuineIntel       intel-microcode microcode_ctl ucode-intel intel-ucode intel-ucode - sys-firmware/intel-microcode  intel-microcode
AuthenticAMD       amd64-microcode amd-ucode-firmware ucode-amd amd-ucode amd-ucode - sys-kernel/linux-firmware  linux-firmware
"""  # noqa: E501 (a table)


def _parsed(table: str) -> dict[str, dict[str, str]]:
    """Program -> family, or "upstream" -> package; without those that a family does not have."""
    found = {}
    for line in table.splitlines():
        program, *named, upstream = line.split()
        names = zip(COMMANDS, named, strict=True)
        found[program] = {
            **{family: upstream if name == "=" else name for family, name in names if name != "-"},
            "upstream": upstream,
        }
    return found


PACKAGES: Mapping[str, Mapping[str, str]] = _parsed(TABLE)


def family(release: str) -> str:
    """The family of systems of that text of /etc/os-release; empty if it is none of COMMANDS."""
    named = _fields(release)
    words = [named.get("ID", ""), *named.get("ID_LIKE", "").split()]
    return next((FAMILIES[word] for word in words if word in FAMILIES), "")


def install(release: str, *programs: str) -> str:
    """The command that installs these programs, each a row of PACKAGES; for an unknown system, what to look for.

    release: text of /etc/os-release there; may be empty or damaged
    """
    of = family(release)
    packages = {one: PACKAGES.get(one, {}).get(of, "") for one in programs}
    if not of or not all(packages.values()):
        named = dict.fromkeys(f"{one} ({PACKAGES[one]['upstream']})" if one in PACKAGES else one for one in programs)
        return f"install {', '.join(named)} with your packager"
    return f"{_command(release, of)} {' '.join(dict.fromkeys(packages.values()))}"


def _command(release: str, of: str) -> str:
    named = _fields(release)
    if command := next((IMAGES[word] for key in ("VARIANT_ID", "ID") if (word := named.get(key, "")) in IMAGES), ""):
        return command
    if of == "fedora" and named.get("ID") != "fedora" and named.get("VERSION_ID", "").split(".")[0] in ("2", "7"):
        return "yum install"  # Amazon Linux 2, RHEL 7
    return COMMANDS[of]


def _fields(release: str) -> dict[str, str]:
    """KEY=value, with the value in quotes or not."""
    lines = re.findall(r"^\s*([A-Z_]+)=[\"']?(.*?)[\"']?\s*$", release, re.MULTILINE)
    return {key: value.lower() for key, value in lines}  # the last one counts, as in a shell
