"""Archives for `vmtax image import`, made from a small one that `image export` wrote: members, list and bytes changed.

Whatever they are, nothing may come to lie outside the image's directory, no device and no setuid program within, and
what was refused leaves nothing. Most are imported with `--yes`, as by somebody who trusts everything.
"""

from __future__ import annotations

import copy
import functools
import io
import os
import random
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from unittest.mock import patch

from tools.hostile.case import Case, complaints, environment, forked
from vmtax.image import cache, contents, place, recipe

TITLE = "image archives"
BOMB = 300 * 2**20  # bytes
DEEP = 1800
FUZZED = 200  # archives with a few random bytes changed
FILES = ("contents", "root.erofs", "manifest", "tree", "tree/usr/program", "tree/link")
NAMES = (
    *("..", "/etc/vmtax-hostile", "../victim", "tree/../../victim", "./root.erofs", "tree//x", "x" * 255, "a/" * 120),
    *("\x1b]0;title\x07", "tree/new\nline", "tree/\udcff", "checked", "image.json", "tree/usr/program/below"),
)
MODES = (0o6755, 0o4755, 0o2755, 0o1777, 0o777, 0o666, 0, 0o7777777)
KINDS = {
    "zeros": (tarfile.SYMTYPE, "/dev/zero"),
    "file of the host": (tarfile.SYMTYPE, "/etc/hostname"),
    "hard link": (tarfile.LNKTYPE, "root.erofs"),
    "hard link out": (tarfile.LNKTYPE, "/etc/hostname"),
    "character device": (tarfile.CHRTYPE, ""),
    "block device": (tarfile.BLKTYPE, ""),
    "pipe": (tarfile.FIFOTYPE, ""),
    "directory": (tarfile.DIRTYPE, ""),
    "contiguous file": (tarfile.CONTTYPE, ""),
    "sparse file": (tarfile.GNUTYPE_SPARSE, ""),
    "long name": (tarfile.GNUTYPE_LONGNAME, ""),
    "extended header": (tarfile.XHDTYPE, ""),
    "global header": (tarfile.XGLTYPE, ""),
    "volume label": (b"V", ""),
}
SPECIAL = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
HASH = "a" * 64

ZEROS = b"zeros"  # stands for BOMB zeros

Pieces = list[tuple[tarfile.TarInfo, bytes]]


def cases(source: random.Random, home: Path, share: float) -> Iterator[Case]:
    good = exported(home)
    pieces = _pieces(good)
    at = functools.partial(_case, home)
    yield at("what `image export` wrote", lambda: good, codes=(0,))
    yield at("another digest demanded", lambda: good, options=("--sha256", HASH))
    yield from (at(name, make) for name, make in _named(pieces))
    yield from _places(home)
    made = [*_members(pieces), *_lists(pieces)]
    source.shuffle(made)
    yield from (at(name, make) for name, make in made[: max(1, round(share * len(made)))])
    for number in range(max(1, round(share * FUZZED))):
        seed = source.getrandbits(64)
        yield at(f"random bytes, number {number}", functools.partial(_fuzzed, good, seed), codes=(0, 2))


def exported(home: Path) -> bytes:
    """A small image as vmtax itself writes it."""
    file = home / "good.tar.zst"
    with patch.dict(os.environ, environment(home), clear=True):
        with cache.shelf().workshop() as (_, work):
            (work / "tree/usr").mkdir(parents=True)
            (work / "tree/usr/program").write_text("#!/bin/sh\n")
            (work / "tree/usr/program").chmod(0o755)
            (work / "tree/link").symlink_to("usr/program")
            for name in contents.FILES:
                (work / name).write_text(f"{name} 1\n")
            for path in work.rglob("*"):
                if not path.is_symlink():
                    path.chmod(0o755 if path.is_dir() or path.name == "program" else 0o644)
            work.chmod(0o755)
            cache.describe(work, kernel="6.12", recipe_key=recipe.key())
            image = cache.install(work)
        place.export(image, file)
        cache.remove(image)
    return file.read_bytes()


def _case(
    home: Path,
    name: str,
    make: Callable[[], bytes],
    codes: tuple[int, ...] = (2,),
    options: tuple[str, ...] = ("--yes",),
) -> Case:
    def tried() -> Iterator[str]:
        file = home / "image.tar.zst"
        file.write_bytes(make())
        yield from _import(home, *options, str(file), codes=codes)

    return Case(name, tried)


