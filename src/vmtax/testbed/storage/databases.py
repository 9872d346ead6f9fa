"""The PostgreSQL pack in the guests that write to a database of it, and in the one that checks what is left of that."""

from __future__ import annotations

from dataclasses import dataclass

from vmtax.hypervisor import Guest
from vmtax.image import postgresql
from vmtax.image.packs import Pack
from vmtax.image.place import place_pack
from vmtax.machine import Machine
from vmtax.plan.schema import Plan
from vmtax.testbed.host import needs
from vmtax.testbed.session.session import Session
from vmtax.workload.durability.postgresql import ROOT


@dataclass(frozen=True, slots=True)
class DatabasePack:
    """The PostgreSQL pack on one host."""

    pack: Pack
    file: str

    def mount(self, guest: Guest) -> None:
        """Where its programs are looked for, in a guest that has it as its last pack. Raises MachineError."""
        guest.machine.run("mkdir", "-p", ROOT)
        guest.machine.run("mount", "-t", "erofs", "-o", "ro", guest.spec.pack_devices[-1], ROOT)


def open_pack(session: Session, host: Machine, plan: Plan) -> DatabasePack | None:
    """The pack on that host, built if there is none; None if no database is written. Raises ImageError."""
    if not needs.databases(plan):
        return None
    pack = session.postgresql_pack or postgresql.PACK.ensure(session.emit)
    return DatabasePack(pack, place_pack(host, session.local, pack, session.emit))
