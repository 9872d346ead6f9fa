"""How the host chooses the frequency of its CPUs. Each field is a factor of plans. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from vmtax.core.layers import LAYERS, OWNERS
from vmtax.design.settings import Settings, setting

AS_SET = "as-set"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrequencySettings(Settings):
    """The settings of a treatment for its host's CPUs."""

    governor: str = setting(
        "cpu.governor",
        (AS_SET, "performance", "powersave", "schedutil", "ondemand", "conservative"),
        str,
        "the governor that chooses the frequency of all CPUs of the host: the one that is set there (as-set), or one of"
        " these, where the host's cpufreq driver has it; set while the machines of a configuration are up, and put"
        " back, though its own settings (ondemand's sampling_rate) begin anew. Tried only on"
        " files that stand in for such a driver",
        layers=tuple(layer for layer in LAYERS if layer not in OWNERS),
        scope="host",
    )


GOVERNOR = FrequencySettings.factors()["governor"].name
