"""How the disks under test were first written, in words: figures of disks cannot be interpreted without it. Pure."""

from __future__ import annotations

from collections import defaultdict

from vmtax.core.records import Experiment, Json


def disk_preparation(experiment: Experiment) -> str:
    """One sentence for each disk, or one for all disks that differ only in their kind; "" if nothing was recorded."""
    layers: dict[str, list[str]] = defaultdict(list)
    kinds: dict[str, list[str]] = defaultdict(list)
    for path, facts in experiment.facts.items():
        for name, written in ((facts.get("disk") or {}).get("first_write") or {}).items():
            where = name if path == "host" else f"{name} on {path}"
            if name == written["allocation"]:
                kinds[_written(written)].append(where)
            else:
                layers[f"{written['allocation']}; {_written(written)}"].append(where)
    sentences = [f"Disk of {' and '.join(names)}: {sentence}." for sentence, names in layers.items()]
    sentences += [f"Disks, each {sentence}: {', '.join(names)}." for sentence, names in kinds.items()]
    return " ".join(sentences)


def _written(written: Json) -> str:
    size = f"{written['size'] / 2**20:.0f} MiB"
    return f"{size} written once in full with incompressible data {written['when']}"
