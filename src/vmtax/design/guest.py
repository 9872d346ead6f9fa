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


USUAL = GuestSettings()  # every factor at its default
