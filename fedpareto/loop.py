"""The loop: propose, evaluate, record. The rows are the whole state, so it can be killed anywhere and run again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto import __version__
from fedpareto.errors import SettingError, StoreError
from fedpareto.evaluate import Evaluate, here
from fedpareto.history import History
from fedpareto.optimizers import Psl
from fedpareto.space import FloatArray
from fedpareto.store import Store
from fedpareto.study import Study
from fedpareto.threads import one_thread
from fedpareto.trials import Trial, known_of

Watch = Callable[[Store], None]


def database(study: Study, db: str | Path | None = None) -> Path:
    """Return where a study's rows are: the file named, or the study file's name with .db."""
    if db is not None:
        return Path(db)
    if study.path is None:
        raise StoreError(
            f"study {study.name}: a study without a file needs a database, found none. Pass db=..."
        )
    return study.path.with_suffix(".db")


def run(
    study: Study,
    db: str | Path | None = None,
    evaluate: Evaluate = here,
    watch: Watch = lambda store: None,
) -> Store:
    """Run a study to its budget, from wherever its rows stand, and return the store."""
    check = getattr(study.problem, "check", None)
    if check:
        check()
    store = Store.write(database(study, db), study.name, study.identity, study.repeats)
    try:
        store.begin_session(__version__, study.budget)
        while True:
            while trials := left(study, store):
                for results in evaluate(study.problem, trials, study.seed):
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


def left(study: Study, store: Store) -> list[Trial]:
    """Return what is to be trained next: all of the pending trials or, where the optimizer chooses how much to train, their next repeat.

    A trial that it does not want trained again is finished here, with the repeats that it has.
    """
    pending = store.trials("pending")
    if not pending or not hasattr(study.optimizer, "worth_repeating"):
        return pending
    begun = [t for t in pending if t.runs]
    wanted = again(study, store, known(study, store).before(begun[0].batch), begun) if begun else []
    enough = {t.number for t, more in zip(begun, wanted, strict=True) if not more}
    store.settle(sorted(enough))
    return [replace(t, repeats_left=t.repeats_left[:1]) for t in pending if t.number not in enough]


def again(study: Study, store: Store, history: History, trials: Sequence[Trial]) -> list[bool]:
    """Say which trials of one batch the optimizer wants trained again, after the repeats that they have; history is the batches before.

    It is asked of a trial's end and of all that its runs showed on the way: no trial depends on another of its batch.
    """
    rule = getattr(study.optimizer, "worth_repeating", None)
    if rule is None or not trials:
        return [True] * len(trials)
    so_far = known_of(study.problem, [store.after(t, t.runs) for t in trials])
    x, y = np.vstack([so_far.x, so_far.free_x]), np.vstack([so_far.y, so_far.free_y])
    of = np.concatenate([np.arange(len(trials)), so_far.free_of])
    with one_thread():
        wanted = _said(
            rule(study.problem, history, x, y, so_far.runs[of]), len(x), "worth_repeating"
        )
    return [bool(wanted[of == i].any()) for i in range(len(trials))]


def _said(answer: Any, n: int, method: str) -> NDArray[np.bool_]:
    """Return what an optimizer's method said of n rows."""
    said = np.asarray(answer)
    if said.shape != (n,) or said.dtype != np.bool_:
        raise SettingError(
            f"optimizer: {method} must answer true or false for each of {n} rows, found {said.dtype} of shape {said.shape}."
        )
    return said


def finished(study: Study, store: Store) -> bool:
    """Say whether the optimizer has had enough, where it has a rule for that; asked between whole batches alone."""
    rule = getattr(study.optimizer, "finished", None)
    if rule is None or len(store) % study.optimizer.batch:
        return False
    with one_thread():
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
    with one_thread():
        return problem.space.snap(optimizer.propose(problem, history, optimizer.batch, study.seed))


def settings_of(study: Study, x: FloatArray) -> list[dict[str, Any]]:
    """Return the settings that points [n,d] stand for."""
    columns = study.problem.space.decode(x)
    return [{name: column[i] for name, column in columns.items()} for i in range(len(x))]


def preferred(study: Study, store: Store, weights: Sequence[float]) -> dict[str, Any]:
    """Return the settings that Pareto set learning (Kang 2023, Algorithm 3) holds best for a preference, a weight per objective."""
    names = [o.name for o in study.problem.objectives]
    if (
        len(weights) != len(names)
        or not all(0 <= w < math.inf for w in weights)
        or sum(weights) <= 0
    ):
        raise SettingError(
            f"--at: must be a weight of at least 0 for each of {', '.join(names)}, one above 0, found {list(weights)}."
        )
    learner = study.optimizer if isinstance(study.optimizer, Psl) else Psl()
    with one_thread():
        x = learner.pareto_set(
            study.problem, known(study, store), study.seed, np.array([weights], dtype=np.float64)
        )
    return settings_of(study, x)[0]


def verify(study: Study, store: Store) -> Iterator[str]:
    """Propose every stored batch again from the rows before it, and choose again how much to train; yield a line for each that differs."""
    trials, history, size = store.trials(), known(study, store), study.optimizer.batch
    for batch in range(-(-len(trials) // size)):
        proposed = points(study, history.before(batch))
        stored = trials[batch * size : (batch + 1) * size]
        for trial, point, settings in zip(
            stored, proposed, settings_of(study, proposed), strict=False
        ):
            if (
                trial.batch != batch
                or trial.point != tuple(point.tolist())
                or trial.settings != settings
            ):
                yield f"trial {trial.number}: must be {settings}, found {trial.settings}"
        yield from _trained_otherwise(study, store, history.before(batch), stored)


def _trained_otherwise(
    study: Study, store: Store, history: History, trials: Sequence[Trial]
) -> Iterator[str]:
    """Yield a line for each trial of a batch that was trained more or less often than the optimizer wants."""
    for runs in range(1, store.repeats):
        asked = [t for t in trials if t.state in ("done", "failed") and t.runs >= runs]
        for trial, more in zip(
            asked, again(study, store, history, [replace(t, runs=runs) for t in asked]), strict=True
        ):
            if more != (trial.runs > runs):
                yield f"trial {trial.number}: must {'' if more else 'not '}be trained again after {runs} times, found {trial.runs}"
