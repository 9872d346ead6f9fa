"""Make the search path safe: no program is started from a directory where somebody else may put one."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

from vmtax.system.ownership import why_unsafe

DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def make_safe(environment: MutableMapping[str, str]) -> list[str]:
    """Remove unsafe parts from PATH; returns one line for each, with the reason.

    An empty or relative part means the current directory. For root, a part is also unsafe if another user can write in
    it, or in a directory above it.
    """
    kept, left_out = [], []
    for part in environment.get("PATH", DEFAULT).split(os.pathsep):
        if why := _unsafe(part):
            left_out.append(f"PATH: {part or 'an empty part'} is left out: {why}")
        else:
            kept.append(part)
    environment["PATH"] = os.pathsep.join(kept) or DEFAULT
    return left_out


def _unsafe(part: str) -> str:
    if not part.startswith("/"):
        return "it means the current directory" if part in ("", ".") else "it is relative to the current directory"
    if os.geteuid() != 0:
        return ""
    return why_unsafe(part, sticky=False)
