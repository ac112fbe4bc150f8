"""The loop: propose, evaluate, record. The rows are the whole state, so it can be killed anywhere and run again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto import __version__
from fedpareto.errors import SettingError, StoreError
from fedpareto.evaluate import Evaluate, here
from fedpareto.history import History
from fedpareto.optimizers import Psl
from fedpareto.space import FloatArray
from fedpareto.store import Store
from fedpareto.study import Study
from fedpareto.trials import known_of

Watch = Callable[[Store], None]


def database(study: Study, db: str | Path | None = None) -> Path:
    """Return where a study's rows are: the file named, or the study file's name with .db."""
    if db is not None:
        return Path(db)
    if study.path is None:
        raise StoreError(f"study {study.name}: a study without a file needs a database, found none. Pass db=...")
    return study.path.with_suffix(".db")


def run(study: Study, db: str | Path | None = None, evaluate: Evaluate = here, watch: Watch = lambda store: None) -> Store:
    """Run a study to its budget, from wherever its rows stand, and return the store."""
    check = getattr(study.problem, "check", None)
    if check:
        check()
    store = Store.write(database(study, db), study.name, study.identity, study.repeats)
    try:
        store.begin_session(__version__, study.budget)
        while True:
            for results in evaluate(study.problem, store.trials("pending"), study.seed):
                store.record(results)
                watch(store)
            if len(store) >= study.budget:
                return store
            if finished(study, store):
                store.end_session("the optimizer expects next to nothing of further trials")
                return store
            propose(study, store)
    except BaseException:
        store.close()
        raise


def known(study: Study, store: Store) -> History:
    """Return what the store knows of the study's objectives."""
    return known_of(study.problem, store.trials())


def finished(study: Study, store: Store) -> bool:
    """Say whether the optimizer has had enough, where it has a rule for that; asked between whole batches alone."""
    rule = getattr(study.optimizer, "finished", None)
    if rule is None or len(store) % study.optimizer.batch:
        return False
    return bool(rule(study.problem, known(study, store), study.seed))


def propose(study: Study, store: Store) -> None:
    """Add the next points: a new batch, or the rest of one that an earlier, smaller budget cut short."""
    history = known(study, store)
    batch, done = divmod(len(history), study.optimizer.batch)
    x = points(study, history.before(batch))[done : done + study.budget - len(history)]
    store.add(batch, x, settings_of(study, x))


def points(study: Study, history: History) -> FloatArray:
    """Return the batch of points [n,d] that follows a history of whole batches."""
    optimizer, problem = study.optimizer, study.problem
    return problem.space.snap(optimizer.propose(problem, history, optimizer.batch, study.seed))


def settings_of(study: Study, x: FloatArray) -> list[dict[str, Any]]:
    """Return the settings that points [n,d] stand for."""
    columns = study.problem.space.decode(x)
    return [{name: column[i] for name, column in columns.items()} for i in range(len(x))]


def preferred(study: Study, store: Store, weights: Sequence[float]) -> dict[str, Any]:
    """Return the settings that Pareto set learning (Kang 2023, Algorithm 3) holds best for a preference, a weight per objective."""
    names = [o.name for o in study.problem.objectives]
    if len(weights) != len(names) or not all(0 <= w < math.inf for w in weights) or sum(weights) <= 0:
        raise SettingError(f"--at: must be a weight of at least 0 for each of {', '.join(names)}, one above 0, found {list(weights)}.")
    learner = study.optimizer if isinstance(study.optimizer, Psl) else Psl()
    x = learner.pareto_set(study.problem, known(study, store), study.seed, np.array([weights], dtype=np.float64))
    return settings_of(study, x)[0]


def verify(study: Study, store: Store) -> Iterator[str]:
    """Propose every stored batch again from the rows before it; yield a line for each trial that differs."""
    trials, history, size = store.trials(), known(study, store), study.optimizer.batch
    for batch in range(-(-len(trials) // size)):
        again = points(study, history.before(batch))
        stored = trials[batch * size : (batch + 1) * size]
        for trial, point, settings in zip(stored, again, settings_of(study, again), strict=False):
            if trial.batch != batch or trial.point != tuple(point.tolist()) or trial.settings != settings:
                yield f"trial {trial.number}: must be {settings}, found {trial.settings}"
