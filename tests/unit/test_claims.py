"""Published claims: every rule finds its fault and nothing else, and each claim that comes with vmtax its verdict."""

from __future__ import annotations

import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.claim_samples import planted_set
from tools.hostile.claims import changed
from vmtax.claims.beside import _fitting
from vmtax.claims.checked import Checked, checked
from vmtax.claims.figures import parsed
from vmtax.claims.files import articles, builtin_claims
from vmtax.claims.rules import RULES
from vmtax.claims.schema import load, parse
from vmtax.cli import app
from vmtax.plan.errors import PlanError
from vmtax.plan.names import builtin_plans
from vmtax.plan.schema import load as load_plan
from vmtax.report.render.markdown import whole
from vmtax.report.sections.claim import check

# Claim -> (verdict, the rules that speak). Recomputed by hand from the printed figures.
EXPECTED = {
    "nesting-2016": ("wrong", "R1 R6 R11 R13"),  # 21.38 % is 19.8 %; four nested VMs against one VM; the smallest loss
    "build-2020": ("wrong", "R1 R13"),  # 76.4 % is printed as 75 %
    "storage-2013": ("doubtful", "R6 R8 R13"),  # faster than SATA; another machine
    "sriov-2012": ("doubtful", "R13"),  # orders of magnitude, no unit
    "sysbench-2013": ("wrong", "R1 R2 R6 R9"),  # run 1 as the mean; CFLAGS, barrier and CPU model; 3 runs
    "kvm-xen-2014": ("wrong", "R1 R6 R9 R10"),  # the other machine as the base; 11 tests are called ten
    "microvm-boot-2026": ("doubtful", "R9"),  # 10 ms are inside the noise
    "microvm-fs-2026": ("doubtful", "R9"),  # sd larger than the median
    "nested-arm-2025": ("doubtful", "R5"),  # whole milliseconds
    "nested-ec2-2026": ("doubtful", "R6 R13"),  # 48xlarge against 4xlarge, one run
    "sql-vsphere-2009": ("doubtful", "R4"),  # 261 against 204 under way
    "xen-redux-2011": ("doubtful", "R6"),  # 32 against 24 GB
    "sysbench-proxmox": ("wrong", "R7"),  # sysbench 1.0 stops after 10 s
    "virtme-ng-9": ("wrong", "R1"),  # 241.75 is printed as 241.96
    "zvol-qcow2-2018": ("doubtful", "R12"),  # iodepth beside the sync engine
    "proxmox-183695": ("doubtful", "R6"),  # another guest OS
    "librbd-28044": ("wrong", "R5"),  # cut off and rounded
    "android-avf-102": ("doubtful", "R11"),  # the mean of 1.26 and 1.13
    "open-notes-vm": ("wrong", "R6 R10"),  # a write is called a read
    "tu-berlin": ("doubtful", "R9"),  # a container faster than its host
    "cpu-host-windows": ("doubtful", "R13"),
    "cloud-hypervisor-6824": ("doubtful", "R5 R6"),  # raw against qcow2; 0.6 M has one digit
    "zfs-lxc-kvm-2017": ("doubtful", "R6"),
    "microvm-qemu-nsdi2020": ("doubtful", "R13"),
    "myweirdprompts-3789": ("doubtful", "R13"),
}
# Claim -> printed comparisons that do not follow from their figures; all others do.
WRONG_NUMBERS = {
    "nesting-2016": ["21.38"],
    "build-2020": ["75"],
    "sysbench-2013": ["84.75"],
    "kvm-xen-2014": ["2.79", "4.11", "14.41"],
    "virtme-ng-9": ["241.96"],
}


def found(text: str) -> Checked:
    return checked(parse(text))


def rules(one: Checked) -> list[str]:
    names = {finding.rule for finding in one.findings}
    return [rule.number for rule in RULES if rule.number in names]


def test_every_claim_has_an_expected_verdict() -> None:
    assert set(EXPECTED) == set(builtin_claims()) and set(WRONG_NUMBERS) <= set(EXPECTED)
    assert {rule for _, names in EXPECTED.values() for rule in names.split()} == {
        rule.number
        for rule in RULES
        if rule.number != "R3"  # none of them has shares of a whole
    }


