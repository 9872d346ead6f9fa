"""The failures of a store. Each is one line: what is wrong, where, and what to do."""

from __future__ import annotations

from vmtax.core.errors import BAD_INPUT, CannotDo


class StoreError(CannotDo):
    """One line: what is wrong, where, and what to do about it."""


class NoSuchRun(StoreError):
    """No run has that name, or several runs begin with it."""

    exit_code = BAD_INPUT


class NoneFits(StoreError):
    """There are runs, but none that a command can use."""


class AlreadyStored(StoreError):
    """A run that is to be added is in the store already."""

    exit_code = BAD_INPUT


class DamagedRun(StoreError):
    """A cell of the run has an impossible value; other runs are not affected."""
