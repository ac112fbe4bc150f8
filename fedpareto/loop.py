"""The loop: propose, evaluate, record. The rows are the whole state: it can be killed anywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto import __version__, baselines
from fedpareto.errors import FedparetoError, SettingError, StoreError
from fedpareto.evaluate import Evaluate, here, training_seed
from fedpareto.history import History
from fedpareto.optimizers import ChoosesRepeats, Finishes, Psl
from fedpareto.problem import Checks, is_private
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
    if isinstance(study.problem, Checks):
        study.problem.check()
    store = Store.write(database(study, db), study.name, study.identity, study.repeats)
    try:
        store.begin_session(__version__, study.budget, is_private(study.problem))
        baselines.begin(study, store)
        seed = training_seed(study, store)
        while True:
            while trials := left(study, store):
                before = store.trainings()
                for results in evaluate(study.problem, trials, seed):
                    store.record(results)
                    watch(store)
                if store.trainings() == before:
                    raise FedparetoError(
                        f"study {study.name}: evaluate must give results of the trials it is "
                        f"handed, found none of trial {trials[0].number}. What was finished is "
                        "kept; repair evaluate and run again."
                    )
            if len(store) >= study.budget:
                baselines.end(study, store, evaluate)
                return store
            if finished(study, store):
                store.end_session("the optimizer expects next to nothing of further trials")
                baselines.end(study, store, evaluate)
                return store
            propose(study, store)
    except BaseException:
        store.close()
        raise


def known(study: Study, store: Store) -> History:
    """Return what the store knows of the study's objectives."""
    return known_of(study.problem, store.trials())


def left(study: Study, store: Store) -> list[Trial]:
    """Return the pending trials, each with the repeats that are to be trained next.

    These are all that are left or, where the optimizer chooses how much to train, the next one. A
    trial that it does not want trained again is finished here, with the repeats that it has.
    """
    pending = store.trials("pending")
    if not pending or not isinstance(study.optimizer, ChoosesRepeats):
        return pending
    pending = [t for t in pending if t.batch == pending[0].batch]  # a rescued study may have more
    begun = [t for t in pending if t.runs]
    enough: set[int] = set()
    if begun:
        before = known(study, store).before(begun[0].batch)
        wanted = again(study, store, before, begun)
        enough = {t.number for t, more in zip(begun, wanted, strict=True) if not more}
    store.settle(sorted(enough))
    rest = [t for t in pending if t.number not in enough]
    return [replace(t, repeats_left=t.repeats_left[:1]) for t in rest]


def again(study: Study, store: Store, history: History, trials: Sequence[Trial]) -> list[bool]:
    """Say which trials of one batch are to be trained again, after the repeats that they have.

    history is the batches before. The optimizer is asked of each trial's end and of all that its
    runs showed on the way; no trial depends on another of its batch.
    """
    if not trials or not isinstance(study.optimizer, ChoosesRepeats):
        return [True] * len(trials)
    so_far = known_of(study.problem, [store.after(t, t.runs) for t in trials])
    x = np.vstack([so_far.x, so_far.free_x])
    y = np.vstack([so_far.y, so_far.free_y])
    of = np.concatenate([np.arange(len(trials)), so_far.free_of])  # the trial of each row
    with one_thread():
        answer = study.optimizer.worth_repeating(study.problem, history, x, y, so_far.runs[of])
    wanted = _yes_or_no(answer, len(x), "worth_repeating")
    return [bool(wanted[of == i].any()) for i in range(len(trials))]


def _yes_or_no(answer: object, n: int, method: str) -> NDArray[np.bool_]:
    """Return an optimizer's answer for n rows as an array [n]; refuse anything else."""
    said = np.asarray(answer)
    if said.shape != (n,) or said.dtype != np.bool_:
        raise SettingError(
            f"optimizer: {method} must answer true or false for each of {n} rows, "
            f"found {said.dtype} of shape {said.shape}."
        )
    return said


def finished(study: Study, store: Store) -> bool:
    """Say whether the optimizer wants to end the study; it is asked after whole batches only."""
    optimizer = study.optimizer
    if not isinstance(optimizer, Finishes) or len(store) % study.optimizer.batch:
        return False
    with one_thread():
        return bool(optimizer.finished(study.problem, known(study, store), study.seed))


