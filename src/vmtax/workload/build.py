"""Kernel build: compile Debian's Linux source in memory, as in the article whose figures are well known, or on the
disk under test.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from vmtax.core.layers import LAYERS, OWNERS
from vmtax.core.machines import Machine
from vmtax.core.records import Measurement, Metric
from vmtax.core.stopwatch import refined
from vmtax.workload import build_on_disk
from vmtax.workload.base import Command, Measure, Parameters
from vmtax.workload.output import BadOutput, only
from vmtax.workload.site import Site

MIB = 2**20
Target = Literal["objects", "tinyconfig", "defconfig", "allmodconfig"]
# The parts of defconfig's kernel that the target `objects` compiles. A single directory, because each further one costs
# another make; and only a few files, because an emulated CPU takes a minute for them.
OBJECTS = tuple(
    f"lib/{name}.o"
    for name in (
        *("argv_split", "bsearch", "cmdline", "ctype", "glob", "hexdump", "llist", "rbtree", "sort", "timerqueue"),
    )
)
# Target -> bytes that it writes to /build, memory of one compiler at most, bytes that are read, and seconds on one CPU.
# Those of defconfig and allmodconfig are cautious estimates.
TMPFS = {"objects": 64 * MIB, "tinyconfig": 128 * MIB, "defconfig": 2048 * MIB, "allmodconfig": 24 * 1024 * MIB}
COMPILER = {"objects": 64 * MIB, "tinyconfig": 64 * MIB, "defconfig": 192 * MIB, "allmodconfig": 384 * MIB}
SOURCE = {"objects": 32 * MIB, "tinyconfig": 320 * MIB, "defconfig": 1536 * MIB, "allmodconfig": 1536 * MIB}
CPU_SECONDS = {"objects": 2.5, "tinyconfig": 150.0, "defconfig": 1500.0, "allmodconfig": 20_000.0}
READING_SECONDS = 10.0  # to read sources and tools beforehand
SYSTEM = 256 * MIB  # of memory for the kernel and the userland
# Most of the source, which tinyconfig never reads.
UNREAD = {
    "tinyconfig": r"/src/\(net\|sound\|tools/perf\)\|"
    r"/src/drivers/\(accel\|clk\|gpu\|iio\|infiniband\|media\|net\|pinctrl\|scsi\|staging\|usb\|video\)"
}
NOTHING = "none"
ALL = "all"
JOBS_PER_CPU = 2  # as in the article
BUILD = build_on_disk.BUILD  # a tmpfs of the machine under test, or a directory on its disk
# Constant text. $1: target, $2: jobs, $3: pattern of files that are not read beforehand, or "all"; the rest: arguments
# of make. Tools, and sources in memory, are read before the clock starts, so that their disk is not measured. Names,
# date and paths become part of the result: they are fixed, so that it is the same on every layer.
SCRIPT = f"""
set -e
export PATH=/usr/bin LC_ALL=C KBUILD_BUILD_TIMESTAMP=2020-01-01 KBUILD_BUILD_USER=vmtax KBUILD_BUILD_HOST=vmtax
target=$1 jobs=$2 unread=$3
shift 3
trap '[ $? = 0 ] || {{ tail -n 20 /tmp/log; grep -m 1 -E "No space left|error:|\\*\\*\\*" /tmp/log >&2; }}' EXIT
made() {{ make -C /src O={BUILD} "$@" > /tmp/log 2>&1; }}
objects() {{ find {BUILD} -name '*.o' | wc -l; }}
find {BUILD} -mindepth 1 -delete
if [ "$target" = objects ]; then
    cp -dR --preserve=mode,timestamps /prepared/. {BUILD} 2> /tmp/log
else
    made "$target"
fi
sync -f {BUILD}
case $target,$unread in
    *,{ALL}) ;;
    objects,*) xargs cat < /read-first > /dev/null ;;
    *) find /src -regex "$unread" -prune -o -type f -exec cat {{}} + > /dev/null ;;
