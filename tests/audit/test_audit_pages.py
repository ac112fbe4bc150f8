"""What attacks found is on the page, in the evidence and in front --json as it is in the rows."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fedpareto import Store, load_study
from fedpareto.audit.words import sentence
from fedpareto.report.audit_panel import panel
from fedpareto.report.audits import NO_PROOF, gain, lines, outdone
from fedpareto.report.compare import compare
from fedpareto.report.compare_page import comparison_page
from fedpareto.report.evidence import evidence
from fedpareto.report.points import view_of
from fedpareto.store import Audit

FEW = ("--set", "canaries=100", "--set", "shadows=16", "--set", "pictures=2", "--set", "candidates=20")


@pytest.fixture
def audited(finished_study, fedpareto):
    done = fedpareto("audit", finished_study, *FEW)
    assert done.status == 0, done.err
    assert "A failed attack proves nothing" in done.out
    for words in ("ε̂ ", "records told with AUC ", "pictures at ", "noise "):
        assert words in done.out
    return finished_study


def rows(study):
    with Store.read(study.with_suffix(".db")) as store:
        return store.audits()


def test_the_page_the_evidence_and_the_front_show_the_rows(audited, fedpareto, finished_study):
    kept = rows(audited)
    assert {a.attack for a in kept} == {"canary", "inversion", "membership", "noise"}
    (page, *_) = fedpareto("report", audited).out.splitlines()
    html = Path(page).read_text()
    assert "What an attacker really gets" in html
    assert NO_PROOF in html
    shown = base64.b64encode(next(a.picture for a in kept if a.picture)).decode()
    assert f"data:image/png;base64,{shown}" in html
    for a in kept:
        if "epsilon_hat" in a.measures:
            assert f"<td>{a.measures['epsilon_hat']:.4g}</td>" in html
        if "auc" in a.measures:
            assert f"<td>{a.measures['auc']:.3g}</td>" in html
    front = json.loads(fedpareto("front", audited, "--json").out)
    found = {(p["trial"], a["attack"], a["view"]): a["measures"] for p in front["points"] for a in p["audits"]}
    assert found == {(a.trial, a.attack, a.view): a.measures for a in kept}
    study = load_study(audited)
    with Store.read(audited.with_suffix(".db")) as store:
        seen = view_of(study, store)
        chosen = replace(seen, recommended=seen.front[0])
        text = evidence(chosen, store.trials())
    assert "What attacks found" in text
    assert NO_PROOF in text
    found = {(a.attack, a.view) for a in kept if a.trial == seen.front[0].trial}
    assert set(re.findall(r"<li>(canary|noise|membership|inversion), (\w+): ", text)) == found


def test_the_page_marks_what_is_of_each_point_and_keys_scroll_its_tables(audited):
    study = load_study(audited)
    with Store.read(audited.with_suffix(".db")) as store:
        seen = view_of(study, store)
    html = panel(seen)
    marked = {int(place) for place in re.findall(r'<td data-at="(\d+)">', html)}
    assert {id(seen.points[i]) for i in marked} == {id(p) for p in seen.front}
    assert 'id="audits-every"' in html
    assert html.count('class="scroll" tabindex="0"') == html.count('class="scroll"') > 2
    for view in ("server", "secagg", "release"):
        assert f"records, {view}" in html  # curves
    assert "clients, release" in html


def test_a_comparison_shows_the_most_that_attacks_found_of_each_study(audited, fedpareto, tmp_path):
    done = fedpareto("compare", audited, "--json")
    assert done.status == 0, done.err
    (study,) = json.loads(done.out)["studies"]
    kept = rows(audited)
    shown = {(a["trial"], a["attack"], a["view"]): a["measures"] for a in study["audits"]}
    assert shown == {(a.trial, a.attack, a.view): a.measures for a in kept}
    html = comparison_page(compare([audited]))
    assert "What an attacker really gets" in html
    assert NO_PROOF in html
    best = max((a for a in kept if "auc" in a.measures), key=lambda a: a.measures["auc"])
    assert f"{best.measures['auc']:.3g} (trial {best.trial}, {best.view})" in html


def test_an_attack_of_somebody_else_may_measure_what_it_likes(finished_study):
    study = load_study(finished_study)
    odd = {"epsilon": "much", "epsilon_hat": None, "auc": 0.7, "roc": [1, "x"], "psnr": True, "canaries": [], "alarm": [], "depth": 3}
    with Store.write(finished_study.with_suffix(".db"), study.name, study.identity, study.repeats) as store:
        point = view_of(study, store).front[0]
        for i, measures in enumerate((odd, {"psnr": 12.0}, {"text": "<b>"}, {"depth": 3}, {"why": "x", "least": 0.1})):
            store.add_audits([Audit(point.trial, point.settings, f"a:{i}", "server", 0, {}, measures, None, "0")])
        seen = view_of(study, store)
    html = panel(seen)
    assert "<td>0.7</td>" in html
    assert "12 dB" in html
    text = lines(seen, point)
    assert "a:0, server: records told with AUC 0.7" in text[0]
    assert any("depth 3" in line for line in text)
    for measures in (odd, {"psnr": 12.0}, {"epsilon_hat": 1.0}, {"auc": "x"}, {"strength": 1.0}):
        assert sentence(measures)
    assert sentence({"depth": 3, "alarm": True}).endswith("ALARM: the attack does not say why")
    assert "What an attacker really gets" in comparison_page(compare([finished_study]))


def test_a_line_up_orders_points_where_no_picture_is_left():
    measures = {"psnr": 7.0, "psnr_of_mean": 12.0, "lineup_place": 25.0, "candidates": 101}
    audit = Audit(0, {}, "inversion", "server", 0, {}, measures)
    assert (gain(audit), outdone(audit)) == (0.0, 0.75)
    assert outdone(replace(audit, measures={"psnr": 7.0})) is None
    assert outdone(replace(audit, measures=measures | {"candidates": 1})) is None


def test_without_audits_nothing_is_shown(finished_study, fedpareto):
    (page, *_) = fedpareto("report", finished_study).out.splitlines()
    assert "What an attacker really gets" not in Path(page).read_text()
    assert "What an attacker really gets" not in comparison_page(compare([finished_study]))
    assert all(p["audits"] == [] for p in json.loads(fedpareto("front", finished_study, "--json").out)["points"])
    assert "What attacks found" not in Path(fedpareto("report", finished_study, "--evidence").out.strip()).read_text()


def test_an_alarm_stands_on_top(finished_study, fedpareto):
    study = load_study(finished_study)
    with Store.write(finished_study.with_suffix(".db"), study.name, study.identity, study.repeats) as store:
        point = view_of(study, store).front[0]
        store.add_audits([Audit(point.trial, point.settings, "<b>", "server", 0, {}, {"epsilon": 1.0, "epsilon_hat": 2.0, "alarm": True, "why": "<i>"}, None, "0")])
        seen = view_of(study, store)
    html = panel(seen)
    assert "ALARM: trial" in html
    assert "&lt;i&gt;" in html
    assert "<i>" not in html
    assert 'value="1.0000"' in html
    assert "ALARM, found twice" in lines(seen, point)[0]
    assert lines(seen, None) == []
