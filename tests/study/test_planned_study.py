"""From a planned row to a study: the study has the ε of the plan, to the last digit, and runs as it is."""

from __future__ import annotations

import json
import random
import re
import tomllib

import numpy as np
import pytest

from fedpareto.contract import SAMPLINGS, VIEWS
from fedpareto.federation import Data
from fedpareto.federation.data import SETS, TABLES, directory, inventory, load
from fedpareto.privacy import plan, rounded_up
from fedpareto.report.plan import plan_statements
from fedpareto.report.privacy import as_in_row
from fedpareto.study import load_study
from fedpareto.study.planned import IMAGES, planned_study

ROWS = 200
LEFT_OUT = {"noise_multiplier": None, "sigma": None, "clipping_norm": None, "records": None, "batch_size": None, "local_steps": None}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """The path of data with an image for each of 5,000 clients."""
    path = tmp_path_factory.mktemp("data") / "many.npz"
    x = np.random.default_rng(0).random((5000, 2), dtype=np.float32)
    y = (x[:, 0] > x[:, 1]).astype(np.int64)
    np.savez(path, x_train=x, y_train=y, x_test=x[:50], y_test=y[:50])
    return path


def question(draw: random.Random) -> tuple[dict, dict]:
    """Return what is asked of a plan at random, and the cohort and rounds it names."""
    clients = round(10 ** draw.uniform(0.3, 3.699))
    lost = [draw.choice([0, 0, 1, 3]) if clients > 8 else 0 for _ in range(2)]
    asked = LEFT_OUT | {
        "target_epsilon": 10 ** draw.uniform(-0.5, 1.5),
        "target_delta": draw.choice([None, 10 ** draw.uniform(-8, -3)]),
        "clients": clients,
        "view": draw.choice(VIEWS),
        "sampling": draw.choice(SAMPLINGS),
        "unit": draw.choice(["client", "client", "record"]),
        "adjacency": draw.choice(["zero_out", "replace"]),
        "dropouts": lost[0],
        "colluders": lost[1],
        "clipping_norm": draw.choice([None, 10 ** draw.uniform(-2, 2)]),
    }
    noise = draw.choice(["sigma", "noise_multiplier", None])
    if noise:
        asked[noise] = 10 ** draw.uniform(-0.3, 1.5)
    return asked, {"cohort": draw.randint(sum(lost) + 1, clients), "rounds": round(10 ** draw.uniform(0, 2.7))}


@pytest.fixture(scope="module")
def rows():
    """Random rows of plans, each with what was asked."""
    draw = random.Random(5)
    found = []
    for _ in range(ROWS):
        asked, given = question(draw)
        (row,) = plan(**asked, **given)
        if row.epsilon > asked["target_epsilon"]:  # the noise was given
            asked["target_epsilon"] = 1.01 * row.epsilon
        found.append((row, asked))
    return found


def written(row, asked, path, data):
    """Write a row as the command does, and return the study."""
    path.write_text(planned_study(row, asked, path, data), encoding="utf-8")
    return load_study(path)


def as_shown(study):
    """What the page and the terminal promise of the study's point."""
    settings = dict.fromkeys(study.problem.space.names, 0.1)
    columns = study.problem.columns({name: [value] for name, value in settings.items()}, 1)
    return as_in_row(study.problem.guarantee(settings), {name: float(v[0]) for name, v in columns.items()})


def is_slow(row, asked) -> bool:
    """Say whether dp-accounting prices a statement, which takes a second."""
    return asked["sampling"] == "poisson" and row.view == "release"


def test_a_planned_study_has_the_epsilon_of_the_plan(rows, images, tmp_path):
    seen = set()
    for row, asked in rows:
        study = written(row, asked, tmp_path / "planned.toml", str(images))
        (found,) = study.problem.columns({"learning_rate": [0.1]}, 1, [row.view])["epsilon"]
        assert found == row.epsilon <= study.problem.privacy.target_epsilon
        assert rounded_up(found) == rounded_up(row.epsilon)
        if not is_slow(row, asked):
            promised = as_shown(study)
            assert plan_statements([row], asked) == [f"The first row: {promised.statement()}", *promised.notes]
        seen.add((row.view, asked["sampling"], asked["adjacency"], asked["unit"], asked["sigma"] is None))
    assert len(seen) > 40


def same_statements(rows, images, tmp_path, few=None):
    chosen = [pair for pair in rows if is_slow(*pair)]
    assert len(chosen) > 20
    for row, asked in chosen[:few]:
        promised = as_shown(written(row, asked, tmp_path / "planned.toml", str(images)))
        assert plan_statements([row], asked) == [f"The first row: {promised.statement()}", *promised.notes]


def test_a_planned_study_states_what_the_plan_states(rows, images, tmp_path):
    same_statements(rows, images, tmp_path, few=3)


@pytest.mark.slow
def test_every_planned_study_states_what_the_plan_states(rows, images, tmp_path):
    same_statements(rows, images, tmp_path)


