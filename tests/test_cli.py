"""The command line, as a user types it."""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import fedpareto as fedpareto_package
from fedpareto import load_study

SAID = r"tiny: 12 trials: about \d+ s of training\n"  # before anything is trained


@pytest.fixture
def study(tiny_study):
    """A small study with a front worth a look."""
    text = tiny_study.read_text().replace("budget = 2", "budget = 12")
    tiny_study.write_text(text)
    return tiny_study


@pytest.fixture
def done(study, fedpareto):
    status, _, err = fedpareto("run", study)
    assert status == 0, err
    return study


def test_run_tells_the_front_the_recommendation_and_where_everything_is(study, fedpareto):
    status, out, err = fedpareto("run", study)
    assert (status, re.fullmatch(SAID, err) is not None) == (0, True)
    assert "12 trials" in out
    assert "hypervolume" in out
    assert "(reference utility_loss 1, leakage 1)" in out
    assert "recommended ★ trial" in out
    assert "leakage is a proxy (Kang 2023, Eq. 13), not a privacy guarantee." in out
    for suffix in (".toml", ".db", ".html"):
        assert str(study.with_suffix(suffix)) in out
        assert study.with_suffix(suffix).exists()


def test_front_prints_the_promised_json(done, fedpareto):
    status, out, _ = fedpareto("front", done, "--json")
    front = json.loads(out)
    assert status == 0
    assert {"study", "evaluations", "reference", "hypervolume", "share", "points"} <= set(front)
    assert front["share"] == pytest.approx(front["hypervolume"] / np.prod(list(front["reference"].values())))
    assert f"share {front['share']:.4f} of the reference box" in fedpareto("front", done).out
    assert front["evaluations"] == 12
    assert front["reference"] == {"utility_loss": 1.0, "leakage": 1.0}
    for point in front["points"]:
        assert {"trial", "settings", "objectives", "measures", "feasible"} <= set(point)
        assert point["objectives"]["leakage"] == point["measures"]["kang23_eq13"]
        assert point["feasible"] == (point["objectives"]["leakage"] <= 0.8)


def test_front_prints_csv_with_one_row_per_point(done, fedpareto):
    rows = list(csv.DictReader(io.StringIO(fedpareto("front", done, "--csv")[1])))
    points = json.loads(fedpareto("front", done, "--json")[1])["points"]
    assert [int(r["trial"]) for r in rows] == [p["trial"] for p in points]
    assert [float(r["sigma"]) for r in rows] == [p["settings"]["sigma"] for p in points]


def test_front_refuses_two_forms_at_once(done, fedpareto):
    assert fedpareto("front", done, "--json", "--csv")[2] == (
        "error: front: --json and --csv exclude one another, found both. Leave one out.\n")


def test_a_picked_point_holds_the_limit_and_its_study_file_runs(done, fedpareto, tmp_path):
    ready = tmp_path / "ready.toml"
    status, out, _ = fedpareto("pick", done, "--limit", "leakage=0.7", "--prefer", "utility_loss", "--output", ready, "--json")
    picked = json.loads(out)
    assert status == 0
    assert picked["objectives"]["leakage"] <= 0.7
    assert tomllib.loads(ready.read_text())["mechanism"]["sigma"] == picked["settings"]["sigma"]
    assert fedpareto("run", ready)[0] == 0
    again = json.loads(fedpareto("front", ready, "--json")[1])
    assert again["evaluations"] == 1
    assert again["points"][0]["measures"]["kang23_eq13"] == pytest.approx(picked["measures"]["kang23_eq13"], rel=1e-12)


def test_pick_prints_settings_and_a_ready_study_file(done, fedpareto):
    _, out, _ = fedpareto("pick", done, "--limit", "leakage=0.7")
    assert "The least utility_loss within leakage ≤ 0.7. " in out
    assert "sigma = " in out
    assert tomllib.loads(out[out.index("# a study file"):])["budget"] == 1


@pytest.mark.parametrize(("words", "message"), [
    (["--limit", "leakage"], "error: --limit: must be NAME=VALUE with a number, found 'leakage'."),
    (["--limit", "leakge=1"], "error: leakge: must be an objective or a limit of the study. Did you mean 'leakage'?"),
    (["--limit", "leakage=nan"], "error: leakage: a limit must be a number, found nan."),
    (["--prefer", "speed"], "error: speed: must be an objective of the study. Known: leakage, utility_loss."),
    (["--limit", "utility_loss=-1"], "error: pick: some trial must hold utility_loss ≤ -1, found none among 12."),
])
def test_pick_says_what_is_wrong_with_its_words(done, fedpareto, words, message):
    status, _, err = fedpareto("pick", done, *words)
    assert status == 2
    assert err.startswith(message)


