"""The evidence for the file: what it says, what it warns of, and that it can be trusted to say the same tomorrow."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html import unescape
from importlib.metadata import version

import pytest

import fedpareto as package
from fedpareto import load_study, run, view
from fedpareto.privacy.record_statement import PERSON
from fedpareto.report.again import run_again
from fedpareto.report.caveats import not_guaranteed
from fedpareto.report.evidence import evidence, rows_sha256, write_evidence
from fedpareto.report.page import page
from fedpareto.report.text import spread_of
from fedpareto.store import Store

from .conftest import CHROMIUM
from .test_points import study, trials


@pytest.fixture
def done(tiny_study):
    """A study of twelve trials, some of which hold the limit."""
    tiny_study.write_text(tiny_study.read_text().replace("budget = 2", "budget = 12"))
    run(load_study(tiny_study)).close()
    return tiny_study


def words(html):
    """Return what a reader sees."""
    body = html[html.index("<body>"):]
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body)))


def made(path, **chosen):
    with Store.read(path.with_suffix(".db")) as store:
        rows = store.trials()
    seen = view(load_study(path), rows)
    return seen, rows, words(evidence(seen, rows, **chosen))


def test_the_command_that_makes_the_rows_again_makes_no_others(done, tmp_path, fedpareto):
    """The study file says 12 trials; there are six, and a page of them must lead to six."""
    some = tmp_path / "some.db"
    asked = replace(load_study(done), budget=6)
    with run(asked, some) as store:
        rows = store.trials()
        seen = view(load_study(done), rows)
    text = words(evidence(seen, rows))
    (command,) = re.findall(r"fedpareto (run tiny\.toml --budget 6 --seed 1) fedpareto verify", text)
    assert command in json.dumps(page(seen))
    assert fedpareto("run", done, "--db", tmp_path / "again.db", *command.split()[2:]).status == 0
    with Store.read(tmp_path / "again.db") as store:
        assert rows_sha256(store.trials()) == rows_sha256(rows)
        assert rows_sha256(rows) in text
    failed = replace(seen, failed=(replace(rows[5], number=8),))
    assert run_again(failed, "x") == "fedpareto run x --budget 9 --seed 1"


def test_the_evidence_answers_every_question_of_the_file(done):
    seen, rows, text = made(done)
    for heading in ("The question", "Data", "Threat model", "What was searched", "The front", "The choice",
                    "The guarantee, and what it rests on", "What is not guaranteed", "Versions, hashes, and how to repeat it"):
        assert heading in text
    assert "leakage kang23_eq13: " in text
    assert "≤ 0.8 proxy: Kang 2023, Eq. 13" in text
    assert "digits, dealt to 4 clients: iid; share used 1. 1,438 training examples of 10 classes." in text
    assert "The server sees every upload of every round" in text
    assert "To be hidden is everything that one client holds" in text
    assert "nsga2 (population = 2" in text
    assert "proposed 12 trials, 0 of which failed, of a budget of 12; each was trained 1 time, seed 1." in text
    assert "sigma 0.01 to 1, on a log scale" in text
    assert f"fedpareto {package.__version__} Python {platform.python_version()} torch {version('torch')} numpy {version('numpy')} " \
           f"dp-accounting {version('dp-accounting')}" in text
    assert f"SHA-256 of tiny.toml {hashlib.sha256(done.read_bytes()).hexdigest()}" in text
    assert f"SHA-256 of the rows {rows_sha256(rows)}" in text
    assert "fedpareto verify tiny.toml" in text
    assert seen.why in text
    assert str(done.parent) not in text


def test_the_guarantee_stands_with_its_assumptions_and_the_limits_of_it(done):
    seen, _, text = made(done)
    assert seen.recommended is not None
    assert re.search(r"ε = [\d.]+ at δ = 1e-05, client level: training looks alike to whoever sees each client's upload", text)
    assert "accountant: analytic Gaussian" in text
    assert "leakage is a proxy (Kang 2023, Eq. 13), not a privacy guarantee. Nothing follows from it" in text
    assert "The search itself is not counted: it is taken to train on public or made-up data." in text
    assert "Deployed noise must come from the system's secure randomness" in text
    assert "Client level: it covers one client's data as a whole." in text
    assert "timing, the size and number of messages" in text


def test_what_is_not_guaranteed_follows_the_study(tiny_study):
    more = '[privacy]\nunit = "record"\nprivate_data = true\n\n[objectives.utility_loss]'
    tiny_study.write_text(tiny_study.read_text().replace("[objectives.utility_loss]", more).replace("limit = 0.8", ""))
    run(load_study(tiny_study)).close()
    seen, _, text = made(tiny_study)
    lines = not_guaranteed(seen, seen.recommended)
    assert any(line.startswith("Record level: it covers one record.") for line in lines)
    assert not any(line.startswith("The search:") for line in lines)
    assert "The search trained on private data, and its price is stated below." in text
    assert "All of it together: ε = " in text
    assert "nearly as likely if any other stood in its place" in text


def test_without_noise_the_evidence_says_that_nothing_is_promised(tiny_study):
    text = re.sub(r'name = "randomization"[^[]*\[0.5, 4.0\]', 'name = "none"', tiny_study.read_text())
    tiny_study.write_text(text.replace("kang23_eq13", "upload_bytes").replace("limit = 0.8", "reference = 1e9"))
    run(load_study(tiny_study)).close()
    _, _, text = made(tiny_study)
    assert "No true ε is promised: no noise is added" in text
    assert "Differential privacy: no (ε, δ) is promised for the choice" in text
    assert "Deployed noise" not in text


def test_a_choice_can_be_asked_for(done):
    seen, _, text = made(done, prefer="leakage")
    least = min((p for p in seen.points if p.feasible), key=lambda p: p.objectives["leakage"])
    assert f"Trial {least.trial}. The least leakage under the study's own limits." in text


def test_the_choice_shows_the_limit_that_was_asked_and_no_rounding_error(done):
    seen, _, _ = made(done)
    least = min(seen.points, key=lambda p: p.objectives["leakage"])
    limit = max(p.objectives["leakage"] for p in seen.points if p.feasible)
    assert limit < 0.8
    choice = re.search(r"The choice.*The guarantee", made(done, limits={"leakage": limit})[2])[0]
    assert f"leakage ≤ {limit:g} (proxy) " in choice
    assert "leakage ≤ 0.8" not in choice
    assert "leakage ≤ 0.8 (proxy) " in re.search(r"The choice.*The guarantee", made(done, limits={"leakage": 0.9})[2])[0]
    noisy = replace(least, spread={"kang23_eq13": least.objectives["leakage"] * 1e-15})
    assert spread_of(noisy, "kang23_eq13") == 0
    assert spread_of(replace(least, spread={"kang23_eq13": 0.01}), "kang23_eq13") == 0.01
    html = evidence(replace(seen, recommended=noisy), [])
    assert "e-1" not in re.search(r"The choice.*?setting", words(html))[0]


def test_a_reader_without_the_study_is_given_no_advice_about_its_file_and_the_search_is_warned_of_once(done, fedpareto):
    _, _, text = made(done)
    before = text.split("Versions, hashes")[0]
    assert not re.search(r"private_data|records_per_person|say so", before)
    assert before.count("counted nowhere here") == 1
    assert len(re.findall(r"(?:P|p)ublic or made-up", before)) == 2
    assert "records_per_person" not in PERSON
    assert "say so with private_data = true in [privacy]" in fedpareto("front", done).out  # who has the study is told


def test_evidence_is_printed_on_a4(done, tmp_path):
    """The sheet of a printed page, in points: 210 × 297 mm."""
    if CHROMIUM is None:
        pytest.skip("no browser: install Debian's chromium")
    seen, rows, _ = made(done)
    html = write_evidence(seen, rows, tmp_path / "e.html")
    subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--print-to-pdf={tmp_path / 'e.pdf'}", html.as_uri()],
                   check=True, capture_output=True, timeout=60)
    boxes = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", (tmp_path / "e.pdf").read_bytes())
    assert boxes
    for wide, high in boxes:
        assert (float(wide), float(high)) == pytest.approx((595.3, 841.9), abs=1)


def test_equal_rows_give_equal_evidence_and_others_another(done, tmp_path):
    seen, rows, _ = made(done)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for suffix in (".toml", ".db"):
        shutil.copy(done.with_suffix(suffix), elsewhere)
    again, same, _ = made(elsewhere / "tiny.toml")
    assert evidence(seen, rows) == evidence(again, same)
    changed = [replace(rows[0], measures=rows[0].measures | {"test_error": 0.123}), *rows[1:]]
    assert rows_sha256(changed) != rows_sha256(rows)
    assert rows_sha256([*rows, replace(rows[0], number=9, state="pending")]) == rows_sha256(rows)


def test_markup_in_names_is_shown_and_not_run(tiny_study):
    nasty = '</h1><script>alert(1)</script><img src=x onerror="alert(2)">'
    quoted = nasty.replace('"', '\\"')
    text = tiny_study.read_text().replace('name = "tiny"', f'name = "{quoted}"').replace("[objectives.leakage]", f'[objectives."{quoted}"]')
    tiny_study.write_text(text)
    with run(load_study(tiny_study)) as store:
        rows = store.trials()
        html = evidence(view(load_study(tiny_study), rows), rows)
    assert "<script" not in html
    assert "<img" not in html
    assert nasty in words(html)


@pytest.mark.parametrize(("m", "rows"), [(1, [(0.5,), (0.2,)]), (2, []), (2, [(0.5, 0.5)]),
                                         (3, [(0.1 * i, 1 - 0.1 * i, 0.05 * i) for i in range(9)])])
def test_evidence_can_be_made_of_any_study_without_matplotlib_or_script(m, rows, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    seen = view(study(m=m, limit=0.9), trials(*rows, failed=["diverged"]))
    html = write_evidence(seen, trials(*rows), tmp_path / "e.html").read_text()
    assert not re.search(r"""<script|(src|href)\s*=|@import|url\(""", html)
    assert html.count("<svg viewBox=\"0 0 640") == (1 if m > 1 and rows else 0)
    assert ("front with f3 ≤" in html) == (m == 3)
    assert len(html) < 200_000


def test_many_trials_leave_the_page_small():
    many = trials(*[(0.2 + 0.7 * (i * 0.618 % 1), 0.2 + 0.7 * (i * 0.414 % 1)) for i in range(3000)])
    html = evidence(view(study(), many), many)
    assert "one in 4 of the other trials" in html
    assert len(html) < 500_000


def test_the_command_writes_it_beside_the_database(done, fedpareto, tmp_path):
    path = done.with_name("tiny-evidence.html")
    assert fedpareto("report", done, "--evidence") == (0, f"{path}\n", "")
    assert "What is not guaranteed" in path.read_text()
    other = tmp_path / "other.html"
    assert fedpareto("report", done, "--evidence", "--limit", "leakage=0.8", "--prefer", "leakage", "--output", other).status == 0
    assert "The least leakage under leakage ≤ 0.8." in words(other.read_text())
    assert "must be an objective of the study" in fedpareto("report", done, "--evidence", "--prefer", "x").err


def test_what_is_kept_of_the_first_clients_is_not_taken_for_all_of_them(tiny_study, fedpareto):
    tiny_study.write_text(tiny_study.read_text().replace("clients = 4", "clients = 60"))
    assert fedpareto("run", tiny_study).status == 0
    assert fedpareto("report", tiny_study, "--evidence").status == 0
    text = tiny_study.with_name("tiny-evidence.html").read_text()
    assert "dealt to 60 clients: iid; share used 1. 1,438 training examples of 10 classes." in text
    assert fedpareto("report", tiny_study).status == 0
    page = tiny_study.with_suffix(".html").read_text()
    assert '"clients":60' in page