def _import(home: Path, *words: str, codes: tuple[int, ...]) -> Iterator[str]:
    victim = home / "victim"
    victim.write_text("as it was")
    images = home / ".cache/vmtax/images"
    result = forked("image", "import", *words, home=home)
    yield from complaints(result, codes)
    if result.code and result.stderr.count(b"\n") > 1 + ("--yes" in words):
        yield f"more than the reason: {result.error!r}"
    if victim.read_text() != "as it was" or Path("/etc/vmtax-hostile").exists():
        yield "something outside was changed"
    yield from _odd(images)
    left = [path.name for path in images.glob("*") if path.name != ".lock"]
    if left and result.code != 0:
        yield f"left in the cache: {left}"
    listed = forked("image", "list", home=home)
    yield from complaints(listed, (0,))
    if (listed.stdout.count(b"\n") == 1) != (result.code == 0):
        yield f"image list afterwards: {listed.stdout!r}"
    shutil.rmtree(images, ignore_errors=True)


def _odd(directory: Path) -> Iterator[str]:
    """What no image may hold."""
    for path in directory.rglob("*"):
        mode = path.lstat().st_mode
        plain = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
        if not (plain and not mode & 0o7022) and not stat.S_ISLNK(mode):
            yield f"{path.name!a} has the mode {mode:o}"


