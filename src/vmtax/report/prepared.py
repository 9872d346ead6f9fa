"""How the disks under test came to be, in words: what no disk figure means anything without. Pure."""

from __future__ import annotations

from collections import defaultdict

from vmtax.result import Experiment, Json


def prepared(experiment: Experiment) -> str:
    """One sentence for each disk; "" where the run recorded nothing."""
    layers: dict[str, list[str]] = defaultdict(list)
    for path, facts in experiment.facts.items():
        for layer, written in ((facts.get("disk") or {}).get("first_write") or {}).items():
            layers[_sentence(written)].append(layer if path == "host" else f"{layer} on {path}")
    return " ".join(f"Disk of {' and '.join(names)}: {sentence}." for sentence, names in layers.items())


def _sentence(written: Json) -> str:
    size = f"{written['size'] / 2**20:.0f} MiB"
    return f"{written['allocation']}; {size} written once in full with incompressible data {written['when']}"