@pytest.mark.parametrize("name", EXPECTED)
def test_a_claim_has_its_verdict_by_the_rules_that_find_it(name: str) -> None:
    one = checked(load(name))
    assert (one.verdict, " ".join(rules(one))) == EXPECTED[name]
    wrong = [number.printed.text for number in one.numbers if number.verdict == "wrong"]
    assert wrong == WRONG_NUMBERS.get(name, [])


ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/check-a-published-figure.md"
HEADINGS = {"nesting-2016": "Nested Hyper-V, 2016", "build-2020": "A kernel build, 2020"}
# Article -> (table, row, base, word, what the page says of it).
QUOTED = {
    "nesting-2016": [
        (1, "nested VM", "VM", "loss", "5.3 %"),
        (2, "VM", "host", "times", "2.4 times"),
        (3, "one VM", "host", "loss", "70.0 %"),
        (3, "four VMs", "host", "loss", "19.8 %"),
        (3, "one nested VM", "one VM", "loss", "45.4 %"),
        (3, "four nested VMs", "four VMs", "loss", "74.6 %"),
    ],
    "build-2020": [
        (0, "2 MiB pages, no mitigations", "bare metal", "loss", "17 %"),
        (0, "2 MiB pages, no mitigations", "bare metal", "more", "20.4 %"),
        (0, "2 MiB pages", "2 MiB pages, no mitigations", "more", "3 %"),
        (0, "2 MiB pages, no mitigations", "4 KiB pages, no mitigations", "less", "8 %"),
    ],
}


@pytest.mark.parametrize("name", QUOTED)
def test_the_page_of_an_article_quotes_what_its_figures_give(name: str) -> None:
    page = PAGE.read_text().partition(f"\n## {HEADINGS[name]}\n")[2].partition("\n## ")[0]
    for number, row, base, word, quoted in QUOTED[name]:
        exact = load(name).tables[number].recomputed(row, base, word).stated.value
        digits = quoted.split()[0]
        assert f"{exact:.{len(digits.partition('.')[2])}f}" == digits, (row, exact)
        assert quoted in page


def test_the_page_begins_with_what_check_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    printed = CliRunner().invoke(app, ["claim", "check", "build-2020"]).output
    block = PAGE.read_text().partition("```\nbuild-2020: wrong")[2].partition("```")[0]
    assert block.count("\n") > 5 and printed.startswith(f"build-2020: wrong{block}")


def test_an_article_names_a_plan_that_repeats_it() -> None:
    assert articles() == ["build-2020", "nesting-2016", "sriov-2012", "storage-2013"]
    assert all(load(name).plan in builtin_plans() and load(name).scaled for name in articles())


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.variations
def test_thirty_right_claims_pass_and_thirty_planted_faults_are_found_by_their_rule(seed: int) -> None:
    right, wrong = planted_set(seed)
    assert (len(right), len(wrong)) == (30, 30)
    for text in right:
        assert [str(finding) for finding in found(text).findings] == []
        assert found(text).silent in ((), ("R7",))  # which is about times
    assert [rules(found(text)) for _, text in wrong] == [[rule] for rule, _ in wrong]


HEAD = "source: a test\nyear: 2026\nunit: s\nbetter: lower\n"
ROWS = "rows:\n  a: {value: 362}\n  b: {value: 436}\n"


def derived(of: str, base: str, **more: str) -> str:
    entries = ", ".join(f"{key}: {value}" for key, value in {"of": of, "base": base, **more}.items())
    return f"{HEAD}{ROWS}derived: [{{{entries}}}]\n"


@pytest.mark.parametrize(
    ("word", "printed", "says", "right"),
    [
        ("share", "83", "exactly", True),
        ("share", "83.0", "exactly", True),
        ("share", "82", "exactly", False),
        ("share", "120.4", "exactly", False),  # the other base
        ("loss", "17", "exactly", True),
        ("loss", "16.97", "exactly", True),
        ("loss", "16.9", "exactly", True),  # cut off
        ("loss", "16.6", "exactly", False),
        ("loss", "20.4", "exactly", False),
        ("more", "20.4", "exactly", True),
        ("more", "17", "exactly", False),
        ("more", "18.6", "about", True),
        ("more", "18.4", "about", False),
        ("less", "-20", "exactly", True),
        ("gain", "-17", "exactly", True),
        ("gain", "17", "exactly", False),  # the sign
        ("times", "1.2", "exactly", True),
        ("times", "1.20", "exactly", True),
        ("times", "1.22", "exactly", False),
        ("times", "0.83", "exactly", False),
        ("loss", "17", "at most", True),
        ("loss", "15", "at most", False),
        ("loss", "15", "at least", True),
        ("loss", "19", "at least", False),
        ("difference", "74", "exactly", True),
        ("difference", "-74", "exactly", False),
    ],
)
def test_a_printed_number_is_recomputed_as_its_word_says(word: str, printed: str, says: str, right: bool) -> None:
    one = found(derived("b", "a", word=word, printed=printed, says=says))
    assert ("R1" not in rules(one)) is right


def test_a_number_on_the_other_base_says_which_base_it_has() -> None:
    (finding,) = found(derived("b", "a", word="loss", printed="20.4")).findings
    assert finding.text == "printed 20.4 % has b as its base; of a it is 16.97 %"
    assert finding.where == "figures: b against a"


@pytest.mark.parametrize(
    ("text", "value", "low", "high"),
    [
        ("5", 5, 4.5, 5.5),
        ("5.0", 5, 4.95, 5.05),
        ("29e3", 29e3, 28.5e3, 29.5e3),
        ("-2.79", -2.79, -2.795, -2.785),
        ("\N{MINUS SIGN}0.5", -0.5, -0.55, -0.45),
    ],
)
def test_a_printed_number_keeps_what_its_digits_leave_open(text: str, value: float, low: float, high: float) -> None:
    figure = parsed(text)
    assert (figure.value, figure.low, figure.high) == pytest.approx((value, low, high))


