"""KVM's counters and the kernel's histogram of exits, as QEMU 10.0 and Linux 6.12 write them: parsed, kept, shown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.answers import experiment_data
from tests.fake_machine import FakeMachine, Reply
from tests.sample import sample_experiment
from vmtax.analysis.analysis import Analysis
from vmtax.core.errors import CannotDo
from vmtax.core.notices import read
from vmtax.core.records import Boot, Experiment, Measurement, Treatment, Trial
from vmtax.experiment.signatures import Signatures
from vmtax.experiment.trial import TrialKey, run_trials
from vmtax.hypervisor.qemu.exit_trace import COUNTS, END, REASONS, START, ExitTrace, parse_counts, parse_reasons
from vmtax.hypervisor.qemu.kvm import KvmCounters, scales, totals
from vmtax.hypervisor.qemu.qmp import QmpError
from vmtax.meter import MeteredCommand
from vmtax.meter.exits import ExitCounts
from vmtax.report.render.markdown import render_markdown
from vmtax.report.sections import exits as exits_section
from vmtax.testbed.session.base import RunningSubject, RunningTreatment
from vmtax.workload import Site
from vmtax.workload.cpuid import INSTRUCTION, Cpuid, CpuidParameters
from vmtax.workload.net import Net, NetParameters
from vmtax.workload.site import Link

SCHEMAS: Any = [
    {
        "provider": "kvm",
        "target": "vcpu",
        "stats": [
            {"name": "guest_mode", "unit": "boolean", "exponent": 0, "type": "instant"},
            {"name": "io-exits", "exponent": 0, "type": "cumulative"},
            {"name": "exits", "exponent": 0, "type": "cumulative"},
            {"name": "halt_wait_hist", "unit": "seconds", "base": 10, "exponent": -9, "type": "log2-histogram"},
            {"name": "halt_wait_ns", "unit": "seconds", "base": 10, "exponent": -9, "type": "cumulative"},
        ],
    },
    {"provider": "cryptodev", "target": "cryptodev", "stats": [{"name": "exits", "type": "cumulative"}]},
    {"provider": "kvm", "target": "vm", "stats": [{"name": "pages_4k", "exponent": 0, "type": "instant"}]},
]
VCPU = [
    {"name": "guest_mode", "value": False},
    {"name": "io-exits", "value": 1249},
    {"name": "exits", "value": 1976},
    {"name": "halt_wait_hist", "value": [0, 41]},
    {"name": "halt_wait_ns", "value": 2_210_740_581},
]
ANSWERS: Any = {
    "query-stats-schemas": SCHEMAS,
    "vcpu": [{"provider": "kvm", "stats": VCPU, "qom-path": f"/machine/unattached/device[{n}]"} for n in (0, 2)],
    "vm": [{"provider": "kvm", "stats": [{"name": "pages_4k", "value": 158}]}],
}
FORMAT = (
    'print fmt: "vcpu %u reason %s%s%s", REC->vcpu_id, (REC->isa == 1) ? __print_symbolic(REC->exit_reason & 0xffff, '
    '{ 0, "EXCEPTION_NMI" }, { 10, "CPUID" }) : __print_symbolic(REC->exit_reason, { 0x000, "read_cr0" }, '
    '{ 0x040 + 14, "PF excp" }, { 0x060, "interrupt" }, { 0x072, "cpuid" }, { -1, "invalid_guest_state" }), '
    '(REC->isa == 1) ? __print_flags(REC->exit_reason & ~0xffff, " ", { 0x80000000, "FAILED_VMENTRY" }) : ""\n'
)
HIST = """\
# event histogram
#
# trigger info: hist:keys=isa,exit_reason:vals=hitcount:sort=hitcount:size=2048 if common_pid==314 [active]
#

{ isa:          2, exit_reason:         78 } hitcount:          1
{ isa:          2, exit_reason:        114 } hitcount:        270
{ isa:          2, exit_reason:       1024 } hitcount:        235

Totals:
    Hits: 506
    Entries: 3
    Dropped: 0