def test_every_cohort_of_a_federation_is_planned_and_read_alike(images, tmp_path):
    """m / K times K is not always m; under Poisson sampling that would be another ε."""
    asked = LEFT_OUT | {"target_epsilon": 4.0, "target_delta": 1e-5, "clients": 49, "view": "secagg", "sampling": "poisson",
                        "unit": "client", "adjacency": "zero_out", "dropouts": 0, "colluders": 0}
    for row in plan(**asked, cohort=list(range(1, 50)), rounds=3):
        study = written(row, asked, tmp_path / "planned.toml", str(images))
        columns = study.problem.columns({"learning_rate": [0.1]}, 1)
        assert (columns["cohort"][0], columns["epsilon"][0]) == (row.cohort, row.epsilon)


@pytest.mark.parametrize("name", ["digits", *(pytest.param(name, marks=pytest.mark.slow) for name in IMAGES if name != "digits")])
def test_known_data_sets_have_as_many_images_as_a_plan_counts_on(name):
    assert set(IMAGES) == set(SETS) - set(TABLES)  # of a table, a study must name the columns
    if inventory(name, directory()) is None:
        pytest.skip(f"needs the files of {name}")
    assert len(load(Data(name)).y_train) == IMAGES[name]


def asks(*words):
    return ["plan", "--epsilon", "8", "--clients", "20", "--cohort", "10", "--rounds", "2", "--view", "secagg", *words]


def test_a_planned_study_runs_as_it_is_and_states_the_planned_epsilon(fedpareto, tmp_path):
    path = tmp_path / "planned.toml"
    status, planned, err = fedpareto(*asks("--study", path))
    assert (status, err) == (0, "")
    assert f"study   {path}" in planned
    status, ran, err = fedpareto("run", path)
    assert (status, "error" in err) == (0, False)
    stated = re.search(r"ε = \S+ at δ = .*analytic Gaussian\.", planned)[0]
    assert stated in ran
    (row,) = plan(8.0, None, 20, view="secagg", cohort=10, rounds=2)
    assert stated.startswith(f"ε = {rounded_up(row.epsilon)} at")
    assert "8 trials" in ran


def test_a_row_is_chosen_by_its_number(fedpareto, tmp_path):
    path = tmp_path / "planned.toml"
    words = ["plan", "--epsilon", 8, "--clients", 20, "--cohort", "5,10", "--rounds", "2,3", "--view", "secagg"]
    status, out, err = fedpareto(*words, "--row", 4, "--study", path)
    assert (status, err) == (0, "")
    assert "Row 4: ε = " in out
    row = plan(8.0, None, 20, view="secagg", cohort=[5, 10], rounds=[2, 3])[3]
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    assert (table["training"]["rounds"], table["training"]["sample_ratio"], table["mechanism"]["sigma"]) == (3, 0.5, row.sigma)
    status, _, err = fedpareto(*words, "--row", 5)
    assert (status, err) == (2, "error: --row: must be at most the 4 rows found, found 5.\n")


def test_the_starred_row_is_put_into_words_and_written(fedpareto, tmp_path):
    """A past finding: the first row was, which had fifteen times the noise of the starred one."""
    path = tmp_path / "planned.toml"
    words = ["plan", "--epsilon", 8, "--clients", 20, "--cohort", "5,10", "--rounds", "2,3", "--view", "secagg"]
    out = fedpareto(*words, "--study", path).out
    assert "★ row 3 has the least noise on the mean of a round; --row takes another." in out
    assert out.splitlines()[3].startswith("★")
    assert "Row 3: ε = " in out
    assert "10 of 20 clients" in out
    training = tomllib.loads(path.read_text(encoding="utf-8"))["training"]
    assert (training["rounds"], training["sample_ratio"]) == (2, 0.5)


def test_a_given_multiplier_stands_in_the_study(fedpareto, tmp_path):
    path = tmp_path / "planned.toml"
    assert fedpareto(*asks("--noise-multiplier", 3, "--clipping-norm", 0.3, "--study", path)).status == 0
    mechanism = tomllib.loads(path.read_text(encoding="utf-8"))["mechanism"]
    assert mechanism == {"name": "randomization", "noise_multiplier": 3.0, "clipping_norm": 0.3}


@pytest.mark.parametrize(("clients", "data"), [(1438, "digits"), (1439, "mnist"), (60_000, "mnist")])
def test_the_smallest_data_that_suffice_are_named(fedpareto, tmp_path, clients, data):
    path = tmp_path / "planned.toml"
    assert fedpareto("plan", "--epsilon", 8, "--clients", clients, "--cohort", 10, "--rounds", 2, "--study", path).status == 0
    assert tomllib.loads(path.read_text(encoding="utf-8"))["data"] == {"name": data, "clients": clients}


