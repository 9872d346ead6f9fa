"""QEMU's options for a guest's CPU and memory. Pure."""

from __future__ import annotations

from vmtax.design.guest import MIB, MemoryBacking
from vmtax.design.hyperv import cpu_options
from vmtax.hypervisor.base import GuestSpec
from vmtax.machine.local import ISOLATED, PYTHON

MEMORY_ID = "ram"
# QEMU has no models for the psABI's levels: these are their features in QEMU's names, added to its oldest 64-bit CPU.
_V2 = ("cx16", "lahf-lm", "popcnt", "pni", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
LEVELS = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}
OLDEST = "qemu64"
# 41 is PR_SET_THP_DISABLE: QEMU inherits it over fork and exec, and no setting of the host changes. If the kernel
# refuses, QEMU does not start. Constant text, the arguments stay arguments.
_NO_HUGE_PAGES = (
    "import ctypes, os, sys; libc = ctypes.CDLL(None, use_errno=True); "
    "failed = libc.prctl(41, 1, 0, 0, 0); "
    "sys.exit('PR_SET_THP_DISABLE: ' + os.strerror(ctypes.get_errno())) if failed else "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


def without_huge_pages(spec: GuestSpec) -> tuple[str, ...]:
    """Command prefix that starts QEMU without transparent huge pages, if the spec asks for that; () otherwise."""
    return (PYTHON, *ISOLATED, _NO_HUGE_PAGES) if spec.settings.backing is MemoryBacking.SMALL else ()


def accelerator_words(accelerator: str) -> str:
    """The value of -accel."""
    return "kvm" if accelerator == "kvm" else "tcg,thread=multi"


def cpu_arguments(model: str, accelerator: str, hyperv: str) -> str:
    """The value of -cpu. `hyperv`: the level of cpu.hyperv."""
    return ",".join([_model(model, accelerator), *cpu_options(hyperv)])


def _model(model: str, accelerator: str) -> str:
    """`enforce`: QEMU ends if it cannot provide a feature, instead of omitting it."""
    if model == "host":
        # max includes SVM with nested paging, which TCG emulates; so an emulated guest can carry a nested one.
        return "host" if accelerator == "kvm" else "max"
    if model in LEVELS:
        return ",".join([OLDEST, *(f"+{feature}" for feature in LEVELS[model]), "enforce"])
    return f"{model},enforce"


def free_cpus(spec: GuestSpec) -> tuple[int, ...]:
    """The CPUs on which no process of the guest may run; a whole core, if cores have two threads."""
    if not keeps_cpu_free(spec):
        return ()
    return (0, 1) if spec.settings.topology == "threads" else (0,)


def keeps_cpu_free(spec: GuestSpec) -> bool:
    """Whether a guest that carries guests gets one CPU in addition, its first, on which it runs none of them.

    When an emulated CPU restores its FPU registers, QEMU clears a flag of the first CPU, without a lock and whether it
    is set or not (cpu_clear_ignne in target/i386/tcg/system/fpu_helper.c of QEMU 10.0). If the first CPU enters or
    leaves a guest of its own at that moment, it loses or regains the flags of SVM that are in the same word, such as
    whether interrupts reach it. Its kernel then hangs, panics, or resets.
    """
    return spec.accelerator == "tcg" and spec.carries and spec.vcpus > 1


def cpu_count(spec: GuestSpec) -> str:
    """The value of -smp. QEMU makes cores of a bare number.

    QEMU emulates a locked instruction without its memory barrier if the guest can never have a second CPU (CF_PARALLEL
    in tcg/tcg-op-ldst.c of QEMU 10.0). But its devices run at the same time as that CPU: a guest that writes a request,
    and then reads whether it must notify the disk, may read an old value, and waits for ever. So a second CPU is
    possible.
    """
    count = spec.vcpus + len(free_cpus(spec))
    is_alone = spec.accelerator == "tcg" and count == 1
    most = 2 if is_alone else count
    shapes = {
        "cores": "",
        "sockets": f",sockets={most},cores=1,threads=1",
        "threads": f",sockets=1,cores={max(1, most // 2)},threads=2",
    }
    return f"{count}{',maxcpus=2' if is_alone else ''}{shapes[spec.settings.topology]}"


def memory_options(spec: GuestSpec) -> str:
    """Memory options to add to -machine."""
    own = f",memory-backend={MEMORY_ID}" if spec.settings.backing.is_shared else ""
    return f",mem-merge={'on' if spec.settings.merge else 'off'}{own}"


def timer_options(spec: GuestSpec) -> str:
    """Timer options to add to -machine. Every QEMU knows this one, but not every distribution's can provide an HPET."""
    settings = spec.settings
    if settings.hpet is None and settings.timer != "hpet":
        # An emulated guest keeps QEMU's default: without an HPET its kernel checks the TSC by a clock that is read too
        # slowly, and takes the TSC for unstable in half of the boots.
        return ",hpet=off" if spec.accelerator == "kvm" else ""
    return ",hpet=on" if settings.hpet or settings.timer == "hpet" else ",hpet=off"


def memory_arguments(spec: GuestSpec) -> tuple[str, ...]:
    """The guest's memory. Huge pages are all allocated at its start: if one is missing, it does not start."""
    backing, size = spec.settings.backing, spec.memory_bytes // MIB
    words = ("-m", f"{size}M")
    if not backing.is_shared:
        return (*words, *(("-mem-prealloc",) if spec.preallocated else ()))
    page = backing.page_bytes
    huge = f",hugetlb=on,hugetlbsize={page // MIB}M" if page else ""
    taken = ",prealloc=on" if page or spec.preallocated else ""
    return (*words, "-object", f"memory-backend-memfd,id={MEMORY_ID},size={size}M,share=on{huge}{taken}")
