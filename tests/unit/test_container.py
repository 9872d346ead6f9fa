"""Containers: their configuration, the filter of system calls, the proof of both, and which runtime is taken."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.fake_machine import Answers, Argv, FakeMachine, Reply
from vmtax.container import Container, ContainerError, Runtime, find_runtime, opened, why_not, why_not_confined
from vmtax.container.bundle import CAPABILITIES, bind, configuration, mount_points
from vmtax.container.run import PRINT_MISSING, READ_BACK
from vmtax.container.seccomp import FILTER, translate
from vmtax.machine.packages import READ

MIB = 2**20
CONTAINER = Container("one", "/tree", "0,2-3", 256 * MIB, "1a2b")
PLAIN: dict[str, Any] = {"includes": {}, "excludes": {}, "args": [], "comment": ""}
PROFILE: dict[str, Any] = {
    "defaultAction": "SCMP_ACT_ERRNO",
    "defaultErrnoRet": 38,
    "defaultErrno": "ENOSYS",
    "archMap": [
        {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]},
        {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": None},
    ],
    "syscalls": [{**PLAIN, "names": ["read", "write"], "action": "SCMP_ACT_ALLOW"}],
}
KERNEL = "6.1.0-18-amd64"
# What READ_BACK printed in a container, shortened.
SEEN = """\
Name:\tcat
CapEff:\t00000000800405fb
NoNewPrivs:\t1
Seccomp:\t2
Cpus_allowed_list:\t0,2-3
memory: 268435456
swap: 0
"""
PACKAGE = "golang-github-containers-common"


def profile(**rule: Any) -> str:
    """The text of a filter with one more rule, which allows the call `other`."""
    rules = [*PROFILE["syscalls"], {**PLAIN, "names": ["other"], "action": "SCMP_ACT_ALLOW", **rule}]
    return json.dumps({**PROFILE, "syscalls": rules})


def test_a_container_has_all_that_separates_it() -> None:
    config = configuration(CONTAINER, {"defaultAction": "SCMP_ACT_ERRNO"})
    process, linux = config["process"], config["linux"]
    assert config["root"] == {"path": "/tree", "readonly": True}
    assert process["noNewPrivileges"] and process["args"] == ["sleep", "infinity"] and not process["terminal"]
    assert "VMTAX_RUN=1a2b" in process["env"]
    assert process["capabilities"] == {key: list(CAPABILITIES) for key in ("bounding", "effective", "permitted")}
    kinds = {"pid", "ipc", "uts", "mount", "cgroup", "network"}
    assert {each["type"] for each in linux["namespaces"] if "path" not in each} == kinds
    assert linux["resources"]["cpu"] == {"cpus": "0,2-3"}
    assert linux["resources"]["memory"] == {"limit": 256 * MIB, "swap": 256 * MIB}
    assert linux["seccomp"] == {"defaultAction": "SCMP_ACT_ERRNO"} and linux["cgroupsPath"] == "/vmtax-1a2b-one"
    assert "ro" in next(each["options"] for each in config["mounts"] if each["destination"] == "/sys")
    assert linux["devices"] == [] and linux["resources"]["devices"] == [{"allow": False, "access": "rwm"}]


def test_it_joins_a_network_namespace_that_is_named() -> None:
    config = configuration(replace(CONTAINER, network="vmtax-1-end"), {})
    assert {"type": "network", "path": "/run/netns/vmtax-1-end"} in config["linux"]["namespaces"]


@pytest.mark.parametrize("inside", ["/mnt/data", "/mnt", "/tmp/data", "/run/deeper/data"])
def test_nothing_is_created_in_the_image_to_mount_data(inside: str) -> None:
    config = configuration(replace(CONTAINER, data="/host/data", inside=inside), {})
    assert bind("/host/data", inside, "rw") in config["mounts"]
    assert mount_points(config) == ["/proc", "/dev", "/sys", "/tmp", "/run", *(["/mnt"] if "/mnt" in inside else [])]


def test_a_block_device_is_made_and_allowed() -> None:
    config = configuration(replace(CONTAINER, data="/dev/sdb", inside="/dev/data"), {}, (8, 16))
    (node,) = config["linux"]["devices"]
    assert (node["path"], node["type"], node["major"], node["minor"]) == ("/dev/data", "b", 8, 16)
    allowed = {"allow": True, "type": "b", "major": 8, "minor": 16, "access": "rw"}
    assert config["linux"]["resources"]["devices"] == [{"allow": False, "access": "rwm"}, allowed]
    assert all(mount["type"] != "bind" for mount in config["mounts"])


@pytest.mark.parametrize(("inside", "device"), [(None, None), (None, (8, 16)), ("/mnt/disk", (8, 16))])
def test_data_without_a_place_for_them_are_a_mistake(inside: str | None, device: tuple[int, int] | None) -> None:
    with pytest.raises(ValueError, match="container one: "):
        configuration(replace(CONTAINER, data="/dev/sdb", inside=inside), {}, device)


LIBAIO = {"names": ["io_pgetevents"], "action": "SCMP_ACT_ALLOW"}


def test_what_libaio_calls_is_allowed_also_where_the_filter_refuses_it() -> None:
    text = profile().replace('"other"', '"other", "io_pgetevents"')
    *rules, last = translate(text, CAPABILITIES, KERNEL)["syscalls"]
    assert last == LIBAIO and "io_pgetevents" in text
    assert [rule["names"] for rule in rules] == [["read", "write"], ["other"]]


def test_a_filter_is_translated_for_runtimes() -> None:
    args = [{"index": 0, "value": 8, "valueTwo": 0, "op": "SCMP_CMP_EQ"}]
    text = profile(action="SCMP_ACT_ERRNO", errno="EPERM", args=args)
    assert translate(text, CAPABILITIES, KERNEL) == {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 38,
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"],
        "syscalls": [
            {"names": ["read", "write"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["other"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1, "args": args},
            LIBAIO,
        ],
    }


@pytest.mark.parametrize(
    ("conditions", "applies"),
    [
        ({}, True),
        ({"includes": {"caps": ["CAP_SYS_CHROOT"]}}, True),
        ({"includes": {"caps": ["CAP_SYS_CHROOT", "CAP_SYS_ADMIN"]}}, False),
        ({"excludes": {"caps": ["CAP_SYS_ADMIN"]}}, True),
        ({"excludes": {"caps": ["CAP_SYS_ADMIN", "CAP_SYS_CHROOT"]}}, False),
        ({"includes": {"arches": ["amd64", "x32"]}}, True),
        ({"includes": {"arches": ["arm64"]}}, False),
        ({"excludes": {"arches": ["amd64"]}}, False),
        ({"includes": {"minKernel": "4.8"}}, True),
        ({"includes": {"minKernel": "6.2"}}, False),
        ({"excludes": {"minKernel": "4.8"}}, False),
        ({"includes": None, "excludes": None, "args": None}, True),
    ],
)
def test_a_rule_applies_only_under_its_conditions(conditions: dict[str, Any], applies: bool) -> None:
    rules = translate(profile(**conditions), CAPABILITIES, KERNEL)["syscalls"]
    assert any(rule["names"] == ["other"] for rule in rules) is applies


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        json.dumps({**PROFILE, "defaultAction": "SCMP_ACT_ALLOW"}),
        json.dumps({**PROFILE, "syscalls": []}),
        json.dumps({**PROFILE, "syscalls": [1]}),
        json.dumps({**PROFILE, "archMap": []}),
        profile(errno="ENOTHING"),
    ],
)
def test_no_container_is_started_with_a_file_that_is_no_filter(text: str) -> None:
    machine = FakeMachine(answers={("cat", FILTER): text, ("uname", "-r"): KERNEL, READ: "ID=debian\n"})
    with pytest.raises(ContainerError, match=f"is not understood.*{PACKAGE}"), opened(machine, CONTAINER, RUNC):
        pass


def test_no_container_is_started_without_a_filter() -> None:
    machine = FakeMachine(answers={("cat", FILTER): Reply(code=1), READ: "ID=debian\n"})
    with pytest.raises(ContainerError, match=f"apt-get install {PACKAGE}"), opened(machine, CONTAINER, RUNC):
        pass


def test_what_was_requested_is_confined() -> None:
    assert why_not_confined(CONTAINER, SEEN) is None
    assert why_not_confined(replace(CONTAINER, memory_bytes=256 * MIB + 1, cpus="3,2,0"), SEEN) is None


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("Seccomp:\t2", "Seccomp:\t0", "Seccomp is 0, not 2"),
        ("NoNewPrivs:\t1", "NoNewPrivs:\t0", "NoNewPrivs is 0, not 1"),
        ("memory: 268435456", "memory: max", "memory is max, not 268435456"),
        ("swap: 0", "swap: max", "swap is max, not 0"),
        ("swap: 0", "", "swap is unreadable, not 0"),
        ("800405fb", "1fffffffff", "it has 37 capabilities, not 11"),
        ("0,2-3", "0-3", "its CPUs are 0-3, not 0,2-3"),
        ("Cpus_allowed_list:", "x:", "its CPUs are unreadable, not 0,2-3"),
        (SEEN, "", "Seccomp is unreadable, not 2"),
    ],
)
def test_the_first_difference_is_named(before: str, after: str, reason: str) -> None:
    assert why_not_confined(CONTAINER, SEEN.replace(before, after)) == reason


RUNC = Runtime("runc", "1.1.5")
RUNC_SAYS = "runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1\nspec: 1.0.2-dev\n"
CRUN_SAYS = "crun version 1.8.1\ncommit: f8a096\n"
HYBRID = "cgroups in hybrid mode not supported, drop all controllers from cgroupv2\n"


def of_runtime(name: str, action: str) -> Any:
    """Whether a command starts a container, or executes something in it, with that runtime."""

    def matches(argv: Argv) -> bool:
        return name in argv and action in argv and "--root" in argv

    return matches


def host(**changes: Any) -> FakeMachine:
    """A host on which both runtimes work, with other answers to some commands."""
    seen = SEEN.replace("0,2-3", "0-1").replace("268435456", str(64 * MIB))
    answers: Answers = {
        ("id", "-u"): changes.get("id", "0\n"),
        READ: "ID=debian\n",
        ("test", "-r", FILTER): changes.get("filter", ""),
        ("crun", "--version"): changes.get("crun", CRUN_SAYS),
        ("runc", "--version"): changes.get("runc", RUNC_SAYS),
        ("cat", FILTER): profile(),
        ("uname", "-r"): KERNEL,
        ("grep", "Cpus_allowed_list", "/proc/self/status"): "Cpus_allowed_list:\t0-1\n",
        lambda argv: argv[0] in ("mkdir", "tee"): "",
        of_runtime("crun", "run"): changes.get("crun_run", ""),
        of_runtime("runc", "run"): changes.get("runc_run", ""),
        of_runtime("crun", "exec"): changes.get("crun_exec", seen),
        of_runtime("runc", "exec"): changes.get("runc_exec", seen),
    }
    return FakeMachine(answers=answers)


def test_crun_is_preferred_where_it_works() -> None:
    machine = host()
    assert find_runtime(machine) == Runtime("crun", "1.8.1") and machine.undo_list == []
    assert not any("run" in argv for argv in machine.calls if argv[0] == "runc")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"crun_run": Reply(stderr=HYBRID, code=1)}, f"crun 1.8.1: {HYBRID.strip()}"),
        ({"crun_exec": SEEN.replace("Seccomp:\t2", "Seccomp:\t0")}, "Seccomp is 0, not 2"),
        ({"crun": Reply(code=127)}, ""),
    ],
)
def test_runc_is_taken_where_crun_does_not_work(changes: dict[str, Any], reason: str) -> None:
    machine = host(**changes)
    found = find_runtime(machine)
    assert (found.name, found.version) == ("runc", "1.1.5+ds1") and machine.undo_list == []
    assert reason in found.passed_over and bool(reason) == bool(found.passed_over)


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"crun": Reply(code=127), "runc": Reply(code=127)}, "apt-get install runc"),
        ({"filter": Reply(code=1)}, f"apt-get install {PACKAGE}"),
        ({"id": "1000\n"}, "take root"),
    ],
)
def test_what_is_missing_is_named_with_its_remedy(changes: dict[str, Any], remedy: str) -> None:
    machine = host(**changes)
    assert remedy in (why_not(machine) or "")
    with pytest.raises(ContainerError, match=f"^host: .*{remedy}"):
        find_runtime(machine)
    assert why_not(host()) is None


def test_no_runtime_that_works_is_refused_with_both_reasons() -> None:
    machine = host(crun_run=Reply(stderr=HYBRID, code=1), runc_run=Reply(stderr="no space left\n", code=1))
    with pytest.raises(ContainerError, match=r"crun 1.8.1: cgroups in hybrid.*; runc 1.1.5\+ds1: no space left"):
        find_runtime(machine)
    assert machine.undo_list == []


def running_host(seen: str = SEEN, missing: str = "") -> FakeMachine:
    return FakeMachine(
        answers={
            ("cat", FILTER): profile(),
            ("uname", "-r"): KERNEL,
            ("stat", "-L", "-c", "%F,%t,%T", "/dev/sdb"): "block special file,8,1f\n",
            lambda argv: argv[:4] == PRINT_MISSING: missing,
            lambda argv: argv[0] in ("mkdir", "tee"): "",
            of_runtime("runc", "run"): "",
            of_runtime("runc", "exec"): seen,
        }
    )


def test_commands_run_by_exec_and_everything_is_gone_at_exit() -> None:
    machine = running_host()
    container = replace(CONTAINER, data="/dev/sdb", inside="/dev/data")
    with opened(machine, container, RUNC) as prefix:
        assert prefix[:4] == ("runc", "--root", "/scratch/container-one/state", "exec") and prefix[-1] == "one"
        assert "--no-new-privs" in prefix and "VMTAX_RUN=1a2b" in prefix
        assert len(machine.undo_list) == 3
    config = json.loads(next(text for argv, text in machine.inputs if argv[-1].endswith("config.json")))
    assert config["linux"]["devices"][0]["minor"] == 0x1F and config["linux"]["seccomp"]["syscalls"]
    deleted = ("runc", "--root", "/scratch/container-one/state", "delete", "--force", "one")
    assert machine.undone[0] == deleted and machine.undo_list == []
    assert isinstance(machine.undone[1], tuple) and "vmtax-1a2b-one" in machine.undone[1]


def test_it_is_listed_for_undo_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    machine = running_host()
    original = machine.try_run

    def watched(*argv: str, **options: Any) -> Any:
        if "run" in argv:
            seen.append(len(machine.undo_list))
        return original(*argv, **options)

    monkeypatch.setattr(machine, "try_run", watched)
    with opened(machine, CONTAINER, RUNC):
        assert seen == [3]


def test_a_container_that_is_not_confined_is_removed() -> None:
    machine = running_host(SEEN.replace("swap: 0", "swap: 4096"))
    with pytest.raises(ContainerError, match="container one is not confined: swap is 4096, not 0"):
        opened(machine, CONTAINER, RUNC).__enter__()
    assert machine.undo_list == [] and any(READ_BACK[2] in argv for argv in machine.calls)


def test_an_image_without_a_mount_point_is_refused_before_anything_is_set_up() -> None:
    machine = running_host(missing="/run\n")
    with pytest.raises(ContainerError, match="/tree has no /run, where"):
        opened(machine, CONTAINER, RUNC).__enter__()
    assert machine.undone == []
