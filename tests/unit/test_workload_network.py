"""The network's workloads: iperf3, sockperf and SMB, on captured output of the real tools, and on damaged."""

import json
import math
import re
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_machine import FakeMachine
from tests.unit.test_workload import GOLDEN, parsed
from vmtax.experiment.at_once import Job
from vmtax.hypervisor.confine import LIMITED, MOST_FILES, enter_tree
from vmtax.workload import BadOutput, Command, words
from vmtax.workload.latency import Latency, LatencyParameters
from vmtax.workload.net import Net, NetParameters
from vmtax.workload.site import TIMED, Access, Link, PeerServer, Site
from vmtax.workload.smb import Smb, SmbParameters


def test_net_reports_throughput_and_cpu_of_both_ends() -> None:
    figures = parsed("net", "tcp-out", "tcp-out.json")
    assert figures["net.tcp-out.bits_per_second"] == pytest.approx(40.6877e9, rel=1e-4)
    assert figures["net.tcp-out.local_cpu"] == pytest.approx(0.993747, rel=1e-4)
    assert figures["net.tcp-out.peer_cpu"] == pytest.approx(0.378816, rel=1e-4)


def test_net_distinguishes_the_ends_when_the_client_is_the_peer() -> None:
    """User networking: the client, at the peer, sends: that is *into* the layer."""
    figures = parsed("net", "tcp-in", "tcp-out.json")
    assert figures["net.tcp-in.peer_cpu"] == pytest.approx(0.993747, rel=1e-4)
    assert figures["net.tcp-in.local_cpu"] == pytest.approx(0.378816, rel=1e-4)


def test_udp_has_a_loss_that_may_be_zero() -> None:
    net = Net(NetParameters(cases=("udp-in", "udp-out"), rate=19))
    lossy, clean = (
        {m.metric.measure: m.value for m in net.parse(case, (GOLDEN / f"{case}.json").read_text())}
        for case in ("udp-out", "udp-in")
    )
    assert lossy["lost"] == pytest.approx(19 / 3380) and clean["lost"] == 0
    assert lossy["jitter_seconds"] == pytest.approx(0.6970321e-3)
    assert lossy["bits_per_second"] == pytest.approx(19443647.7)
    assert lossy["local_seconds_per_byte"] == pytest.approx(8 * 0.0077101449 / 19443647.7)
    assert clean["peer_seconds_per_byte"] == pytest.approx(8 * 0.165096 / 99994799.4, rel=1e-4)
    assert (
        {m.measure for m in net.metrics()} - {"host_cpu_seconds", "host_side_seconds"} == lossy.keys() == clean.keys()
    )
    with pytest.raises(BadOutput, match=r"udp-out: 19\.6 Mbit/s were reached of the 30"):
        Net(NetParameters(cases=("udp-out",), rate=30)).parse("udp-out", (GOLDEN / "udp-out.json").read_text())
    none = (GOLDEN / "udp-in.json").read_text().replace('"packets":', '"packets": 0, "was":')
    with pytest.raises(BadOutput, match=r"^iperf3: end\.sum\.packets is 0, which is impossible"):
        net.parse("udp-in", none)


def test_udp_after_a_lead_is_all_that_its_loss_is_of() -> None:
    net, output = Net(NetParameters(cases=("udp-in",), rate=100)), (GOLDEN / "udp-in-lead.json").read_text()
    counted = net.counted("udp-in", output)
    assert counted is not None and (counted.before, counted.seconds, counted.after) == (1, 2.999891, 0)


def test_streams_share_the_rate_and_are_those_of_tcp() -> None:
    site = Site(FakeMachine(), "vm", 1, (), link=Link(FakeMachine(), (), "10.77.0.1", 5201))
    net = Net(NetParameters(cases=("tcp-in", "udp-in"), rate=100, streams=3))
    tcp, udp = (" ".join(net.command(site, case)) for case in net.cases())
    assert "--parallel 3 --bitrate 33333333 " in tcp and "--reverse" in tcp
    assert "--udp --length 1448 --bitrate 100M " in udp and "--parallel" not in udp and "--reverse" in udp
    assert "--parallel" not in " ".join(Net(NetParameters()).command(site, "tcp-in")), (
        "one stream is asked for as before"
    )
    four = Net(NetParameters(streams=4)).parse("tcp-out", (GOLDEN / "tcp-out-streams.json").read_text())
    assert four[0].value == pytest.approx(100e6, rel=0.02), "all streams together"


def test_a_case_of_udp_says_which_key_it_misses() -> None:
    for cases, said in ((("tcp-in", "udp-out"), True), (("tcp-in",), False)):
        why = Net(NetParameters(cases=cases)).why_not(1)
        assert (why is not None and "udp-out needs a rate" in why and "set workloads.net.rate" in why) is said
    assert Net(NetParameters(cases=("udp-in",), rate=1)).why_not(1) is None
    assert Net(NetParameters(cases=("tcp-in", "udp-in"), rate=1)).takes_bridge == "net's case udp-in"


