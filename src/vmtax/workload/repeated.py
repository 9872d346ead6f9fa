"""The output of a command that one of several machines repeated, and which part of the time its figures cover. Pure.

Programs on several machines neither begin nor end at the same moment. So each machine repeats a command, one repetition
counts, and the machine does the same work before and after it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from vmtax.workload.base import Command, Counted

COUNTS = 1  # index of the repetition that counts
USUAL = 3  # repetitions, if all machines are equally fast: in the third, each waits for the others' second
BEGAN, ENDED = "vmtax: repetition began at ", "vmtax: repetition ended at "
LINE = re.compile(rf"^(?:{BEGAN}|{ENDED})(\d{{1,12}}\.\d{{3}})\n", re.MULTILINE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Repetitions:
    """What a command printed each time, and when; a single output without times if it was not repeated."""

    outputs: tuple[str, ...]
    times: tuple[float, ...] = ()  # at which each began, then at which the last one ended; seconds since the epoch

    @staticmethod
    def of(text: str) -> Repetitions:
        """Read `text` again; any other text is the output of a command that was not repeated."""
        first, *parts = LINE.split(text)
        times, outputs = parts[0::2], parts[1::2]
        if first or len(times) <= COUNTS + 1 or outputs[-1] or f"\n{ENDED}{times[-1]}\n" not in text:
            return Repetitions((text,))
        return Repetitions(tuple(output.removesuffix("\n") for output in outputs[:-1]), tuple(map(float, times)))

    @property
    def text(self) -> str:
        """All outputs with their times as one text."""
        begun = zip(self.times[:-1], self.outputs, strict=True)
        return "".join(f"{BEGAN}{at:.3f}\n{output}\n" for at, output in begun) + f"{ENDED}{self.times[-1]:.3f}\n"

    @property
    def counting(self) -> str:
        """The output of the repetition that counts."""
        return self.outputs[COUNTS if self.times else 0]

    def counted(self, workload: Command[Any], case: str) -> Counted | None:
        """The part of the command's time that its figures cover; None: unknown.

        A program that starts anew between two repetitions counts as work: it uses the CPU, if for something else.
        """
        if not self.times:
            return workload.counted(case, self.outputs[0])
        parts = [part for output in self.outputs if (part := workload.counted(case, output)) is not None]
        if len(parts) < len(self.outputs):
            return None
        first, counting, last = parts[0], parts[COUNTS], parts[-1]
        # When the counted part of each repetition ended
        ends = [end - part.rest - part.after for end, part in zip(self.times[1:], parts, strict=True)]
        since, until = ends[0] - first.seconds - first.before, self.times[-1] - last.rest
        before = ends[COUNTS] - counting.seconds - since
        return Counted(counting.seconds, before, until - ends[COUNTS], last.rest)