@pytest.mark.parametrize("adjacency", ["zero_out", "replace"])
def test_a_planned_study_of_records_states_the_planned_epsilon_in_the_same_words(fedpareto, tmp_path, adjacency):
    path = tmp_path / "planned.toml"
    words = ["plan", "--epsilon", 5, "--clients", 6, "--unit", "record", "--records", 150, "--batch-size", 12, "--local-steps", 3,
             "--rounds", "2,4", "--clipping-norm", 0.7, "--adjacency", adjacency, "--row", 2]
    rows = json.loads(fedpareto(*words, "--json").out)["choices"]
    said = fedpareto(*words, "--study", path).out
    study = load_study(path)
    assert study.problem.columns({"learning_rate": [0.1]}, 1)["epsilon"][0] == rows[1]["epsilon"] <= 5
    promised = as_shown(study)
    assert " ".join(f"Row 2: {promised.statement()}".split()) in " ".join(said.split())
    study.problem.check()
    assert np.isfinite(study.problem.measure({"learning_rate": [0.1]}, [0])["test_loss"][0])


@pytest.mark.parametrize(("words", "says"), [
    (asks("--study", "FILE", "--data", "digit"), "data.name: there is no data set 'digit'. Did you mean 'digits'?"),
    (asks("--data", "digits"), "--data: must go with --study FILE, found digits alone"),
    (asks("--sigma", "0.01", "--study", "FILE"), "row: must hold the target ε = 8, found ε = "),
    (["plan", "--epsilon", "8", "--clients", "2000", "--rounds", "2", "--study", "FILE", "--data", "digits"],
     "--data: must hold an image for each of the 2,000 clients, found 1,438 in digits. Name mnist, fashion-mnist, cifar10"),
    (["plan", "--epsilon", "8", "--clients", "70000", "--rounds", "2", "--study", "FILE"],
     "--data: must hold an image for each of the 70,000 clients, found 60,000 in mnist. Name data of your own"),
    (["plan", "--epsilon", "8", "--clients", "20", "--rounds", "200000", "--study", "FILE"], "training.rounds: must be at most 100000"),
    (["plan", "--epsilon", "8", "--clients", "5", "--unit", "record", "--records", "20000", "--batch-size", "10", "--local-steps", "5",
      "--rounds", "2", "--study", "FILE"], "--data: must hold 20,000 images for each of the 5 clients, found 60,000 in mnist"),
])
def test_what_no_study_can_hold_is_refused(fedpareto, tmp_path, words, says):
    path = tmp_path / "planned.toml"
    status, _, err = fedpareto(*[path if word == "FILE" else word for word in words])
    assert status == 2
    assert says in err
    assert not path.exists()


def test_a_file_is_not_written_over(fedpareto, tmp_path):
    path = tmp_path / "planned.toml"
    path.write_text("mine", encoding="utf-8")
    status, _, err = fedpareto(*asks("--study", path))
    assert status == 2
    assert f"--study: must name a new file, found {path}. Remove it, or name another." in err
    assert path.read_text(encoding="utf-8") == "mine"


def test_a_plan_for_silos_of_unlike_sizes_states_what_the_study_of_such_sites_states(fedpareto, tmp_path):
    sizes = {"a": 40, "b": 21, "c": 75}
    lines = ["x,y,hospital", *(f"{i % 7},{i % 2},{name}" for name, n in sizes.items() for i in range(2 * n))]
    (tmp_path / "patients.csv").write_text("\n".join(lines) + "\n")
    text = """
budget = 1
[data]
name = "patients.csv"
label = "y"
site = "hospital"
split = "site"
clients = 3
[model]
name = "lr"
[training]
rounds = 5
local_steps = 2
batch_size = 10
learning_rate = 0.1
[local]
name = "dp_sgd"
record_noise_multiplier = {z!r}
record_clipping_norm = 1.0
[mechanism]
name = "none"
[privacy]
unit = "record"
[objectives.test_error]
[objectives.epsilon]
reference = 3
[optimizer]
name = "random"
"""
    path = tmp_path / "sites.toml"
    path.write_text(text.replace("{z!r}", "1.0"))
    held = load_study(path).problem.split_table(0).sum(axis=1).tolist()
    assert len(set(held)) == 3
    words = ["plan", "--epsilon", 3, "--clients", 3, "--unit", "record", "--records", ",".join(map(str, held)),
             "--batch-size", 10, "--local-steps", 2, "--rounds", 5]
    (row,) = json.loads(fedpareto(*words, "--json").out)["choices"]
    path.write_text(text.replace("{z!r}", repr(row["noise_multiplier"])))
    problem = load_study(path).problem
    assert problem.columns({}, 1)["epsilon"][0] == row["epsilon"] <= 3
    said = " ".join(fedpareto(*words).out.split())
    promised = as_shown(load_study(path))
    assert " ".join(f"The first row: {promised.statement()}".split()) in said
    (alone,) = plan(3.0, row["delta"], 3, unit="record", records=min(held), batch_size=10, local_steps=2, rounds=5)
    assert alone.epsilon == row["epsilon"]
