"""The facts of the machines that the sample pretends to be from."""

from __future__ import annotations

from vmtax.core.records import Json
from vmtax.storage import FirstWrite

CREATED = 1795234320.0  # 2026-11-21 04:12 UTC
XEON = "Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz"


def facts(emulated: bool) -> Json:
    """Keys as vmtax.meter.facts and the runner name them; not all of them."""
    amd = "AMD EPYC Processor" if emulated else XEON
    host = {
        **_machine_facts(XEON, None, 8, 32 << 30),
        "image": {"identity": "5d1c" + "0" * 60, "kernel": "6.12.48+deb13-amd64"},
        "cpus_measured": [2, 3],
        "qemu": {"binary": "qemu-system-x86_64", "version": "10.0.3", "version_numbers": [10, 0, 3]},
        "accelerator": {
            "name": "tcg" if emulated else "kvm",
            "reason": "no guest kernel booted on /dev/kvm within 20 s" if emulated else "",
        },
        "disk": {"directory": "/var/cache/vmtax", "file_system": "ext4", "device": "/dev/nvme0n1p2"},
    }
    first = FirstWrite(
        "raw file (falloc)", 2**30, 2**30, "fio --rw=write", CREATED, 2.5, "before the first round"
    ).to_json()
    nested = {**first, "when": "in the carrier's first boot"}
    host["disk"]["first_write"] = {"host": first, "vm": first, "nested": nested}
    return {
        "host": host,
        "host/vm": _machine_facts(amd, "qemu" if emulated else "kvm", 2, 1 << 30),
        "host/vm/vm": _machine_facts(amd, "kvm", 2, 1 << 30),
    }


def _machine_facts(model: str, hypervisor: str | None, cpus: int, memory: int) -> Json:
    return {
        "cpu_model": model,
        "cpu_vendor": "AuthenticAMD" if model.startswith("AMD") else "GenuineIntel",
        "microcode": None if hypervisor else "0xd0003b9",
        "sockets": 1,
        "cores": cpus if hypervisor else cpus // 2,
        "threads_per_core": 1 if hypervisor else 2,
        "cpus_online": cpus,
        "frequency_hz": 1_995_312_000.0,
        "virtualized": hypervisor is not None,
        "hypervisor": hypervisor,
        "smt_active": hypervisor is None,
        "mitigations": {"meltdown": "Not affected", "spectre_v2": "Mitigation: Enhanced / Automatic IBRS"},
        "governor": None if hypervisor else "performance",
        "turbo": None if hypervisor else True,
        "numa_nodes": 1,
        "kernel_release": "6.12.48+deb13-amd64",
        "hostname": "vm" if hypervisor else "example",
        "kernel_command_line": "console=ttyS0 no_timer_check" if hypervisor else "root=/dev/nvme0n1p2 ro",
        "os": "Debian GNU/Linux 13 (trixie)",
        "memory_bytes": memory,
        "swap_bytes": 0,
        "thp_enabled": "madvise",
        "huge_pages": [{"size_bytes": 2 << 20, "total": 0, "free": 0}],
        "kvm_nested": True,
        "clocksource": "kvm-clock" if hypervisor == "kvm" else "tsc",
        "pressure": True,
    }