def test_report_writes_a_page_and_figures_beside_it(done, fedpareto, tmp_path):
    _, out, _ = fedpareto("report", done, "--output", tmp_path / "out.html")
    names = ("front", "hypervolume", "split", "settings", "clients")
    assert out.split() == [str(tmp_path / name) for name in ("out.html", *(f"out-{name}.png" for name in names))]
    assert (tmp_path / "out-front.png").read_bytes().startswith(b"\x89PNG")


def test_a_report_that_cannot_be_written_is_an_error(done, fedpareto, tmp_path):
    status, _, err = fedpareto("report", done, "--output", tmp_path / "nowhere" / "out.html")
    assert status == 2
    assert err.startswith(f"error: --output: must be in a folder that exists, found {tmp_path / 'nowhere'}. Make it")


def test_verify_agrees_with_an_honest_study(done, fedpareto):
    said = f"{done.with_suffix('.db')}: all 12 proposals follow from the rows before them\n"
    status, out, err = fedpareto("verify", done)
    assert (status, out) == (0, said)
    assert re.fullmatch(r"proposing 12 trials again: at most about \d+ (s|min), by the sessions so far\n", err)


def test_a_seed_from_the_command_line_is_found_again_in_the_database(study, fedpareto, tmp_path):
    db = tmp_path / "seeded.db"
    assert fedpareto("run", study, "--seed", 5, "--budget", 4, "--db", db)[0] == 0
    assert json.loads(fedpareto("front", study, "--db", db, "--json")[1])["evaluations"] == 4
    assert fedpareto("verify", study, "--db", db)[0] == 0


def test_a_changed_study_is_refused_with_both_ways_out(done, fedpareto):
    done.write_text(done.read_text().replace("rounds = 1", "rounds = 2"))
    for verb in ("run", "front", "verify"):
        status, _, err = fedpareto(verb, done)
        assert status == 2
        assert "found one that differs in training.rounds (1 there, 2 here)" in err
        assert "undo the change" in err
        assert "name a new database with --db" in err


def test_looking_before_running_says_to_run(study, fedpareto):
    assert fedpareto("front", study) == (2, "", f"error: {study.with_suffix('.db')}: must hold the study's results, found no "
                                                 "such file. Run the study first: fedpareto run STUDY\n")


@pytest.mark.parametrize(("words", "message"), [
    (["fly"], "error: No such command 'fly'."), (["run"], "error: Missing argument 'STUDY'."),
    (["run", "s.toml", "--budget", "many"], "error: Invalid value for '--budget': 'many' is not a valid integer."),
])
def test_a_wrong_word_is_one_error_and_status_2(fedpareto, words, message):
    status, _, err = fedpareto(*words)
    assert (status, err.startswith(message)) == (2, True)


def test_nothing_but_results_and_how_much_there_is_to_do_is_printed_where_there_is_no_terminal(study):
    done = subprocess.run([sys.executable, "-m", "fedpareto", "run", str(study)], capture_output=True, text=True, check=True)
    assert re.fullmatch(SAID, done.stderr)
    assert load_study(study).name in done.stdout


def test_a_closed_pipe_is_not_an_error(done):
    command = f"{sys.executable} -m fedpareto front {done} --json | head -c 10"
    finished = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert finished.stderr == ""


def test_data_lists_what_is_there(fedpareto, tmp_path, monkeypatch):
    (tmp_path / "mnist.npz").touch()
    monkeypatch.setenv("FEDPARETO_DATA", str(tmp_path))
    listed = json.loads(fedpareto("data", "--json").out)
    assert listed["directory"] == str(tmp_path)
    assert {row["name"]: (row["present"], row["files"]) for row in listed["data"]} == {
        "digits": (True, []), "breast-cancer": (True, []), "mnist": (True, ["mnist.npz"]), "fashion-mnist": (False, []), "cifar10": (False, [])}
    shown = fedpareto("data", "--directory", tmp_path / "elsewhere").out
    assert f"data directory: {tmp_path / 'elsewhere'}" in shown
    assert "mnist          missing; downloaded on first use" in shown


