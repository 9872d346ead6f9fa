"""The pack for Windows: fio and stockfish built for it from Debian's sources, with their licences, and a program of our
own that sends and receives.

They are other builds than the root image's, and fio is of another version. Host and guest, if both run Windows, have
the same programs; of a comparison with Linux, the disk's part holds, and the CPU's does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from vmtax.core.events import Event, Step
from vmtax.image import contents, packs, recipe
from vmtax.image.build import STEP_SECONDS
from vmtax.image.cache import ImageError
from vmtax.image.packs import ANY, Pack, PackKind, Userland
from vmtax.machine.local import LocalMachine

Emit = Callable[[Event], None]
KIND = PackKind(directory="windows", what="the pack for Windows", command="vmtax image windows", room=3 * 2**30)
LAYOUT = 1  # of the pack; increased when code here changes its contents
SCRIPT = "windows-programs"
NET = "vmtax-net.c"  # sender and receiver for network measurements, for Windows and for Linux
COMPILER = "x86_64-w64-mingw32-gcc-posix"
PACKAGES = ("gcc-mingw-w64-x86-64-posix", "g++-mingw-w64-x86-64-posix", "make", "gcc", "libc6-dev")
LICENCES = "--dpkgopt=path-include=/usr/share/doc/*/copyright"
EPOCH = "1577836800"  # the time in what is built: 2020-01-01
EROFS = ("-T1577836800", "-x-1", "-U", "c7f2a4d8-9b0e-4a63-8f15-2d6b7e90c134", "-zlz4hc,3")
FETCH = ("/usr/lib/apt/apt-helper", "-o", "Acquire::Retries=2", "download-file")
# Debian removes sources that no release has any more; its snapshots keep every file, by its SHA-1.
KEPT = "https://snapshot.debian.org/file"
STAGES = (
    ("running apt-get update", 0.02),
    ("downloading packages", 0.05),
    ("extracting archives", 0.1),
    ("installing essential", 0.15),
    ("installing remaining", 0.2),
    ("windows-programs: fio", 0.3),
    ("windows-programs: stockfish", 0.5),
    ("windows-programs: vmtax-net", 0.68),
    ("cleaning package lists", 0.7),
)


@dataclass(frozen=True, slots=True)
class SourceArchive:
    """A source that Debian has."""

    name: str  # of the program
    version: str
    path: str  # in Debian's archive
    sha256: str
    sha1: str  # by which the snapshots find it

    @property
    def file(self) -> str:
        return self.path.rpartition("/")[2]


ARCHIVES = (
    SourceArchive(
        "fio",
        "3.41",
        "pool/main/f/fio/fio_3.41.orig.tar.gz",
        "a40b45112005e30a67bab6be4860b198c35104a628b6ec4d15720d62b5d1bab9",
        "b2563c410e7572b5b0e01d35fc3d058293a7cc94",
    ),
    SourceArchive(
        "stockfish",
        "17",
        "pool/main/s/stockfish/stockfish_17.orig.tar.gz",
        "d4472666e7121c5f167eac4358b9e3fd41f2694c451ee552eb2e18cdf3583da2",
        "bdd0fbc5c7add7129ec1f91add520787f72043f9",
    ),
)
PROGRAMS = (*(f"{each.name}.exe" for each in ARCHIVES), "vmtax-net.exe", "vmtax-net")
SOURCES = "SOURCES"  # file in the pack: where each source is, and its digest


def _key() -> str:
    """Digest of everything that determines a pack's contents, except Debian's present compiler."""
    words = (str(LAYOUT), recipe.SUITE, recipe.COMPONENTS, *PACKAGES, *recipe.EXCLUDED, LICENCES, EPOCH, *EROFS)
    return packs.key_of(*words, *(each.sha256 for each in ARCHIVES), _file(SCRIPT), _file(NET))


def _file(name: str) -> bytes:
    return resources.files("vmtax.image").joinpath(name).read_bytes()


def fetch(keeper: LocalMachine, archive: SourceArchive, directory: Path) -> Path:
    """The archive in that directory; its digest is checked. Raises ImageError, with what both places answered."""
    file = directory / archive.file
    answers = []
    for address in (f"{packs.ARCHIVE}/{archive.path}", f"{KEPT}/{archive.sha1}/{archive.file}"):
        fetched = keeper.try_run(*FETCH, address, str(file), f"SHA256:{archive.sha256}", timeout=STEP_SECONDS)
        if fetched.ok:
            return file
        said = next((line for line in fetched.stderr.splitlines() if line.startswith("E: ")), f"{address}: no answer")
        answers.append(said.removeprefix("E: "))
    raise ImageError(f"{KIND.building}: the source of {archive.name} {archive.version}: {'; '.join(answers)}")


def _sources() -> str:
    return "".join(
        f"{each.name} {each.version} {packs.ARCHIVE}/{each.path} sha256 {each.sha256}\n" for each in ARCHIVES
    )


def _make(keeper: LocalMachine, work: Path, emit: Emit) -> Pack:
    sources = work / "sources"
    sources.mkdir()
    for archive in ARCHIVES:
        emit(Step(KIND.building, f"source of {archive.name} {archive.version}", 0.01))
        fetch(keeper, archive, sources)
    script, net = work / SCRIPT, work / NET
    script.write_bytes(_file(SCRIPT))
    script.chmod(0o755)
    net.write_bytes(_file(NET))
    options = (LICENCES, f"--customize-hook={script}")
    given = {"SOURCES": str(sources), "NET": str(net), "EPOCH": EPOCH}
    tree = KIND.debian(keeper, work, PACKAGES, STAGES, emit, *options, **given)
    programs = tree / "programs"
    (programs / SOURCES).write_text(_sources())
    compiler = packs.inside(keeper, tree, COMPILER, "-dumpversion").strip()
    file = packs.erofs(keeper, work / "made", programs, *EROFS)
    versions = "/".join(f"{each.name}-{each.version}" for each in ARCHIVES)
    pack = packs.described(file, kernel=ANY, version=f"{versions}/gcc-{compiler}", key=_key())
    emit(Step(KIND.building, pack.version, 1.0))
    return pack


def unpack(pack: Pack, keeper: LocalMachine, directory: Path) -> dict[str, str]:
    """Unpack it into a new directory; program -> its sha256, for the facts of a machine that runs it.

    Raises ImageError if it has other programs.
    """
    keeper.run("fsck.erofs", f"--extract={directory}", "--no-preserve", str(pack.path), timeout=STEP_SECONDS)
    missing = [name for name in PROGRAMS if not (directory / name).is_file()]
    if missing:
        raise ImageError(f"{pack.path}: has no {' and no '.join(missing)}; `{KIND.command} --again` builds it anew")
    return {name: contents.digest(str(directory / name)) for name in PROGRAMS}


PACK = Userland(KIND, _key, _make)
