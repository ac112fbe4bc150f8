"""A study that searches how clients train and how the server moves, from its file to its page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedpareto import Choice, Integer, load_study, run, verify
from fedpareto.evaluate import blocks_of
from fedpareto.noise import derive
from fedpareto.study.write import fixed_study
from fedpareto.trials import Trial

EXAMPLE = Path(__file__).parents[2] / "examples" / "local_training.toml"
SMALLER = {"repeats = 2 ": "repeats = 1 ", "rounds = 8": "rounds = 2", "evaluate_every = 8": "evaluate_every = 2", "budget = 60": "budget = 8",
           "population = 20": "population = 4", "local_epochs = [1, 4]": "local_epochs = [1, 2]"}


@pytest.fixture
def searched(tmp_path) -> Path:
    text = EXAMPLE.read_text(encoding="utf-8")
    for old, new in SMALLER.items():
        assert old in text, old
        text = text.replace(old, new)
    path = tmp_path / "searched.toml"
    path.write_text(text, encoding="utf-8")
    return path


def rows(store) -> list[tuple]:
    return [(t.settings, t.measures, t.runs) for t in store.trials()]


def test_a_study_that_was_stopped_ends_as_one_left_alone_and_verifies(searched, tmp_path):
    with run(load_study(searched), tmp_path / "whole.db") as store:
        whole = rows(store)
        assert len({s["batch_size"] for s, _, _ in whole}) > 1
        assert len({s["server_step"] for s, _, _ in whole}) > 1
        assert list(verify(load_study(searched), store)) == []
    run(load_study(searched, budget=3), tmp_path / "stopped.db").close()
    with run(load_study(searched), tmp_path / "stopped.db") as store:
        assert rows(store) == whole


def test_rows_are_the_same_in_another_order_of_blocks(searched, tmp_path):
    """Trials that train alike are put into one block, so raising the budget later makes other blocks."""
    study = load_study(searched)
    with run(study, tmp_path / "a.db") as store:
        found = {json.dumps(t.settings): t.measures for t in store.trials()}
    points = [json.loads(text) for text in found][::-2]
    values = {name: [p[name] for p in points] for name in study.problem.space.names}
    again = study.problem.measure(values, [derive(study.seed, "repeat", 0)] * len(points))
    for i, point in enumerate(points):
        assert again["test_error"][i] == found[json.dumps(point)]["test_error"]


def test_it_is_shown_picked_and_trained(searched, fedpareto, tmp_path):
    done = fedpareto("run", searched)
    assert done.status == 0, done.err
    assert "server_step" in done.out
    for words in (["front", searched], ["verify", searched], ["report", searched, "--output", tmp_path / "page.html"],
                  ["pick", searched, "--output", tmp_path / "picked.toml"]):
        done = fedpareto(*words)
        assert done.status == 0, (words, done.err)
    picked = load_study(tmp_path / "picked.toml").problem
    assert len(picked.space) == 0
    assert picked.server.server_step in ("average", "momentum", "adam")
    assert picked.training.work.batch_size in (8, 16, 32, 64)


def test_any_point_may_be_written_as_a_study_of_its_own(searched, tmp_path):
    study = load_study(searched)
    for u in (0.0, 0.5, 1.0):
        point = {v.name: v.decode(u) for v in study.problem.space.variables}
        (tmp_path / "one.toml").write_text(fixed_study(study, point), encoding="utf-8")
        problem = load_study(tmp_path / "one.toml").problem
        assert problem.training.momentum == point["momentum"]
        assert problem.training.local_epochs == point["local_epochs"]
        assert problem.server.server_step == point["server_step"]


def test_batch_sizes_are_read_as_a_range_or_as_choices(searched):
    assert load_study(searched).problem.training.batch_size == Choice("batch_size", (8, 16, 32, 64))
    text = searched.read_text(encoding="utf-8").replace("{ choices = [8, 16, 32, 64] }", "[8, 64]")
    searched.write_text(text, encoding="utf-8")
    assert load_study(searched).problem.training.batch_size == Integer("batch_size", 8, 64)


def test_blocks_are_small_where_trials_may_train_unlike(searched):
    text = searched.read_text(encoding="utf-8")
    searched.write_text(text.replace("block = 4", "# block"), encoding="utf-8")
    assert load_study(searched).problem.block == 4  # the optimizer's batch
    searched.write_text(text.replace("block = 4", "# block").replace("population = 4", "population = 12"), encoding="utf-8")
    assert load_study(searched).problem.block == 5
    fixed = text.replace("block = 4", "# block").replace("population = 4", "population = 12").replace("local_epochs = [1, 2]", "local_epochs = 1")
    searched.write_text(fixed.replace("{ choices = [8, 16, 32, 64] }", "16"), encoding="utf-8")
    assert load_study(searched).problem.block == 12


def test_trials_that_train_alike_share_blocks(searched):
    problem = load_study(searched).problem
    points = [{v.name: v.decode(((7 * i) % 10 + 0.5) / 10) for v in problem.space.variables} for i in range(10)]
    trials = [Trial(i, 0, (), p, repeats_left=(0,)) for i, p in enumerate(points)]
    sizes = [trial.settings["batch_size"] for block in blocks_of(problem, trials) for trial, _ in block]
    assert sizes == sorted(p["batch_size"] for p in points)
