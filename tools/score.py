"""What a proof has tried, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Score:
    """Each check that fails is printed at once."""

    checks: int = 0
    wrong: list[str] = field(default_factory=list)

    def check(self, holds: bool, what: str) -> None:
        self.checks += 1
        if not holds:
            self.wrong.append(what)
            print(f"wrong: {what}", flush=True)
