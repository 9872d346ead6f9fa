"""Find and remove what killed runs and builds left on this host. `found` changes nothing; `remove` deletes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vmtax.core.errors import CannotDo
from vmtax.core.units import format_value
from vmtax.experiment.live import live_directory
from vmtax.experiment.resume import image_of
from vmtax.image import cache, kernel, postgresql, recipe, windows, zfs
from vmtax.image.packs import Pack, PackKind
from vmtax.machine import guard, processes
from vmtax.machine.local import LocalMachine, state_directory
from vmtax.store import Store

SHELVES = {
    "image": cache.shelf,
    "ZFS pack": zfs.KIND.shelf,
    "kernel pack": kernel.KIND.shelf,
    "PostgreSQL pack": postgresql.KIND.shelf,
    "pack for Windows": windows.KIND.shelf,
}


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing that nothing needs any more."""

    what: str  # kind: "to be undone", "half-built image"
    text: str  # which one, and how large it is


def found(store: Store, *, images: bool) -> list[Leftover]:
    """Everything that `remove` would delete; `images`: also images of another recipe or version."""
    return [
        *_undo_lists(),
        *(Leftover(f"{how} {what}", str(path)) for how, what, _, path in _not_whole(store, images)),
        *(Leftover("state of a dead run", str(path)) for path in _dead(store)),
        *(Leftover("raw output of no trial", str(path)) for path in store.orphans()),
        *(Leftover("old image", f"{i.directory} ({format_value(i.bytes, 'B')})") for i in _old(store, images)),
        *(Leftover("useless pack", f"{p.path} ({format_value(p.bytes, 'B')})") for _, p in _useless(store, images)),
    ]


def remove(store: Store, *, images: bool) -> list[str]:
    """Remove it all; one line for each thing that could not be removed."""
    machine = LocalMachine()
    left = list(machine.guard.left)  # a guard undoes the lists of dead guards when it starts
    machine.close()
    for _, _, shelf, path in list(_not_whole(store, images)):
        try:
            shelf.remove(path)
        except cache.ImageError as error:
            left.append(str(error))
    for path in _dead(store):
        path.unlink(missing_ok=True)
    store.remove_orphans()
    for kind, pack in _useless(store, images):
        kind.remove(pack)
    for image in _old(store, images):
        cache.remove(image)
    return left + machine.left


def _not_whole(store: Store, images: bool) -> Iterator[tuple[str, str, cache.Shelf, Path]]:
    """Kind, name, shelf and path of each incomplete item; `images`: also damaged ones and those of another version of
    vmtax.
    """
    needed = _needed(store) if images else set()
    for what, made in SHELVES.items():
        shelf = made()
        unfinished = shelf.unfinished()
        for path in shelf.left():
            if path in unfinished:
                yield "half-made", what, shelf, path
            elif images and path.name not in needed:
                yield "unusable", what, shelf, path


def _undo_lists() -> Iterator[Leftover]:
    try:
        directory = guard.open_lists(str(state_directory()))
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotDo(f"{error.filename}: {error.strerror}") from error
    try:
        for name in sorted(os.listdir(directory)):  # noqa: PTH208 (`directory` is a descriptor)
            descriptor = guard.lock(name, directory) if name.endswith(".undo") else None
            if descriptor is None:
                continue  # its guard is alive, or it is no list of ours
            try:
                yield from _undo_list(name.removesuffix(".undo"), guard.text_of(descriptor))
            finally:
                os.close(descriptor)
    finally:
        os.close(directory)


def _undo_list(token: str, text: str) -> Iterator[Leftover]:
    if guard.is_outlived(text, token):
        return  # a lab that is running
    for entry in guard.due(text).values():
        yield Leftover("to be undone", _described(entry))
    for pid in processes.marked(token):
        yield Leftover("process", f"{pid}: {_command(pid)}")


def _described(entry: dict[str, object]) -> str:
    argv = entry.get("argv")
    return " ".join(map(str, argv)) if isinstance(argv, list) else f"remove {entry.get('remove')}"


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "ended just now"


def _dead(store: Store) -> list[Path]:
    """State files that no other process will replace or remove."""
    running = {entry.id for entry in store.experiments() if entry.state == "running"}
    return [path for path in sorted(live_directory().glob("*")) if path.name.partition(".")[0] not in running]


def _old(store: Store, wanted: bool) -> list[cache.Image]:
    """Images of another recipe, or made for a command, except those of runs that are in progress or can be resumed."""
    if not wanted:
        return []
    needed = _needed(store)
    return [image for image in cache.images() if image.recipe != recipe.key() and image.identity not in needed]


def _needed(store: Store) -> set[str | None]:
    """Images of runs that are in progress or can be resumed."""
    return {image_of(run) for run in store.load_all(lambda run: run.state != "complete")}


def _useless(store: Store, wanted: bool) -> list[tuple[PackKind, Pack]]:
    """Packs for images that will be removed, and other packs that no run uses any more."""
    if not wanted:
        return []
    old = _old(store, wanted)
    for_none = zfs.useless(image for image in cache.images() if image not in old)
    unused = [(one.kind, pack) for one in (kernel.PACK, postgresql.PACK, windows.PACK) for pack in one.useless()]
    return [*((zfs.KIND, pack) for pack in for_none), *unused]
