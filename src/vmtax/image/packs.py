"""Packs: erofs files with parts that only some runs need besides the root image, built once and cached."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from vmtax.core.events import Event, Step
from vmtax.core.units import format_room
from vmtax.image import build as root_image
from vmtax.image import cache, contents, recipe
from vmtax.image.cache import ImageError, Shelf
from vmtax.image.contents import ContentsError
from vmtax.machine import CommandFailed
from vmtax.machine.local import LocalMachine
from vmtax.system.paths import cache_home

Emit = Callable[[Event], None]
INFO = "pack.json"
LARGEST_INFO = 10_000  # bytes; usually 200
PLAIN = re.compile(r"[!-~]{1,64}")  # a kernel release, or the version of a package
EROFS = "pack.erofs"
ANY = "any"  # value of `Pack.kernel` for a pack without modules
TOOLS = ("mmdebstrap", "unshare", "mkfs.erofs")
ARCHIVE = "http://deb.debian.org/debian"  # mmdebstrap's default
REACH = (
    *("/usr/lib/apt/apt-helper", "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=10"),
    *("-o", "Acquire::https::Timeout=10", "download-file"),
)
REACH_SECONDS = 60.0
UNREACHABLE = (
    r"Could not resolve|Temporary failure resolving|[Cc]ould not connect|Unable to connect|[Cc]onnection (refused|"
    r"timed out|failed)|Network is unreachable|Failed to fetch",
    "the package archive cannot be reached; it is needed this once: try again when it can",
)
FULL = r"No space left on device|don't have enough free space"


@dataclass(frozen=True, slots=True)
class Pack:
    """One complete pack on this host."""

    path: Path  # the erofs file
    kernel: str  # release of the kernel that it is for; ANY: it has no modules
    version: str  # Debian's version of its main package: "2.3.2-2"
    key: str  # identifies its recipe
    bytes: int  # of the erofs file
    digest: str  # of the erofs file, sha256


@dataclass(frozen=True, slots=True)
class PackKind:
    """What packs of one kind have in common: where they are stored, and how they are built."""

    directory: str  # in the cache
    what: str  # "the ZFS pack"
    command: str  # builds one: "vmtax image zfs"
    room: int  # bytes that a build needs temporarily
    failures: tuple[tuple[str, str], ...] = ()  # message of mmdebstrap -> what is wrong, and what to do

    @property
    def building(self) -> str:
        """Title of the step that builds it."""
        return f"building {self.what}"

    @property
    def no_room(self) -> str:
        return f"about {format_room(self.room)} are needed; set XDG_CACHE_HOME to a directory on a larger file system"

    @property
    def home(self) -> Path:
        return cache_home() / self.directory

    def shelf(self) -> Shelf:
        """The shelf of these packs."""
        return Shelf(self.home, _is_whole)

    def all(self) -> list[Pack]:
        """All complete packs, by kernel."""
        found = []
        for path in self.shelf().entries():
            with contextlib.suppress(ImageError):
                found.append(read(path))
        return sorted(found, key=lambda pack: (pack.kernel, pack.key))

    def find(self, key: str, kernel: str) -> Pack | None:
        """The pack with that key for that kernel, verified; None if there is none.

        A damaged one raises ImageError: it is neither silently used, nor silently rebuilt for minutes.
        """
        pack = next((pack for pack in self.all() if pack.key == key and pack.kernel == kernel), None)
        if pack is None:
            return None
        cure = f"`{self.command} --again` builds it anew"
        try:
            # The description has the digest, and who can write to the shelf can put another pack there.
            for path in (self.home, pack.path.parent, pack.path.parent / INFO, pack.path):
                contents.check_owner(str(path), path.lstat())
            actual = contents.digest(str(pack.path))
        except OSError as error:
            raise ImageError(f"{pack.path}: {error.strerror}; {cure}") from error
        except ContentsError as error:
            raise ImageError(f"{error}; {cure}") from error
        if actual != pack.digest:
            raise ImageError(f"{pack.path}: damaged (its digest is not the one of the build); {cure}")
        return pack

    def remove(self, pack: Pack) -> None:
        """Raises ImageError if it cannot be removed."""
        self.shelf().remove(pack.path.parent)

    def refuse(self) -> None:
        """Raises ImageError if none can be built here, as far as can be checked beforehand."""
        if os.geteuid() != 0:
            raise ImageError(f"{self.building} needs root: sudo {self.command}")
        root_image.need_tools(TOOLS)
        present = next(parent for parent in (self.home, *self.home.parents) if parent.is_dir())
        if (free := shutil.disk_usage(present).free) < self.room:
            raise ImageError(f"{self.building}: {self.home}: {format_room(free)} free; {self.no_room}")

    def refuse_offline(self) -> None:
        """Raises ImageError if the package archive cannot be reached; checked with apt, as a build uses it."""
        with tempfile.TemporaryDirectory() as directory:
            argv = (*REACH, f"{ARCHIVE}/dists/{recipe.SUITE}/InRelease", f"{directory}/InRelease")
            try:
                asked = subprocess.run(
                    argv,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=REACH_SECONDS,
                )
            except FileNotFoundError:
                return  # this is not Debian's apt: the build will find out
            except subprocess.TimeoutExpired:
                raise ImageError(f"{self.building}: no answer; {UNREACHABLE[1]}") from None
        if asked.returncode:
            why = next((line for line in asked.stderr.splitlines() if line.startswith("E: ")), "E: no answer")
            raise ImageError(f"{self.building}: {why.removeprefix('E: ')}; {UNREACHABLE[1]}")

    def build(
        self, emit: Emit, current: Callable[[], Pack | None], make: Callable[[LocalMachine, Path], Pack], *, again: bool
    ) -> Pack:
        """Build a pack with `make`, in the directory that it is given, and store it; if `current` finds one, nothing is
        built.

        `again`: build even then
        """
        self.refuse()
        emit(Step(self.building, "waiting for another build to end" if self.shelf().is_locked() else "starting", 0.0))
        with self.shelf().workshop() as (keeper, work):
            if not again and (pack := current()) is not None:
                return pack
            try:
                return self._keep(make(keeper, work))
            except OSError as error:
                cure = f"; {self.no_room}" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
                raise ImageError(f"{self.building}: {error.filename or work}: {error.strerror}{cure}") from error
            except CommandFailed as error:
                raise ImageError(f"{self.building}: {error}") from error

    def _keep(self, pack: Pack) -> Pack:
        """Move it to its place in one step."""
        made = pack.path.parent
        # Written last, because it makes a pack complete.
        (made / INFO).write_text(json.dumps({name: value for name, value in asdict(pack).items() if name != "path"}))
        target = self.home / pack.key
        if target.exists():
            (target / INFO).unlink(missing_ok=True)
            cache.remove_tree(target)
        os.sync()
        made.rename(target)
        return read(target)

    def bootstrap(
        self,
        options: Sequence[str],
        environment: Mapping[str, str],
        report: Callable[[str], None],
    ) -> None:
        """Run mmdebstrap; `report` gets each line of its output. Raises ImageError with its last lines."""
        words: list[str] = []
        argv = [*root_image.MMDEBSTRAP, *options]
        with subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, cwd="/"
        ) as process:
            try:
                for line in root_image.spoken(process):
                    words = [*words[-60:], line]
                    report(line)
            except BaseException:
                process.terminate()
                raise
        if process.returncode != 0:
            raise ImageError(self.failure(words, process.returncode))

    def debian(
        self,
        keeper: LocalMachine,
        work: Path,
        packages: Sequence[str],
        stages: Sequence[tuple[str, float]],
        emit: Emit,
        *options: str,
        **environment: str,
    ) -> Path:
        """A root directory in `work` with these Debian packages and their dependencies. Raises ImageError.

        stages: message of mmdebstrap -> share of the whole that is done then
        options, environment: additional ones for mmdebstrap
        """
        tree, done = work / "tree", 0.0

        def report(line: str) -> None:
            nonlocal done
            done = max(done, next((share for start, share in stages if start in line), done))
            emit(Step(self.building, line.removeprefix("I: ")[:60], done))

        words = [
            *("--mode=root", "--variant=essential", f"--components={recipe.COMPONENTS}", "--format=directory"),
            f"--include={','.join(packages)}",
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in recipe.EXCLUDED),
            *("--dpkgopt=force-unsafe-io", "--aptopt=APT::Install-Recommends false"),
            *(*options, recipe.SUITE, str(tree)),
        ]
        more = {"TMPDIR": str(work), "DEBIAN_FRONTEND": "noninteractive", **environment}
        self.bootstrap(words, {**keeper.environment(), **more}, report)
        emit(Step(self.building, "erofs file system", 0.75))
        return tree

    def failure(self, words: list[str], code: int) -> str:
        """Why mmdebstrap failed with `code`, from its last lines; a single line if the remedy is known."""
        for pattern, cure in (*self.failures, (FULL, self.no_room), UNREACHABLE):
            if said := next((line for line in words if re.search(pattern, line)), None):
                return f"{self.building}: {said.removeprefix('E: ')}; {cure}"
        return "\n".join([f"{self.building}: mmdebstrap ended with {code}:", *words[-12:]])


@dataclass(frozen=True, slots=True)
class Userland:
    """Packs of one kind that are independent of the kernel: programs with their libraries, from this version's
    recipe.
    """

    kind: PackKind
    key: Callable[[], str]  # digest of everything that determines a pack's contents, except Debian's present versions
    make: Callable[[LocalMachine, Path, Emit], Pack]  # makes a pack in a new directory

    def current(self) -> Pack | None:
        """The pack of the present recipe, verified; None if there is none. A damaged one raises ImageError."""
        return self.kind.find(self.key(), ANY)

    def useless(self) -> list[Pack]:
        """The packs of another recipe."""
        return [pack for pack in self.kind.all() if pack.key != self.key()]

    def is_there(self) -> bool:
        """Whether there is a pack, so none has to be built. The file is not read."""
        return any(pack.key == self.key() for pack in self.kind.all())

    def ensure(self, emit: Emit) -> Pack:
        """The pack; built if there is none. A damaged one is an error."""
        return self.current() or self.build(emit)

    def build(self, emit: Emit, *, again: bool = False) -> Pack:
        """Build the pack; `again`: even if there is one already."""
        return self.kind.build(emit, self.current, lambda keeper, work: self.make(keeper, work, emit), again=again)


def key_of(*parts: str | bytes) -> str:
    """The key of a pack whose contents depend on these parts, apart from Debian's present versions."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() + b"\0" if isinstance(part, str) else part)
    return digest.hexdigest()[:16]


