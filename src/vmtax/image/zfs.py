"""The ZFS pack: kernel module and tools as one erofs file, which a guest lays over its root image.

Debian has ZFS only as source. It is built once, in minutes, for exactly the image's kernel, and stored.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable
from importlib import resources
from pathlib import Path

from vmtax.core.events import Event, Step
from vmtax.image import initramfs, packs, recipe
from vmtax.image.cache import Image, ImageError
from vmtax.image.packs import Pack, PackKind
from vmtax.machine.local import LocalMachine

Emit = Callable[[Event], None]
LAYOUT = 1  # of the pack; increased when code here changes its contents
COMPONENTS = "main,contrib"  # because of its licence, ZFS is not in main
MODULE, USER_SPACE = "zfs-dkms", "zfsutils-linux"
MODULE_SCRIPT = "zfs-module"
# Nobody boots the tree in which the module is built: it contains the kernel only because the headers depend on it.
EXCLUDED = (*recipe.EXCLUDED, "/usr/lib/modules/*/kernel/*", "/boot/*")
# Otherwise dkms silently builds for every kernel it finds while it is being installed.
NO_AUTOINSTALL = 'mkdir -p "$1/etc/dkms" && : > "$1/etc/dkms/no-autoinstall"'
# Files of the tools that are left out: services, manuals, files for programs that the image does not have, and the
# tools that analyse pools and streams, which alone need a library of 4 MB.
LEFT_OUT = re.compile(
    r"(etc/(cron\.d|default|init\.d|sudoers\.d)|usr/lib/(modules-load\.d|os-probes|systemd)"
    r"|usr/sbin/(zdb|zhack|zstream|zstreamdump)|usr/share/(bash-completion|doc|lintian|man))(/|$)"
)
# STAGES: messages of a build -> share of the whole that is done then. REPEATED: messages that occur many times: their
# prefix, the share before and after all of them, and their number. All from timed builds.
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
KIND = PackKind(
    directory="zfs",
    what="the ZFS pack",
    command="vmtax image zfs",
    room=3 * 2**29,
    failures=(
        (
            r"Unable to locate package linux-headers|Version '\S+' for 'linux-headers\S* was not found",
            "the archive no longer has the headers of the image's kernel; make an image with the kernel that it has"
            " now: vmtax image build --again",
        ),
    ),
)


def kernel_version(image: Image) -> str:
    """Version of the kernel's package, such as 6.12.43-1; several versions have the same release. From the image's
    manifest.
    """
    for line in image.manifest():
        package, _, version = line.partition(" ")
        if package == f"linux-image-{image.kernel}":
            return version
    raise ImageError(f"{image.identity}: its manifest has no package of its kernel {image.kernel}; image build --again")


def key(image: Image) -> str:
    """Digest of everything that determines the contents of a pack for this image: with the same key, it need not be
    rebuilt.
    """
    digest = hashlib.sha256()
    for word in (str(LAYOUT), recipe.SUITE, COMPONENTS, MODULE, USER_SPACE, *EXCLUDED, LEFT_OUT.pattern):
        digest.update(word.encode() + b"\0")
    digest.update(_module_script() + b"\0")
    digest.update(f"{image.kernel}\0{kernel_version(image)}\0".encode())
    return digest.hexdigest()[:16]


def _module_script() -> bytes:
    return resources.files("vmtax.image").joinpath(MODULE_SCRIPT).read_bytes()


def current(image: Image) -> Pack | None:
    """The pack for exactly this image's kernel, verified; None if there is none. A damaged one raises ImageError."""
    return KIND.find(key(image), image.kernel)


def useless(images: Iterable[Image]) -> list[Pack]:
    """The packs for none of `images`."""
    usable = set()
    for image in images:
        with contextlib.suppress(ImageError):  # an image without a manifest has no pack
            usable.add(key(image))
    return [pack for pack in KIND.all() if pack.key not in usable]


def ensure(image: Image, emit: Emit) -> Pack:
    """The pack for this image; built if there is none. A damaged one is an error."""
    return current(image) or build(image, emit)


def build(image: Image, emit: Emit, *, again: bool = False) -> Pack:
    """Build the pack for this image; `again`: even if there is one already."""
    return KIND.build(
        emit, lambda: current(image), lambda keeper, work: _build_in(keeper, work, image, emit), again=again
    )


def _build_in(keeper: LocalMachine, work: Path, image: Image, emit: Emit) -> Pack:
    tree, layer, made = work / "tree", work / "layer", work / "made"
    _build_module(keeper, work, tree, image, emit)
    emit(Step(KIND.building, "collecting its files", 0.97))
    layer.mkdir(mode=0o755)
    _collect_module(keeper, tree, image, layer)
    _collect_tools(keeper, tree, image, layer)
    for directory, _, _ in os.walk(layer):
        Path(directory).chmod(0o755)  # in a guest, a directory has the mode that it has in the topmost layer
    emit(Step(KIND.building, "erofs file system", 0.99))
    version = packs.package_version(keeper, tree, MODULE)
    file = packs.erofs(keeper, made, layer, "-T0")
    emit(Step(KIND.building, f"ZFS {version} for kernel {image.kernel}", 1.0))
    return packs.described(file, kernel=image.kernel, version=version, key=key(image))