def propose(study: Study, store: Store) -> None:
    """Add the next points: a new batch, or the rest of one that a smaller budget cut short."""
    history = known(study, store)
    batch, done = divmod(len(history), study.optimizer.batch)
    x = points(study, history.before(batch))[done : done + study.budget - len(history)]
    store.add(batch, x, settings_of(study, x))


def points(study: Study, history: History) -> FloatArray:
    """Return the batch of points [n,d] that follows a history of whole batches."""
    problem = study.problem
    optimizer = study.optimizer
    with one_thread():
        x = optimizer.propose(problem, history, optimizer.batch, study.seed)
        return problem.space.snap(x)


def settings_of(study: Study, x: FloatArray) -> list[dict[str, Any]]:
    """Return the settings that points [n,d] stand for."""
    columns = study.problem.space.decode(x)
    return [{name: column[i] for name, column in columns.items()} for i in range(len(x))]


def preferred(study: Study, store: Store, weights: Sequence[float]) -> dict[str, Any]:
    """Return the settings that Pareto set learning holds best for a weight per objective.

    It is Kang 2023, Algorithm 3, learned from the study's rows.
    """
    names = [o.name for o in study.problem.objectives]
    valid = len(weights) == len(names) and all(0 <= w < math.inf for w in weights)
    if not valid or sum(weights) <= 0:
        raise SettingError(
            f"--at: must be a weight of at least 0 for each of {', '.join(names)}, one above 0, "
            f"found {list(weights)}."
        )
    learner = study.optimizer if isinstance(study.optimizer, Psl) else Psl()
    history = known(study, store)
    with one_thread():
        x = learner.pareto_set(study.problem, history, study.seed, np.array([weights], np.float64))
    return settings_of(study, x)[0]


def verify(study: Study, store: Store) -> Iterator[str]:
    """Yield a line for each stored trial that does not follow from the rows before it.

    Every batch is proposed again, and it is chosen again how often each trial is trained. In a
    rescued study, batches after a pending trial follow from what is not known yet: see checkable.
    """
    trials = store.trials()[: checkable(study, store)]
    history = known(study, store)
    size = study.optimizer.batch
    for batch in range(-(-len(trials) // size)):
        before = history.before(batch)
        stored = trials[batch * size : (batch + 1) * size]
        yield from _proposed_otherwise(study, before, batch, stored)
        yield from _trained_otherwise(study, store, before, stored)


def checkable(study: Study, store: Store) -> int:
    """Return how many trials come before the end of the first batch that is not finished."""
    trials = store.trials()
    pending = [i for i, trial in enumerate(trials) if trial.state == "pending"]
    if not pending:
        return len(trials)
    return min(len(trials), (pending[0] // study.optimizer.batch + 1) * study.optimizer.batch)


def _proposed_otherwise(
    study: Study, history: History, batch: int, trials: Sequence[Trial]
) -> Iterator[str]:
    """Yield a line for each trial of a batch that the optimizer would not propose."""
    proposed = points(study, history)
    expected = settings_of(study, proposed)
    for trial, point, settings in zip(trials, proposed, expected, strict=False):
        same = trial.batch == batch and trial.point == tuple(point.tolist())
        if not same or trial.settings != settings:
            yield f"trial {trial.number}: must be {settings}, found {trial.settings}"


def _trained_otherwise(
    study: Study, store: Store, history: History, trials: Sequence[Trial]
) -> Iterator[str]:
    """Yield a line for each trial of a batch that was trained too often or too rarely."""
    for runs in range(1, store.repeats):
        asked = [t for t in trials if t.state != "pending" and t.runs >= runs]
        wanted = again(study, store, history, [replace(t, runs=runs) for t in asked])
        for trial, more in zip(asked, wanted, strict=True):
            if more != (trial.runs > runs):
                yield (
                    f"trial {trial.number}: must {'' if more else 'not '}be trained again "
                    f"after {runs} times, found {trial.runs}"
                )
