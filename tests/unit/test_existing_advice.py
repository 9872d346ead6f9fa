"""What is unsafe, slow or limited in a guest's settings, what of it was measured, and what `doctor` prints."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.sample_storage import storage_experiment
from tests.unit.test_existing import (
    CARD,
    CONF,
    DISK,
    HIDES,
    QEMU,
    SHARED,
    hyperv,
    parsed,
    xml,
)
from vmtax.cli import app
from vmtax.existing.advice import SettingAdvice, advice, change_of_xml
from vmtax.existing.limits import limits
from vmtax.existing.measured import by_cost, measured
from vmtax.store import Store


@pytest.mark.parametrize(
    ("text", "factor", "weight", "patch"),
    [
        (xml(driver=" cache='unsafe'"), "disk.cache", "unsafe", "virsh edit web1: <driver … cache='none'/> of vda"),
        (
            CONF + "scsi0: a:b,cache=unsafe,size=1G\n",
            "disk.cache",
            "unsafe",
            "qm set VMID --scsi0 a:b,size=1G,cache=none",
        ),
        (CONF + "net0: e1000=AA:BB,bridge=vmbr0\n", "net.path", "slow", "qm set VMID --net0 virtio=AA:BB,bridge=vmbr0"),
        (CONF, "cpu.model", "slow", "qm set VMID --cpu host"),
        (
            xml(cpu=hyperv("<vapic state='on'/>")),
            "cpu.hyperv",
            "slow",
            "virsh edit web1: <vpindex state='on'/><synic state='on'/><stimer state='on'/> in <hyperv>, <timer name=",
        ),
        (QEMU + "-cpu host,hv-relaxed,hv-time", "cpu.hyperv", "slow", "hv-vpindex,hv-time,hv-synic,hv-stimer in -cpu"),
        (QEMU + "-hda /a", "disk.bus", "slow", "-device virtio-blk-pci"),
        (
            xml(CARD.replace("virtio", "e1000")),
            "net.path",
            "slow",
            "virsh edit web1: <model type='virtio'/>, on a bridge or network",
        ),
    ],
)
def test_what_manuals_call_unsafe_or_slow_has_a_patch(text: str, factor: str, weight: str, patch: str) -> None:
    guest = parsed(text)
    found = {each.factor: each for each in advice(guest)}
    assert found[factor].weight == weight
    assert found[factor].patch(guest).startswith(patch)
    assert [each.weight == "unsafe" for each in advice(guest)] == sorted(
        (each.weight == "unsafe" for each in advice(guest)), reverse=True
    )


@pytest.mark.parametrize(
    ("text", "better"),
    [
        (xml(), None),
        (xml(cpu=f"<features>{HIDES}</features>"), None),  # which says nothing of Windows
        (xml(cpu=hyperv("<stimer state='on'/>")), None),
        (QEMU + "-cpu host,hv-passthrough", None),
        (QEMU + "-cpu host,hv-vapic,hv-runtime", "vapic+runtime+stimer"),
        (CONF + "ostype: w2k8\n", None),
    ],
)
def test_windows_is_better_off_with_timers_of_hyper_v(text: str, better: str | None) -> None:
    said = [change.better for change in advice(parsed(text)) if change.factor == "cpu.hyperv"]
    assert said == ([better] if better else [])


def many(cpus: int, more: str = "") -> str:
    return xml(cpu=hyperv("<relaxed state='on'/><stimer state='on'/>") + more).replace("<vcpu>2", f"<vcpu>{cpus}")


@pytest.mark.parametrize(
    ("text", "patch"),
    [
        (many(2), None),
        (many(4), "virsh edit web1: <topology sockets='1' cores='…' threads='1'/> in <cpu>"),
        (xml().replace("<vcpu>2", "<vcpu>4"), None),  # which says nothing of Windows
        (CONF.replace("cores: 4", "cores: 1") + "sockets: 4\nostype: win10\n", "qm set VMID --sockets 1 --cores 4"),
        (CONF + "ostype: win10\n", None),
        (CONF + "sockets: 2\nostype: win10\n", None),
        (CONF + "sockets: 4\nvcpus: 6\nostype: win10\n", "qm set VMID --sockets 1 --cores 16"),
        (
            QEMU.replace("-smp 2", "-smp 4,cores=1") + "-cpu host,hv-passthrough",
            "sockets=1 in -smp, with as many cores",
        ),
        (QEMU.replace("-smp 2", "-smp 4") + "-cpu host,hv-passthrough", None),
    ],
)
def test_windows_leaves_cpus_idle_that_are_sockets(text: str, patch: str | None) -> None:
    guest = parsed(text)
    said = [change.patch(guest) for change in advice(guest) if change.factor == "cpu.topology"]
    assert said == ([patch] if patch else [])


@pytest.mark.parametrize(
    ("text", "where", "said", "change"),
    [
        (
            xml(DISK.replace("</disk>", "<iotune><total_iops_sec>500</total_iops_sec></iotune></disk>")),
            "vda",
            "total_iops_sec=500",
            "virsh blkdeviotune web1 vda --total-iops-sec 0 --config --live",
        ),
        (
            xml(
                DISK.replace(
                    "</disk>",
                    "<iotune><read_bytes_sec>5</read_bytes_sec><read_bytes_sec_max>9"
                    "</read_bytes_sec_max><read_bytes_sec_max_length>2</read_bytes_sec_max_length></iotune></disk>",
                )
            ),
            "vda",
            "read_bytes_sec=5",
            "virsh blkdeviotune web1 vda --read-bytes-sec 0 --read-bytes-sec-max 0 --config",
        ),
        (
            xml(
                DISK.replace(
                    "</disk>", "<iotune><total_iops_sec>5</total_iops_sec><group_name>g</group_name></iotune></disk>"
                )
            ),
            "vda",
            "group_name=g",
            "virsh edit web1: without <iotune> of vda",  # a command would lift it for others too
        ),
        (
            xml(CARD.replace("<model", "<bandwidth><inbound average='256'/></bandwidth><model")),
            "card 1",
            "inbound average=256",
            "virsh edit web1: without <bandwidth> of card 1",
        ),
        (
            xml().replace("<devices>", "<cputune><quota>50000</quota></cputune><devices>"),
            "web1",
            "quota 50000",
            "virsh edit web1: without <quota> in <cputune>",
        ),
        (
            xml().replace("<devices>", f"{SHARED.format('<write_iops_sec>70</write_iops_sec>')}<devices>"),
            "web1",
            "write_iops_sec=70",
            "virsh edit web1: without the limits in <blkiotune>",
        ),
        (
            CONF + "scsi0: local:1,iops_rd=500,mbps_wr=10,cache=none\n",
            "scsi0",
            "iops_rd 500, mbps_wr 10",
            "qm set VMID --scsi0 local:1,cache=none",
        ),
        (
            CONF + "net0: virtio=BC:24:11:00:00:01,bridge=vmbr0,rate=12.5\n",
            "net0",
            "rate 12.5",
            "qm set VMID --net0 virtio=",
        ),
        (
            CONF + "scsi0: local:1,throttling-group=g1,cache=none\n",
            "scsi0",
            "throttling-group g1",
            "qm set VMID --scsi0 local:1,cache=none",
        ),
        (CONF + "cpulimit: 2\n", "guest", "cpulimit 2", "qm set VMID --delete cpulimit"),
        (
            QEMU + "-drive file=/a,if=virtio,id=d0,throttling.iops-total=1000",
            "d0",
            "throttling.iops-total 1000",
            "-drive or -blockdev of d0",
        ),
    ],
)
def test_a_limit_that_somebody_set_is_found_with_what_lifts_it(text: str, where: str, said: str, change: str) -> None:
    guest = parsed(text)
    (limit,) = limits(guest)
    assert (limit.where, said in limit.text) == (where, True), limit
    assert limit.change.startswith(change)
    assert set(re.findall(r"(?:iops|bps|bytes)[\w-]*[= ](\d+)", limit.change)) <= {"0"}, "nothing of it is kept"


def test_a_guest_without_limits_has_none() -> None:
    assert limits(parsed(xml().replace("<devices>", f"{SHARED.format('')}<devices>"))) == ()
    lifted = "<iotune><size_iops_sec>4096</size_iops_sec></iotune>"  # what the command leaves
    assert limits(parsed(xml(DISK.replace("</disk>", f"{lifted}</disk>")))) == ()
    assert limits(parsed(xml())) == limits(parsed(CONF + "cpulimit: 0\n")) == limits(parsed(QEMU + "-hda /a")) == ()
    assert limits(parsed(CONF + "scsi0: local:1,iops_rd=0\nnet0: virtio=BC:24:11:00:00:01,rate=0\n")) == ()
    assert (
        limits(parsed(xml(DISK.replace("</disk>", "<iotune><total_bytes_sec>0</total_bytes_sec></iotune></disk>"))))
        == ()
    )


def test_a_command_keeps_all_other_settings_and_survives_a_shell() -> None:
    long = f"local:vm-101-{'d' * 200},iops_rd=5,discard=on,iothread=1"
    (limit,) = limits(parsed(f"{CONF}scsi0: {long}\n"))
    assert limit.change == f"qm set VMID --scsi0 {long.replace('iops_rd=5,', '')}"
    (limit,) = limits(parsed(CONF + "net0: virtio=BC:24:11:00:00:01,rate=10,trunks=2;3\n"))
    assert limit.change.endswith(",trunks=2;3'") and shlex.split(limit.change)[-1].endswith(",trunks=2;3")


def test_a_limit_is_named_before_everything_else(tmp_path: Path) -> None:
    planted = DISK.replace("</disk>", "<iotune><total_iops_sec>500</total_iops_sec></iotune></disk>")
    file = tmp_path / "web1.xml"
    file.write_text(
        xml(planted.replace("bus='virtio'", "bus='ide'") + CARD.replace("virtio", "e1000"), driver=" cache='unsafe'")
    )
    said = CliRunner().invoke(app, ["doctor", str(file)]).output
    named = [line.split()[0] for line in said.splitlines() if re.match(r"  (limit|unsafe|slow|space) ", line)]
    assert named[:3] == ["limit", "unsafe", "slow"] and "disk.bus=ide" in said and "net.path=e1000e" in said


def test_a_good_guest_gets_no_advice() -> None:
    good = " cache='none' io='native' discard='unmap' iothread='1'"
    assert advice(parsed(xml(DISK + CARD, driver=good))) == ()


STORED = storage_experiment(rounds=6, emulated=False, host=False, few=True)
WRITETHROUGH = SettingAdvice("slow", "vda", "disk.cache", "writethrough", "none", "why")


def test_what_a_run_has_measured_of_a_setting_is_said() -> None:
    cost = measured([STORED], WRITETHROUGH)
    assert cost is not None and cost.run == STORED.id and not cost.is_emulated
    assert cost.metric.name in STORED.plan["primary"] and cost.is_shown and cost.ratio > 1
    assert cost.low is not None and cost.high is not None and cost.low <= cost.ratio <= cost.high
    other = measured([STORED], replace(WRITETHROUGH, level="none", better="writethrough"))
    assert other is not None and other.ratio >= 1 / cost.ratio, "the same comparisons, turned"


def test_what_is_shown_to_cost_most_is_named_first() -> None:
    bus = SettingAdvice("slow", "vda", "disk.bus", "ide", "virtio", "why")
    unmeasured = SettingAdvice("slow", "vda", "disk.iothread", "off", "on", "why")
    unsafe = SettingAdvice("unsafe", "vdb", "disk.cache", "unsafe", "none", "why")
    quicker = replace(WRITETHROUGH, level="none", better="writethrough")
    named = [unsafe, quicker, unmeasured, bus, WRITETHROUGH]
    ordered = by_cost(named, [STORED])
    assert [advised for advised, _ in ordered] == [unsafe, WRITETHROUGH, bus, unmeasured, quicker]
    assert [cost for _, cost in ordered] == [measured([STORED], advised) for advised, _ in ordered]
    assert [advised for advised, _ in by_cost(named, [])] == named, "nothing is measured: as they were"


@pytest.mark.parametrize(
    "change",
    [
        replace(WRITETHROUGH, level="unsafe"),
        replace(WRITETHROUGH, factor="net.path", level="tap", better="vhost"),
        replace(WRITETHROUGH, factor="disk.iothread", level="off", better="on"),
    ],
)
def test_what_no_run_compares_is_not_measured(change: SettingAdvice) -> None:
    assert measured([STORED], change) is None
    assert measured([], change) is None


def test_doctor_says_what_was_measured_on_that_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "guest.xml").write_text(xml(driver=" cache='writethrough'"))
    command = ["doctor", str(tmp_path / "guest.xml")]
    assert "not measured here" in CliRunner().invoke(app, command).output
    with Store() as store:
        store.put(STORED)
    words = " ".join(CliRunner().invoke(app, command).output.split())
    assert "time with writethrough against none, disk." in words and f"in run {STORED.id}" in words
    answer = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)["data"]["advice"]
    found = next(each for each in answer if each["factor"] == "disk.cache")
    assert found["measured"]["run"] == STORED.id and found["measured"]["shown"] is True


def test_the_page_shows_what_doctor_prints(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    printed = CliRunner().invoke(app, ["doctor", "tests/existing/libvirt/writethrough.xml"]).output
    assert f"```\n{printed}```\n" in (root / "docs/how-to/your-own-vm.md").read_text()


def test_an_xml_with_the_interface_of_hyper_v_hides_that_of_kvm_as_what_was_measured_did() -> None:
    off, hidden, all_of_it = (change_of_xml("cpu.hyperv", level) for level in ("off", "hidden", "all"))
    assert "<hidden state='off'/>" in off
    assert all("<hidden state='on'/>" in text for text in (hidden, all_of_it)) and "no <hyperv>" in hidden