"""
PATHS = {"host/vm": 1.0, "host/vm-2": 2.0, "host/vm/vm": 3.0, "host/vm-2/vm": 4.0}  # and by how much exits grow
GOLDEN = Path(__file__).parent.parent / "golden"
DOTTED = re.compile("(?<=^reason)_|(?<=^cycles)_")
INSTANCE = "/sys/kernel/tracing/instances/mine"


class FakeQmp:
    """Answers by command or by target; without an answer as a QEMU that has no such command."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers

    def execute(self, command: str, target: str = "") -> Any:
        try:
            return self.answers[target or command]
        except KeyError:
            raise QmpError(f"QEMU refused {command}: unknown command") from None


class FakeGuest:
    """One whose counters are scripted, look by look."""

    def __init__(self, path: str, *looks: dict[str, float]) -> None:
        self.path, self.looks = path, iter(looks)
        self.sampled: list[bool] = []
        self.unsampled = ""

    def sample(self, on: bool) -> str:
        self.sampled.append(on)
        return self.unsampled

    def counters(self) -> dict[str, float]:
        return next(self.looks)


def counters(answers: Mapping[str, Any]) -> dict[str, float]:
    qmp: Any = FakeQmp(answers)
    return KvmCounters(qmp).read()


def test_what_is_counted_up_is_the_sum_of_all_vcpus_in_base_units() -> None:
    assert counters(ANSWERS) == {
        "io_exits": 2498.0,
        "exits": 3952.0,
        "halt_wait_seconds": pytest.approx(2 * 2.210740581),
    }


def test_a_qemu_without_query_stats_counts_nothing_and_neither_does_an_emulated_guest() -> None:
    assert counters({}) == {} and counters({**ANSWERS, "vcpu": [], "vm": []}) == {}


@pytest.mark.parametrize("garbage", [None, 3, "x", [None], [{"stats": 3}], [{"stats": [3, {}]}], {"stats": []}])
def test_garbage_is_no_counter(garbage: object) -> None:
    assert scales(garbage) == {} and totals({"vcpu": garbage}, scales(SCHEMAS)) == {}
    assert parse_reasons(str(garbage)) == {} and parse_counts(str(garbage), {}) == {}


def traced(**replies: Reply) -> tuple[ExitTrace, FakeMachine]:
    answers: Any = {
        (*START, INSTANCE, "common_pid==314||common_pid==315"): replies.get("start", ""),
        (*REASONS, INSTANCE): FORMAT,
        (*COUNTS, INSTANCE): HIST,
        (*END, INSTANCE): "",
    }
    machine = FakeMachine("host", answers)
    return ExitTrace(machine, "mine", [314, 315]), machine


def test_the_histogram_says_why_by_the_kernels_names_or_their_number() -> None:
    trace, _ = traced()
    assert trace.read() == {"pf_excp": 1.0, "cpuid": 270.0, "1024": 235.0}
    assert parse_reasons(FORMAT)[1, 10] == "cpuid", "Intel's numbers are others"


def test_a_kernel_without_histograms_is_said_in_one_line() -> None:
    with pytest.raises(
        CannotDo, match=r"host has no histogram of KVM's exits \(tracefs with HIST_TRIGGERS, root\): no"
    ):
        traced(start=Reply(code=1, stderr="no such file\n"))


def test_the_meter_keeps_by_how_much_counters_grew_and_what_was_done_meanwhile() -> None:
    guest, meter = FakeGuest("host/vm", {"exits": 10.0}, {"exits": 1010.0, "reason.cpuid": 990.0}), ExitCounts()
    meter.before(guest)
    rows = meter.after(guest, [MeteredCommand("stress-ng", ok=True, seconds=1.0, operations=500.0)]).rows
    assert rows.pop("seconds") > 0
    assert rows == {"exits": 1000.0, "reason.cpuid": 990.0, "operations": 500.0}


def test_nothing_is_kept_of_an_emulated_guest_and_never_zeros() -> None:
    guest, meter = FakeGuest("host/vm", {}, {}), ExitCounts()
    meter.before(guest)
    assert meter.after(guest, [MeteredCommand("stress-ng", ok=True, seconds=1.0, operations=500.0)]).rows == {}


