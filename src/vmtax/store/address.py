"""Where the store is: a file, or a database of PostgreSQL. Light, because shell completion reads it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from vmtax.core.errors import BadInput
from vmtax.system.paths import data_home

STORE = "VMTAX_STORE"  # environment variable: the address of the store
RIGHT = "a file, or postgresql://USER@HOST/DATABASE"
SCHEMES = ("postgresql", "postgres")
SECRET = ("password", "sslpassword")  # parameters of libpq that are shown to nobody
WHERE = ("host", "port", "dbname", "service")  # parameters of libpq that say where the database is


class BadAddress(BadInput):
    """What is given is no address of a store."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A database of PostgreSQL."""

    url: str  # as libpq reads it, which may contain a password

    def __post_init__(self) -> None:
        """Raises BadAddress."""
        try:
            parts = urlsplit(self.url)
            valid = parts.path.strip("/") or "dbname=" in parts.query or "service=" in parts.query
        except ValueError:
            valid = False
        if not valid:
            raise BadAddress(f"{self}: this names no database; right is {RIGHT}")

    def __str__(self) -> str:
        """Without a password, and without what does not say where it is."""
        try:
            parts = urlsplit(self.url)
            at = parts.netloc.rpartition("@")
            user = at[0].partition(":")[0]
            kept = urlencode([pair for pair in parse_qsl(parts.query) if pair[0] in WHERE], safe="/", quote_via=quote)
        except ValueError:
            return "postgresql://…"
        return f"postgresql://{user}{at[1]}{at[2]}{parts.path}" + (f"?{kept}" if kept else "")

    @property
    def has_password(self) -> bool:
        parts = urlsplit(self.url)
        secret = any(name in SECRET for name, _ in parse_qsl(parts.query))
        return secret or ":" in parts.netloc.rpartition("@")[0]


Address = Path | ServerAddress


def address_of(text: str) -> Address:
    """What a user gave. Raises BadAddress."""
    scheme, colon, _ = text.partition("://")
    if colon and scheme.lower() in SCHEMES:
        return ServerAddress(f"postgresql{text[len(scheme) :]}")
    if colon or re.match(r"postgres(ql)?[:+]", text):
        raise BadAddress(f"{_shown(text)}: is no address of a store; right is {RIGHT}")
    return Path(text)


def default_address() -> Address:
    """The address of this user's store. Raises NoPlace and BadAddress."""
    given = os.environ.get(STORE)
    return address_of(given) if given else data_home() / "vmtax.sqlite"


def _shown(text: str) -> str:
    """A wrong address without what may be a password."""
    scheme, colon, rest = text.partition("://")
    return f"{scheme}{colon}{rest.rpartition('@')[2].partition('?')[0]}" if colon else text.partition(":")[0] + ":…"