def _pieces(archive: bytes) -> Pieces:
    plain = subprocess.run(["zstd", "-dc"], input=archive, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        return [(info, file.read() if (file := tar.extractfile(info)) and info.isreg() else b"") for info in tar]


def _packed(pieces: Iterable[tuple[tarfile.TarInfo, bytes]], *, tail: bytes = b"") -> bytes:
    """Headers as they are, whatever they say, each followed by its data; compressed, in as many frames as need be."""
    packed, plain = b"", bytearray()
    for info, data in (*pieces, (None, tail)):
        plain += info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape") if info else bytes(1024)
        if data is ZEROS:
            packed += _compressed(bytes(plain)) + _zeros()
            plain.clear()
        else:
            plain += data + b"\0" * (-len(data) % 512)
    return packed + _compressed(bytes(plain))


@functools.cache
def _zeros() -> bytes:
    return _compressed(bytes(BOMB))


def _compressed(plain: bytes) -> bytes:
    return subprocess.run(["zstd", "-qc1"], input=plain, stdout=subprocess.PIPE, check=True).stdout


def _info(
    name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, mode: int = 0o644, link: str = ""
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mode, info.linkname = kind, size, mode, link
    info.devmajor, info.devminor = 1, 5
    return info


def _with(pieces: Pieces, name: str, /, **changes: object) -> Pieces:
    """With other fields in that member's header."""
    made = []
    for info, data in pieces:
        other = copy.copy(info)
        for field, value in changes.items() if info.name == name else ():
            setattr(other, field, value)
        made.append((other, data))
    return made


def _with_data(pieces: Pieces, name: str, data: bytes) -> Pieces:
    """With something else behind that member's header."""
    return [(info, data if info.name == name else own) for info, own in pieces]


def _listing(pieces: Pieces, text: bytes, more: Pieces | None = None) -> bytes:
    """With that list, and other members behind it."""
    rest = pieces[1:] if more is None else more
    return _packed([(_info(contents.NAME, size=len(text)), text), *rest])


def _honest(pieces: Pieces, members: list[contents.Member]) -> bytes:
    """A list of these members, and the members themselves: an archive that is what it says."""
    known = {info.name: data for info, data in pieces}
    types = {"d": tarfile.DIRTYPE, "l": tarfile.SYMTYPE}
    rest = [
        (
            _info(m.path, types.get(m.kind, tarfile.REGTYPE), m.size, contents.MODES.get(m.kind, 0o644), m.what[:100]),
            known.get(m.path, b"") if m.kind in "fx" else b"",
        )
        for m in members
    ]
    return _listing(pieces, contents.parse(pieces[0][1])._replace(members=tuple(members)).text(), rest)


def _named(pieces: Pieces) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """What was accepted, or was endless, or took all memory or disk, at some time."""
    first = pieces[0][0].name
    for name in ("root.erofs", first):
        for kind in ("zeros", "file of the host", "character device", "pipe"):
            yield f"{name} as {kind}", functools.partial(_as, pieces, name, kind)
    yield "100,000 brackets", lambda: _packed(_with_data(_with(pieces, first, size=100_000), first, b"[" * 100_000))
    yield (
        "image.json first",
        lambda: _packed([(_info("image.json", size=100_000), b"[" * 100_000), *pieces]),
    )
    for kind, mode in ((tarfile.BLKTYPE, 0o600), (tarfile.CHRTYPE, 0o600), (tarfile.REGTYPE, 0o6755)):
        extra = _info("tree/zz", kind, mode=mode)
        yield f"tree/zz as {extra.type!r}, {mode:o}", functools.partial(_packed, [*pieces, (extra, b"")])
    yield "absolute name", lambda: _packed([*pieces, (_info("/etc/vmtax-hostile", size=1), b"x")])
    yield "a deep tree", lambda: _honest(pieces, _deep(pieces))
    yield (
        "a terminal's escape sequence as the kernel",
        lambda: _listing(pieces, pieces[0][1].replace(b"kernel 6.12", b"kernel \x1b]0;PWNED\x07\x1b[2J")),
    )
    yield "zeros behind its end", lambda: _packed(pieces, tail=ZEROS)
    for name, kind in (("zeros", tarfile.REGTYPE), ("a", tarfile.XHDTYPE), ("a", tarfile.GNUTYPE_LONGNAME)):
        bomb = (_info(name, kind, BOMB), ZEROS)
        yield f"zeros as {kind!r} before", functools.partial(_packed, [bomb, *pieces])
        yield f"zeros as {kind!r} in between", functools.partial(_packed, [*pieces[:2], bomb, *pieces[2:]])
    yield "a list of zeros", lambda: _packed([(_info(contents.NAME, size=BOMB), ZEROS), *pieces[1:]])
    yield (
        "zeros as it says",
        lambda: _honest(
            _with_data(pieces, "root.erofs", ZEROS),
            [m._replace(size=BOMB) if m.path == "root.erofs" else m for m in _members_of(pieces)],
        ),
    )


def _places(home: Path) -> Iterator[Case]:
    """What is named is no file; none of it is opened and waited for."""

    def tried(path: str) -> Iterator[str]:
        os.mkfifo(home / "pipe")
        (home / "loop").symlink_to("loop")
        yield from _import(home, path, codes=(2,))
        (home / "pipe").unlink()
        (home / "loop").unlink()

    names = ("pipe", "loop", ".", "nosuch", "nosuch;id", "", "/dev/zero", "\x1b[2J", "x" * 300)
    yield from (Case(f"image import {name!r}", functools.partial(tried, name)) for name in names)


def _as(pieces: Pieces, name: str, kind: str) -> bytes:
    """With that member as something else, as tar would write it: only some kinds have contents."""
    type_, link = KINDS[kind]
    changed = _with(pieces, name, type=type_, linkname=link, devmajor=1, devminor=5)
    if type_ in (*SPECIAL, tarfile.DIRTYPE):
        changed = _with_data(_with(changed, name, size=0), name, b"")
    return _packed(changed)


def _members(pieces: Pieces) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Other members than the list has."""
    for name in FILES:
        (own,) = (info for info, _ in pieces if info.name == name)
        for kind, (type_, _) in KINDS.items():
            if type_ != own.type:
                yield f"{name} as {kind}", functools.partial(_as, pieces, name, kind)
        for mode in MODES:
            if not own.issym() and name != contents.NAME:
                changed = _with(pieces, name, mode=mode)
                yield f"{name} with mode {mode:o}", functools.partial(_packed, changed)
        for other in NAMES:
            yield f"{name} as {other!a}", functools.partial(_packed, _with(pieces, name, name=other))
        for size in (own.size + 1, 2**33, 2**60):
            yield f"{name} with size {size}", functools.partial(_packed, _with(pieces, name, size=size))
        yield f"without {name}", functools.partial(_packed, [piece for piece in pieces if piece[0].name != name])
        yield f"{name} twice", functools.partial(_packed, [*pieces, *(p for p in pieces if p[0].name == name)])
        if own.size:
            yield f"{name}, its last byte", functools.partial(_last_byte, pieces, name)
    for other in NAMES:
        for kind, (type_, link) in KINDS.items():
            extra = (_info(other, type_, link=link), b"")
            yield f"{kind} {other!a} too", functools.partial(_packed, [*pieces, extra])
    yield "backwards", lambda: _packed(pieces[::-1])
    yield (
        "a link, then a file through it",
        lambda: _packed(
            [*pieces, (_info("tree/zz", tarfile.SYMTYPE, link="/etc"), b""), (_info("tree/zz/vmtax-hostile"), b"")]
        ),
    )
    yield "nothing", bytes
    yield "no compression", lambda: _packed(pieces)[4:]
    yield "twice compressed", lambda: _compressed(_packed(pieces))
    for part in (10, 50, 90, 99):
        yield f"{part} % of it", functools.partial(_cut, _packed(pieces), part)


def _last_byte(pieces: Pieces, name: str) -> bytes:
    (data,) = (data for info, data in pieces if info.name == name)
    return _packed(_with_data(pieces, name, data[:-1] + b"\x07"))


def _cut(data: bytes, percent: int) -> bytes:
    return data[: len(data) * percent // 100]


def _members_of(pieces: Pieces) -> list[contents.Member]:
    return list(contents.parse(pieces[0][1]).members)


def _deep(pieces: Pieces) -> list[contents.Member]:
    deep = [contents.Member("d", 0, "", "tree" + "/a" * depth) for depth in range(1, DEEP)]
    members = _members_of(pieces)
    return sorted([*members, *deep], key=lambda member: member.path.split("/"))


def _lists(pieces: Pieces) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Other lists, where possible with the members that they have."""
    text, members = pieces[0][1], _members_of(pieces)
    for path in (*NAMES, "tree/link/x", "tree/usr/program/x", "zz", "nosuch/x", "tree/a\tb", "tree/" + "b" * 300):
        for kind, what in (("f", HASH), ("d", ""), ("l", "/etc")):
            made = sorted([*members, contents.Member(kind, 0, what, path)], key=lambda m: m.path.split("/"))
            yield f"lists {kind} {path!a}", functools.partial(_honest_or_not, pieces, made)
    for kind in "cbpshXD0":
        made = [*members, contents.Member(kind, 0, "", "tree/zz")]
        yield f"lists kind {kind}", functools.partial(_honest_or_not, pieces, made)
    for number in range(len(members)):
        rest = members[:number] + members[number + 1 :]
        path = members[number].path
        if path in contents.TOP:
            yield f"list without {path}", functools.partial(_honest, pieces, rest)
        yield f"lists {path} twice", functools.partial(_honest, pieces, [*members, members[number]])
    for kind, what in (("l", "/dev/zero"), ("d", ""), ("x", HASH)):
        made = [m._replace(kind=kind, size=0, what=what) if m.path == "root.erofs" else m for m in members]
        yield f"lists root.erofs as {kind}", functools.partial(_honest, pieces, made)
    for what in (HASH, "", "A" * 64, "a" * 63, "../" * 30):
        made = [m._replace(what=what) if m.path == "root.erofs" else m for m in members]
        yield f"lists root.erofs as {what!r}", functools.partial(_honest, pieces, made)
    for size in (1, 2**33, 10**12, 10**30):
        made = [m._replace(size=size) if m.path == "root.erofs" else m for m in members]
        yield f"lists root.erofs with {size}", functools.partial(_listing, pieces, _text(pieces, made))
    for head in (b"vmtax-image 2", b"VMTAX-IMAGE 1", b"\xef\xbb\xbfvmtax-image 1", b"{", b""):
        yield f"begins with {head!r}", functools.partial(_listing, pieces, text.replace(b"vmtax-image 1", head))
    for field in (b"recipe ", b"kernel ", b"packages "):
        for value in (b"", b"../../x", b"\x1b[2J", b"9" * 5000, b"-1", b"\xff", b"a b", b"\0"):
            altered = text.replace(field, field + value + b" ")
            yield f"{field!r} with {value[:9]!r}", functools.partial(_listing, pieces, altered)
    yield "list without its last newline", lambda: _listing(pieces, text[:-1])
    yield "list with CRLF", lambda: _listing(pieces, text.replace(b"\n", b"\r\n"))
    yield "list in UTF-16", lambda: _listing(pieces, text.decode().encode("utf-16"))
    yield "a list of newlines", lambda: _listing(pieces, text + b"\n" * 10**7)
    yield "a line of 15 MB", lambda: _listing(pieces, text + b"f\t0\t" + b"a" * 15_000_000 + b"\ttree/zz\n")
    yield "a million members", lambda: _listing(pieces, text + b"d\t0\t\ttree/zz\n" * 10**6)
    yield (
        "99,000 members that do not come",
        lambda: _listing(pieces, text + b"".join(b"d\t0\t\ttree/zz%05d\n" % number for number in range(99_000))),
    )


def _text(pieces: Pieces, members: list[contents.Member]) -> bytes:
    return contents.parse(pieces[0][1])._replace(members=tuple(members)).text()


def _honest_or_not(pieces: Pieces, members: list[contents.Member]) -> bytes:
    """Some names are too long for a header, or no text: then the list alone has them."""
    try:
        return _honest(pieces, members)
    except (UnicodeEncodeError, ValueError):
        text = contents.lines([]) + pieces[0][1]
        return _listing(pieces, text + members[-1].path.encode(errors="surrogateescape") + b"\n")


def _fuzzed(good: bytes, seed: int) -> bytes:
    """Some bytes changed, before or after compression."""
    source = random.Random(seed)
    compressed = source.random() < 0.2
    data = bytearray(good if compressed else subprocess.run(["zstd", "-dc"], input=good, stdout=-1, check=True).stdout)
    for _ in range(source.choice((1, 1, 2, 5))):
        how, place_ = source.randrange(3), source.randrange(len(data))
        if how == 0:
            data[place_] = source.randrange(256)
        elif how == 1:
            del data[place_ : place_ + source.choice((1, 100, 512))]
        else:
            data[place_:place_] = source.randbytes(source.choice((1, 100, 512)))
    return bytes(data) if compressed else _compressed(bytes(data))
