"""The address of a store as it is typed."""

from __future__ import annotations

import os
from pathlib import Path

from vmtax.store.address import RIGHT, STORE, Address, BadAddress, ServerAddress, address_of, default_address


def typed_address(text: str) -> Address:
    """What a command line names, which every user of this machine can read. Raises BadAddress,
    also for a password.
    """
    address = address_of(text)
    if isinstance(address, ServerAddress) and address.has_password:
        raise BadAddress(
            f"{address}: its password is on the command line, which others can read: put it into ~/.pgpass, or give the"
            f" whole address in {STORE}"
        )
    return address


def use_store(text: str) -> None:
    """Make it the store of this process, and of those that it starts."""
    if not text.strip():
        raise BadAddress(f"--store is empty, and needs an address: {RIGHT}")
    _keep(typed_address(text))


def pin_store() -> None:
    """Let processes that are started in other directories have the same store as this one."""
    _keep(default_address())


def _keep(address: Address) -> None:
    os.environ[STORE] = address.url if isinstance(address, ServerAddress) else str(Path(address).absolute())


def refuse_missing(address: Address) -> None:
    """Raises BadAddress for a file that is not there: it would be read as an empty store."""
    if isinstance(address, Path) and not address.is_file():
        raise BadAddress(f"{address}: there is no such store")
