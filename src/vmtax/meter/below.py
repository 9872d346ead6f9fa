"""What a machine itself runs on: bare metal, a hypervisor, an emulated CPU. Unknown facts are None."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vmtax.core.records import Json
from vmtax.machine import Reader
from vmtax.machine.local import ISOLATED, PYTHON
from vmtax.meter.text import GREP, Files, fields, parse_files

DMI = "/sys/class/dmi/id"
CLOCK = "/sys/devices/system/clocksource/clocksource0"
HYPERVISOR_TYPE = "/sys/hypervisor/type"
FILES = (
    *("/proc/cpuinfo", HYPERVISOR_TYPE),
    *(f"{DMI}/sys_vendor", f"{DMI}/product_name", f"{CLOCK}/available_clocksource"),
)

# Executes CPUID, because no file has its answer: {push rbx; mov eax, edi; xor ecx, ecx; cpuid; mov [rsi], ebx; mov
# [rsi+4], ecx; mov [rsi+8], edx; pop rbx; ret}. Prints a line of 24 hexadecimal digits for each leaf that may name a
# hypervisor: 0x40000000, and 0x40000100 for one that first presents itself as Hyper-V. Prints nothing and exits with an
# error if Python lacks ctypes (Debian's python3-minimal), is not 64 bits wide, or may not have executable memory.
PROGRAM = """\
import ctypes, mmap, sys
assert sys.maxsize > 2**32
rights = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
page = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, rights)
page.write(bytes.fromhex("53 89f8 31c9 0fa2 891e 894e04 895608 5b c3"))
entry = ctypes.addressof(ctypes.c_char.from_buffer(page))
cpuid = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_void_p)(entry)
for leaf in (0x40000000, 0x40000100):
    words = ctypes.create_string_buffer(12)
    cpuid(leaf, words)
    sys.stdout.write(words.raw.hex() + "\\n")
"""
CPUID = (PYTHON, *ISOLATED, PROGRAM)
DETECT = ("systemd-detect-virt", "--vm")  # reads CPUID, too, and then DMI

TCG = "qemu"  # systemd-detect-virt's name for a CPU emulated by QEMU
TCG_MODEL = "QEMU TCG CPU"  # model name of -cpu max; also if it is passed on to a KVM guest inside
# Signature in CPUID -> systemd-detect-virt's name of it.
SIGNATURES = {
    "KVMKVMKVM": "kvm",
    "Linux KVM Hv": "kvm",
    "TCGTCGTCGTCG": TCG,
    "Microsoft Hv": "microsoft",
    "VMwareVMware": "vmware",
    "XenVMMXenVMM": "xen",
    "bhyve bhyve ": "bhyve",
    "QNXQVMBSQG": "qnx",
    "ACRNACRNACRN": "acrn",
    "SRESRESRESRE": "sre",
    "Apple VZ": "apple",
}
# Prefix of the DMI vendor or product -> the same.
DMI_NAMES = {
    "KVM": "kvm",
    "OpenStack": "kvm",
    "Amazon EC2": "amazon",
    "QEMU": "qemu",
    "VMware": "vmware",
    "innotek GmbH": "oracle",
    "VirtualBox": "oracle",
    "Xen": "xen",
    "Bochs": "bochs",
    "Parallels": "parallels",
    "Google": "google",
    "Microsoft Corporation": "microsoft",
}
# They run on another vendor's hypervisor, or present themselves as one, and are nevertheless known by their own name.
BRANDS = ("amazon", "google", "oracle", "parallels")


def read_below(machine: Reader, files: Files | None = None) -> Json:
    """The facts of `parse_below`, by at most three commands; `files`: FILES, if they were read already.

    Anything but reading files is done only on a machine whose CPU has the flag `hypervisor`.
    """
    files = parse_files(machine.try_run(*GREP, "", *FILES).stdout) if files is None else files
    found = parse_below(files)
    if not found["virtualized"] and HYPERVISOR_TYPE not in files:
        return found
    asked = machine.try_run(*CPUID)
    if asked.ok:
        return parse_below(files, signatures(asked.stdout))
    return parse_below(files, detected=machine.try_run(*DETECT).stdout.strip())


def signatures(text: str) -> tuple[str, ...]:
    """The signatures in PROGRAM's output, one for each leaf."""
    found = []
    for line in text.split():
        try:
            found.append(bytes.fromhex(line).decode("ascii").rstrip("\0"))
        except ValueError:
            continue
    return tuple(found)


def parse_below(files: Files, signatures: Sequence[str] = (), detected: str = "") -> Json:
    """Facts from FILES, from CPUID's signatures or, if CPUID could not be executed, from systemd-detect-virt.

    virtualized: bool, the CPU's flag `hypervisor`
    hypervisor: what the machine runs under, with systemd-detect-virt's names and in its order of search; "qemu" is
      TCG; None on bare metal
    emulated_cpu: bool; a KVM guest inside an emulated host has False, unless its CPU model says otherwise: the
      emulation below it is in the facts of the host's path
    """
    cpuinfo = fields(files.get("/proc/cpuinfo", ""))
    flags = cpuinfo.get("flags", "").split()
    virtualized = "hypervisor" in flags if flags else None
    dmi = [files.get(f"{DMI}/{name}", "") for name in ("product_name", "sys_vendor")]
    sold_as = next((name for text in dmi for start, name in DMI_NAMES.items() if text.startswith(start)), None)
    signed = next((SIGNATURES[name] for name in reversed(signatures) if name in SIGNATURES), None)
    asked = signed or (detected if detected not in ("", "none") else None)
    names = [files.get(HYPERVISOR_TYPE), asked]
    if virtualized:
        clock = _of_clocks(files.get(f"{CLOCK}/available_clocksource", "").split())
        names = [sold_as if sold_as in BRANDS else None, *names, clock, sold_as]
    return {
        "virtualized": virtualized,
        "hypervisor": next((name for name in names if name), None),
        "emulated_cpu": _emulated(cpuinfo.get("model name", ""), asked, virtualized),
    }


def _emulated(model: str, hypervisor: str | None, virtualized: bool | None) -> bool | None:
    """DMI is no proof: KVM that hides itself also shows QEMU's DMI data."""
    if TCG_MODEL in model or hypervisor == TCG:
        return True
    return False if hypervisor or virtualized is False else None


def _of_clocks(clocks: Iterable[str]) -> str | None:
    """The hypervisor whose paravirtual clock is available."""
    for clock in clocks:
        if clock == "kvm-clock":
            return "kvm"
        if clock.startswith("hyperv_"):
            return "microsoft"
        if clock == "xen":
            return "xen"
    return None
