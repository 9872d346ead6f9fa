"""Rankings, effects of factors, decisions: in every report."""

from __future__ import annotations

import dataclasses

from tests.answers import experiment_data
from tests.sample import sample_experiment
from tests.unit.test_report import printed
from vmtax.analysis.analysis import Analysis
from vmtax.report.render.html import render_html
from vmtax.report.render.markdown import render_markdown
from vmtax.report.show import render
from vmtax.report.wording.rankings import what_is_claimed


def test_rankings_effects_and_decisions_are_shown_in_every_report() -> None:
    experiment = sample_experiment(rounds=12, treatments=14)
    plan = {**experiment.plan, "decide": {"worse_than": 0.03}, "rounds": {"min": 8, "max": 60}}
    experiment = dataclasses.replace(experiment, plan=plan, ended="after 12 rounds, it is settled")
    analysis = Analysis(experiment)
    html, markdown = render_html(analysis), render_markdown(analysis)
    terminal = printed(render(analysis, full=True))
    data = experiment_data(analysis)
    for text in (html, markdown, terminal):
        assert "nded after 12 rounds, it is settled" in text.replace("\N{NO-BREAK SPACE}", " ")
        assert "beaten by 5 of 6" in text.replace("\N{NO-BREAK SPACE}", " ")
        assert "36 % of the variance" in text.replace("\N{NO-BREAK SPACE}", " ")
        assert "worse by more than" in text
    assert max(len(line) for line in terminal.splitlines()) <= 80
    assert {decision["worse"] for decision in data["decisions"]} == {"yes", "no", "undecided"}
    primary = set(plan["primary"])
    assert {decision["metric"] for decision in data["decisions"]} == primary
    last = [r["standings"][-1] for r in data["rankings"] if r["metric"] == "disk.randread-4k-qd1.iops"]
    assert all(entry["beaten_by"] and entry["emulated"] for entry in last)
    assert {tuple(effect["factors"]) for effect in data["effects"] if effect["layer"] == "vm"} == {
        ("disk.bus",),
        ("disk.format",),
        ("guest.mitigations",),
        ("disk.bus", "guest.mitigations"),
    }


def test_one_round_is_one_and_cpu_time_keeps_its_capitals() -> None:
    ranking = dataclasses.replace(Analysis(sample_experiment(rounds=12, treatments=14)).rankings[0], rounds=1)
    text = what_is_claimed(ranking, "CPU time for the same work")
    assert text.startswith("CPU time for the same work against the best, over 1 round.")
