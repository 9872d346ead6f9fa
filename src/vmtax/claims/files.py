"""The claims that come with vmtax, by name; imports little, for completion."""

from __future__ import annotations

from pathlib import Path

from vmtax.plan.kinds import FileKind

CLAIM = FileKind("claim", "`source`, `year` and `tables` or `rows`", Path(__file__).parent / "tables", as_printed=True)
ARTICLES = "articles"  # the folder of those whose experiment vmtax repeats


def builtin_claims() -> list[str]:
    """The names of the claims that come with vmtax, sorted."""
    return list(CLAIM.files)


def articles() -> list[str]:
    """The names of those whose experiment vmtax repeats, sorted."""
    return [name for name, file in CLAIM.files.items() if file.parent.name == ARTICLES]
