"""Shows that the pack for Windows is the same in two builds, and that its programs do what the image's do for Linux.

    python -m tools.prove_windows_pack

Wine runs the programs: their work is proved, not their speed, and nothing of Windows itself. stockfish must search as
many positions as the image's, at each depth; fio's JSON must be what workload `disk` reads, of as many bytes as the
file that it left. The sender must find the rate that iperf3 finds, between two network namespaces whose link the kernel
limits, in both directions, from Linux and from Wine, and must keep to a rate that it is given.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from vmtax.image import cache, windows
from vmtax.image.packs import Pack
from vmtax.machine.local import LocalMachine
from vmtax.workload.chess import ALONE, Chess, ChessParameters
from vmtax.workload.fio import Disk, DiskParameters
from vmtax.workload.output import BadOutput

DEPTHS = ("7", "8", "9")
SIZE = 16 << 20
# Pattern of `disk` -> what fio.exe gets for it.
PATTERNS = {
    "randread-4k-qd1": ("--rw=randread", "--bs=4k", "--iodepth=1"),
    "randwrite-4k-qd32": ("--rw=randwrite", "--bs=4k", "--iodepth=32"),
    "read-1m": ("--rw=read", "--bs=1m", "--iodepth=8"),
    "write-1m": ("--rw=write", "--bs=1m", "--iodepth=8"),
}
# The colon is escaped: unescaped, fio exits with 0 and measures another file.
OPTIONS = (
    *(r"--filename=C\:\vmtax\disk", f"--size={SIZE}", "--direct=1", "--ioengine=windowsaio", "--thread"),
    *("--lat_percentiles=1", "--output-format=json"),
)
MINUTES = 600.0


# The namespaces of the network, and the receiver's address there.
SENDING, RECEIVING = f"vmtax-{os.getpid()}-s", f"vmtax-{os.getpid()}-r"
ADDRESS, PORT = "10.211.47.2", 7311
LINK_BITS, GIVEN_BITS = 200e6, 40e6  # the link's limit, and a rate below it
LIMIT = ("rate", f"{LINK_BITS:.0f}", "burst", "64kb", "latency", "50ms")
SECONDS, ROUNDS = 3, 5
NEAR, EXACT = 0.05, 0.02  # of the rate that iperf3 finds, and of a rate that is given


def of_image(tree: str, *argv: str) -> tuple[str, ...]:
    """A command in the image's root, with the network of who starts it."""
    sandbox = ("bwrap", "--unshare-all", "--share-net", "--die-with-parent", "--ro-bind", tree, "/")
    return (*sandbox, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", *argv)


def output(argv: Sequence[str], environment: dict[str, str] | None = None) -> str:
    """What a program prints on both streams; wine writes some of its own to stderr."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=MINUTES, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{argv[0]} ended with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout + done.stderr


def built(again: int) -> Pack:
    print(f"build {again}", flush=True)
    return windows.PACK.build(lambda event: None, again=True)


def nodes(words: str) -> str | None:
    return Chess(ChessParameters()).signature(ALONE, words)


@contextlib.contextmanager
def link() -> Iterator[None]:
    """Two network namespaces with a link that sends LINK_BITS at most."""
    near, far = ("ip", "-n", SENDING), ("ip", "-n", RECEIVING)
    try:
        for argv in (
            *(("ip", "netns", "add", name) for name in (SENDING, RECEIVING)),
            ("ip", "link", "add", "v0", "netns", SENDING, "type", "veth", "peer", "name", "v1", "netns", RECEIVING),
            (*near, "address", "add", "10.211.47.1/24", "dev", "v0"),
            (*far, "address", "add", f"{ADDRESS}/24", "dev", "v1"),
            *((*near, "link", "set", name, "up") for name in ("lo", "v0")),
            *((*far, "link", "set", name, "up") for name in ("lo", "v1")),
            ("tc", "-n", SENDING, "qdisc", "add", "dev", "v0", "root", "tbf", *LIMIT),
            ("tc", "-n", RECEIVING, "qdisc", "add", "dev", "v1", "root", "tbf", *LIMIT),
        ):
            subprocess.run(argv, check=True)
        yield
    finally:
        for name in (SENDING, RECEIVING):
            subprocess.run(("ip", "netns", "delete", name), check=False, stderr=subprocess.DEVNULL)


def inside(namespace: str, *argv: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", namespace, *argv)


@contextlib.contextmanager
def listening(argv: Sequence[str], environment: dict[str, str], ready: str) -> Iterator[IO[str]]:
    """What a program prints in the receiving namespace after the line that it is ready; it is ended at exit."""
    with subprocess.Popen(inside(RECEIVING, *argv), stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            while ready not in (line := process.stdout.readline()):
                if not line:
                    raise SystemExit(f"{argv[0]} ended before it listened")
            yield process.stdout
        finally:
            process.kill()


def moved(client: Sequence[str], server: Sequence[str], way: str, rate: float | None, env: dict[str, str]) -> float:
    """Bits a second that arrived, by the client's clock, of a client that sends or receives; the other end has counted
    as many bytes, or it fails. `rate`: bits a second that are to be sent
    """
    asked = (str(SECONDS), *([f"{rate / 8:.0f}"] if rate else []))
    with listening((*server, "serve", ADDRESS, str(PORT)), env, "ready"):
        said = json.loads(output(inside(SENDING, *client, way, ADDRESS, str(PORT), *asked), env).splitlines()[0])
    if not 0 < said["cpu_seconds"] + said["far_cpu_seconds"] < 4 * SECONDS:
        raise SystemExit(f"impossible CPU times: {said}")
    return float(said["bytes"] * 8 / said["seconds"])


def of_iperf3(tree: str, *way: str) -> float:
    """Bits a second that arrived, according to the image's iperf3."""
    with listening(of_image(tree, "iperf3", "-s", "-1", "--forceflush"), dict(os.environ), "listening"):
        client = of_image(tree, "iperf3", "-c", ADDRESS, "-t", str(SECONDS), "-J", *way)
        found = json.loads(output(inside(SENDING, *client)))
    return float(found["end"]["sum_received"]["bits_per_second"])


def network(programs: Path, tree: str, under_wine: dict[str, str]) -> list[str]:
    """What is wrong with the sender and the receiver."""
    linux, wine = (str(programs / "vmtax-net"),), ("wine", str(programs / "vmtax-net.exe"))
    ends = {
        "Linux with Linux": (linux, linux),
        "Windows with Linux": (wine, linux),
        "Linux with Windows": (linux, wine),
    }
    pairs = {f"{name}, {way}": (*pair, way) for name, pair in ends.items() for way in ("send", "receive")}
    rates: dict[str, list[float]] = {name: [] for name in ("send", "receive", *pairs)}
    wrong = []
    with link():
        for _ in range(ROUNDS):
            rates["send"].append(of_iperf3(tree))
            rates["receive"].append(of_iperf3(tree, "--reverse"))
            for name, (client, server, way) in pairs.items():
                rates[name].append(moved(client, server, way, None, under_wine))
        found = {name: statistics.median(values) for name, values in rates.items()}
        for name, (client, server, way) in pairs.items():
            given = moved(client, server, way, GIVEN_BITS, under_wine)
            ratio = found[name] / found[way]
            print(f"{name}: {ratio:.3f} of iperf3's rate, {given / GIVEN_BITS:.3f} of a given rate", flush=True)
            if abs(ratio - 1) > NEAR or abs(given / GIVEN_BITS - 1) > EXACT:
                wrong.append(name)
    return wrong


def main() -> int:
    first, second = built(1), built(2)
    if first.digest != second.digest:
        print(f"two builds differ: {first.digest} and {second.digest}")
        return 1
    image = cache.current()
    if image is None:
        raise SystemExit("there is no image: vmtax image build")
    wrong = []
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        keeper = LocalMachine()
        try:
            digests = windows.unpack(second, keeper, work / "programs")
        finally:
            keeper.close()
        under_wine = {**os.environ, "WINEPREFIX": str(work / "prefix"), "WINEDEBUG": "-all", "DISPLAY": ""}
        for depth in DEPTHS:
            bench = ("bench", "16", "1", depth, "default", "depth")
            linux = nodes(output(of_image(str(image.tree), "/usr/games/stockfish", *bench)))
            theirs = nodes(output(("wine", str(work / "programs/stockfish.exe"), *bench), under_wine))
            print(f"depth {depth}: Linux {linux}, Windows {theirs}", flush=True)
            if linux is None or linux != theirs:
                wrong.append(f"depth {depth}")
        (work / "prefix/drive_c/vmtax").mkdir()
        for pattern, words in PATTERNS.items():
            argv = ("wine", str(work / "programs/fio.exe"), f"--name={pattern}", *OPTIONS, *words)
            printed = output(argv, under_wine)
            workload = Disk(DiskParameters.model_validate({"patterns": [pattern]}))
            block = (1 << 20) if pattern.endswith("1m") else 4096
            try:
                figures = workload.parse(pattern, printed)
                done = workload.operations(pattern, printed)
            except BadOutput as error:
                wrong.append(f"{pattern}: {error}")
                continue
            size = (work / "prefix/drive_c/vmtax/disk").stat().st_size
            print(f"{pattern}: {len(figures)} figures, {done:.0f} operations, file of {size} bytes", flush=True)
            if (done, size) != (SIZE / block, SIZE):
                wrong.append(f"{pattern}: {done} operations")
        wrong += network(work / "programs", str(image.tree), under_wine)
        for name, digest in digests.items():
            print(f"{name} {digest}")
    print(
        f"{second.version}: 2 builds are equal; {len(DEPTHS)} numbers of positions, {len(PATTERNS)} patterns of fio"
        f" and 6 pairs of senders and receivers compared, wrong: {len(wrong)}{''.join(f'; {each}' for each in wrong)}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
