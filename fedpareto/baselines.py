"""Baselines of a study: measured once per repeat, kept beside the trials, never counted as one."""

from __future__ import annotations

import math
from collections.abc import Iterable

from fedpareto.errors import DamagedStore, FedparetoError
from fedpareto.evaluate import training_seed
from fedpareto.executors import Executor
from fedpareto.noise import derive
from fedpareto.problem import HasBaselines, Problem, Recalls, is_private
from fedpareto.store import Store, settled
from fedpareto.study import Study
from fedpareto.trials import Baseline, Trial

TRIVIAL = "trivial"
UNPROTECTED = "unprotected"


def begin(study: Study, store: Store) -> None:
    """Keep what looking at a study needs of its data, and measure the best constant answer."""
    problem = study.problem
    if isinstance(problem, Recalls) and store.facts is None:
        store.keep_facts(problem.facts(derive(study.seed, "repeat", 0)))
    if isinstance(problem, HasBaselines) and not store.baselines(TRIVIAL):
        found = problem.trivial([derive(study.seed, "repeat", r) for r in range(study.repeats)])
        store.keep_baselines(TRIVIAL, [Baseline({}, measures) for measures in found])


def end(study: Study, store: Store, evaluate: Executor) -> None:
    """Train the federation without protection, with the settings of the trial that lost least.

    It is a function of the rows: a raised budget that finds a better trial trains it anew.
    """
    best = least_loss(study.problem, (trial for piece in settled(store) for trial in piece))
    twin = study.problem.unprotected() if isinstance(study.problem, HasBaselines) else None
    if best is None or twin is None:
        return
    settings = {name: best.settings[name] for name in twin.space.names}
    held = store.baselines(UNPROTECTED)
    if len(held) == study.repeats and held[0].settings == settings:
        return
    left = [Trial(0, 0, (), settings, repeats_left=tuple(range(study.repeats)))]
    blocks = evaluate(twin, lambda: [left.pop()] if left else [], training_seed(study, store))
    results = sorted((r for block in blocks for r in block), key=lambda r: r.repeat)
    kept = [Baseline(settings, r.measures, r.error) for r in results]
    store.keep_baselines(UNPROTECTED, kept)


def least_loss(problem: Problem, trials: Iterable[Trial]) -> Trial | None:
    """Return the first of the trials whose models are best; None where nothing judges models."""
    if not isinstance(problem, HasBaselines) or problem.loss is None:
        return None
    name = problem.loss_measure
    done = (t for t in trials if t.state == "done")
    judged = (t for t in done if math.isfinite(t.measures.get(name, math.nan)))
    return min(judged, key=lambda t: t.measures[name], default=None)


def remembering(study: Study, store: Store) -> Problem:
    """Return a study's problem to look at: by what is kept of its data, where that is there."""
    facts = store.facts
    if facts is None or not isinstance(study.problem, Recalls):
        return study.problem
    try:
        return study.problem.recalling(facts)
    except FedparetoError as error:
        found = f"table data, row 1, column facts: {error}".rstrip(".")
        raise DamagedStore(store.path, found) from error


def never_unprotected(problem: Problem) -> bool:
    """Say whether the federation without protection is left out because data are private."""
    return isinstance(problem, HasBaselines) and is_private(problem)