WHERE = "claim.yaml"
BAD = {
    "a number with a unit": (
        derived("b", "a", word="loss", printed="17%"),
        "8:40: derived[0].printed: must be a number",
    ),
    "thousands": (HEAD + "rows: {a: {value: '465,536'}}", "5:12: rows.a.value: must be a number with a point"),
    "no such row": (
        derived("b", "c", word="loss", printed="17"),
        "8:19: derived[0].base: unknown row 'c'; legal: a, b",
    ),
    "a misspelt key": (HEAD + "rows: {a: {valeu: 3}}", "did you mean value? legal: value, runs"),
    "a wrong word": (derived("b", "a", word="lost", printed="17"), "unknown value 'lost'; did you mean loss?"),
    "no figure": (HEAD + "rows: {a: {layer: vm}}", "5:8: rows.a: needs either `value` or `runs`"),
    "itself": (derived("a", "a", word="loss", printed="1"), "compares 'a' with itself: name two rows"),
    "a zero": (
        HEAD + "rows: {a: {value: 0}, b: {value: 1}}\nderived: [{of: b, base: a, word: loss}]",
        "is not above 0",
    ),
    "a set-up that is none": (HEAD + "rows: {a: {value: 1, setup: x}}", "5:22: rows.a.setup: unknown entry of `setup`"),
    "a link that is none": (HEAD + "through: {link: sata6g}\n" + ROWS, "unknown device or link 'sata6g'; did you mean"),
    "a deviation below 0": (
        HEAD + "rows: {a: {value: 1, sd: -1, n: 3}}",
        "5:22: rows.a.sd: must be at least 0: it is a standard deviation, not -1",
    ),
    "no rows": (HEAD, "rows: is missing"),
    "empty": ("", "the file is empty: a claim needs at least `source`"),
    "a list": ("- a", "1:1: a claim is a mapping"),
    "nothing to check": ("source: a\nyear: 2026\ntables: []\n", "3:1: tables: without a table there is nothing"),
    "a runless mean": (HEAD + "rows: {a: {value: 1, printed: 1}}", "is the printed mean of `runs`"),
    "scaled": (derived("b", "a", word="scaled", printed="1"), "`word: scaled` needs `scale`"),
    "in a table": (
        "source: a\nyear: 2026\ntables:\n  - {unit: s, better: lower, rows: {a: {value: x}}}\n",
        "4:41: tables[0].rows.a.value: must be a number as printed",
    ),
    "no pattern": (f"{HEAD}metric: '*'\n{ROWS}", "5:1: metric: must be a regular expression: nothing to repeat"),
    "a year": (f"{HEAD}{ROWS}".replace("2026", "20266"), "2:1: year: must be a year from 1950 to 2100, not 20266"),
    "a plan": ("name: a\nworkloads: [chess]\n", "1:1: name: unknown key 'name'"),
    "huge": (f"source: {'a' * 70_000}\n", "larger than 64 KiB, so it is not a claim"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_file_gets_a_line_with_its_place(name: str) -> None:
    text, message = BAD[name]
    with pytest.raises(PlanError) as error:
        parse(text, WHERE)
    assert any(line.startswith(WHERE) and message in line for line in error.value.problems), error.value.problems
    assert all("not a plan" not in line for line in error.value.problems)


def test_no_text_does_anything_but_give_a_claim_or_name_a_place() -> None:
    source, read = random.Random(1), 0
    for _ in range(100):
        try:
            claim = parse(changed(source), WHERE)
        except PlanError as error:
            assert all(line.startswith(WHERE) for line in error.problems)
            continue
        read += 1
        whole(check("mine", checked(claim)))
    assert read > 10


def test_an_unknown_name_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="unknown claim 'nesting-2015'; did you mean nesting-2016"):
        load("nesting-2015")
    with pytest.raises(PlanError, match="cannot be read: No such file"):
        load(str(tmp_path / "none.yaml"))


def test_every_published_row_that_can_be_measured_is_in_the_plan_that_repeats_it() -> None:
    """Otherwise hours of `claim run` would end with an empty line beside it."""
    for name in articles():
        claim = load(name)
        plan = load_plan(str(claim.plan))
        run: Any = SimpleNamespace(experiment=SimpleNamespace(treatments=plan.treatments()[0]))
        metrics = [metric.name for workload in plan.build_workloads() for metric in workload.metrics()]
        for table in (each for each in claim.tables if each.metric is not None):
            assert any(re.fullmatch(str(table.metric), metric) for metric in metrics), (name, table.title)
            assert [row for row, it in table.rows.items() if it.layer and not _fitting(it, run)] == [], table.title