def test_each_trial_has_the_exits_of_its_guest_and_of_the_outer_vm_that_carries_it() -> None:
    raw = (GOLDEN / "workload" / "cpuid.txt").read_text()
    workload = Cpuid(CpuidParameters())
    machines = [
        FakeMachine(path, {lambda argv: argv[0] == "stress-ng": raw}) for path in ("host/vm/vm", "host/vm-2/vm")
    ]
    guests: list[Any] = [FakeGuest(path, {"exits": 10.0}, {"exits": 10.0 + n}) for path, n in PATHS.items()]
    subjects = [
        RunningSubject(Site(machine, "nested", 1, ()), guest)
        for machine, guest in zip(machines, guests[2:], strict=True)
    ]
    running = RunningTreatment(tuple(subjects), FakeMachine("host", {}), tuple(guests[:2]), meters=())
    trials = run_trials(TrialKey(1, 1, "nested"), running, workload, "", Signatures(), iteration=1)
    exits = [
        {path: rows["kvm.exits"] for path, rows in trial.readings.items() if "kvm.exits" in rows} for trial in trials
    ]
    assert exits == [{"host/vm/vm": 3.0, "host/vm": 1.0}, {"host/vm-2/vm": 4.0, "host/vm-2": 2.0}]
    assert trials[0].readings["host/vm"]["kvm.operations"] == workload.operations("", raw)
    assert [guest.sampled for guest in guests] == 4 * [[False]], "samples would delay what this workload measures"
    assert not any(trial.warnings for trial in trials)


def test_a_guest_that_should_be_sampled_and_cannot_be_is_a_warning_of_the_trial() -> None:
    guest: Any = FakeGuest("host/vm", {}, {})
    guest.unsampled = "Operation not permitted"
    output = (GOLDEN / "workload" / "tcp-out.json").read_text()
    machine = FakeMachine("host/vm", {lambda argv: "iperf3" in argv: output})
    subject = RunningSubject(Site(machine, "vm", 1, (), link=Link(machine, (), "10.0.0.1", 5201)), guest)
    running = RunningTreatment((subject,), FakeMachine("host", {}), meters=())
    (trial,) = run_trials(TrialKey(1, 1, "vm"), running, Net(NetParameters()), "tcp-out", Signatures(), iteration=1)
    assert guest.sampled == [True]
    (warning,) = [text for text in trial.warnings if text.startswith("ticks")]
    assert warning == "ticks: host/vm: its vCPUs were not sampled: Operation not permitted"
    assert read(warning).effect.startswith("The host's CPU time outside guest code")


def run(accelerator: str, **rows: float) -> Experiment:
    """A VM whose figures come with these rows of the meter, and a host beside it."""
    sample = sample_experiment(rounds=2, emulated=accelerator == "tcg")
    read = {"host/vm": {f"kvm.{DOTTED.sub('.', name)}": value for name, value in rows.items()}}
    boots = [Boot(n, "vm", "host/vm", accelerator, accelerator == "tcg", ("qemu",), 1.0, 0.5) for n in (1, 2)]
    treatments = [treatment for treatment in sample.treatments if treatment.layer in ("host", "vm")]
    trials = [
        replace(trial, machine="host/vm", readings=read if rows else {}) if trial.treatment == "vm" else trial
        for trial in sample.trials
        if trial.treatment in ("host", "vm")
    ]
    return replace(sample, treatments=tuple(treatments), boots=tuple(boots), trials=tuple(trials))


def shown(experiment: Experiment) -> str:
    return render_markdown(Analysis(experiment))


def test_a_report_has_exits_by_operation_and_by_second_and_why() -> None:
    counted = run("kvm", exits=2000.0, seconds=4.0, operations=1000.0, reason_cpuid=1500.0, reason_hlt=500.0)
    assert "| 2 | 500 | cpuid 75 %, hlt 25 % |" in " ".join(shown(counted).split())
    (first, *_) = experiment_data(Analysis(counted))["exits"]
    assert (first["machine"], first["per_operation"], first["per_second"]) == ("host/vm", 2.0, 500.0)
    assert first["reasons"] == {"cpuid": 0.75, "hlt": 0.25} and first["why_not"] is None


