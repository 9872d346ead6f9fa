"""Facts about machines in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vmtax.core.units import cpu_numbers, format_room


def flat_facts(facts: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested facts as lines of (dotted name, text)."""
    if isinstance(facts, dict) and facts:
        for key, value in facts.items():
            yield from flat_facts(value, f"{name}.{key}" if name else str(key))
    elif isinstance(facts, (list, tuple)) and not any(isinstance(entry, (dict, list)) for entry in facts):
        yield name, ", ".join(str(entry) for entry in facts) or "none"
    elif facts is None:
        yield name, "not known"
    elif isinstance(facts, bool):
        yield name, "yes" if facts else "no"
    else:
        yield name, str(facts)


LABELS = {  # of facts whose keys are no words for people
    "cpu_model": "CPU",
    "cpu_vendor": "CPU's vendor",
    "cpus_online": "CPUs online",
    "cpus_allowed": "CPUs that may be used",
    "cpus_measured": "CPUs that were measured",
    "frequency_hz": "frequency",
    "virtualized": "is a VM",
    "smt_active": "SMT",
    "kernel_release": "kernel",
    "kernel_command_line": "kernel's arguments",
    "os": "system",
    "memory_bytes": "memory",
    "swap_bytes": "swap",
    "thp_enabled": "transparent huge pages",
    "kvm_nested": "KVM for nested VMs",
    "numa_nodes": "NUMA nodes",
    "pressure": "counts waiting tasks (PSI)",
    "qemu": "QEMU",
}


def fact_label(name: str) -> str:
    """A flat fact's name for people: "kernel's arguments", "mitigations: spectre v2"."""
    first, *rest = name.split(".")
    return ": ".join([LABELS.get(first, first.replace("_", " ")), *(part.replace("_", " ") for part in rest)])


def fact_value(name: str, text: str) -> str:
    """A flat fact's value for people: bytes and frequencies are scaled."""
    try:
        number = float(text)
    except ValueError:
        return text
    if name.endswith(("_bytes", ".bytes")):
        return format_room(number)
    return f"{number / 1e9:.2f} GHz" if name.endswith("_hz") else text


def fact_in_words(name: str, facts: Mapping[str, str]) -> str:
    """One of the flat facts of a machine; the number of CPUs also says if the run may use only some of them."""
    value, allowed = facts.get(name, ""), facts.get("cpus_allowed", "")
    if name == "cpus_online" and _is_count(value) and 0 < len(cpu_numbers(allowed)) < int(value):
        return f"{value}, of which {allowed} may be used"
    return format_room(float(value)) if name == "memory_bytes" and _is_count(value) else value


def _is_count(text: str) -> bool:
    return text.isdecimal() and len(text) < 20