def _build_module(keeper: LocalMachine, work: Path, tree: Path, image: Image, emit: Emit) -> None:
    """Install Debian with compiler, headers and tools in `tree`, and build the module in it."""
    script = work / MODULE_SCRIPT
    script.write_bytes(_module_script())
    script.chmod(0o755)
    options = [
        *("--mode=root", "--variant=minbase", f"--components={COMPONENTS}", "--format=directory"),
        f"--include={MODULE},{USER_SPACE},linux-headers-{image.kernel}={kernel_version(image)}",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in EXCLUDED),
        *("--dpkgopt=force-unsafe-io", "--aptopt=APT::Install-Recommends false"),
        *(f"--essential-hook={NO_AUTOINSTALL}", f"--customize-hook={script}", recipe.SUITE, str(tree)),
    ]
    environment = {
        **keeper.environment(),
        **{"RELEASE": image.kernel, "TMPDIR": str(work), "INITRD": "No", "DEBIAN_FRONTEND": "noninteractive"},
    }
    done = 0.0

    def report(line: str) -> None:
        nonlocal done
        done = share_after(line, done)
        emit(Step(KIND.building, "the module" if "-hook" in line else line.removeprefix("I: "), done))

    KIND.bootstrap(options, environment, report)


def share_after(line: str, done: float) -> float:
    """The share of a build that is done after this line of output; `done`: the share before it."""
    for start, share in STAGES:
        if start in line:
            return max(done, share)
    for start, first, last, count in REPEATED:
        if line.startswith(start):
            return max(done, min(last, max(first, done) + (last - first) / count))
    return done


def _collect_module(keeper: LocalMachine, tree: Path, image: Image, layer: Path) -> None:
    """Copy the modules, uncompressed because a guest would take longer, and depmod's files for them and the image's
    own.
    """
    modules = Path("usr/lib/modules") / image.kernel
    original = image.tree / modules
    shutil.rmtree(tree / modules)
    shutil.copytree(original, tree / modules, symlinks=True)
    built = sorted((tree / "var/lib/dkms/zfs").glob(f"*/{image.kernel}/*/module/*.ko*"))
    if not any(path.name.startswith("zfs.ko") for path in built):
        raise ImageError(f"{KIND.building}: dkms made no module zfs for kernel {image.kernel}")
    for module in built:
        target = tree / modules / "updates/dkms" / f"{module.name.partition('.')[0]}.ko"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(initramfs.uncompressed(module))
    packs.inside(keeper, tree, "depmod", image.kernel)
    shutil.copytree(tree / modules / "updates", layer / modules / "updates")
    # modprobe reads the binary forms; the text forms are for people, and take 2 MB.
    for path in (tree / modules).glob("modules.*.bin"):
        old = original / path.name
        if not old.exists() or old.read_bytes() != path.read_bytes():
            shutil.copyfile(path, layer / modules / path.name)


def _collect_tools(keeper: LocalMachine, tree: Path, image: Image, layer: Path) -> None:
    """Copy the tools' files, and the libraries that they need and the image does not have."""
    listed = packs.inside(keeper, tree, "dpkg-query", "-L", USER_SPACE).splitlines()
    programs = []
    for name in wanted_files(listed):
        path = tree / name
        if path.is_dir() and not path.is_symlink():
            continue
        start = _start(path)
        if start.startswith(b"#!") and b"python" in start:
            continue  # a Python program: the image has only a minimal Python
        if os.path.lexists(path):
            _copy(path, layer / name)
        if start.startswith(b"\x7fELF"):
            programs.append(f"/{name}")
    for library in libraries(packs.inside(keeper, tree, "ldd", *programs)):
        inside = Path("usr") / library.removeprefix("/usr/").lstrip("/")
        if not os.path.lexists(image.tree / inside):
            _copy(tree / inside, layer / inside)
            _copy((tree / inside).resolve(), layer / inside.parent / (tree / inside).resolve().name)


def _start(path: Path) -> bytes:
    """A file's first bytes, which show its kind; b"" if it is no regular file."""
    if path.is_symlink() or not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(64)


def wanted_files(listed: Iterable[str]) -> list[str]:
    """Those of a package's files that a pack contains, relative to the root; the package lists absolute paths."""
    names = (line.removeprefix("/") for line in listed)
    return [name for name in names if name.startswith(("etc/", "usr/")) and not LEFT_OUT.match(name)]


def libraries(said: str) -> list[str]:
    """The paths in what ldd says, each once: '\tlibzfs.so.6 => /lib/x86_64-linux-gnu/libzfs.so.6 (0x00007f)'."""
    missing = re.findall(r"^\s+(\S+) => not found", said, re.MULTILINE)
    if missing:
        raise ImageError(f"{KIND.building}: no package has the library {missing[0]}")
    return sorted(set(re.findall(r"^\s+\S+ => (/\S+) \(0x", said, re.MULTILINE)))


def _copy(source: Path, target: Path) -> None:
    """A file with its mode, or a link as a link."""
    if os.path.lexists(target):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target, follow_symlinks=False)
