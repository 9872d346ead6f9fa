"""What a disk under test sits on. For now: a raw file."""

from vmtax.storage.file import INCOMPRESSIBLE, RAW_FILE, FirstWrite, RawFile, StorageError, fill

__all__ = ["INCOMPRESSIBLE", "RAW_FILE", "FirstWrite", "RawFile", "StorageError", "fill"]
