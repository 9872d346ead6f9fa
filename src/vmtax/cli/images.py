"""What the commands `vmtax image` do with images that exist; `packs` builds them."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from vmtax.cli.app import BadUse, agree, answer, say, warn
from vmtax.cli.files import refuse_stdout
from vmtax.cli.userlands import USERLANDS
from vmtax.core.units import format_value
from vmtax.experiment.cleanup import SHELVES
from vmtax.experiment.resume import image_of
from vmtax.image import cache, place, recipe, zfs
from vmtax.image.cache import ImageError
from vmtax.report.answers.others import StoredImage
from vmtax.store import Store


def list_images(*, json: bool) -> None:
    """Also packs, and what is half made."""
    if json:
        answer("images", list(_stored()))
        return
    for image in cache.images():
        mark = _mark(image.recipe)
        size = format_value(image.bytes, "B")
        say(f"{image.identity}  kernel {image.kernel}  {image.packages} packages  {size}  {mark}")
    packs = zfs.KIND.all()
    useless = zfs.useless(cache.images())
    for pack in packs:
        mark = "for no image here" if pack in useless else "for an image here"
        say(f"ZFS {pack.version}  kernel {pack.kernel}  {format_value(pack.bytes, 'B')}  {mark}")
    for what, userland in USERLANDS.items():
        for pack in userland.kind.all():
            mark = "of another version of vmtax" if pack in userland.useless() else "current"
            say(f"{what} {pack.version}  {format_value(pack.bytes, 'B')}  {mark}")
    for path in _left():
        say(f"{path.name}  half made, damaged, or of another version of vmtax: `vmtax image remove {path.name}`")


def _mark(key: str) -> str:
    """What an image with that key is for."""
    if key == recipe.key():
        return "current"
    return "for a command" if recipe.is_ours(key) else "of another version of vmtax"


def _left() -> list[Path]:
    """Incomplete images and packs."""
    return [path for shelf in SHELVES.values() for path in shelf().left()]


def _stored() -> Iterator[StoredImage]:
    """The answer of `image list`, as data."""
    for image in cache.images():
        at, usable = str(image.directory), recipe.is_ours(image.recipe)
        yield StoredImage("image", image.identity, at, usable, image.kernel, image.bytes, image.packages)
    for_none = zfs.useless(cache.images())
    for pack in zfs.KIND.all():
        yield StoredImage("ZFS pack", pack.version, str(pack.path), pack not in for_none, pack.kernel, pack.bytes, None)
    for what, userland in USERLANDS.items():
        useless = userland.useless()
        for pack in userland.kind.all():
            yield StoredImage(what, pack.version, str(pack.path), pack not in useless, None, pack.bytes, None)
    for path in _left():
        yield StoredImage("not whole", path.name, str(path), False, None, None, None)


def remove(identity: str) -> None:
    """Refuses an image that a run uses."""
    for shelf in (shelf() for shelf in SHELVES.values()):
        for path in shelf.half_made():
            if path.name == identity:
                _refuse_used(identity)
                shelf.remove(path)
                say(f"removed {identity}")
                return
    image = cache.find(identity)
    _refuse_used(image.identity)
    cache.remove(image)
    say(f"removed {image.identity}")
    for pack in zfs.useless(cache.images()):
        zfs.KIND.remove(pack)
        say(f"removed ZFS {pack.version} for kernel {pack.kernel}")


def _refuse_used(identity: str) -> None:
    with Store(reads=True) as store:
        for run in store.load_all(lambda entry: entry.state == "running"):
            if image_of(run) == identity:
                raise ImageError(f"{identity} is used by run {run.id}: `vmtax watch {run.id}` shows the time left")


def export(file: Path, identity: str) -> None:
    """Say how it is imported, too."""
    refuse_stdout(file)
    image = cache.find(identity) if identity else cache.current()
    if image is None:
        raise cache.ImageError("there is no image yet: vmtax image build")
    place.export(image, file)
    say(f"{image.identity}  {file}")
    say(f"to import it: vmtax image import --sha256 {image.digest} {shlex.quote(file.name)}")


def import_(file: Path, sha256: str | None, *, yes: bool) -> None:
    """Ask whether its digest is the right one, unless that is given."""
    if sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise BadUse(f"--sha256 {sha256}: must be 64 digits of 0-9 and a-f, as `vmtax image export` printed them")

    def accept(digest: str) -> None:
        if sha256 is None:
            rights = "as root" if os.geteuid() == 0 else "with your rights"
            warn(f"{file}: its programs will run here {rights}; `vmtax image export` must have printed {digest}")
            if not yes and not sys.stdin.isatty():
                raise BadUse(
                    "there is no terminal to compare the digest on: add --sha256 DIGEST, or --yes to trust the file"
                )
            agree(yes, "Is that the digest? [y/N]")
        elif digest != sha256:
            raise BadUse(f"{file}: has the digest {digest}, not {sha256}: it is another image, or it was changed")

    image = place.import_(file, accept)
    say(f"{image.identity}  {image.directory}")
