"""Build the root image: run mmdebstrap, then add the kernel, the initramfs and the erofs file that guests boot."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from vmtax.core.events import Event, Step
from vmtax.core.machines import Idle
from vmtax.core.units import format_room
from vmtax.image import cache, contents, initramfs, recipe
from vmtax.image.additions import ARCHIVE, NOTHING, Additions
from vmtax.image.cache import Image, ImageError
from vmtax.image.contents import ContentsError
from vmtax.machine import CommandFailed
from vmtax.machine.local import LocalMachine
from vmtax.system.packages import install_here

Emit = Callable[[Event], None]
TOOLS = ("mmdebstrap", "unshare", "mkfs.erofs", "zstd", "tar")
# mmdebstrap mounts /proc and other file systems in its tree. In a mount namespace of their own, they disappear with its
# last process, so that the guard can remove the tree of a killed build.
MMDEBSTRAP = ("unshare", "--mount", "mmdebstrap")
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
WHAT = "building the root image"
ROOM = 2 * 2**30  # bytes that a build, or a copy with its packed file, needs temporarily
NO_SPACE = "about 2 GiB are needed; set XDG_CACHE_HOME to a directory on a larger file system"
# Messages of tar and dpkg on a full file system, and of apt on a small one
FULL = ("No space left", "enough free space")
NO_PACKAGE = re.compile(
    r"(?:Unable to locate package |Package '?)([a-z0-9][a-z0-9+.-]+)'?(?: has no installation candidate)?$"
)
CARRY = "as root: vmtax image build && vmtax image export image.tar.zst; then here: vmtax image import image.tar.zst"
CARRY_ADDED = (
    "as root: vmtax image build {}, then vmtax image export --identity IDENTITY image.tar.zst with the identity that it"
    " prints; then here: vmtax image import image.tar.zst"
)
# No trace of when and where it was made; by default, the UUID would be random.
EROFS = ("--all-root", "-T0", "-x-1", "-U", "6f3c2f9e-7d0b-4b57-9d3e-0c6d1d2b5a41", "--quiet")
STEP_SECONDS = Idle(300.0)  # a mirror of Debian may take its time
# Messages of mmdebstrap -> share of the whole that is done then, from timed builds.
STAGES = (
    ("running apt-get update", 0.02),
    ("downloading packages", 0.05),
    ("extracting archives", 0.2),
    ("installing essential", 0.25),
    ("installing remaining", 0.35),
    ("cleaning package lists", 0.8),
    ("creating tarball", 0.82),
)


def ensure(emit: Emit, identity: str | None = None, additions: Additions = NOTHING) -> Image:
    """The image of that identity if it is here, else the current one with these additions; built if there is none.

    Its files are checked when it is placed on a machine: a damaged one is an error, never silently used.
    """
    return here(identity, additions) or build(emit, additions)


def here(identity: str | None = None, additions: Additions = NOTHING) -> Image | None:
    """The image of that identity, else the current one; None if one would have to be built."""
    return next((image for image in cache.images() if image.identity == identity), None) or cache.current(additions)


def refuse(additions: Additions = NOTHING) -> None:
    """Raises ImageError if no image can be built here, as far as can be checked beforehand."""
    if os.geteuid() != 0:
        # In a user namespace, mmdebstrap leaves files and processes of other users, which our guard could not remove.
        carry = CARRY_ADDED.format(additions.options) if additions else CARRY
        raise ImageError(f"building the root image needs root; {carry}")
    need_tools(TOOLS)
    directory = cache.images_directory()
    present = next(parent for parent in (directory, *directory.parents) if parent.is_dir())
    if (free := shutil.disk_usage(present).free) < ROOM:
        raise ImageError(f"{WHAT}: {directory}: {format_room(free)} free; {NO_SPACE}")


def build(emit: Emit, additions: Additions = NOTHING, *, again: bool = False) -> Image:
    """Build the image of the present recipe; `again`: even if there is one already. Raises BadInput for a file that
    cannot be added.
    """
    refuse(additions)
    emit(Step(WHAT, "waiting for another build to end" if cache.shelf().is_locked() else "starting", 0.0))
    with cache.shelf().workshop() as (keeper, work):
        image = cache.current(additions)
        if image is not None and not again:
            return image
        try:
            return _build_in(keeper, work, emit, additions)
        except OSError as error:
            raise ImageError(f"{WHAT}: {error.filename or work}: {error.strerror}{_cure(error)}") from error
        except (CommandFailed, ContentsError) as error:
            raise ImageError(f"{WHAT}: {error}") from error


def need_tools(tools: Sequence[str]) -> None:
    """Raises ImageError if one of these programs is not on this host."""
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        raise ImageError(f"missing {', '.join(missing)}: {install_here(*missing)}")


def _cure(error: OSError) -> str:
    return f"; {NO_SPACE}" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""


def _build_in(keeper: LocalMachine, work: Path, emit: Emit, additions: Additions) -> Image:
    tree = work / "tree"
    tree.mkdir(mode=0o755)
    _bootstrap(keeper, tree, work, emit, additions.packages)
    emit(Step(WHAT, "kernel and initramfs", 0.88))
    release = _kernel_release(tree)
    (work / "vmlinux").write_bytes(_vmlinux((tree / "boot" / f"vmlinuz-{release}").read_bytes()))
    (work / "initrd").write_bytes(initramfs.boot_archive(tree, release))
    _add_guest_files(tree, work)
    if additions.files:
        additions.write(tree / ARCHIVE)
    (work / "manifest").write_text(_manifest(tree))
    _make_plain(keeper, work)
    emit(Step(WHAT, "erofs file system", 0.92))
    keeper.run("mkfs.erofs", *EROFS, str(work / "root.erofs"), str(tree))
    (work / "root.erofs").chmod(0o644)
    emit(Step(WHAT, "digests", 0.97))
    cache.describe(work, kernel=release, recipe_key=recipe.key(additions))
    work.chmod(0o755)
    image = cache.install(work)
    emit(Step(WHAT, f"{image.identity}, {image.packages} packages", 1.0))
    return image


def _bootstrap(keeper: LocalMachine, tree: Path, work: Path, emit: Emit, more: Sequence[str]) -> None:
    """mmdebstrap writes a tar stream, which is unpacked next to it: this works in the same way with and without
    root.
    """
    argv = [
        *(*MMDEBSTRAP, "--variant=minbase", f"--components={recipe.COMPONENTS}", "--format=tar"),
        f"--include={','.join((recipe.KERNEL, *recipe.PACKAGES, *more))}",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in recipe.EXCLUDED),
        *("--aptopt=APT::Install-Recommends false", recipe.SUITE, "-"),
    ]
    # INITRD=No: otherwise Debian's kernel package makes an initramfs of its own, which would never be booted. The
    # constant date: the same packages then make the same image, and so the same digest, on any host.
    environment = {**keeper.environment(), "INITRD": "No", "TMPDIR": str(work), "SOURCE_DATE_EPOCH": "1"}
    unpack = ["tar", "-x", "-C", str(tree), "--exclude=./dev/*", "--no-same-owner"]
    with (
        subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd="/"
        ) as source,
        # A file, because a full pipe without a reader would block both processes.
        (work / "tar.log").open("w+") as log,
        subprocess.Popen(unpack, stdin=source.stdout, stderr=log, env=environment, cwd="/") as sink,
    ):
        try:
            words = _follow(source, emit)
        except BaseException:
            source.terminate()
            sink.terminate()
            raise
        sink.wait()
        log.seek(0)
        complaints = log.read().splitlines()
    (work / "tar.log").unlink()
    if source.returncode != 0 or sink.returncode != 0:
        raise ImageError(f"{WHAT}: {why_failed(work.parent, source.returncode, words, sink.returncode, complaints)}")


def why_failed(
    directory: Path, bootstrapped: int, words: Sequence[str], unpacked: int, complaints: Sequence[str]
) -> str:
    """Why a build in `directory` failed: the exit code and last lines of mmdebstrap, then the last lines of tar."""
    if any(sign in line for line in (*words, *complaints) for sign in FULL):
        return f"{directory}: no space left; {NO_SPACE}"
    if missing := next((match[1] for line in words if (match := NO_PACKAGE.search(line))), ""):
        return f"Debian 13 has no package {missing}: search for its name on packages.debian.org"
    if bootstrapped != 0:
        return "\n".join([f"mmdebstrap ended with {bootstrapped}:", *words[-8:]])
    return "\n".join([f"tar ended with {unpacked}:", *complaints[-8:]])


def _follow(process: subprocess.Popen[bytes], emit: Emit) -> list[str]:
    """Report mmdebstrap's output as progress; returns its last lines, in case it fails."""
    words: list[str] = []
    done = 0.0
    for line in spoken(process):
        words = [*words[-40:], line]
        done = next((share for start, share in STAGES if start in line), done)
        emit(Step(WHAT, line.removeprefix("I: "), done))
    return words


