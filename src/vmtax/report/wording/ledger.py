"""Who used a host's CPU, in words. Pure."""

from __future__ import annotations

from vmtax.analysis.ledger import REMAINDER, Ledger

KERNEL = "kernel."
NAMES = {
    "guest": "guest code",
    "emulator": "emulator",
    "vcpu_kernel": "vCPUs in the kernel",
    "vcpu_user": "vCPUs in QEMU",
    "main_loop": "QEMU's main loop",
    "iothreads": "iothreads",
    "qemu_other": "other QEMU threads",
    "vhost": "vhost",
    "hard_irq": "hard irq",
    "soft_irq": "soft irq",
    "idle_irq": "irq on idle CPUs",
    "user": "programs",
    "kernel": "kernel",
    "hypervisor": "Hyper-V's hypervisor",
    "other_vms": "other VMs",
    "steal": "stolen by its hypervisor",
    "workload": "workload",
    "vmtax": "vmtax",
    "other": "other processes",
}
LEAST, LEAST_CORES = 0.01, 0.005  # share of the busy time, and CPUs, from which an entry is shown


def in_words(one: Ledger) -> str:
    """The largest entries in cores: "guest code 0.92, vhost 0.71"."""
    largest = sorted(one.entries.items(), key=lambda entry: -entry[1])
    least = max(LEAST * one.busy, LEAST_CORES * one.seconds)
    shown = [(name, value) for name, value in largest if name != REMAINDER and value >= least > 0]
    return ", ".join(f"{entry_name(name)} {value / one.seconds:.2f}" for name, value in shown) or "–"


def entry_name(name: str) -> str:
    """The name of an entry for people; kernel threads by their kind."""
    return f"kernel's {name.removeprefix(KERNEL)}" if name.startswith(KERNEL) else NAMES.get(name, name)
