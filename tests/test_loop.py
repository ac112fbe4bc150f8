"""The loop, from Python."""

from __future__ import annotations

import numpy as np
import pytest

from fedpareto import Nsga2, Random, Store, Study, load_study, run, view
from fedpareto.errors import LockedStore, SettingError, StoreError
from fedpareto.testing import continuous


def trade(x):
    return np.stack([x[:, 0], 1 - x[:, 0] + x[:, 1]], axis=1)


def test_a_study_made_in_python_runs_and_is_looked_at(tmp_path):
    study = Study("trade", continuous(trade, 2, 2), Nsga2(population=10), budget=35, seed=2)
    with run(study, tmp_path / "trade.db") as store:
        seen = view(study, store.trials())
    assert seen.evaluations == 35
    assert 0.3 < seen.hypervolume < 0.71
    assert list(seen.curve) == sorted(seen.curve)


def test_a_study_without_a_file_needs_a_database():
    with pytest.raises(StoreError, match="study trade: a study without a file needs a database, found none"):
        run(Study("trade", continuous(trade, 2, 2), Random(), budget=3))


@pytest.mark.parametrize(("key", "value"), [("budget", 0), ("repeats", 0), ("seed", -1)])
def test_a_study_made_in_python_is_checked(key, value):
    with pytest.raises(SettingError, match=rf"study trade: {key} must be at least \d, found {value}"):
        Study("trade", continuous(trade, 2, 2), Random(), **({"budget": 3} | {key: value}))


def test_watching_sees_every_block(tmp_path):
    seen = []
    study = Study("trade", continuous(trade, 2, 2), Random(batch=4), budget=10)
    run(study, tmp_path / "t.db", watch=lambda store: seen.append(len(store.trials("done")))).close()
    assert seen == [4, 8, 10]


def test_two_runs_of_one_study_exclude_each_other(tmp_path):
    study = Study("trade", continuous(trade, 2, 2), Random(batch=4), budget=10)

    def second(store):
        with pytest.raises(LockedStore, match="found another run of this study at work"):
            run(study, store.path)

    run(study, tmp_path / "t.db", watch=second).close()


def test_a_diverging_trial_is_a_failed_row_and_the_search_goes_on(tiny_study):
    text = tiny_study.read_text().replace("budget = 2", "budget = 12")
    tiny_study.write_text(_with_rate(text, "{ choices = [0.1, 1e6] }"))
    study = load_study(tiny_study)
    with run(study) as store:
        states = {t.settings["learning_rate"]: t for t in store.trials()}
        assert len(store.trials("failed")) + len(store.trials("done")) == 12
    assert states[0.1].state == "done"
    assert states[1e6].state == "failed"
    assert states[1e6].error.startswith("training diverged in round 1; a smaller learning rate may help")


def test_a_study_in_which_everything_diverges_still_ends(tiny_study):
    tiny_study.write_text(_with_rate(tiny_study.read_text(), "1e6"))
    study = load_study(tiny_study)
    with run(study) as store:
        seen = view(study, store.trials())
    assert len(seen.failed) == study.budget
    assert seen.recommended is None
    assert seen.why == "No trial was measured."


def _with_rate(text, rate):
    lines = [f"learning_rate = {rate}" if line.startswith("learning_rate") else line for line in text.splitlines()]
    return "\n".join(lines)


def test_a_fixed_study_with_nothing_to_search_runs(tiny_study):
    fixed = {"learning_rate": "0.1", "sigma": "0.01", "clipping_norm": "1.0"}
    lines = [next((f"{k} = {v}" for k, v in fixed.items() if line.startswith(k)), line)
             for line in tiny_study.read_text().splitlines()]
    tiny_study.write_text("\n".join(lines))
    with run(load_study(tiny_study)) as store:
        assert [t.settings for t in store.trials()] == [{}, {}]


def test_rows_can_be_read_while_the_study_runs(tmp_path):
    study = Study("trade", continuous(trade, 2, 2), Random(batch=4), budget=8)
    counts = []

    def look(store):
        with Store.read(store.path) as other:
            counts.append(len(other))

    run(study, tmp_path / "t.db", watch=look).close()
    assert counts == [4, 8]


def test_an_optimizer_with_a_rule_ends_the_run_and_says_so(tmp_path, tiny_study):
    from dataclasses import dataclass, replace

    from fedpareto import load_study, run
    from fedpareto.optimizers import Random

    @dataclass(frozen=True)
    class Easy:
        batch: int = 2

        def propose(self, problem, history, n, seed):
            return Random(batch=2).propose(problem, history, n, seed)

        def finished(self, problem, history, seed):
            return len(history) >= 4

    study = replace(load_study(tiny_study, budget=20), optimizer=Easy())
    for _ in range(2):  # and again, where it stands
        with run(study, tmp_path / "easy.db") as store:
            assert len(store) == 4
            assert store.ended == "the optimizer expects next to nothing of further trials"
