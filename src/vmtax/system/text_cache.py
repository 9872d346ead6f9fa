"""Texts that can be computed again, kept in this user's cache: each is valid for one state of what it is about."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path

from vmtax.core.errors import CannotDo
from vmtax.system.paths import cache_home, make_private, private

MOST_CHARACTERS = 2**24  # of a text that is read


@dataclass(frozen=True, slots=True)
class TextCache:
    """The texts of one kind. What cannot be read or written is as if it were not there."""

    kind: str  # name of their directory

    def read(self, name: str, state: str) -> str | None:
        """The text about what has that name, as it was kept for exactly this state; None: there is none."""
        try:
            with self._path(name).open(encoding="utf-8") as stream:
                head, _, text = stream.read(MOST_CHARACTERS).partition("\n")
        except (CannotDo, OSError, ValueError):
            return None
        return text if head == _digest(state) else None

    def write(self, name: str, state: str, text: str) -> None:
        with contextlib.suppress(CannotDo, OSError):
            path = self._path(name)
            make_private(path.parent)
            new = path.with_name(f".{secrets.token_hex(16)}")
            # Not flushed: what a power cut damages does not fit its state, or is not read
            with open(new, "w", encoding="utf-8", opener=private) as stream:
                stream.write(f"{_digest(state)}\n{text}")
            new.replace(path)

    def remove(self, name: str) -> None:
        with contextlib.suppress(CannotDo, OSError):
            self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return cache_home() / self.kind / _digest(name)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
