"""A guest apart from its disks and networks. Each field is a factor of plans. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from vmtax.design.settings import Option, Settings, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestSettings(Settings):
    """What a treatment says of its guest."""

    mitigations: str = setting(
        "cpu.mitigations",
        ("auto", "off"),
        str,
        "the guest kernel's defences against speculation attacks (mitigations= on its command line)",
        scope="guest",
        options={"kernel": Option("mitigations", {"off": "off"})},
    )
    count: int = setting(
        "guest.count",
        ("1", "2", "3", "4", "6", "8", "12", "16"),
        int,
        "how many guests of one kind do the same work at the same time, each with a disk and an address of its own;"
        " their rates are added up. Nested guests share one outer VM that has the CPUs and the memory of all of them",
        scope="guest",
    )


DEFAULT = GuestSettings()  # every factor at its default
