"""The ZFS pack: kernel module and tools as one erofs file, which a guest lays over its root image.

Debian has ZFS as source only. It is built once for exactly the image's kernel, in minutes, and kept.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

from pydantic import TypeAdapter

from vmtax.core.events import Event, Step
from vmtax.image import build as root_image
from vmtax.image import cache, contents, initramfs, recipe
from vmtax.image.cache import Image, ImageError, Shelf
from vmtax.image.contents import ContentsError
from vmtax.machine import CommandFailed
from vmtax.machine.local import LocalMachine
from vmtax.system.paths import cache_home

Emit = Callable[[Event], None]
INFO = "pack.json"
LARGEST_INFO = 10_000  # bytes; 200 are usual
PLAIN = re.compile(r"[!-~]{1,64}")  # a kernel's release, or the version of a package
EROFS = "pack.erofs"
WHAT = "building the ZFS pack"
TOOLS = {"mmdebstrap": "mmdebstrap", "unshare": "util-linux", "mkfs.erofs": "erofs-utils"}
LAYOUT = 1  # of the pack; raised when what is done here makes another one
COMPONENTS = "main,contrib"  # ZFS's licence keeps it out of main
MODULE, USER_SPACE = "zfs-dkms", "zfsutils-linux"
MODULE_SCRIPT = "zfs-module"
# Nobody boots the tree that the module is built in: its kernel comes along only because the headers depend on it.
EXCLUDED = (*recipe.EXCLUDED, "/usr/lib/modules/*/kernel/*", "/boot/*")
# dkms would build for every kernel it finds while it is being installed, without a word.
NO_AUTOINSTALL = 'mkdir -p "$1/etc/dkms" && : > "$1/etc/dkms/no-autoinstall"'
# Of the tools: no services, no manuals, nothing for programs that the image has not; nor those that take pools and
# streams apart, which alone need a library of 4 MB.
LEFT_OUT = re.compile(
    r"(etc/(cron\.d|default|init\.d|sudoers\.d)|usr/lib/(modules-load\.d|os-probes|systemd)"
    r"|usr/sbin/(zdb|zhack|zstream|zstreamdump)|usr/share/(bash-completion|doc|lintian|man))(/|$)"
)
NO_ROOM = "about 1.5 GiB are needed; set XDG_CACHE_HOME to a directory on a larger file system"
# What is said -> the share of the whole that is then done, and what is said again and again: how it begins, from which
# share to which, and how often. All from builds that were timed.
STAGES = (
    ("running apt-get update", 0.01),
    ("downloading packages", 0.02),
    ("extracting archives", 0.05),
    ("installing essential", 0.06),
    ("installing remaining", 0.08),
    ("running --customize-hook", 0.14),
    ("cleaning package lists", 0.96),
)
REPEATED = (("checking ", 0.14, 0.41, 390), ("CC [M] ", 0.41, 0.95, 290))
# What apt says -> what is wrong, and the cure.
FAILURES = (
    (
        r"Unable to locate package linux-headers|Version '\S+' for 'linux-headers\S* was not found",
        "the archive no longer has the headers of the image's kernel; make an image with the kernel that it has now: "
        "vmtax image build --again",
    ),
    (
        r"No space left on device|don't have enough free space",
        NO_ROOM,
    ),
    (
        r"Could not resolve|Temporary failure resolving|[Cc]ould not connect|Unable to connect|[Cc]onnection (refused|"
        r"timed out|failed)|Network is unreachable|Failed to fetch",
        "the package archive cannot be reached; it is needed this once: try again when it can",
    ),
)


@dataclass(frozen=True, slots=True)
class Pack:
    """One complete pack on this host."""

    path: Path  # the erofs file
    kernel: str  # release that it is for
    version: str  # of ZFS, as Debian has it: "2.3.2-2"
    key: str  # of what it was made from
    bytes: int  # of the erofs file
    digest: str  # of the erofs file, sha256


def packs_directory() -> Path:
    return cache_home() / "zfs"


def shelf() -> Shelf:
    """Where the packs are."""
    return Shelf(packs_directory(), _is_whole)


def kernel_version(image: Image) -> str:
    """Version of the kernel's package, such as 6.12.43-1; several have the same release. From the image's manifest."""
    for line in image.manifest():
        package, _, version = line.partition(" ")
        if package == f"linux-image-{image.kernel}":
            return version
    raise ImageError(f"{image.identity}: its manifest has no package of its kernel {image.kernel}; image build --again")


def key(image: Image) -> str:
    """Digest of all that decides what a pack for this image holds: a pack with the same key need not be built again."""
    digest = hashlib.sha256()
    for word in (str(LAYOUT), recipe.SUITE, COMPONENTS, MODULE, USER_SPACE, *EXCLUDED, LEFT_OUT.pattern):
        digest.update(word.encode() + b"\0")
    digest.update(_module_script() + b"\0")
    digest.update(f"{image.kernel}\0{kernel_version(image)}\0".encode())
    return digest.hexdigest()[:16]


def _module_script() -> bytes:
    return resources.files("vmtax.image").joinpath(MODULE_SCRIPT).read_bytes()


def current(image: Image) -> Pack | None:
    """The pack for exactly this image's kernel, verified; None where there is none.

    A damaged one raises ImageError: never silently used, nor silently built again in minutes.
    """
    wanted = key(image)
    pack = next((pack for pack in packs() if pack.key == wanted and pack.kernel == image.kernel), None)
    if pack is None:
        return None
    cure = "`vmtax image zfs --again` builds it anew"
    try:
        for path in (pack.path.parent, pack.path):
            contents.check_owner(str(path), path.lstat())
        actual = contents.digest(str(pack.path))
    except OSError as error:
        raise ImageError(f"{pack.path}: {error.strerror}; {cure}") from error
    except ContentsError as error:
        raise ImageError(f"{error}; {cure}") from error
    if actual != pack.digest:
        raise ImageError(f"{pack.path}: damaged (its digest is not the one of the build); {cure}")
    return pack


def read(directory: Path) -> Pack:
    """The pack in `directory`; raises ImageError where it is not a whole one."""
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


def packs() -> list[Pack]:
    """All whole packs, by kernel."""
    found = []
    for path in shelf().entries():
        with contextlib.suppress(ImageError):
            found.append(read(path))
    return sorted(found, key=lambda pack: (pack.kernel, pack.key))


def _is_whole(directory: Path) -> bool:
    with contextlib.suppress(ImageError):
        read(directory)
        return True
    return False


def useless(images: Iterable[Image]) -> list[Pack]:
    """The packs that are for none of `images`."""
    usable = set()
    for image in images:
        with contextlib.suppress(ImageError):  # one without a manifest has no pack
            usable.add(key(image))
    return [pack for pack in packs() if pack.key not in usable]


def remove(pack: Pack) -> None:
    """Raises ImageError where it cannot be."""
    shelf().remove(pack.path.parent)


def ensure(image: Image, emit: Emit) -> Pack:
    """The pack for this image, built where there is none; a damaged one is an error."""
    return current(image) or build(image, emit)


def build(image: Image, emit: Emit, *, again: bool = False) -> Pack:
    """Build the pack for this image; `again`: also when there is one already."""
    if os.geteuid() != 0:
        raise ImageError("building the ZFS pack needs root: sudo vmtax image zfs")
    root_image.need_tools(TOOLS)
    emit(Step(WHAT, "waiting for another build to end" if shelf().is_locked() else "starting", 0.0))
    with shelf().workshop() as (keeper, work):
        if not again and (pack := current(image)) is not None:
            return pack
        try:
            return _build_in(keeper, work, image, emit)
        except OSError as error:
            cure = f"; {NO_ROOM}" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
            raise ImageError(f"{WHAT}: {error.filename or work}: {error.strerror}{cure}") from error
        except CommandFailed as error:
            raise ImageError(f"{WHAT}: {error}") from error


def _build_in(keeper: LocalMachine, work: Path, image: Image, emit: Emit) -> Pack:
    tree, layer, made = work / "tree", work / "layer", work / "made"
    _build_module(keeper, work, tree, image, emit)
    emit(Step(WHAT, "collecting its files", 0.97))
    layer.mkdir(mode=0o755)
    _collect_module(keeper, tree, image, layer)
    _collect_tools(keeper, tree, image, layer)
    for directory, _, _ in os.walk(layer):
        Path(directory).chmod(0o755)  # a guest's directory has the mode that it has in the uppermost layer
    emit(Step(WHAT, "erofs file system", 0.99))
    made.mkdir(mode=0o755)
    argv = ("mkfs.erofs", "--all-root", "-T0", "--quiet", str(made / EROFS), str(layer))
    keeper.run(*argv, timeout=root_image.STEP_SECONDS)
    pack = Pack(
        path=made / EROFS,
        kernel=image.kernel,
        version=_package_version(keeper, tree, MODULE),
        key=key(image),
        bytes=(made / EROFS).stat().st_size,
        digest=contents.digest(str(made / EROFS)),
    )
    # Last of all, since it is what makes a pack whole.
    (made / INFO).write_text(json.dumps({name: value for name, value in asdict(pack).items() if name != "path"}))
    target = packs_directory() / pack.key
    if target.exists():
        (target / INFO).unlink(missing_ok=True)
        cache.remove_tree(target)
    os.sync()
    made.rename(target)
    emit(Step(WHAT, f"ZFS {pack.version} for kernel {pack.kernel}", 1.0))
    return read(target)


def _build_module(keeper: LocalMachine, work: Path, tree: Path, image: Image, emit: Emit) -> None:
    """A Debian with compiler, headers and the tools in `tree`, and the module built in it."""
    script = work / MODULE_SCRIPT
    script.write_bytes(_module_script())
    script.chmod(0o755)
    argv = [
        *(
            *root_image.MMDEBSTRAP,
            "--mode=root",
            "--variant=minbase",
            f"--components={COMPONENTS}",
            "--format=directory",
        ),
        f"--include={MODULE},{USER_SPACE},linux-headers-{image.kernel}={kernel_version(image)}",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in EXCLUDED),
        *("--dpkgopt=force-unsafe-io", "--aptopt=APT::Install-Recommends false"),
        *(f"--essential-hook={NO_AUTOINSTALL}", f"--customize-hook={script}", recipe.SUITE, str(tree)),
    ]
    environment = {
        **keeper.environment(),
        **{"RELEASE": image.kernel, "TMPDIR": str(work), "INITRD": "No", "DEBIAN_FRONTEND": "noninteractive"},
    }
    words: list[str] = []
    done = 0.0
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, cwd="/"
    ) as process:
        try:
            for line in root_image.spoken(process):
                words = [*words[-60:], line]
                done = share_after(line, done)
                emit(Step(WHAT, "the module" if "-hook" in line else line.removeprefix("I: "), done))
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        raise ImageError(failure(words, process.returncode))


def share_after(line: str, done: float) -> float:
    """The share of a build that is done after this line of it, where `done` was before."""
    for start, share in STAGES:
        if start in line:
            return max(done, share)
    for start, first, last, count in REPEATED:
        if line.startswith(start):
            return max(done, min(last, max(first, done) + (last - first) / count))
    return done


def failure(words: list[str], code: int) -> str:
    """Why mmdebstrap ended with `code`, from its last lines: one line where the cure is known."""
    for pattern, cure in FAILURES:
        if said := next((line for line in words if re.search(pattern, line)), None):
            return f"{WHAT}: {said.removeprefix('E: ')}; {cure}"
    return "\n".join([f"{WHAT}: mmdebstrap ended with {code}:", *words[-12:]])


def _collect_module(keeper: LocalMachine, tree: Path, image: Image, layer: Path) -> None:
    """The modules, not compressed since a guest would take longer, and depmod's files for them and the image's own."""
    modules = Path("usr/lib/modules") / image.kernel
    original = image.tree / modules
    shutil.rmtree(tree / modules)
    shutil.copytree(original, tree / modules, symlinks=True)
    built = sorted((tree / "var/lib/dkms/zfs").glob(f"*/{image.kernel}/*/module/*.ko*"))
    if not any(path.name.startswith("zfs.ko") for path in built):
        raise ImageError(f"{WHAT}: dkms made no module zfs for kernel {image.kernel}")
    for module in built:
        target = tree / modules / "updates/dkms" / f"{module.name.partition('.')[0]}.ko"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(initramfs.uncompressed(module))
    keeper.run("chroot", str(tree), "depmod", image.kernel)
    shutil.copytree(tree / modules / "updates", layer / modules / "updates")
    # Their text forms are for people, and 2 MB; modprobe reads the others.
    for path in (tree / modules).glob("modules.*.bin"):
        old = original / path.name
        if not old.exists() or old.read_bytes() != path.read_bytes():
            shutil.copyfile(path, layer / modules / path.name)


def _collect_tools(keeper: LocalMachine, tree: Path, image: Image, layer: Path) -> None:
    """The files of the tools, and the libraries that they need and the image has not."""
    listed = keeper.run("chroot", str(tree), "dpkg-query", "-L", USER_SPACE).splitlines()
    programs = []
    for name in wanted_files(listed):
        path = tree / name
        if path.is_dir() and not path.is_symlink():
            continue
        start = _start(path)
        if start.startswith(b"#!") and b"python" in start:
            continue  # the image has Python's smallest part only
        if os.path.lexists(path):
            _copy(path, layer / name)
        if start.startswith(b"\x7fELF"):
            programs.append(f"/{name}")
    for library in libraries(keeper.run("chroot", str(tree), "ldd", *programs)):
        inside = Path("usr") / library.removeprefix("/usr/").lstrip("/")
        if not os.path.lexists(image.tree / inside):
            _copy(tree / inside, layer / inside)
            _copy((tree / inside).resolve(), layer / inside.parent / (tree / inside).resolve().name)


def _start(path: Path) -> bytes:
    """What tells a file's kind, its first bytes; none of what is no regular file."""
    if path.is_symlink() or not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(64)


def wanted_files(listed: Iterable[str]) -> list[str]:
    """What of a package's files a pack holds, relative to the root; the package lists absolute paths."""
    names = (line.removeprefix("/") for line in listed)
    return [name for name in names if name.startswith(("etc/", "usr/")) and not LEFT_OUT.match(name)]


def libraries(said: str) -> list[str]:
    """The paths in what ldd says, each once: '\tlibzfs.so.6 => /lib/x86_64-linux-gnu/libzfs.so.6 (0x00007f)'."""
    missing = re.findall(r"^\s+(\S+) => not found", said, re.MULTILINE)
    if missing:
        raise ImageError(f"{WHAT}: no package has the library {missing[0]}")
    return sorted(set(re.findall(r"^\s+\S+ => (/\S+) \(0x", said, re.MULTILINE)))


def _copy(source: Path, target: Path) -> None:
    """A file with its mode, or a link as a link."""
    if os.path.lexists(target):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target, follow_symlinks=False)


def _package_version(keeper: LocalMachine, tree: Path, package: str) -> str:
    return keeper.run("chroot", str(tree), "dpkg-query", "-W", "-f", "${Version}", package)
