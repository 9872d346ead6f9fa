"""What a run's facts say of its hosts."""

from __future__ import annotations

import dataclasses

from tests.sample import sample_experiment
from vmtax.analysis.hosts import other_kernels


def test_a_guests_kernel_is_another_only_if_a_guest_runs_it() -> None:
    run = sample_experiment()
    beside = {
        "ssh://b": {"kernel_release": "5.10.0"},  # a second host, or a migration's destination
        "host/vm": {"kernel_release": "6.12.48+deb13-cloud-amd64", "command_line": ["qemu-system-x86_64"]},
        "host/vm/nested": {"kernel_release": "6.12.48+deb13-amd64", "command_line": ["qemu-system-x86_64"]},
    }
    assert other_kernels(dataclasses.replace(run, facts={**run.facts, **beside})) == ["6.12.48+deb13-cloud-amd64"]
    assert other_kernels(dataclasses.replace(run, facts={})) == []
