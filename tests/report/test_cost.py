"""What is left to train, and about how long it takes, said before it is trained."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from test_resume import SMALL

from fedpareto import (
    Data,
    Federation,
    Integer,
    Mlp,
    Objective,
    Randomization,
    Study,
    Training,
    load_study,
    run,
)
from fedpareto.federation import timing
from fedpareto.federation.timing import LONG as LONG_ROUND
from fedpareto.federation.timing import ROUNDS, block_seconds
from fedpareto.optimizers import OPTIMIZERS, Random
from fedpareto.problem import feasible, judges, listening, tell
from fedpareto.report import cost
from fedpareto.report.cost import estimate
from fedpareto.report.proposing import LONG, made_up, proposing_seconds
from fedpareto.trials import Trial


@dataclass(frozen=True)
class Slow:
    """An optimizer whose proposals take longer the more is known, by the cube of it, on a clock of its own."""

    batch: int = 4
    now: ClassVar[list[float]] = [0.0]
    calls: ClassVar[int] = 0

    def propose(self, problem, history, n, seed):
        Slow.calls += 1
        Slow.now[0] += (len(history) / 200) ** 3
        return np.zeros((n, len(problem.space)))

    @classmethod
    def clock(cls):
        return cls.now[0]


@pytest.fixture
def long_study(tiny_study):
    """A study of 240 trials, five times each, that need not be run."""
    return replace(load_study(tiny_study), budget=240, repeats=5)


SEARCHED = Integer("rounds", 2, 9)


def federation(block=0, rounds=SEARCHED):
    training = Training(0.1, rounds=rounds, local_steps=1)
    return Federation(Data("digits", 4), Mlp((4,)), training, Randomization(0.1, 1.0), (Objective("test_error"),), block)


def test_before_the_first_training_a_few_rounds_are_timed(long_study, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(cost, "block_seconds", lambda problem: asked.append(problem) or 0.5)
    said = estimate(long_study, tmp_path / "none.db")
    size = long_study.problem.block
    assert asked == [long_study.problem]
    assert said == f"240 trials × 5 repeats: about {round(5 * 240 / size * 0.5 / 60)} min of training"


def test_few_rounds_are_timed_too_since_each_may_take_long(tiny_study, tmp_path, monkeypatch):
    """A past finding: 40 rounds of half an hour in all were counted, and not timed."""
    monkeypatch.setattr(cost, "block_seconds", lambda problem: 90.0)
    assert estimate(replace(load_study(tiny_study), budget=1), tmp_path / "none.db") == "1 trial: about 90 s of training"


def test_what_was_trained_tells_what_the_rest_takes(tiny_study):
    study = load_study(tiny_study)
    with run(study) as store:
        (work,) = store.works().values()
    assert estimate(study, tiny_study.with_suffix(".db")) == "nothing is left to train"
    said = estimate(replace(study, budget=200), tiny_study.with_suffix(".db"))
    assert said.startswith("198 trials: about ")
    assert said.endswith(" of training, by those so far")
    assert work.seconds > 0


def test_private_data_are_not_trained_on_to_tell_the_time(long_study, tmp_path, monkeypatch):
    monkeypatch.setattr(cost, "block_seconds", lambda problem: pytest.fail("nothing should be tried"))
    problem = long_study.problem
    hidden = replace(long_study, problem=replace(problem, privacy=replace(problem.privacy, private_data=True), objectives=(), block=1))
    assert estimate(hidden, tmp_path / "none.db") == "240 trials × 5 repeats"


def test_proposals_are_timed_on_rows_that_are_made_up(tiny_study, tmp_path, monkeypatch):
    """Half of the time before the middle of what is left, and half after it, up to a cubic law."""
    asked = replace(load_study(tiny_study), budget=400, optimizer=Slow())
    monkeypatch.setattr(asked.problem.__class__, "measure", lambda *a: pytest.fail("nothing should be trained"))
    whole = sum((4 * i / 200) ** 3 for i in range(100))
    assert proposing_seconds(asked, 0, Slow.clock) == pytest.approx(whole, rel=0.03)
    rest = sum((4 * i / 200) ** 3 for i in range(50, 100))
    assert proposing_seconds(asked, 200, Slow.clock) == pytest.approx(rest, rel=0.03)
    assert proposing_seconds(asked, 364, Slow.clock) == 0  # nine proposals are left


def test_what_is_slow_is_timed_once_only(tiny_study):
    asked = replace(load_study(tiny_study), budget=8000, optimizer=Slow())
    before = Slow.calls
    assert proposing_seconds(asked, 0, Slow.clock) > LONG * 2000
    assert Slow.calls == before + 1


def test_the_estimate_says_how_long_proposals_take(long_study, tmp_path, monkeypatch):
    monkeypatch.setattr(cost, "block_seconds", lambda problem: 0.5)
    monkeypatch.setattr(cost, "proposing_seconds", lambda study, begun: 90.0 if begun == 0 else pytest.fail("all are left"))
    said = estimate(long_study, tmp_path / "none.db")
    assert said.endswith(" min of training and 90 s of proposing trials")
    monkeypatch.setattr(cost, "proposing_seconds", lambda study, begun: 4.9)
    assert estimate(long_study, tmp_path / "none.db").endswith(" min of training")


@pytest.mark.parametrize("name", [*OPTIMIZERS, "told"])
def test_every_optimizer_takes_rows_that_are_made_up(name, tiny_study):
    text = tiny_study.read_text().split("[optimizer]")[0].replace("budget = 2", "budget = 40")
    kind = "bayesian" if name == "told" else name
    if name == "told":
        text = text.replace("rounds = 1", "rounds = [1, 9]")
    tiny_study.write_text(f'{text}[optimizer]\nname = "{kind}"\n{SMALL[kind]}\n')
    asked = load_study(tiny_study)
    rows = made_up(asked.problem, 4, 5)
    assert (len(rows), rows.failed.any(), len(rows.free_of)) == (20, False, 200 if name == "told" else 0)
    assert feasible(judges(asked.problem), rows.judged).mean() > 0.2
    assert proposing_seconds(asked, 0) > 0


def test_own_code_that_fails_says_nothing_here(long_study, tmp_path, monkeypatch):
    def failing(problem):
        raise SystemExit(3)

    monkeypatch.setattr(cost, "block_seconds", failing)
    assert estimate(long_study, tmp_path / "none.db") == "240 trials × 5 repeats"


def test_the_command_says_it_on_its_error_stream_and_json_stays_json(tiny_study, fedpareto):
    done = fedpareto("run", tiny_study, "--json")
    assert done.out.startswith("{")
    assert re.match(r"tiny: 2 trials: about \d+ s of training\n", done.err)
    assert fedpareto("run", tiny_study).err.startswith("tiny: nothing is left to train\n")


@pytest.fixture
def timed(monkeypatch):
    """A clock that moves by what rounds are made to take: a second, and more a federation and a step; and what was tried."""
    now, tried = [0.0], []

    def measure(problem, values, seeds):
        tried.append((len(seeds), problem.training.local_steps, problem.training.rounds))
        now[0] += 3.0  # before the first round
        for t in range(problem.training.rounds):
            now[0] += Slow.round * len(seeds) * problem.training.local_steps
            now[0] += 0.5 if (t + 1) % problem.training.evaluate_every == 0 else 0.0
            tell((t + 1) / problem.training.rounds)

    monkeypatch.setattr(Federation, "measure", measure)
    return lambda: now[0], tried


def test_a_block_that_takes_little_is_timed_whole(timed, monkeypatch):
    """What comes once is counted once, and models are judged now and then."""
    monkeypatch.setattr(Slow, "round", 0.001, raising=False)
    monkeypatch.setattr(timing, "LONG", 60.0)
    clock, tried = timed
    asked = federation(block=4)
    assert block_seconds(asked, clock) == pytest.approx(3 + 9 * (0.004 + 0.5))
    asked = replace(asked, training=replace(asked.training, evaluate_every=5))
    assert block_seconds(asked, clock) == pytest.approx(3 + 9 * (0.004 + 0.5 / 5), rel=0.2)
    assert tried == [(1, 1, ROUNDS), (4, 1, ROUNDS)] * 2


def test_a_block_that_takes_long_is_told_by_one_federation_and_few_steps(timed, monkeypatch):
    monkeypatch.setattr(Slow, "round", 1.0, raising=False)
    clock, tried = timed
    asked = federation(block=4)
    asked = replace(asked, training=replace(asked.training, local_steps=100))
    assert block_seconds(asked, clock) == pytest.approx(4 * 9 * (100 + 0.5))
    assert tried == [(1, timing.FEW, ROUNDS), (1, timing.MORE, ROUNDS)]
    assert clock() < 2 * (3 + LONG_ROUND) + 2 * (timing.FEW + timing.MORE + 1)  # two rounds of each


def test_what_protection_costs_is_trained_for_twice(timed, monkeypatch):
    monkeypatch.setattr(Slow, "round", 1.0, raising=False)
    once = block_seconds(federation(block=4), timed[0])
    lost = replace(federation(block=4), objectives=(Objective("utility_lost"),))
    assert block_seconds(lost, timed[0]) == pytest.approx(2 * once)


@pytest.mark.parametrize("local", ["", '[local]\nname = "dp_sgd"\nrecord_noise_multiplier = 1.0\nrecord_clipping_norm = 1.0\n'])
def test_rows_are_the_same_after_an_estimate(tiny_study, tmp_path, local):
    tiny_study.write_text(tiny_study.read_text().replace("local_steps = 10", "local_steps = 30") + local)
    study, rows = load_study(tiny_study), []
    for name in ("before", "after"):
        with run(study, db=tmp_path / f"{name}.db") as store:
            rows.append([(t.settings, t.measures) for t in store.trials()])
        assert "of training" in estimate(study, tmp_path / "none.db")
    assert rows[0] == rows[1]


def test_a_block_is_timed_for_real():
    assert 0 < block_seconds(federation(rounds=3)) < 60


def test_a_lone_row_is_padded_in_a_study_and_not_elsewhere(monkeypatch):
    from fedpareto.federation import blocks

    sizes, prepared = [], blocks.prepared
    monkeypatch.setattr(blocks, "prepared", lambda problem, values, given, rows, *more: sizes.append(len(rows)) or prepared(problem, values, given, rows, *more))
    problem = federation()
    problem.measure({"rounds": [2]}, [0])
    problem.measure({"rounds": [2] * 23}, [0] * 23)
    study = Study("of its own", problem, Random(), budget=1)
    study.problem.measure({"rounds": [2]}, [0])
    assert sizes == [1, 20, 3, 20]
    assert study.identity["problem"]["block"] == 20


def test_a_lone_row_is_measured_the_same_but_for_last_bits_however_many_are_beside_it():
    alone = federation().measure({"rounds": [5]}, [3])
    padded = federation(block=7).measure({"rounds": [5]}, [3])
    assert alone.keys() == padded.keys()
    for name, column in alone.items():
        assert column == pytest.approx(padded[name], rel=1e-4, nan_ok=True), name


def test_what_is_told_of_a_block_are_the_trainings_that_are_done():
    from fedpareto.evaluate import results_of

    told = []
    jobs = [(Trial(i, 0, (), {"rounds": 4}, repeats_left=(0,)), 0) for i in range(3)]
    with listening(told.append):
        results_of(federation(block=2, rounds=Integer("rounds", 4, 5)), jobs, 0)
    assert told == sorted(told)
    assert told[-1] == pytest.approx(3)
    assert any(v == pytest.approx(2) for v in told)  # the first block had two of the three
