"""What a disk under test sits on. For now: a raw file."""

from vmtax.storage.file import RawFile, fill

__all__ = ["RawFile", "fill"]
