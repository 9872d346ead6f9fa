"""What a fake machine grants and refuses."""

from __future__ import annotations

import json

from tests.fake_machine import Argv
from vmtax.core.records import Json
from vmtax.machine.rights import source

ALL = ("kvm", "tun", "mount", "loop", "caches", "directory", "programs", "ssh", "command")
NO_KVM = ("open", "ENOENT", "No such file or directory")
ROOT = {"user": 0, "capabilities": 2**41 - 1, "system": "ID=debian\n"}


def asked(argv: Argv) -> bool:
    """Whether that command tries what we may do."""
    return source() in argv


def answer(around: Json | None = None, **refused: tuple[str, str, str]) -> str:
    """What is printed where all is granted but what is named: the step that failed, the kernel's reason, its words."""
    tries: Json = {name: {"ok": True} for name in ALL}
    for name, failure in refused.items():
        tries[name] = {"ok": False, **dict(zip(("step", "errno", "words"), failure, strict=True))}
    return json.dumps({"tries": tries, "around": ROOT | (around or {})})
