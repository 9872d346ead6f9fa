"""CPU: stockfish's own benchmark, the open equivalent of the articles' chess benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from vmtax.core.records import Measurement, Metric
from vmtax.workload.base import Command, Measure, Parameters
from vmtax.workload.output import BadOutput, only
from vmtax.workload.site import Site

HASH_MIB = 16
MAX_THREADS = 8  # as in the article: with more, the memory system matters more than the layer
NODES_PER_SECOND = Metric("chess.nodes_per_second", "1/s", "higher")
ONE_THREAD = Metric("chess.one-thread.nodes_per_second", "1/s", "higher")
ALONE = "one-thread"
ON = {f"{count}-threads": count for count in range(2, MAX_THREADS + 1)}  # case -> threads, for cases that a plan names
METRICS = {
    ALONE: ONE_THREAD,
    "": NODES_PER_SECOND,
    **{case: Metric(f"chess.{case}.nodes_per_second", "1/s", "higher") for case in ON},
}


class ChessParameters(Parameters):
    threads: tuple[Annotated[int, Field(ge=2, le=MAX_THREADS)], ...] = Field(
        (), description="further numbers of threads to search with, besides one and min(8, vCPUs)"
    )
    more_threads_than_cpus: bool = Field(False, description="allow more `threads` than a guest has CPUs")
    depth: int = Field(
        13, ge=1, le=30, description="search depth in plies; each ply makes the search about half as long again"
    )
    emulated_depth: int = Field(7, ge=1, le=30, description="search depth if some layer of the run is emulated")


class Chess(Command[ChessParameters]):
    """`one-thread` verifies that the work is the same: its node count must be equal on all layers."""

    name = "chess"
    describe = "CPU: stockfish bench, nodes per second on min(8, vCPUs) threads and on one"
    doubts = (r"^info string (?:ERROR|WARNING)|^(?:ERROR|terminate called)",)
    tool = "stockfish bench"
    title = "CPU"
    packages = ("stockfish",)
    repeats_at_once = True
    emulated_start_seconds = 6.5  # stockfish loads a neural network
    headline = NODES_PER_SECOND.name
    measures: ClassVar = {
        NODES_PER_SECOND.name: Measure(
            "chess positions searched in a second, on min(8, vCPUs) threads", "chess, all CPUs", "CPU throughput"
        ),
        ONE_THREAD.name: Measure(
            "chess positions searched in a second, on one thread; their total number must be the same on every layer",
            "chess, one CPU",
            "one-thread CPU throughput",
        ),
        **{
            METRICS[case].name: Measure(
                f"chess positions searched in a second, on {count} threads",
                f"chess, {count} threads",
                f"CPU throughput on {count} threads",
            )
            for case, count in ON.items()
        },
    }
    parameters_type = ChessParameters

    @property
    def depth(self) -> int:
        return self.parameters.emulated_depth if self.emulated else self.parameters.depth

    def cases(self) -> Sequence[str]:
        return (ALONE, "", *(case for case, count in ON.items() if count in self.parameters.threads))

    def metrics(self) -> Sequence[Metric]:
        # The first one is the subject of a plan without `primary`.
        return (NODES_PER_SECOND, *(METRICS[case] for case in self.cases() if case))

    def command(self, site: Site, case: str) -> Sequence[str]:
        threads = 1 if case == ALONE else ON.get(case, min(MAX_THREADS, site.vcpus))
        program = site.machine.os.program("/usr/games/stockfish")
        return (program, "bench", str(HASH_MIB), str(threads), str(self.depth), "default", "depth")

    def why_not(self, vcpus: int) -> str | None:
        most = max(self.parameters.threads, default=0)
        if most <= vcpus or self.parameters.more_threads_than_cpus:
            return None
        return (
            f"threads is {most}, and guest.vcpus {vcpus}: name fewer, or say that it is meant, with"
            " more_threads_than_cpus: true"
        )

    def seconds(self, case: str) -> float:
        return 0.15 * 1.5 ** (self.depth - 8)

    def read(self, case: str, output: str) -> tuple[Measurement, ...]:
        return (Measurement(METRICS[case], _figure("Nodes/second", output)),)

    def signature(self, case: str, output: str) -> str | None:
        """With one thread stockfish is deterministic; with more it is not."""
        return f"{_figure('Nodes searched', output):.0f} nodes" if case == ALONE else None

    def own_seconds(self, case: str, output: str) -> float | None:
        match = only(r"^Total time \(ms\) : (\d+)$", output)
        return int(match[1]) / 1000 if match else None


def _figure(label: str, output: str) -> float:
    match = only(rf"^{label}\s*: (\d{{1,18}})$", output)
    if match is None or int(match[1]) == 0:
        raise BadOutput(f"no line '{label} : NUMBER' in what stockfish printed")
    return float(match[1])