esac
cat /usr/bin/* /usr/libexec/gcc/*/*/c* /usr/lib/x86_64-linux-gnu/*.so* > /dev/null
before=$(objects)
clocks() {{ read -r uptime rest < /proc/uptime && echo "$(date +%s.%N) up $uptime"; }}
started=$(clocks)
made -j"$jobs" "$@"
ended=$(clocks)
echo "build: target $target, jobs $jobs"
echo "build: started $started, ended $ended"
echo "build: objects $(($(objects) - before))"
cd {BUILD}
[ $# -gt 0 ] || set -- vmlinux
echo "build: sha256 $(cat "$@" | sha256sum | cut -d ' ' -f 1)"
"""
REPORT = re.compile(
    r"^build: target (?P<target>[a-z]+), jobs (?P<jobs>\d{1,6})\n"
    r"build: started (?P<started>\d{1,12}\.\d{9}) up (?P<up>\d{1,12}\.\d\d),"
    r" ended (?P<ended>\d{1,12}\.\d{9}) up (?P<later>\d{1,12}\.\d\d)\n"
    r"build: objects (?P<objects>\d{1,9})\n"
    r"build: sha256 (?P<sha256>[0-9a-f]{64})$",
    re.MULTILINE | re.ASCII,
)
EXPECTED = "build: target …, started …, objects …, sha256 …"


class BuildParameters(Parameters):
    target: Literal["auto"] | Target = Field(
        "auto",
        description="what to compile: `objects`, a few files of lib/; or a whole kernel, `tinyconfig`, `defconfig` or"
        " `allmodconfig`. `auto`: `tinyconfig`, or `objects` if a layer is emulated",
    )
    files: Literal["memory", "disk"] = Field(
        "memory",
        description="where sources and object files lie: in memory, read before the clock starts; or in a directory on"
        " the disk under test, from which the first build of a boot reads the sources. A guest makes an ext4 on its"
        " disk, or uses the directory that `disk.share` shares; the host uses one beside the disk's file",
    )
    jobs: int | None = Field(None, ge=1, le=4096, description="compilers at once; by default two for each CPU")


class Build(Command[BuildParameters]):
    """The same compiler and source on every layer: in a tmpfs, with all files read into memory beforehand; or on the
    disk under test.
    """

    name = "build"
    describe = "kernel build: gcc compiles Linux in memory, as in an article, or on disk; seconds, objects per second"
    layers = frozenset(LAYERS) - {"container", *OWNERS}  # the pack is mounted on the host, or is a disk of the guest
    tool = "make"
    doubts = (
        r"warning: +Clock skew|has modification time .* in the future",
        r"internal compiler error|\bKilled\b",
    )
    title = "Kernel build"
    emulated_start_seconds = 60.0  # make starts hundreds of processes before the first object is compiled
    headline = "build.tinyconfig.seconds"
    measures: ClassVar = {
        "seconds": Measure("time from the start of make to its end", "time", "kernel build time"),
        "objects_per_second": Measure("object files compiled in a second", "rate", "objects compiled per second"),
    }
    parameters_type = BuildParameters

    @property
    def target(self) -> Target:
        if self.parameters.target == "auto":
            return "objects" if self.emulated else "tinyconfig"
        return self.parameters.target

    def settled(self) -> dict[str, str]:
        return {"target": self.target}

    def cases(self) -> Sequence[str]:
        return (self.target,)

    def metrics(self) -> Sequence[Metric]:
        return _metrics(self.target)

    def seat(self, site: Site) -> tuple[Machine, tuple[str, ...]]:
        if site.kernel_pack is None:
            raise ValueError(f"{site.machine.path} has no kernel pack")
        if not self.keeps_files:
            return site.machine, (*site.kernel_pack, "--size", str(TMPFS[self.target]), "--tmpfs", BUILD, "--")
        if site.directory is None:
            raise ValueError(f"{site.machine.path} has no directory on the disk under test")
        return site.machine, (*site.kernel_pack, *build_on_disk.mounts(self.target, site.directory), "--")

    @property
    def keeps_files(self) -> bool:
        return self.parameters.files == "disk"

    @property
    def maps_files(self) -> bool:
        """Whether it writes to a file that it maps into memory: scripts/sorttable does, at the end of a kernel."""
        return self.target != "objects"

    def lay_out(self, directory: str) -> tuple[str, ...]:
        """What puts the sources into the directory of a site, after the command that enters its kernel pack."""
        return build_on_disk.lay_out(self.target, UNREAD.get(self.target, NOTHING), directory)

    @property
    def filled_bytes(self) -> int:
        return build_on_disk.BYTES[self.target] if self.keeps_files else 0

    def written_bytes(self, case: str, *, usual: bool = False) -> float:
        return float(SOURCE[case] + TMPFS[case]) if self.keeps_files else 0.0

    def jobs(self, vcpus: int) -> int:
        """The number of compilers to run at once on that number of CPUs."""
        return self.parameters.jobs or JOBS_PER_CPU * vcpus

    def command(self, site: Site, case: str) -> Sequence[str]:
        made = OBJECTS if case == "objects" else ()
        unread = ALL if self.keeps_files else UNREAD.get(case, NOTHING)
        return ("sh", "-c", SCRIPT, "sh", case, str(self.jobs(site.vcpus)), unread, *made)

    def seconds(self, case: str) -> float:
        return CPU_SECONDS[case] / 2 + READING_SECONDS  # two CPUs are usual

    def memory_bytes(self, vcpus: int) -> tuple[int, str]:
        """Bytes of memory that it needs on that number of CPUs, and how they are calculated."""
        tmpfs, each, source = (table[self.target] for table in (TMPFS, COMPILER, SOURCE))
        jobs = self.jobs(vcpus)
        if self.keeps_files:  # what is cached of its files can be dropped
            compilers = f"{jobs} compilers with {each // MIB} MiB each"
            return jobs * each + SYSTEM, f"target {self.target}: {compilers} and {SYSTEM // MIB} MiB for the system"
        how = (
            f"target {self.target}: {tmpfs // MIB} MiB for what is written, {jobs} compilers with {each // MIB} MiB"
            f" each, {source // MIB} MiB of source and {SYSTEM // MIB} MiB for the system"
        )
        return tmpfs + jobs * each + source + SYSTEM, how

    def read(self, case: str, output: str) -> tuple[Measurement, ...]:
        seconds, objects = _figures(case, output)
        values = (seconds, objects / seconds)
        return tuple(Measurement(metric, value) for metric, value in zip(_metrics(case), values, strict=True))

    def signature(self, case: str, output: str) -> str | None:
        """Digest of the result; None for allmodconfig, which is not reproducible because it signs modules with a new
        key.
        """
        found = REPORT.search(output)
        return f"objects with sha256 {found['sha256']}" if found and case != "allmodconfig" else None

    def own_seconds(self, case: str, output: str) -> float | None:
        return _figures(case, output)[0]


def _metrics(target: str) -> tuple[Metric, Metric]:
    return (
        Metric(f"build.{target}.seconds", "s", "lower"),
        Metric(f"build.{target}.objects_per_second", "1/s", "higher"),
    )


def _figures(case: str, output: str) -> tuple[float, int]:
    """The seconds that make took, and the number of object files that it made."""
    found = only(f"({REPORT.pattern})", output)
    if found is None:
        raise BadOutput(f"make did not end well: no lines '{EXPECTED}' in the output")
    if found["target"] != case:
        raise BadOutput(f"target {found['target']} was built, not {case}")
    started, ended = (int(found[name].replace(".", "")) for name in ("started", "ended"))  # ns
    # By the clock that nobody can set while make runs, with the digits of the other one
    seconds, objects = (
        refined(float(found["later"]) - float(found["up"]), (ended - started) / 1e9),
        int(found["objects"]),
    )
    if seconds <= 0 or objects < 1:
        raise BadOutput(f"make built {objects} objects in {seconds:g} s")
    return seconds, objects
