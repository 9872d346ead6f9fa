"""What a machine refuses comes with what grants it, by what was seen there; and it is asked before a run begins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import rights
from tests.fake_machine import FakeMachine, Reply
from tests.userland import asks_tools, programs
from vmtax.core.records import Json
from vmtax.machine import tries
from vmtax.machine.remedies import ENOUGH, Around, Failure, remedy
from vmtax.machine.rights import Rights, ask, parse
from vmtax.plan.schema import load
from vmtax.plan.schema import parse as parse_plan
from vmtax.testbed.session import examine
from vmtax.testbed.session.session import CannotMeasure

USER: Json = {"user": 1000, "capabilities": 0}
UBUNTU = USER | {"knobs": {"kernel.apparmor_restrict_unprivileged_userns": "1", "user.max_user_namespaces": "9"}}
DOCKER: Json = {"container": "docker", "capabilities": 0xA80425FB}
FILTERED = DOCKER | {"filtered": True, "profile": "docker-default (enforce)"}
KVM_GROUP = {"nodes": {"/dev/kvm": {"group": "kvm", "gid": 108, "nodev": False}}}
CANNOT = ("run", "", "bwrap: No permissions to create new namespace")
UID_MAP = ("run", "", "bwrap: setting up uid map: Permission denied")
DENIED, FORBIDDEN = ("open", "EACCES", "Permission denied"), ("open", "EPERM", "Operation not permitted")
NO_DEVICE, NO_FILE = ("open", "ENODEV", "No such device"), ("open", "ENOENT", "No such file or directory")
UNSHARE, MOUNT = ("unshare", "EPERM", "Operation not permitted"), ("mount", "EACCES", "Permission denied")


@pytest.mark.parametrize(
    ("name", "failure", "around", "words"),
    [
        ("command", UID_MAP, UBUNTU, "/etc/apparmor.d/bwrap"),
        ("command", UID_MAP, UBUNTU, "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
        ("command", CANNOT, USER | {"knobs": {"kernel.unprivileged_userns_clone": "0"}}, "userns_clone=1"),
        ("command", CANNOT, USER | {"knobs": {"user.max_user_namespaces": "0"}}, f"max_user_namespaces={ENOUGH}"),
        ("command", CANNOT, USER | {"knobs": {"user.max_net_namespaces": "0"}}, f"max_net_namespaces={ENOUGH}"),
        ("command", CANNOT, USER | {"namespaces": False}, "CONFIG_USER_NS"),
        ("command", CANNOT, USER | {"filtered": True}, "seccomp"),
        ("command", CANNOT, USER | {"profile": "snap.x (enforce)"}, "aa-complain snap.x"),
        ("command", CANNOT, USER | {"profile": "unconfined"}, "run as root"),
        ("command", ("run", "", "bwrap: Can't mount proc on /newroot/proc"), USER, "show all of /proc"),
        ("command", CANNOT, FILTERED, "docker run --cap-add SYS_ADMIN --security-opt seccomp=unconfined"),
        ("command", CANNOT, FILTERED, "apparmor=unconfined"),
        ("command", CANNOT, FILTERED | USER, "docker run --security-opt seccomp=unconfined"),
        ("command", CANNOT, FILTERED | {"container": "podman"}, "podman run --cap-add SYS_ADMIN"),
        ("command", CANNOT, {"capabilities": 0}, "grant CAP_SYS_ADMIN"),
        ("command", ("start", "ENOENT", ""), {"system": "ID=fedora"}, "dnf install bubblewrap"),
        ("command", ("start", "EACCES", ""), {}, "noexec"),
        ("kvm", DENIED, USER | KVM_GROUP, 'usermod -aG kvm "$USER"   # then log in anew'),
        ("kvm", DENIED, USER, "setfacl -m u:1000:rw /dev/kvm"),
        ("kvm", DENIED, USER | KVM_GROUP | {"named": False}, "setfacl -m u:1000:rw /dev/kvm"),
        ("kvm", DENIED, USER | KVM_GROUP | {"container": "docker"}, "docker run --group-add 108"),
        ("kvm", DENIED, USER | {"nodes": {"/dev/kvm": {"nodev": True}}}, "remount,dev /dev "),
        ("kvm", FORBIDDEN, DOCKER, "docker run --device /dev/kvm"),
        ("kvm", FORBIDDEN, {"container": "lxc"}, "lxc.cgroup2.devices.allow = c 10:232 rwm"),
        ("kvm", FORBIDDEN, {}, "DeviceAllow=/dev/kvm rw"),
        ("kvm", NO_FILE, DOCKER, "docker run --device /dev/kvm"),
        ("kvm", NO_DEVICE, {}, "modprobe kvm_intel || modprobe kvm_amd"),
        ("tun", NO_DEVICE, {}, "modprobe tun"),
        ("tun", NO_FILE, {}, "modprobe tun"),
        ("tun", NO_FILE, DOCKER, "docker run --device /dev/net/tun"),
        ("tun", FORBIDDEN, DOCKER, "docker run --device /dev/net/tun"),
        ("tun", ("TUNSETIFF", "EPERM", ""), DOCKER, "docker run --cap-add NET_ADMIN"),
        ("tun", ("TUNSETIFF", "EPERM", ""), {"capabilities": 0}, "grant CAP_NET_ADMIN"),
        ("tun", UNSHARE, {"whole": False}, "the root of a user namespace"),
        ("mount", MOUNT, FILTERED | {"capabilities": 1 << 21}, "apparmor=unconfined"),
        ("mount", UNSHARE, {"filtered": True}, "seccomp"),
        ("caches", ("open", "EROFS", ""), DOCKER, "systempaths=unconfined"),
        ("caches", DENIED, {"whole": False}, "the root of a user namespace"),
        ("caches", DENIED, USER, "run as root"),
        ("loop", NO_FILE, {}, "modprobe loop"),
        ("directory", ("create", "EACCES", ""), {}, "root_squash"),
        ("directory", ("create", "EROFS", ""), {}, "--disk-dir"),
        ("programs", ("execute", "EACCES", ""), {}, "noexec"),
        ("programs", ("create", "ENOSPC", ""), {}, "XDG_CACHE_HOME"),
        ("ssh", ("run", "", "No user exists for uid 7"), {"named": False}, "entry in /etc/passwd"),
        ("kvm", ("open", "EBUSY", "Device or resource busy"), {}, ""),
    ],
)
def test_the_cure_is_of_the_cause_that_was_seen(
    name: str, failure: tuple[str, str, str], around: Json, words: str
) -> None:
    refused = parse(rights.answer(around, **{name: failure})).refused(name)
    assert refused is not None and words in refused.remedy
    assert bool(refused.remedy) == bool(words), "nothing is claimed to help that is not known to"
    assert "\n" not in str(refused), "a part of a sentence"


def test_modprobe_is_no_cure_where_the_reason_is_permission() -> None:
    for failure in (DENIED, FORBIDDEN, ("TUNSETIFF", "EPERM", "")):
        for around in ({}, USER, DOCKER, FILTERED | USER):
            assert "modprobe" not in remedy("tun", Failure(*failure), Around.parse(rights.ROOT | around))


def test_what_could_not_be_tried_is_neither_granted_nor_refused() -> None:
    found = ask(FakeMachine(answers={rights.asked: Reply(code=127, stderr="no python3")}), "kvm")
    assert not found.may("kvm") and found.refused("kvm") is None and found.around.user is None


@pytest.mark.parametrize("said", ['{"ok": 1}', '{"ok": null}', "{}", '{"ok": "yes"}', '{"ok": false}'])
def test_only_what_says_that_it_succeeded_is_granted(said: str) -> None:
    found = parse(f'{{"tries": {{"kvm": {said}, "tun": {{"ok": true}}}}}}')
    assert found.may("tun") and not found.may("kvm") and found.refused("kvm") is not None


@given(
    st.text() | st.recursive(st.none() | st.integers() | st.text(), lambda e: st.dictionaries(st.text(), e)).map(str)
)
def test_no_answer_whatever_makes_it_fail(text: str) -> None:
    assert isinstance(parse(text), Rights)
    for around in (text, {"user": text, "capabilities": -1, "knobs": text}):
        assert Around.parse(around) in (Around(), Around(user=None))


def refused_by(around: Json, plan: str = "quick", **failed: tuple[str, str, str]) -> str:
    """What is said before a run where these things are refused."""
    host = FakeMachine(
        answers={
            ("uname", "-sm"): "Linux x86_64\n",
            ("id", "-u"): "0\n",
            asks_tools: programs(),
            rights.asked: rights.answer(around, **failed),
        }
    )
    with pytest.raises(CannotMeasure) as raised:
        examine._check_host(host)
        examine._check_network(host, load(plan))
    return str(raised.value)


def test_root_without_its_capabilities_is_refused_before_a_run() -> None:
    assert "--cap-add SYS_ADMIN" in refused_by(DOCKER, command=CANNOT)
    assert refused_by({"capabilities": 0}, tun=("TUNSETIFF", "EPERM", "Operation not permitted")) == (
        "host: a bridge in a network namespace: a tap on /dev/net/tun: TUNSETIFF: Operation not permitted (root lacks"
        " CAP_NET_ADMIN there); grant CAP_NET_ADMIN where this is started, as with AmbientCapabilities= in a unit"
    )
    assert "noexec" in refused_by({}, programs=("execute", "EACCES", "Permission denied"))


def test_a_user_that_ssh_refuses_is_told_before_a_run() -> None:
    words = "No user exists for uid 54321"
    local = FakeMachine(answers={rights.asked: rights.answer({"named": False}, ssh=("run", "", words))})
    with pytest.raises(CannotMeasure, match=rf"{words}; give the user an entry in /etc/passwd"):
        examine.refuse_nameless(local)


def test_caches_stay_warm_where_root_may_not_drop_them() -> None:
    host = FakeMachine(
        answers={("id", "-u"): "0\n", rights.asked: rights.answer(caches=("open", "EROFS", "Read-only"))}
    )
    assert "opening it: Read-only" in examine.why_warm(host)
    assert examine.why_warm(FakeMachine(answers={("id", "-u"): "0\n", rights.asked: rights.answer()})) == ""
    assert "needs root" in examine.why_warm(FakeMachine(answers={("id", "-u"): "5\n"}))


def test_without_the_network_no_tap_is_asked_for() -> None:
    examine._check_network(FakeMachine(), parse_plan("name: x\nlayers: [host, vm]\nworkloads: [chess]\n"))


@pytest.mark.parametrize(
    ("cache", "home", "directory"),
    [
        ("/c", "/h", "/c/vmtax/images"),
        ("", "/h", "/h/.cache/vmtax/images"),
        ("relative", "/h", "/h/.cache/vmtax/images"),
        ("relative", "also", "/vmtax/images"),
    ],
)
def test_programs_are_tried_where_images_are_unpacked(
    monkeypatch: pytest.MonkeyPatch, cache: str, home: str, directory: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    monkeypatch.setenv("HOME", home)
    assert tries.image_directory() == directory, "a relative path is none"