def test_figures_come_as_svg_too(done, fedpareto, tmp_path):
    status, out, _ = fedpareto("report", done, "--output", tmp_path / "out.html", "--svg")
    assert status == 0
    assert (tmp_path / "out-front.svg").read_text().lstrip().startswith("<?xml")
    assert len(out.split()) == 11


def test_front_answers_a_preference(done, fedpareto):
    status, out, err = fedpareto("front", done, "--at", "1,1", "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert found["at"] == [1.0, 1.0]
    assert set(found["settings"]) == {"learning_rate", "sigma", "clipping_norm"}
    assert fedpareto("front", done, "--at", "1,1", "--json").out == out
    assert "not trained itself" in fedpareto("front", done, "--at", "1,0").out


@pytest.mark.parametrize(("at", "says"), [
    ("1", "--at: must be a weight of at least 0 for each of utility_loss, leakage"), ("1,x", "--at: must be numbers with commas"),
    ("0,0", "one above 0"), ("1,-1", "at least 0")])
def test_a_preference_that_is_none_is_refused(done, fedpareto, at, says):
    status, _, err = fedpareto("front", done, "--at", at)
    assert status == 2
    assert says in err


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
def test_a_console_without_greek_letters_shows_words_in_their_place(encoding):
    shown = subprocess.run(
        [sys.executable, "-m", "fedpareto", "plan", "--epsilon", "4", "--clients", "1000"],
        env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True, check=True,
    ).stdout.decode(encoding)
    assert " eps" in shown
    assert "#" in shown
    assert "\\u" not in shown


def test_every_letter_that_may_be_printed_has_another_where_a_console_lacks_it():
    """A past finding: the mark of the knee was printed as its number."""
    package = Path(fedpareto_package.__file__).parent
    pages = {package / "report" / "page.py", package / "words.py"}  # letters that no console is shown
    for path in sorted({*package.rglob("*.py")} - pages):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if text.isprintable() and not text.isascii() and not is_docstring(node, tree):
                shown = text.encode("cp1252", "fedpareto.in_ascii").decode("cp1252")
                assert "\\u" not in shown or "\\u" in text, (path, text)


def is_docstring(node, tree):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    return any(isinstance(n, kinds) and isinstance(n.body[0], ast.Expr) and n.body[0].value is node for n in ast.walk(tree))


def test_whoever_stops_reading_ends_the_command_without_an_error(tmp_path):
    command = f"{sys.executable} -m fedpareto init --list | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout == "0\n"


RECORDS = ("plan", "--epsilon", 3, "--clients", 5, "--unit", "record")
SILO = ("--records", 2000, "--batch-size", 32, "--local-steps", 10)


@pytest.mark.parametrize(("words", "message"), [
    (RECORDS, "error: --records: must be given with --unit record, found none"),
    ((*RECORDS, *SILO, "--view", "release"), "error: --view: must be left out with --unit record, found release"),
    ((*RECORDS, *SILO, "--sampling", "poisson"), "error: --sampling: must be left out with --unit record, found poisson"),
    ((*RECORDS, *SILO, "--dropouts", 1), "error: --dropouts: must be left out with --unit record, found 1"),
    ((*RECORDS, *SILO, "--colluders", 3), "error: --colluders: must be left out with --unit record, found 3"),
    ((*RECORDS, *SILO, "--records", "2000,21"), "error: records: must be one number, or one for each of the 5 clients, found 2."),
    ((*RECORDS, *SILO, "--records", "2000,21,40,60,9", "--batch-size", 10), "error: batch_size: must be at most the 9 records of a silo"),
    ((*RECORDS, *SILO, "--records", "9,9,9,9,10", "--study", "none.toml"), "error: --study: must go with one number of --records, found several"),
])
def test_a_plan_of_records_refuses_what_it_would_ignore(fedpareto, words, message):
    done = fedpareto(*words)
    assert (done.status, done.err.startswith(message)) == (2, True), done.err


def test_a_plan_of_records_shows_the_noise_on_the_mean_of_a_step_and_stars_the_least(fedpareto):
    done = fedpareto(*RECORDS, *SILO, "--rounds", "20,40")
    (row,) = json.loads(fedpareto(*RECORDS, *SILO, "--rounds", 20, "--json").out)["choices"]
    noise = row["sigma"] / 32 / 5**0.5
    first = done.out.splitlines()[1]
    assert first.split()[0] == "★"
    assert first.split()[-1] == f"{noise:.3g}"
    assert "any" in first
    assert "★ row 1 has the least noise on the mean of a step; --row takes another." in done.out
    assert "fedpareto plan" not in done.out
