"""Where the store is: a file, or a database of PostgreSQL. Light, because shell completion reads it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode

from vmtax.core.errors import BadInput
from vmtax.system.paths import data_home

STORE = "VMTAX_STORE"  # environment variable: the address of the store
RIGHT = "a file, or postgresql://USER@HOST/DATABASE"
SCHEMES = ("postgresql", "postgres")
SECRET = ("password", "sslpassword")  # parameters of libpq that are shown to nobody
_SERVER = r"(\[[^]/]*\]|[^]\[:@/?#,]*)(:\d*)?"
# As libpq reads it: a password may contain ?, # and @, and ends before the first slash.
FORM = re.compile(
    r"postgresql://((?P<user>[^:@/]*)(?P<secret>:[^/]*)?@)?"
    rf"(?P<hosts>{_SERVER}(,{_SERVER})*)(?P<path>(/[^?@]*)?)(\?(?P<query>.*))?",
    re.DOTALL,
)
WHERE = ("host", "port", "dbname", "service")  # parameters of libpq that say where the database is


class BadAddress(BadInput):
    """What is given is no address of a store."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A database of PostgreSQL."""

    url: str  # as libpq reads it, which may contain a password

    def __post_init__(self) -> None:
        """Raises BadAddress."""
        form = FORM.fullmatch(self.url)
        if form is None or not (form["path"].strip("/") or re.search("(dbname|service)=", form["query"] or "")):
            raise BadAddress(f"{self}: this names no database; right is {RIGHT}")

    def __str__(self) -> str:
        """Without a password, and without what does not say where it is."""
        form = FORM.fullmatch(self.url)
        if form is None:  # where its password begins and ends is unknown
            return "postgresql://…"
        at = "" if form["user"] is None else f"{form['user']}@"
        kept = [pair for pair in parse_qsl(form["query"] or "") if pair[0] in WHERE]
        query = f"?{urlencode(kept, safe='/', quote_via=quote)}" if kept else ""
        return f"postgresql://{at}{form['hosts']}{form['path']}{query}"

    @property
    def has_password(self) -> bool:
        form = FORM.fullmatch(self.url)
        return form is not None and (
            form["secret"] is not None or any(name in SECRET for name, _ in parse_qsl(form["query"] or ""))
        )


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
