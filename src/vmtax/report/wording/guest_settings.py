"""How a run's VM was configured, on one line: a cost is that of these settings. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.builds import has_other_builds, runs_windows
from vmtax.core.layers import CLONE_PATH, EXISTING_PATH, GUESTS, LAYERS
from vmtax.core.records import Experiment, Json
from vmtax.core.units import count_of, format_room
from vmtax.design.disk import DiskServer, During, Share
from vmtax.design.topology import groups, varying

CARDS = {
    "tap": "virtio card on a tap",
    "vhost": "virtio card with vhost",
    "macvtap": "virtio card with macvtap",
    "e1000e": "e1000e card",
    "rtl8139": "rtl8139 card",
    "user": "QEMU's user-mode network",
    "sriov": "virtual function",
    "sriov-standby": "virtual function with a virtio standby",
}
# Beside every figure of a Windows
NEVER = "vmtax was never run on Windows itself, only on Wine."
UNLIKE = f"Windows build against Linux build: disk and network compare; CPU does not. {NEVER}"
ALIKE = f"The same Windows builds on the host and in the VM. {NEVER}"
NETWORK = ("net", "latency", "smb")  # workloads of the card


def guest_settings(analysis: Analysis) -> str:
    """Which VM of the user's was measured, and the settings that all guests of the first layer with guests share: "VM:
    CPU model host, raw file, cache=none, …".

    Only of what was measured; "" if nothing is known.
    """
    return " ".join(filter(None, [_existing(analysis.experiment), _of_guests(analysis)]))


def _existing(run: Experiment) -> str:
    """ "Existing VM: libvirt:web1, 2 CPUs, 1 GiB, Debian GNU/Linux 12, kernel 6.1.0."; "" if none was measured."""
    options = run.options.get("existing") or {}
    facts = run.facts.get(CLONE_PATH if options.get("clone") else EXISTING_PATH) or {}
    if not options and not facts:
        return builds_of_windows(run.facts)
    cpus, memory = facts.get("cpus_online"), facts.get("memory_bytes")
    parts = [
        options.get("name"),
        count_of(cpus, "CPU") if cpus else None,
        format_room(memory) if memory else None,
        facts.get("os"),
        f"kernel {facts['kernel_release']}" if facts.get("kernel_release") else None,
    ]
    what = LAYERS["clone" if options.get("clone") else "existing"].title.capitalize()
    text = f"{what.replace(' vm', ' VM')}: {', '.join(map(str, filter(None, parts)))}."
    return " ".join(filter(None, (text, builds_of_windows(run.facts))))


def builds_of_windows(facts: Mapping[str, Json]) -> str:
    """What a Windows among the machines means for its figures; "" if there is none. `facts`: by machine path"""
    if has_other_builds(facts):
        return UNLIKE
    if not runs_windows(facts):
        return ""
    return ALIKE if EXISTING_PATH in facts else NEVER


def _of_guests(analysis: Analysis) -> str:
    run = analysis.experiment
    own = {layer: members for (layer, side, _), members in groups(run.treatments).items() if not side}
    layer = next((name for name in own if name in GUESTS), None)
    if layer is None:
        return ""
    differing = set(varying(own[layer]))
    levels = {name: level for name, level in own[layer][0].levels.items() if name not in differing}
    measured = {trial.workload for trial in run.trials}
    parts = [*_cpu(levels, emulated=bool(analysis.emulated))]
    if "disk" in measured:
        parts += _disk(levels)
    host = run.facts.get("host") or {}
    path = levels.get("net.path") if host.get("measured_as_root") is not False else "user"  # others get no tap
    if measured & {*NETWORK} and path in CARDS:
        parts.append(CARDS[path])
    qemu = host.get("qemu")
    if isinstance(qemu, dict) and qemu.get("version") and analysis.sides is None:
        parts.append(f"QEMU {qemu['version']}")
    return f"{LAYERS[layer].title}: {', '.join(parts)}." if parts else ""


def _cpu(levels: Mapping[str, str], *, emulated: bool) -> Iterator[str]:
    if "cpu.model" in levels and not emulated:  # an emulated guest has another one
        yield f"CPU model {levels['cpu.model']}"


def _disk(levels: Mapping[str, str]) -> Iterator[str]:
    """What holds the disk, and how QEMU opens it."""
    volume, system = levels.get("disk.volume"), levels.get("disk.filesystem")
    if volume is not None and system is not None:
        place = "" if volume == "plain" else f"{volume} "
        kind = f"{levels['disk.format']} file" if "disk.format" in levels else "file"
        on = "" if system == "as-is" else f" on {system}"
        yield f"{place}device".strip() if system == "none" else f"{place}{kind}{on}"
    if (snapshots := levels.get("disk.snapshots", "0")) != "0":
        yield f"under {snapshots} snapshot{'s' if snapshots != '1' else ''}"
    if (server := levels.get("disk.server", DiskServer.NONE)) != DiskServer.NONE:
        yield f"from a server of {server.upper()}"
    if (during := levels.get("disk.snapshot_during", During.NONE)) != During.NONE:
        yield f"with a {during} while it works"
    share = levels.get("disk.share", Share.NONE)
    if share != Share.NONE:
        yield f"its directory over {share}"
        return  # the guest has no disk, and so none of a disk's settings
    for name in ("disk.cache", "disk.aio"):
        if name in levels:
            yield f"{name.partition('.')[2]}={levels[name]}"
    if "disk.bus" in levels:
        yield {"virtio": "virtio-blk"}.get(levels["disk.bus"], levels["disk.bus"])