def spoken(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """The lines that mmdebstrap writes to stderr, without its progress bars."""
    assert process.stderr
    buffer = b""
    while chunk := os.read(process.stderr.fileno(), 4096):
        # Its progress bars end in carriage returns.
        *lines, buffer = re.split(rb"[\r\n]+", buffer + chunk)
        for raw in lines:
            line = raw.decode(errors="replace").strip()
            if line and not re.match(r"(done|.*\d+\.\d+% done)$", line):
                yield line


def _kernel_release(tree: Path) -> str:
    releases = sorted(path.name for path in (tree / "usr/lib/modules").iterdir())
    if len(releases) != 1:
        raise ImageError(f"expected one kernel in the image, found {releases or 'none'}")
    return releases[0]


def _vmlinux(compressed: bytes) -> bytes:
    """The ELF kernel inside a bzImage: QEMU starts it directly (PVH), which saves decompression under emulation."""
    start = compressed.find(ZSTD_MAGIC)
    if start < 0:
        raise ImageError("the image's kernel is not compressed with zstd")
    # The compressed kernel is followed by other parts of the bzImage, which zstd reports as garbage: only its output
    # counts.
    done = subprocess.run(["zstd", "-dc"], input=compressed[start:], capture_output=True)
    if not done.stdout.startswith(b"\x7fELF"):
        raise ImageError(f"no ELF kernel inside the image's bzImage: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _add_guest_files(tree: Path, work: Path) -> None:
    """Install scripts into /usr/lib/vmtax; kernel and initramfs into /boot, where a guest finds them to boot the next
    one.
    """
    target = tree / "usr/lib/vmtax"
    target.mkdir(parents=True)
    for name in recipe.GUEST_FILES:
        (target / name).write_bytes(recipe.guest_file(name))
        (target / name).chmod(0o755)
    for unused in (tree / "boot").iterdir():
        unused.unlink()
    shutil.copyfile(work / "vmlinux", tree / "boot/vmlinux")
    shutil.copyfile(work / "initrd", tree / "boot/initrd")


def _make_plain(keeper: LocalMachine, work: Path) -> None:
    """Remove what makes builds differ, write permission for others, and setuid and setgid bits."""
    for key in (work / "tree/etc/ssh").glob("ssh_host_*"):
        key.unlink()  # not needed: a guest gets its own keys
    # Symbolic links are left alone. "X": what one user may execute, everybody may execute.
    top = (str(work / name) for name in contents.TOP if name != "root.erofs")
    keeper.run("chmod", "-R", "a-st,u=rwX,go=rX", *top)
    # The file cannot contain the image's digest, which covers it too: it contains the digest of everything else in the
    # tree.
    mark = work / contents.TREE / cache.IDENTITY
    mark.write_text(hashlib.sha256(contents.lines(contents.listed(str(work), (contents.TREE,)))).hexdigest())
    mark.chmod(0o644)


def _manifest(tree: Path) -> str:
    """Lines "package version" from dpkg's database, sorted."""
    entries = []
    for paragraph in (tree / "var/lib/dpkg/status").read_text().split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Status): (.+)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            entries.append(f"{fields['Package']} {fields['Version']}\n")
    return "".join(sorted(entries))
