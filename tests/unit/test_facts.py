"""Facts, parsed from what the commands really printed, and from what they might never print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fake_machine import FakeMachine, Reply
from tests.mounts import only
from vmtax.meter import below, disk, facts, mounts
from vmtax.meter.text import GREP, parse_files

GUEST = (Path(__file__).parents[1] / "golden" / "facts" / "guest-amd.txt").read_text()
READ = (*GREP, "", *facts.FILES)

# What an Intel host adds: frequency scaling, quotas, nesting.
HOST_FILES = """\
/proc/sys/kernel/hostname:example
/sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq:3900000
/sys/devices/system/cpu/cpufreq/policy0/scaling_driver:intel_pstate
/sys/devices/system/cpu/cpufreq/policy0/scaling_governor:powersave
/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq:3100000
/sys/devices/system/cpu/cpufreq/policy1/cpuinfo_max_freq:3900000
/sys/devices/system/cpu/cpufreq/policy1/scaling_driver:intel_pstate
/sys/devices/system/cpu/cpufreq/policy1/scaling_governor:performance
/sys/devices/system/cpu/cpufreq/policy1/scaling_max_freq:3100000
/sys/devices/system/cpu/intel_pstate/no_turbo:0
/sys/module/kvm_intel/parameters/nested:Y
/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages:512
/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages:500
/sys/fs/cgroup/user.slice/user-1000.slice/cpu.max:max 100000
/sys/fs/cgroup/user.slice/cpu.max:150000 100000
"""

# util-linux 2.38 on the machine of guest-amd.txt.
LSBLK = """{"blockdevices": [{"kname": "vda", "type": "disk", "model": null, "rota": true, "sched": "mq-deadline",
 "size": 274877906944, "log-sec": 512, "phy-sec": 4096, "tran": null}]}"""


def test_a_guest_without_systemd_or_dmi() -> None:
    entries = "w /dev/kvm\nw /sys/module/kvm\nw /sys/module/kvm_pvm\n"
    machine = FakeMachine(
        answers={
            READ: Reply(GUEST, code=2),
            facts.FIND: Reply(entries, code=1),
            lambda argv: facts.INCLUDES[0] in argv: Reply(code=2),
            below.CPUID: Reply(code=127),
            below.DETECT: Reply(code=127),
        }
    )
    found = facts.read_facts(machine)
    assert len(machine.calls) <= 5
    assert (found["cpu_model"], found["cpu_vendor"], found["microcode"]) == ("AMD EPYC", "AuthenticAMD", "0x1000065")
    assert (found["sockets"], found["cores"], found["threads_per_core"], found["cpus_online"]) == (1, 2, 1, 2)
    assert (found["virtualized"], found["hypervisor"], found["clocksource"]) == (True, "kvm", "tsc")
    assert (found["memory_bytes"], found["swap_bytes"]) == (24684092 * 1024, 0)
    assert (found["thp_enabled"], found["thp_defrag"]) == ("madvise", "madvise")
    assert found["mitigations"]["spec_rstack_overflow"] == "Vulnerable: Safe RET, no microcode"
    assert (found["smt_active"], found["smt_control"], found["numa_nodes"]) == (False, "notsupported", 1)
    assert (found["kvm_device"], found["kvm_modules"]) == (True, ["kvm", "kvm_pvm"])
    assert found["os"] == "Debian GNU/Linux 12 (bookworm)"
    for unknown in ("governor", "turbo", "dmi_vendor", "kvm_nested", "cgroup_cpu_limit", "virtualization_flag"):
        assert found[unknown] is None
    json.dumps(found)


def test_a_host_with_frequency_scaling_quotas_and_nesting() -> None:
    found = facts.parse_facts(parse_files(HOST_FILES), "- /dev/kvm\nw /sys/module/kvm_intel\n")
    assert (found["governor"], found["frequency_driver"]) == ("performance, powersave", "intel_pstate")
    assert (found["max_frequency_hz"], found["frequency_limit_hz"], found["turbo"]) == (
        3_900_000_000,
        3_100_000_000,
        True,
    )
    assert (found["kvm_nested"], found["kvm_device"], found["kvm_device_writable"]) == (True, True, False)
    assert found["huge_pages"] == [{"size_bytes": 2 << 20, "total": 512, "free": 500}]
    assert found["cgroup_cpu_limit"] == 1.5
    assert found["hostname"] == "example"


def test_quotas_are_looked_for_in_every_group_above() -> None:
    assert facts.quota_files("0::/a.slice/b.scope") == [
        "/sys/fs/cgroup/a.slice/b.scope/cpu.max",
        "/sys/fs/cgroup/a.slice/cpu.max",
    ]
    assert facts.quota_files("4:cpu,cpuacct:/x\n3:cpuset:/x\n0::/") == [
        "/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us",
        "/sys/fs/cgroup/cpu/x/cpu.cfs_period_us",
    ]
    assert facts.quota_files("0::/../outside") == []


def test_nothing_answers_and_every_key_is_still_there() -> None:
    nothing = FakeMachine(answers={lambda _: True: Reply(code=127)})
    complete = facts.parse_facts(parse_files(GUEST + HOST_FILES), "")
    assert facts.read_facts(nothing).keys() == complete.keys()
    assert facts.qemu_facts(nothing, "qemu")["version"] is None
    assert facts.disk_facts(nothing, "/tmp")["disks"] == []


def test_the_disk_under_a_directory() -> None:
    machine = FakeMachine(
        answers={
            (*mounts.READ, "/var/tmp"): only("ext4", "/dev/vda", free=83363958784),
            (*disk.LSBLK, "/dev/vda"): LSBLK,
            (
                *GREP,
                "",
                "/sys/class/block/vda/queue/write_cache",
            ): "/sys/class/block/vda/queue/write_cache:write back\n",
        }
    )
    found = facts.disk_facts(machine, "/var/tmp")
    assert (found["device"], found["file_system"], found["free_bytes"]) == ("/dev/vda", "ext4", 83363958784)
    assert found["stack"] == ["disk"]
    [one] = found["disks"]
    assert (one["scheduler"], one["rotational"], one["write_cache"]) == ("mq-deadline", True, "write back")


def test_a_logical_volume_over_two_disks_and_an_old_lsblk() -> None:
    """The shape of `lsblk --inverse`; strings for numbers as before util-linux 2.33."""
    parts = [
        {"kname": f"{name}1", "type": "part", "children": [{"kname": name, "type": "disk", "rota": "0", "size": "42"}]}
        for name in ("sda", "sdb")
    ]
    text = json.dumps({"blockdevices": [{"kname": "dm-0", "type": "lvm", "children": parts}]})
    rows = disk.parse_lsblk(text)
    assert [row["name"] for row in rows] == ["dm-0", "sda1", "sda", "sdb1", "sdb"]
    assert [(row["name"], row["rotational"], row["size_bytes"]) for row in rows if not row["on"]] == [
        ("sda", False, 42),
        ("sdb", False, 42),
    ]
    machine = FakeMachine(
        answers={
            (*mounts.READ, "/var/tmp"): only("ext4", "/dev/dm-0"),
            (*disk.LSBLK, "/dev/dm-0"): text,
            (*GREP, "", *(f"/sys/class/block/{name}/queue/write_cache" for name in ("sda", "sdb"))): "",
        }
    )
    found = facts.disk_facts(machine, "/var/tmp")
    assert found["stack"] == ["lvm", "part", "disk"]
    assert [one["name"] for one in found["disks"]] == ["sda", "sdb"], "neither the volume nor the partitions"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright", (7, 2, 22)),
        ("QEMU emulator version 10.0.2 (qemu-10.0.2-1.fc43)", (10, 0, 2)),
        ("QEMU emulator version 9.2.90 (v10.0.0-rc0-9-g0f15892acaf3)", (9, 2, 90)),
        ("sh: qemu-system-x86_64: not found", None),
    ],
)
def test_qemu_versions(text: str, expected: tuple[int, ...] | None) -> None:
    assert facts.parse_qemu_version(text) == expected


def test_layers_that_differ_are_named() -> None:
    host = {"kernel_release": "6.1.0-44-amd64", "kernel_version": "#1 6.1.164-1", "qemu": {"text": "QEMU 7.2.22"}}
    guest = {"kernel_release": "6.12.73-amd64", "kernel_version": "#1 6.12.73-1", "qemu": {"text": "QEMU 7.2.22"}}
    assert facts.differences({"host": host, "host/vm": host | {"qemu": None}}) == []
    [line] = facts.differences({"host": host, "host/vm": guest, "host/vm/vm": guest | {"qemu": None}})
    assert line.startswith("kernels differ between layers")
    assert line.endswith("host: 6.1.0-44-amd64 #1 6.1.164-1; host/vm, host/vm/vm: 6.12.73-amd64 #1 6.12.73-1")


# Names that mean something with anything behind them, and anything at all.
LINES = st.sampled_from([line.partition(":")[0] + ":" for line in (GUEST + HOST_FILES).splitlines()])
KEYS = st.sampled_from(["", "processor: 0\n", "cpu MHz: ", "core id: ", "MemTotal: ", "flags: hypervisor "])
GARBAGE = st.lists(st.tuples(LINES, KEYS, st.text()).map("".join)).map("\n".join) | st.text()
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(["blockdevices", "filesystems", "children", "kname", "size", "rota", "avail"]), inner
        )
    ),
)


# No deadline: a test machine is busy with emulated guests.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(GARBAGE)
def test_no_text_makes_the_parsers_raise(text: str) -> None:
    facts.parse_facts(parse_files(text), text)
    facts.parse_cpuinfo(text)
    facts.quota_files(text)
    facts.count_list(text)
    facts.parse_qemu_version("version " + text)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(JSON.map(json.dumps) | st.text())
def test_no_json_makes_the_disk_parsers_raise(text: str) -> None:
    disk.parse_lsblk(text)
