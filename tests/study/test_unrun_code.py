"""Looking at a study imports none of the user's own code, and shows what the code would have shown."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_guides import small

from fedpareto import Store, load_study
from fedpareto.cli.starting import write_example
from fedpareto.optimizers import OPTIMIZERS
from fedpareto.report.points import view_of
from fedpareto.report.proposing import made_up
from fedpareto.report.text import front_data
from fedpareto.settings import beside, own
from fedpareto.study import load_to_look
from fedpareto.study.unseen import names_own

EXAMPLES = Path(__file__).parents[2] / "examples"
MARK = "from pathlib import Path\nPath(__file__).with_name('PWNED').touch()\n"


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.setattr(sys, "path", [p for p in sys.path if not Path(p, "own_mechanism.py").exists()])
    monkeypatch.setattr(own, "_loaded", {})
    for held, empty in (("_folders", []), ("_ours", set()), ("_said", set())):
        monkeypatch.setattr(beside, held, empty)
    yield
    forget()


def forget() -> None:
    for path in EXAMPLES.glob("own_*.py"):
        sys.modules.pop(path.stem, None)


@pytest.fixture(params=["own_mechanism", "own_measure", "own_optimizer", "own_model"])
def looked_at(request, tmp_path, fedpareto):
    """A study with code of the user's own that was run, and whose code then became another's."""
    forget()
    code, study = (tmp_path / f"{request.param}{end}" for end in (".py", ".toml"))
    code.write_text((EXAMPLES / code.name).read_text())
    study.write_text(small((EXAMPLES / study.name).read_text()))
    if request.param == "own_model":
        subprocess.run([sys.executable, str(code)], check=True, capture_output=True)  # makes the data
    assert fedpareto("run", study).status == 0
    with Store.read(study.with_suffix(".db")) as store:
        shown = view_of(load_study(study, seed=store.seed), store)
    forget()
    code.write_text(MARK)
    own._loaded.clear()
    return study, shown


def test_reading_verbs_run_none_of_it_and_show_the_same(looked_at, fedpareto):
    study, shown = looked_at
    found = json.loads(fedpareto("front", study, "--json").out)
    with_code = json.loads(json.dumps(front_data(shown)))
    assert set(found) == set(with_code)
    told = {"points"}
    if study.stem == "own_mechanism":  # what it promises cannot be said without its code
        told.add("privacy")
        assert found["privacy"]["notes"][0].startswith("The mechanism is code of your own, which is not run to look at a study")
    assert {key: value for key, value in found.items() if key not in told} == {key: value for key, value in with_code.items() if key not in told}
    for ours, theirs in zip(found["points"], with_code["points"], strict=True):
        assert ours.items() <= theirs.items() or ours["measures"].items() <= theirs["measures"].items()
        assert {k: v for k, v in ours.items() if k != "measures"} == {k: v for k, v in theirs.items() if k != "measures"}
    picked = fedpareto("pick", study, "--json")
    assert json.loads(picked.out)["trial"] == shown.recommended.trial
    for words in (("front", study), ("front", study, "--csv"), ("pick", study), ("report", study), ("report", study, "--evidence"),
                  ("compare", study, study), ("pick", study, "--output", study.with_name("picked.toml"))):
        done = fedpareto(*words)
        assert done.status == 0, (words, done.err)
    assert not study.with_name("PWNED").exists()


def test_a_picked_study_with_code_of_ones_own_is_written_where_that_code_lies_alone(looked_at, fedpareto, tmp_path):
    """A past finding: it was written nowhere, since its code was to be imported and could not be found."""
    study, _ = looked_at
    (tmp_path / "elsewhere").mkdir()
    refused = fedpareto("pick", study, "--output", tmp_path / "elsewhere" / "picked.toml")
    if study.stem != "own_optimizer":  # what was picked needs no search
        assert refused.status == 2
        assert "must be in a module beside the study file" in refused.err
        assert not list((tmp_path / "elsewhere").iterdir())
    for file in (study.with_suffix(".py"), study):  # what is read is never replaced
        before = file.read_bytes()
        assert "would be lost" in fedpareto("pick", study, "--force", "--output", file).err
        assert file.read_bytes() == before
    study.with_suffix(".py").write_text((EXAMPLES / f"{study.stem}.py").read_text())
    assert fedpareto("pick", study, "--output", tmp_path / "picked.toml").status == 0
    assert fedpareto("run", tmp_path / "picked.toml").status == 0
    assert not study.with_name("PWNED").exists()


def test_verify_runs_none_of_it_unless_proposals_need_it(looked_at, fedpareto):
    study, _ = looked_at
    done = fedpareto("verify", study)
    if study.stem == "own_optimizer":
        assert done.status == 2
        assert "to propose its trials again needs this study's own code, which must be here" in done.err
        return
    assert done.status == 0, done.err
    assert "all 12 proposals follow from the rows before them" in done.out
    assert not study.with_name("PWNED").exists()


@pytest.mark.parametrize(("asked", "needs"), [("[objectives.epsilon]\nreference = 10", False), ("[objectives.upload_bytes]\nreference = 1e6", True)])
def test_verify_asks_for_the_code_of_a_model_where_the_optimizer_asks_what_follows_from_it(tmp_path, fedpareto, asked, needs):
    """A past finding: with the database and the study file alone, the starter could not be verified."""
    study = write_example("starter", tmp_path)[0]
    head, tail = small(study.read_text()).split("[objectives.epsilon]")
    study.write_text(f"{head}{asked}\n[optimizer]\nname = 'bayesian'\nstart = 6\nbatch = 6\n")
    assert "limit = 10" in tail
    assert fedpareto("run", study).status == 0
    forget()
    for file in ("my_model.py", "my_data.py"):
        (tmp_path / file).rename(tmp_path / f"{file}.away")
        sys.modules.pop(file.removesuffix(".py"), None)
    own._loaded.clear()
    done = fedpareto("verify", study)
    assert (done.status, "needs this study's own code" in done.err) == (2 if needs else 0, needs), done.err
    if needs:
        for file in ("my_model.py", "my_data.py"):
            (tmp_path / f"{file}.away").rename(tmp_path / file)
        assert fedpareto("verify", study).status == 0


@pytest.mark.parametrize("name", [name for name, kind in OPTIMIZERS.items() if not hasattr(kind, "asks_known")])
def test_who_asks_what_is_known_says_so(name, tiny_study, monkeypatch):
    asked = load_study(tiny_study)
    optimizer = OPTIMIZERS[name](**{"population": 4} if name in ("nsga2", "fedmoeac") else {})
    monkeypatch.setattr(asked.problem.__class__, "known", lambda *a: pytest.fail("it asks what is known"))
    assert len(optimizer.propose(asked.problem, made_up(asked.problem, optimizer.batch, 5), optimizer.batch, 1)) == optimizer.batch
    assert not hasattr(optimizer, "worth_repeating")


LIBRARIES = ("pandas", "psutil", "dill", "lz4", "tqdm", "opt_einsum", "tabulate", "colorama")  # which libraries of ours try to import


@pytest.mark.parametrize("words", ["fedpareto front", "fedpareto report", "fedpareto run --budget 3", "-m fedpareto front"])
def test_a_file_beside_a_study_that_is_named_like_a_library_is_not_run(finished_study, words):
    """A past finding: whoever looked at a study ran the pandas.py beside it, if pandas was not installed."""
    for name in LIBRARIES:
        finished_study.with_name(f"{name}.py").write_text(MARK)
    start, verb, *more = words.replace("-m fedpareto", "-mfedpareto").split()
    if start == "fedpareto":  # as the installed script does
        start = "-cimport sys; sys.path[:] = [p for p in sys.path if p]; from fedpareto.cli import main; main()"
    done = subprocess.run([sys.executable, start, verb, finished_study.name, *more], cwd=finished_study.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "runs your own code" not in done.stderr
    assert not finished_study.with_name("PWNED").exists()


def test_a_study_that_names_a_file_like_a_library_does_not_run_it_when_it_is_looked_at(finished_study):
    finished_study.with_name("dill.py").write_text(MARK)
    finished_study.write_text(finished_study.read_text().replace('name = "lr"', 'name = "dill:Net"'))
    for verb in ("front", "report", "pick"):
        subprocess.run([sys.executable, "-m", "fedpareto", verb, finished_study.name], cwd=finished_study.parent, capture_output=True, check=False)
    assert not finished_study.with_name("PWNED").exists()


def test_verbs_that_must_run_it_do(looked_at, fedpareto):
    study, _ = looked_at
    assert fedpareto("train", study, "--output", study.with_suffix(".safetensors")).status == 2
    assert study.with_name("PWNED").exists()


def test_a_setting_changed_in_the_file_is_found_without_its_code(tmp_path, fedpareto):
    forget()
    study = tmp_path / "own_mechanism.toml"
    (tmp_path / "own_mechanism.py").write_text((EXAMPLES / "own_mechanism.py").read_text())
    study.write_text(small((EXAMPLES / study.name).read_text()))
    assert fedpareto("run", study).status == 0
    study.write_text(study.read_text().replace("low = 0.001, high = 0.1", "low = 0.002, high = 0.1"))
    changed = fedpareto("front", study)
    assert changed.status == 2
    assert "differs in mechanism.step.low (0.001 there, 0.002 here)" in changed.err


def test_another_part_of_ones_own_than_that_of_the_rows_is_refused(tmp_path, fedpareto):
    forget()
    study = tmp_path / "own_mechanism.toml"
    (tmp_path / "own_mechanism.py").write_text((EXAMPLES / "own_mechanism.py").read_text())
    study.write_text(small((EXAMPLES / study.name).read_text()))
    assert fedpareto("run", study).status == 0
    study.write_text(study.read_text().replace("own_mechanism:Signs", "subprocess:getoutput"))
    assert "mechanism.name: must be the one that the study was run with, found subprocess:getoutput." in fedpareto("front", study).err


def test_a_study_without_code_of_ones_own_is_read_as_ever(finished_study):
    with Store.read(finished_study.with_suffix(".db")) as store:
        assert load_to_look(finished_study, store.identity, store.seed) == load_study(finished_study, seed=store.seed)


@pytest.mark.parametrize(("table", "own_code"), [
    ({"model": {"name": "lr"}, "name": "a: b"}, False), ({"model": {"name": "os:system"}}, True), ({"objectives": {"m:f": {}}}, True),
    ({"objectives": {"x": {"measure": "m:f"}}}, True),
    ({"objectives": {"x: y": {"measure": "test_error"}}}, False), ({"limits": {"m:f": {"limit": 1}}}, True), ({"limits": {"x": {"measure": "m:f"}}}, True),
    ({"limits": 3, "objectives": {"x": 4}}, False), ({"training": {"loss": "m:f"}}, True), ({"data": {"name": "m:f"}}, True),
    ({"mechanism": {"name": "chain", "links": [{"name": "m:F"}]}}, True), ({"mechanism": {"links": 5}, "model": 3}, False)])
def test_which_study_files_name_code(table, own_code):
    assert names_own(table) is own_code
