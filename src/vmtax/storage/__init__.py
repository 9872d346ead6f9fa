"""The storage under a disk under test: files, volumes, pools and file systems, made for the run and removed again.

Nothing that holds data is used without permission, and no path is followed that another user could replace.
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
