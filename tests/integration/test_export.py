"""What is exported is taken by libvirt's own schema, by a real QEMU and by the real tools."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest

from vmtax.design.card_features import PATHS as CARD_PATHS
from vmtax.design.net import NetSettings
from vmtax.hypervisor import Qemu
from vmtax.hypervisor.confine import Reach
from vmtax.hypervisor.qemu.qmp import Qmp
from vmtax.machine.local import LocalMachine
from vmtax.recommend import CardExport, DiskExport, export_card, export_disk

SCHEMA = "/usr/share/libvirt/schemas/domain.rng"
BUSES = ("virtio", "virtio-scsi", "ide", "sata", "nvme")
DOMAIN = """<domain type='qemu'><name>vm1</name><memory unit='MiB'>64</memory>
<os><type arch='x86_64' machine='{machine}'>hvm</type></os>
{children}
</domain>
"""


def levels(bus: str, cache: str, aio: str, form: str, rich: bool) -> dict[str, str]:
    found = {"disk.bus": bus, "disk.cache": cache, "disk.aio": aio, "disk.format": form, "disk.preallocation": "off"}
    if rich:
        found |= {"disk.iothread": "on", "disk.queues": "2", "disk.discard": "unmap", "disk.detect_zeroes": "unmap"}
    return found


EVERY = [
    levels(bus, cache, aio, form, rich)
    for bus, (cache, aio), form, rich in itertools.product(
        BUSES,
        (("none", "native"), ("writeback", "threads"), ("directsync", "native"), ("unsafe", "io_uring")),
        ("raw", "qcow2"),
        (False, True),
    )
] + [levels(bus, "writethrough", "threads", "raw", False) for bus in BUSES]


def problems(directory: Path, found: DiskExport) -> str:
    """What xmllint says of a domain that has this disk; "" where libvirt's schema takes it."""
    document = directory / "domain.xml"
    document.write_text(DOMAIN.format(machine=found.machine, children=found.libvirt))
    done = subprocess.run(
        ["xmllint", "--noout", "--relaxng", SCHEMA, str(document)], capture_output=True, text=True, timeout=60
    )
    return "" if done.returncode == 0 else done.stderr


def test_libvirts_schema_takes_every_disk(tmp_path: Path) -> None:
    """All in one go: reading the schema takes most of a check's time."""
    documents = []
    for number, choice in enumerate(c for c in EVERY if c["disk.bus"] != "nvme"):
        for path in ("/images/it's, <new>.img", "/dev/VG/vm1"):
            found = export_disk(choice, path)
            documents.append(tmp_path / f"{number}{'d' if path.startswith('/dev') else 'f'}.xml")
            documents[-1].write_text(DOMAIN.format(machine=found.machine, children=found.libvirt))
    done = subprocess.run(
        ["xmllint", "--noout", "--relaxng", SCHEMA, *map(str, documents)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("validates") == len(documents) > 100


def test_the_schema_would_refuse_what_is_wrong(tmp_path: Path) -> None:
    found = export_disk({})
    assert problems(tmp_path, found) == ""
    wrong = found.libvirt.replace("bus='virtio'", "bus='nonsense'")
    assert wrong != found.libvirt
    document = tmp_path / "wrong.xml"
    document.write_text(DOMAIN.format(machine="q35", children=wrong))
    done = subprocess.run(["xmllint", "--noout", "--relaxng", SCHEMA, str(document)], capture_output=True, text=True)
    assert done.returncode != 0 and "fails to validate" in done.stderr


def cards() -> list[CardExport]:
    """Of every path that can be recommended, with each level of each other factor."""
    factors = NetSettings.factors()
    others = [factor for field, factor in factors.items() if field != "path"]
    levels = itertools.product(CARD_PATHS, *(factor.levels for factor in others))
    names = (factors["path"].name, *(factor.name for factor in others))
    return [export_card(dict(zip(names, map(str, chosen), strict=True))) for chosen in levels]


def test_libvirts_schema_takes_every_card(tmp_path: Path) -> None:
    written = sorted({found.libvirt for found in cards()})
    documents = [tmp_path / f"{number}.xml" for number in range(len(written))]
    for document, children in zip(documents, written, strict=True):
        document.write_text(DOMAIN.format(machine="q35", children=children))
    check = ["xmllint", "--noout", "--relaxng", SCHEMA]
    done = subprocess.run([*check, *map(str, documents)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("validates") == len(documents) > 10
    wrong = written[-1].replace("<mac address", "<mac adress")
    documents[0].write_text(DOMAIN.format(machine="q35", children=wrong))
    done = subprocess.run([*check, str(documents[0])], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "fails to validate" in done.stderr


@pytest.mark.parametrize("bus", BUSES)
def test_qemu_starts_with_what_is_exported(shared_local: LocalMachine, qemu: Qemu, bus: str, tmp_path: Path) -> None:
    for choice in (c for c in EVERY if c["disk.bus"] == bus):
        path = tmp_path / f"a, b.{choice['disk.format']}"
        path.unlink(missing_ok=True)
        found = export_disk(choice, str(path), 2**26)
        for argv in found.backing:
            shared_local.run(*argv)
        process = shared_local.start(
            *qemu.without_guest(Reach(write=(str(tmp_path),))),
            *("-machine", found.machine, "-accel", "tcg", "-m", "64", "-S", "-nodefaults"),
            *("-no-user-config", "-display", "none", "-qmp", "stdio", *found.qemu),
        )
        try:
            (drive,) = Qmp(process, 30.0).execute("query-block")
            assert drive["inserted"]["drv"] == choice["disk.format"] and drive["qdev"]
            cache = drive["inserted"]["cache"]
            assert cache["direct"] == (choice["disk.cache"] in ("none", "directsync"))
            assert cache["no-flush"] == (choice["disk.cache"] == "unsafe")
            assert cache["writeback"] == (choice["disk.cache"] not in ("writethrough", "directsync"))
        finally:
            process.stop()
