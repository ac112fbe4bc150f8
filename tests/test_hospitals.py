"""Hospitals that hide every patient: the example itself, and what page, evidence and card say where promises are about records."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from fedpareto import load_study, run, view
from fedpareto.cli.starting import write_example
from fedpareto.report.evidence import evidence
from fedpareto.report.page import page
from fedpareto.report.points import View
from fedpareto.report.privacy import statements
from fedpareto.store import Store

EXAMPLES = Path(__file__).parents[1] / "examples"
FEW = {"budget = 120": "budget = 3", "repeats = 3": "repeats = 1", "rounds = 15": "rounds = 2", "batch = 12": "batch = 3"}
OF_STEPS = "at every local step a client clips the gradient of each record and adds noise"


def seen_of(folder: Path, monkeypatch, changes: dict[str, str]) -> View:
    """Run the example with some lines changed, and look at it."""
    write_example("hospitals", folder)
    monkeypatch.delitem(sys.modules, "hospitals", raising=False)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    path = folder / "hospitals.toml"
    text = path.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    run(load_study(path)).close()
    with Store.read(path.with_suffix(".db")) as store:
        return view(load_study(path), store.trials())


def words(seen: View) -> str:
    """Return what a reader of the evidence sees."""
    with Store.read(seen.study.path.with_suffix(".db")) as store:
        html = evidence(seen, store.trials())
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html[html.index("<body>"):])))


def data_of(seen: View) -> dict:
    """Return the data that the page is drawn from."""
    (text,) = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page(seen), re.S)
    return json.loads(text)


def test_the_example_hides_every_patient_of_the_smallest_hospital(tmp_path, monkeypatch):
    seen = seen_of(tmp_path, monkeypatch, FEW)
    problem = seen.study.problem
    assert problem.split_table(0).sum(axis=1).tolist() == [74, 62, 53, 46, 39, 34, 30, 27, 25, 22, 22, 21]
    for point in seen.points:
        promised = problem.guarantee(point.settings)
        assert promised.epsilon == pytest.approx(point.measures["epsilon"], rel=2e-3)
        assert "2 rounds of 2 local steps of a client with 21 records, each in a step by a chance of its own of 0.4762" in promised.statement()
    text = words(seen)
    assert "breast-cancer, dealt to 12 clients: site; share used 1. 455 training examples of 2 classes. Inputs are standardised by hospitals_public.csv, which" in text
    assert OF_STEPS in text
    assert "To be hidden is one record of one client: what an onlooker sees should be nearly as likely if the record were left out of every local step." in text
    assert "The split is the same in every training. Repeats differ in start, mini-batches and noise" in text
    assert "local.name = dp_sgd, local.batches = poisson" in text
    assert "each site's own" not in " ".join(statements(seen))
    views = data_of(seen)["views"]
    assert (views["about"], views["whose"]) == ("record", "one record of one client")


def test_what_is_said_of_several_records_of_a_person_and_of_statistics_of_a_site(tmp_path, monkeypatch):
    seen = seen_of(tmp_path, monkeypatch, FEW | {'unit = "record" ': 'unit = "record"\nrecords_per_person = 3\nadjacency = "replace"\nprivate_data = true ',
                                                 '"hospitals_public.csv"': '"site"', 'name = "bayesian"\nbatch = 3': 'name = "random"'})
    text = words(seen)
    assert "To be hidden is up to 3 records of one person at one client: what an onlooker sees should be nearly as likely if any others stood in their place." in text
    assert "Record level: it covers so many records of one person at one client." in text
    assert "Inputs are standardised by each site's own training records." in text
    said = statements(seen)
    assert sum("which is not counted: for a guarantee of the whole, standardise by public statistics" in line for line in said) == 1
    assert any(line.startswith("One training alone: ε = ") and line.endswith("What is said above of conditions holds for it too.") for line in said)
    assert any("All of it together: ε = " in line and "up to 3 records of one person" in line for line in said)
    views = data_of(seen)["views"]
    assert (views["about"], views["whose"]) == ("person", "up to 3 records of one person at one client")


NOISE = '[mechanism]\nname = "randomization"\nsigma = 0.5\nclipping_norm = 1.0 '


def test_the_epsilon_of_a_client_and_of_a_record_stand_beside_each_other(tmp_path, monkeypatch):
    both = FEW | {'[mechanism]\nname = "none" ': NOISE, 'name = "bayesian"\nbatch = 3': 'name = "random"'}
    of_records = seen_of(tmp_path / "records", monkeypatch, both)
    of_clients = seen_of(tmp_path / "clients", monkeypatch, both | {'unit = "record" ': 'unit = "client" ', "limit = 3.0\nreference = 3.0": "reference = 500"})
    for one, other in zip(of_records.points, of_clients.points, strict=True):
        assert one.settings == other.settings
        assert one.measures["epsilon_client"] == other.measures["epsilon"]
        assert one.measures["epsilon"] == one.measures["epsilon_record"] == other.measures["epsilon_record"]
    assert any(line.startswith("A whole client is hidden by the noise on its updates, with ε ") for line in statements(of_records))
    assert any(line.startswith("A record of a client is hidden by the noise on its local steps too, with ε ") for line in statements(of_clients))
    assert OF_STEPS not in words(of_clients)
    assert data_of(of_clients)["views"]["whose"] == "one client's data"


def test_the_delta_of_the_page_is_that_of_the_statement(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20_000, 2)).astype(np.float32), np.arange(20_000) % 2
    np.savez(tmp_path / "many.npz", x_train=x, y_train=y, x_test=x[:50], y_test=y[:50])
    table = re.compile(r'name = "breast-cancer".*?clients = 12.*?standardise = [^\n]*\n', re.S).search((EXAMPLES / "hospitals.toml").read_text())[0]
    seen = seen_of(tmp_path, monkeypatch, FEW | {table: 'name = "many.npz"\nclients = 12\n', 'name = "hospitals:Searched"': 'name = "mlp"', "hidden = [2, 64]": "hidden = [[2, 4]]"})
    promised = seen.study.problem.guarantee(seen.points[0].settings)
    assert promised.delta == data_of(seen)["views"]["delta"] == seen.study.problem.delta == 0.1 / 20_000


@pytest.mark.parametrize(("old", "new", "fault"), [
    ("record_clipping_norm = { low = 0.1,", "record_clipping_norm = { low = 0.0,", "line 27, local.record_clipping_norm: must be above 0, found 0.0."),
    ("record_noise_multiplier = { low = 3.5,", "record_noise_multiplier = { low = -1.0,", "line 26, local.record_noise_multiplier: must be at least 0, found -1.0."),
    ("batch_size = 10 ", "batch_size = 22 ", "training.batch_size: must be at most the 21 records of client 11, who holds the fewest, where local steps hide records, found 22"),
    ("batch_size = 10 ", 'batch_size = 10\nweighting = "size" ', "line 22, training.weighting: must be uniform where local steps hide records, found size"),
])
def test_what_would_not_hide_a_patient_is_one_clear_fault(tmp_path, monkeypatch, fedpareto, old, new, fault):
    write_example("hospitals", tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "hospitals", raising=False)
    study = tmp_path / "hospitals.toml"
    assert old in study.read_text()
    study.write_text(study.read_text().replace(old, new))
    done = fedpareto("run", study)
    assert (done.status, done.out) == (2, "")
    assert fault in done.err
    assert "objectives.epsilon" not in done.err  # nothing is said of what follows from the fault


@pytest.mark.slow
def test_the_example_reaches_what_the_results_say(tmp_path, monkeypatch):
    """AUC of at least 0.98 at ε ≤ 3, in 120 trials."""
    seen = seen_of(tmp_path, monkeypatch, {})
    assert seen.recommended.measures["epsilon"] <= 3
    assert seen.recommended.objectives["one_minus_auc"] <= 0.02
    shutil.rmtree(tmp_path)


def test_a_picked_point_of_a_study_with_code_of_its_own_is_written_unrun_and_trains(tmp_path):
    """In processes of their own: here, the folder of the examples is on Python's path."""
    write_example("hospitals", tmp_path)
    study = tmp_path / "hospitals.toml"
    text = study.read_text()
    for old, new in FEW.items():
        text = text.replace(old, new)
    study.write_text(text)
    done = [subprocess.run([sys.executable, "-m", "fedpareto", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
            for words in (("run", "hospitals.toml"), ("pick", "hospitals.toml", "--output", "chosen.toml"), ("run", "chosen.toml"))]
    assert [d.returncode for d in done] == [0, 0, 0], [d.stderr for d in done]
    assert ["runs your own code" in d.stderr for d in done] == [True, False, True]
    assert "Always giving the same answer has one_minus_auc 0.5." in done[0].stdout
    assert "recommended ★ trial 0" in done[2].stdout