def test_without_operations_there_is_a_dash_and_without_reasons_the_way_to_them() -> None:
    text = " ".join(shown(run("kvm", exits=2000.0, seconds=4.0)).split())
    assert "| – | 500 |" in text and "--vary guest.exit_trace=on" in text


def test_the_price_of_one_exit_is_what_cpuid_takes_beyond_the_host() -> None:
    def took(trial: Trial, seconds: float, exits: Sequence[float] = ()) -> Trial:
        machine = {"host": "host", "vm": "host/vm", "nested": "host/vm/vm"}[trial.treatment]
        counted = {
            path: {"kvm.exits": each, "kvm.operations": 100.0, "kvm.seconds": 1.0}
            for path, each in zip(("host/vm", "host/vm/vm"), exits, strict=False)
        }
        return replace(
            trial,
            workload="cpuid",
            case="",
            machine=machine,
            measurements=(Measurement(INSTRUCTION, seconds),),
            readings=counted,
        )

    sample = sample_experiment(rounds=1, emulated=False)
    trials = {trial.treatment: trial for trial in sample.trials}
    mine = (
        took(trials["host"], 100e-9),
        took(trials["vm"], 1.5e-6, [101.0]),
        took(trials["nested"], 30e-6, [2500.0, 100.0]),
    )
    boots = [
        Boot(1, name, path, "kvm", False, ("qemu",), 1.0, 0.5)
        for name, path in (("vm", "host/vm"), ("nested", "host/vm"), ("nested", "host/vm/vm"))
    ]
    text = " ".join(shown(replace(sample, trials=mine, boots=tuple(boots))).split())
    assert "| host | 100 ns | – | – | – |" in text
    assert "| vm | 1.50 µs | 1.40 µs | 1.01 | – |" in text
    assert "| nested | 30.0 µs | 29.9 µs | 1 | 25 |" in text
    assert "What one exit costs" not in shown(run("kvm", exits=2000.0, seconds=4.0, operations=1000.0))


def test_the_price_of_an_exit_is_beyond_the_host_that_was_booted_alike() -> None:
    off = {"host.kernel_arguments": "mitigations=off"}
    hosts = (Treatment("host", "host"), Treatment("host off", "host", off))
    guests = (Treatment("vm", "vm"), Treatment("vm off", "vm", off))
    took = {"host": 100e-9, "host off": 50e-9, "vm": 1.5e-6, "vm off": 1.25e-6}
    sample = sample_experiment(rounds=1, emulated=False)
    trials = [
        replace(
            sample.trials[0],
            treatment=name,
            workload="cpuid",
            case="",
            machine="host" if name.startswith("host") else "host/vm",
            measurements=(Measurement(INSTRUCTION, seconds),),
            readings={"host/vm": {"kvm.exits": 1.0, "kvm.operations": 1.0, "kvm.seconds": 1.0}},
        )
        for name, seconds in took.items()
    ]
    boots = [Boot(1, each.name, "host/vm", "kvm", False, ("qemu",), 1.0, 0.5) for each in guests]
    run = replace(sample, treatments=hosts + guests, trials=tuple(trials), boots=tuple(boots))
    text = " ".join(shown(run).split())
    assert "| host off | 50.0 ns | – |" in text
    assert "| vm | 1.50 µs | 1.40 µs |" in text and "| vm off | 1.25 µs | 1.20 µs |" in text


def test_where_no_kvm_is_that_is_the_reason_and_there_are_no_zeros() -> None:
    emulated = run("tcg")
    assert "- vm: not counted; no KVM here, host/vm is emulated" in shown(emulated)
    assert {one["per_second"] for one in experiment_data(Analysis(emulated))["exits"]} == {None}
    assert "an earlier version of vmtax" in shown(run("kvm"))


def test_a_host_alone_has_no_exits_and_no_section() -> None:
    alone = replace(run("kvm"), boots=(), treatments=(Treatment("host", "host"),))
    assert exits_section.section(Analysis(alone)) is None