def test_latency_reports_round_trips_and_the_percentiles_that_its_sample_supports() -> None:
    latency = Latency(LatencyParameters(cases=("udp-rr", "tcp-rr-16"), seconds=2))
    one, many = (
        {m.metric.measure: m.value for m in latency.parse(case, (GOLDEN / f"sockperf-{case}.txt").read_text())}
        for case in latency.cases()
    )
    assert one["per_second"] == pytest.approx(23597 / 1.550) and many["per_second"] == pytest.approx(443155 / 1.550)
    assert one["mean_seconds"] == pytest.approx(65.678e-6) == pytest.approx(1 / one["per_second"], rel=0.01)
    assert one["p50_seconds"] < one["p99_seconds"] < one["p999_seconds"]
    assert {m.measure for m in latency.metrics()} == one.keys() == many.keys()
    output = (GOLDEN / "sockperf-udp-rr.txt").read_text()
    assert latency.latencies("udp-rr", output)[-1][0] == 0.999, "of 23,597 no more than two lie beyond 99.99 %"
    few = output.replace("ReceivedMessages=23597", "ReceivedMessages=999")
    assert {m.metric.measure for m in latency.parse("udp-rr", few)} == {"per_second", "mean_seconds", "p50_seconds"}
    counted = latency.counted("udp-rr", output)
    assert counted is not None and (counted.before, counted.seconds, counted.after) == pytest.approx((0.4, 1.55, 0.05))
    assert latency.operations("udp-rr", output) == 41907, "the host worked for those of the warm-up too"
    assert [words.spoken(metric) for metric in latency.metrics()[3:6]] == [
        "UDP round trips (one at a time), mean latency",
        "UDP round trips (one at a time)",
        "TCP round trips (16 at once)",
    ]
    first = latency.metrics()[0]
    assert words.phrase(first) == "UDP round trips (one at a time), p50 latency", "it is what a plan is about"


def test_latency_asks_servers_of_its_own_at_the_peer() -> None:
    latency = Latency(LatencyParameters(cases=("tcp-rr", "udp-rr", "udp-rr-16")))
    site = Site(FakeMachine(), "vm", 1, (), link=Link(FakeMachine(), (), "10.77.0.1", 5202))
    where = ("--ip", "10.77.0.1", "--port", "6202")
    assert latency.servers("10.77.0.1", 5202, Access.random()) == [
        PeerServer((*TIMED, "sockperf", "server", *where, "--tcp")),
        PeerServer((*TIMED, "sockperf", "server", *where)),
    ]
    for case, how in (("tcp-rr", ("--tcp",)), ("udp-rr", ()), ("udp-rr-16", ())):
        argv = latency.command(site, case)
        assert argv[:2] == ("sockperf", "ping-pong") and argv[2 : 6 + len(how)] == (*where, *how)
        assert argv[argv.index("--burst") + 1] == ("16" if case.endswith("16") else "1")
        assert ("--mps" in argv) is case.endswith("16"), "without a limit its records would fill a small guest"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("[Total Run] RunTime=2.000", "[Total Run] RunTime=2.200"), "counted 2.20 s in a run of 2 s: its clock is"),
        (("[Total Run] RunTime=2.000", "[Total Run] RunTime=1.800"), "counted 1.80 s in a run of 2 s: its clock is"),
        (("dropped messages = 0", "dropped messages = 7"), "7 messages of udp-rr were lost"),
        (("ReceivedMessages=23597", "ReceivedMessages=0"), "no '.Valid Duration.' with messages"),
        (
            ("sockperf: [Valid", "sockperf: ERROR: Can`t connect socket (errno=111 Connection refused)\n"),
            "Can`t connect",
        ),
        (("sockperf: [Valid", "sockperf: No messages were received from the server. Is the server down?\n"), "No mess"),
    ],
)
def test_latency_doubts_what_sockperf_prints(change: tuple[str, str], said: str) -> None:
    output = (GOLDEN / "sockperf-udp-rr.txt").read_text().replace(*change)
    with pytest.raises(BadOutput, match=said):
        Latency(LatencyParameters(seconds=2)).parse("udp-rr", output)


@given(st.data())
def test_damaged_output_of_the_network_tools_is_bad_or_a_number(data: st.DataObject) -> None:
    """Some of its characters are missing or others: no other exception, and nothing that is no number."""
    kind, case, file = data.draw(
        st.sampled_from(
            [
                (Latency(LatencyParameters(seconds=2)), "udp-rr", "sockperf-udp-rr.txt"),
                (Net(NetParameters(cases=("udp-out",), rate=19)), "udp-out", "udp-out.json"),
            ]
        )
    )
    output = (GOLDEN / file).read_text()
    start = data.draw(st.integers(0, len(output)))
    end = data.draw(st.integers(start, min(len(output), start + 40)))
    try:
        found = kind.parse(case, output[:start] + data.draw(st.text("019.-eE nul{}", max_size=6)) + output[end:])
    except BadOutput:
        return
    assert all(math.isfinite(one.value) and one.value >= 0 for one in found)


