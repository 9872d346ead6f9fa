"""What a disk under test lies on: files, volumes, pools and file systems, made for the run and removed again.

Nothing that holds data is used without leave, and nothing is followed that another user could exchange.
"""

from vmtax.storage.backing import Backing, Fresh, Provisioner
from vmtax.storage.file import FirstWrite, NoSuchPlace, RawFile, StorageError, fill, fill_image, refuse_unsafe
from vmtax.storage.ground import DISK_DIRECTORY, Ground, Target

__all__ = [
    "DISK_DIRECTORY",
    "Backing",
    "FirstWrite",
    "Fresh",
    "Ground",
    "NoSuchPlace",
    "Provisioner",
    "RawFile",
    "StorageError",
    "Target",
    "fill",
    "fill_image",
    "refuse_unsafe",
]