def erofs(keeper: LocalMachine, made: Path, tree: Path, *options: str) -> Path:
    """Make the pack's file in the new directory `made`, from the contents of `tree`."""
    made.mkdir(mode=0o755)
    argv = ("mkfs.erofs", "--all-root", "--quiet", *options, str(made / EROFS), str(tree))
    keeper.run(*argv, timeout=root_image.STEP_SECONDS)
    return made / EROFS


def described(path: Path, *, kernel: str, version: str, key: str) -> Pack:
    """The pack for an erofs file."""
    return Pack(path, kernel, version, key, path.stat().st_size, contents.digest(str(path)))


def package_version(keeper: LocalMachine, tree: Path, package: str) -> str:
    """The version of a package in a Debian root directory."""
    return inside(keeper, tree, "dpkg-query", "-W", "-f", "${Version}", package)


def inside(keeper: LocalMachine, tree: Path, *argv: str) -> str:
    """The output of a command of a build, in a Debian root directory: even a quick one may wait on a busy machine."""
    return keeper.run("chroot", str(tree), *argv, timeout=root_image.STEP_SECONDS)


def read(directory: Path) -> Pack:
    """The pack in `directory`. Raises ImageError if it is incomplete."""
    try:
        info = json.loads(contents.read(str(directory / INFO), LARGEST_INFO))
        pack = TypeAdapter(Pack).validate_python({**info, "path": directory / EROFS})
    except (OSError, ValueError, TypeError, RecursionError, ContentsError) as error:
        raise ImageError(f"{directory}: not a whole pack ({error})") from error
    if not (PLAIN.fullmatch(pack.kernel) and PLAIN.fullmatch(pack.version) and 0 <= pack.bytes <= contents.LARGEST):
        raise ImageError(f"{directory}: not a whole pack (no build names such a version, or such a size)")
    if pack.key != directory.name:
        raise ImageError(f"{directory}: not its own pack, but that of {pack.key}")
    return pack


def _is_whole(directory: Path) -> bool:
    with contextlib.suppress(ImageError):
        read(directory)
        return True
    return False
