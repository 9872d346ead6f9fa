"""The kinds of YAML files that people write and vmtax reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vmtax.plan.names import BUILTIN


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file, as messages name it."""

    name: str  # "plan"
    needs: str  # the keys that it must have, for people
    directory: Path  # where those are that come with vmtax, in it or in its folders; each file's name is a name
    as_printed: bool = False  # numbers stay text, with every digit that is written

    @property
    def refused(self) -> str:
        """The end of a message about a text that cannot be one."""
        return f"so it is not a {self.name}"

    @property
    def files(self) -> dict[str, Path]:
        """Name -> file of those that come with vmtax, sorted."""
        return {file.stem: file for file in sorted(self.directory.rglob("*.yaml"), key=lambda file: file.stem)}


PLAN = FileKind("plan", "`name` and `workloads`", BUILTIN)
