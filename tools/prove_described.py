"""Shows that a domain's XML and the command line that libvirt makes of it are read as the same guest; prints counts.

    python -m tools.prove_described

The domains of tests/existing/libvirt, as the libvirt of this machine translates them (`virsh domxml-to-native`): two
parsers of ours read two descriptions of one guest, and libvirt's own source decides what is right. Left out of each
domain is what a host must have, such as files, devices that are passed through and addresses; machine types are those
of this QEMU. Left out of the comparison is what libvirt only decides at the start. Exit code 1 where anything differs,
or where few domains are compared.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

from tests.owners_vm import Libvirt, libvirt
from tools.score import Score
from vmtax.existing import libvirt as of_libvirt
from vmtax.existing import qemu_line
from vmtax.existing.guest import ExistingGuest, NoGuest
from vmtax.existing.source import decoded

EXAMPLES = Path("tests/existing/libvirt")
FEWEST = 25  # that must be compared
QEMU = "/usr/bin/qemu-system-x86_64"
OF_A_HOST = frozenset(
    (
        *(
            "watchdog",
            "tpm",
            "sound",
            "audio",
            "launchSecurity",
            "seclabel",
            "uuid",
            "shmem",
            "hostdev",
            "video",
            "input",
        ),
        *("graphics", "redirdev", "memballoon", "loader", "nvram", "firmware", "metadata", "rng", "channel", "serial"),
        *(
            "console",
            "parallel",
            "smartcard",
            "hub",
            "vsock",
            "filesystem",
            "sysinfo",
            "smbios",
            "commandline",
            "panic",
        ),
        *("iommu", "cputune", "numatune", "memtune", "resource", "crypto", "address", "boot", "bios"),
    )
)
CONTROLLERS = frozenset(("pci", "usb", "nvme"))
# What libvirt 9 opens or asks for at the start, or does not know: factor, level in the XML, level on the command line.
AT_START = frozenset(
    (
        *(("net.path", "vhost", "tap"), ("net.path", "macvtap", "tap"), ("net.path", "user", "tap")),
        *(("net.queues", "8", None), ("net.mtu", "1450", None), ("net.mtu", "9000", None)),
        *(("disk.iothread", "2", None), ("cpu.model", "cpu64-rhel6", "kvm64")),
        ("disk.format", None, "raw"),  # where the XML names none
    )
)


def main() -> int:
    """0 if every guest is the same in both descriptions."""
    score, compared, untranslated = Score(), 0, dict[str, str]()
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="described-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        (directory / "lv").mkdir()
        with libvirt(directory / "lv") as lv:
            for file in sorted(EXAMPLES.iterdir()):
                domain = _for_this_host(decoded(file.read_bytes()))
                (directory / "domain.xml").write_text(domain)
                line, why = _native(lv, directory / "domain.xml")
                if not line:
                    untranslated[file.name] = why
                    continue
                compared += 1
                for difference in _differences(of_libvirt.parse(domain), qemu_line.parse(line)):
                    score.check(False, f"{file.name}: {difference}")
    for file_name, why in untranslated.items():
        print(f"{file_name}: libvirt here does not translate it: {why}")
    score.check(compared >= FEWEST, f"{compared} domains are compared; {FEWEST} should be")
    print(f"{compared} domains and their command lines, {len(untranslated)} not translated; wrong: {len(score.wrong)}")
    return 1 if score.wrong else 0


def _for_this_host(text: str) -> str:
    """The domain without what this host lacks."""
    begin, end = text.index("<domain"), text.index("</domain>") + len("</domain>")
    domain = of_libvirt.domain_of(text[begin:end])
    domain.set("type", "qemu")
    _remove(domain)
    for system in domain.findall("os"):
        system.attrib.pop("firmware", None)
    for machine in domain.findall("os/type"):
        machine.set("machine", "q35" if "q35" in machine.get("machine", "") else "pc")
    for emulator in domain.iter("emulator"):
        emulator.text = QEMU
    for cpu in domain.findall("cpu"):
        if cpu.get("mode") in ("host-passthrough", "host-model"):  # emulated, a guest has neither
            cpu.set("mode", "maximum")
            cpu.attrib.pop("migratable", None)
    return ET.tostring(domain, encoding="unicode")


def _remove(parent: ET.Element) -> None:
    for child in list(parent):
        is_controller = child.tag == "controller" and child.get("type") in CONTROLLERS
        if child.tag.rpartition(":")[2] in OF_A_HOST or is_controller:
            parent.remove(child)
        else:
            _remove(child)


def _native(lv: Libvirt, file: Path) -> tuple[str, str]:
    """The command line, or why there is none."""
    argv = ("virsh", "domxml-to-native", "qemu-argv", str(file))
    done = subprocess.run(argv, env=lv.environment, capture_output=True, text=True)
    return (done.stdout, "") if done.returncode == 0 else ("", done.stderr.strip().removeprefix("error: "))


def _differences(described: ExistingGuest, started: ExistingGuest) -> Iterator[str]:
    one, other = _levels(described), _levels(started)
    for key in sorted(one.keys() | other.keys()):
        pair = (one.get(key), other.get(key))
        of_one_cpu = key == "cpu.topology" and described.vcpus == 1
        if pair[0] != pair[1] and (re.sub(r"^\d+ ", "", key), *pair) not in AT_START and not of_one_cpu:
            yield f"{key}: {pair[0]} in the XML, {pair[1]} on the command line"


def _levels(guest: ExistingGuest) -> dict[str, object]:
    """Everything that is read of it but its memory, which a balloon may take."""
    levels: dict[str, object] = {"vcpus": guest.vcpus, **guest.levels}
    for number, disk in enumerate(disk for disk in guest.disks if not disk.is_cd):
        levels |= {f"{number} {factor}": level for factor, level in disk.levels.items()}
    for number, card in enumerate(guest.cards):
        levels |= {f"{number} {factor}": level for factor, level in card.levels.items()}
    return levels


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NoGuest as error:
        sys.exit(f"an example that is no guest: {error}")