def test_smb_reports_the_copy_whose_digest_is_right() -> None:
    smb = Smb(SmbParameters(size="16MiB"))
    for case, seconds in (("in", 0.438002), ("out", 0.610153)):
        output = (GOLDEN / f"smb-{case}.txt").read_text()
        (found,) = smb.parse(case, output)
        assert (found.metric.name, found.value) == (f"smb.{case}.bytes_per_second", pytest.approx(2**24 / seconds))
        with pytest.raises(BadOutput, match="the copy has the sha256 000000"):
            smb.parse(case, re.sub("copied [0-9a-f]{64}", f"copied {'0' * 64}", output))
        for damage in ("wanted", "16777216 bytes", "copied, "):
            with pytest.raises(BadOutput, match="no '16777216 bytes copied' of dd with two digests"):
                smb.parse(case, output.replace(damage, ""))
    with pytest.raises(BadOutput, match="no '67108864 bytes copied'"):
        Smb(SmbParameters()).parse("in", (GOLDEN / "smb-in.txt").read_text())
    assert smb.seconds("in") < 2 and smb.layers == {"vm", "nested"}


def test_smb_s_server_holds_the_file_that_its_client_reads() -> None:
    smb, machine, access = Smb(SmbParameters(size="16MiB")), FakeMachine(), Access.random()
    site = Site(machine, "vm", 1, (), link=Link(machine, (), "10.77.0.1", 5202, access=access, answer="ab12  -"))
    (server,), client = smb.servers("10.77.0.1", 5202, access), smb.command(site, "out")
    words = server.argv[server.argv.index("sh") :]
    assert words[4:] == ("10.77.0.1", "7202", "16777216", "in", "out")
    assert client[4:] == ("10.77.0.1", "7202", "16777216", "out", "ab12"), "the digest comes from the server to us"
    assert smb.input(site) == server.input == f"{access.user} {access.password}\n"


@pytest.mark.parametrize("cases", [("in",), ("out",), ("in", "out")])
def test_an_smb_server_has_room_for_its_files_and_little_more(cases: tuple[Literal["in", "out"], ...]) -> None:
    smb = Smb(SmbParameters(size="256MiB", cases=cases))
    (server,) = smb.servers("10.77.0.1", 5202, Access.random())
    assert server.room is not None and server.memory is not None
    assert 2**28 * len(cases) < server.room < server.memory < 2**28 * (len(cases) + 1)


def test_what_a_server_may_write_is_the_size_of_both_file_systems() -> None:
    words = enter_tree("/image", root=True, network=True, room=4096)
    at = words.index("/run")
    assert words[at - 3 : at] == ("--size", "4096", "--tmpfs"), "bubblewrap's --size is that of the next --tmpfs"
    assert words[words.index("/tmp") - 2 : words.index("/tmp")] == ("--bind", "/dev/shm"), "whose size and files are"
    assert words[:8] == ("unshare", "--mount", "sh", "-c", LIMITED, "sh", "4096", str(MOST_FILES))
    assert "--size" not in enter_tree("/image", root=True), "bubblewrap before 0.7 has no --size"


def test_each_run_has_an_access_of_its_own_which_nothing_shows() -> None:
    one, other = Access.random(), Access.random()
    assert {one.user, one.password}.isdisjoint({other.user, other.password}) and len(one.password) == 32
    link = Link(FakeMachine(), (), "10.77.0.1", 5202, access=one)
    (server,) = Smb(SmbParameters()).servers("10.77.0.1", 5202, one)
    job = Job(FakeMachine(), ("x",), 1.0, input=one.line)
    said = f"{one} {link} {server} {job} {server.argv}"
    assert one.user not in said and one.password not in said


def test_every_server_ends_by_itself_and_listens_at_the_peer_s_address_only() -> None:
    each: list[Command[Any]] = [Net(NetParameters()), Latency(LatencyParameters()), Smb(SmbParameters())]
    for one in each:
        for server in one.servers("10.77.0.1", 5202, Access.random()):
            assert server.argv[: len(TIMED)] == TIMED and "10.77.0.1" in server.argv, one.name


def test_net_repeats_what_iperf3_complains_about() -> None:
    with pytest.raises(BadOutput, match="unable to connect"):
        Net(NetParameters()).parse("tcp-out", '{"start": {}, "error": "unable to connect to server"}')


def test_of_each_connection_a_block_may_be_under_way_when_the_time_is_over() -> None:
    """At 4 Mbit/s for a second, four blocks: one that is late is no full load, two are."""
    block, output = 8 * 128 * 2**10, json.loads((GOLDEN / "tcp-out.json").read_text())
    net = Net(NetParameters(rate=4, seconds=1))
    for late in (1, 2):
        output["end"]["sum_received"]["bits_per_second"] = 4e6 - late * block
        if late == 1:
            assert net.parse("tcp-out", json.dumps(output))
        else:
            with pytest.raises(BadOutput, match=r"1\.9 Mbit/s were reached of the 4"):
                net.parse("tcp-out", json.dumps(output))
