"""The loop: propose, evaluate, record. The rows are the whole state: it can be killed anywhere."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto import __version__, baselines
from fedpareto.errors import FedparetoError, SettingError, StoreError, shown
from fedpareto.evaluate import training_seed
from fedpareto.executors import Executor, here
from fedpareto.history import History
from fedpareto.noise import derive
from fedpareto.optimizers import ChoosesRepeats, Finishes, Psl
from fedpareto.problem import Checks, is_private
from fedpareto.space import FloatArray
from fedpareto.store import Store
from fedpareto.study import Study
from fedpareto.threads import one_thread
from fedpareto.trials import Result, Trial, known_of

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
    evaluate: Executor = here,
    watch: Watch = lambda store: None,
) -> Store:
    """Run a study to its budget, from wherever its rows stand, and return the store."""
    if isinstance(study.problem, Checks):
        study.problem.check()
    store = Store.write(database(study, db), study.name, study.identity, study.repeats)
    try:
        store.begin_session(__version__, study.budget, is_private(study.problem))
        baselines.begin(study, store)
        trials = Waiting(study, store)
        devices = {work.device for work in store.works().values()}
        seed = training_seed(study, store)
        for results in evaluate(study.problem, trials.more, seed) if trials.some() else ():
            store.record(results)
            _notice(devices, results)
            watch(store)
        if trials.some() or store.trials("pending"):
            raise FedparetoError(
                f"study {study.name}: evaluate must give results of all trials that it is handed, "
                "and ask for more until there are none, found that it ended after "
                f"{store.finished()} of {study.budget} trials. What was finished is kept; repair "
                "evaluate and run again."
            )
        if trials.why_ended:
            store.end_session(trials.why_ended)
        baselines.end(study, store, evaluate)
        return store
    except BaseException:
        store.close()
        raise


def _notice(devices: set[str], results: Sequence[Result]) -> None:
    """Say so where a training ran on another kind of device than those before it."""
    for result in results:
        if result.ran is not None and result.ran.device not in devices:
            if devices:
                log = logging.getLogger("fedpareto")
                log.warning(
                    "trial %d was trained on %s, others on %s: the last digits of the same "
                    "training may differ between them, and with them what is proposed next",
                    result.trial,
                    result.ran.device,
                    ", ".join(sorted(devices)),
                )
            devices.add(result.ran.device)


class Waiting:
    """The trials of a study that may be trained now, each handed out once."""

    def __init__(self, study: Study, store: Store) -> None:
        self.study = study
        self.store = store
        self.why_ended = ""
        self._next: list[Trial] = []
        self._handed: set[tuple[int, int]] = set()  # trial and repeat, until it is on record

    def some(self) -> bool:
        """Say whether anything may be trained now; an executor may take long to begin."""
        self._next = self._next or self._found()
        return bool(self._next)

    def more(self) -> list[Trial]:
        """Return trials that may be trained now and are not under way.

        There are none until further results are on record, or none at all.
        """
        self.some()
        found, self._next = self._next, []
        return found

    def _found(self) -> list[Trial]:
        """Return pending trials that are not handed out; propose some if there are none."""
        while True:
            pending = left(self.study, self.store)
            self._handed &= {(t.number, r) for t in pending for r in t.repeats_left}
            fresh = [replace(t, repeats_left=self._not_handed(t)) for t in pending]
            fresh = [t for t in fresh if t.repeats_left]
            self._handed |= {(t.number, r) for t in fresh for r in t.repeats_left}
            if fresh or not self._proposed():
                return fresh

    def _not_handed(self, trial: Trial) -> tuple[int, ...]:
        return tuple(r for r in trial.repeats_left if (trial.number, r) not in self._handed)

    def _proposed(self) -> bool:
        """Add the next trials, if the study goes on and what they follow from is known."""
        count = len(self.store)
        if count >= self.study.budget or self.why_ended:
            return False
        if count // self.study.optimizer.batch > newest(self.study, self.store):
            return False
        if finished(self.study, self.store):
            self.why_ended = "the optimizer expects next to nothing of further trials"
            return False
        propose(self.study, self.store)
        return True


def newest(study: Study, store: Store) -> int:
    """Return the newest batch that can be proposed: one follows from those L + 1 before it.

    L is the study's in_flight: how many batches may be under way beside the first unfinished one.
    """
    first = store.settled()
    pending = store.trials(first=first, end=first + 1)
    batch = pending[0].batch if pending else len(store) // study.optimizer.batch
    return batch + study.in_flight


def known(study: Study, store: Store) -> History:
    """Return what the store knows of the study's objectives."""
    return store.known(study.problem)


def left(study: Study, store: Store) -> list[Trial]:
    """Return the pending trials, each with the repeats that may be trained now.

    These are all that are left or, where the optimizer chooses how much to train, the next one. A
    trial that it does not want trained again is finished here, with the repeats that it has.
    """
    pending = store.trials("pending")
    if not pending or not isinstance(study.optimizer, ChoosesRepeats):
        return pending
    last = newest(study, store)  # a rescued study may have more
    pending = [t for t in pending if t.batch <= last]
    enough = _enough(study, store, [t for t in pending if t.runs])
    store.settle(sorted(enough))
    rest = [t for t in pending if t.number not in enough]
    return [replace(t, repeats_left=t.repeats_left[:1]) for t in rest]


def _enough(study: Study, store: Store, begun: Sequence[Trial]) -> set[int]:
    """Return which of these trials the optimizer does not want trained again."""
    enough: set[int] = set()
    for batch in sorted({t.batch for t in begun}):
        mine = [t for t in begun if t.batch == batch]
        wanted = again(study, store, known(study, store).before(batch - study.in_flight), mine)
        enough |= {t.number for t, more in zip(mine, wanted, strict=True) if not more}
    return enough


def again(study: Study, store: Store, history: History, trials: Sequence[Trial]) -> list[bool]:
    """Say which trials of one batch are to be trained again, after the repeats that they have.

    history is the batches that it follows from. The optimizer is asked of each trial's end and of
    all that its runs showed on the way; no trial depends on another of its batch.
    """
    if not trials or not isinstance(study.optimizer, ChoosesRepeats):
        return [True] * len(trials)
    so_far = known_of(study.problem, [store.after(t, t.runs) for t in trials])
    of = np.concatenate([np.arange(len(trials)), so_far.free_of])  # the trial of each row
    tried = History(
        np.vstack([so_far.x, so_far.free_x]),
        np.vstack([so_far.y, so_far.free_y]),
        so_far.batch[of],
        runs=so_far.runs[of],
        limited=np.vstack([so_far.limited, so_far.free_limited]),
    )
    with one_thread():
        answer = study.optimizer.worth_repeating(study.problem, history, tried)
    wanted = _yes_or_no(answer, len(tried), "worth_repeating")
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
    """Say whether the optimizer wants to end the study; it is asked before each whole batch."""
    batch, done = divmod(len(store), study.optimizer.batch)
    optimizer = study.optimizer
    if not isinstance(optimizer, Finishes) or done:
        return False
    with one_thread():
        before = known(study, store).before(batch - study.in_flight)
        return bool(optimizer.finished(study.problem, before, study.seed))


def propose(study: Study, store: Store) -> None:
    """Add the next points: a new batch, or the rest of one that a smaller budget cut short."""
    count = len(store)
    batch, done = divmod(count, study.optimizer.batch)
    history = followed(study, known(study, store), under_way(study, store, batch), batch)
    x = points(study, history, batch)[done : done + study.budget - count]
    store.add(batch, x, settings_of(study, x))


def followed(study: Study, history: History, trials: Sequence[Trial], batch: int) -> History:
    """Return what a batch follows from: rows up to in_flight batches ago, and points since.

    trials are at least those of the in_flight batches before it. Their rows may be known already:
    they are left out, so that what is proposed does not depend on which trainings were faster.
    """
    since = batch - study.in_flight
    seen = history.before(since)
    if study.in_flight == 0:
        return seen
    pending = [t.point for t in trials if since <= t.batch < batch]
    shape = (len(pending), len(study.problem.space))
    return replace(seen, pending=np.array(pending, np.float64).reshape(shape))


def under_way(study: Study, store: Store, batch: int) -> list[Trial]:
    """Return the trials of the in_flight batches before one."""
    size = study.optimizer.batch
    return store.trials(first=max(0, batch - study.in_flight) * size, end=batch * size)


def points(study: Study, history: History, batch: int) -> FloatArray:
    """Return the points [n,d] of a batch that follows a history of whole batches.

    Where batches overlap, several follow the same rows, so each has a seed of its own.
    """
    problem = study.problem
    optimizer = study.optimizer
    seed = derive(study.seed, "batch", batch) if study.in_flight else study.seed
    with one_thread():
        found = optimizer.propose(problem, history, optimizer.batch, seed)
        return problem.space.snap(_as_points(found, optimizer.batch, len(problem.space)))


def _as_points(found: Any, n: int, d: int) -> FloatArray:
    """Return what an optimizer proposes; with points too few or none a study would never end."""
    try:
        x = np.asarray(found)
    except Exception:  # nothing that is an array: lists that do not fit, an object of another kind
        x = np.empty(0)
    if x.shape == (n, d) and x.dtype.kind in "fiu" and np.isfinite(x).all():
        return x.astype(np.float64, copy=False)
    raise SettingError(
        f"optimizer: propose must return an array [{n}, {d}] of finite numbers, a row for each of "
        f"{n} points, found {shown(found)}. Try it with fedpareto.testing.check_optimizer."
    )


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


def verify(
    study: Study, store: Store, watch: Callable[[int], None] = lambda trials: None
) -> Iterator[str]:
    """Yield a line for each stored trial that does not follow from the rows before it.

    Every batch is proposed again, and it is chosen again how often each trial is trained. In a
    rescued study, batches after a pending trial follow from what is not known yet: see checkable.
    After each batch, watch is told how many trials were proposed again.
    """
    count = checkable(study, store)
    history = known(study, store)
    size = study.optimizer.batch
    for batch in range(-(-count // size)):
        before = followed(study, history, under_way(study, store, batch), batch)
        stored = store.trials(first=batch * size, end=min(count, (batch + 1) * size))
        yield from _proposed_otherwise(study, before, batch, stored)
        yield from _trained_otherwise(study, store, before, stored)
        watch(min(count, (batch + 1) * size))


def checkable(study: Study, store: Store) -> int:
    """Return how many trials are of batches that follow from what is finished."""
    return min(len(store), (newest(study, store) + 1) * study.optimizer.batch)


def _proposed_otherwise(
    study: Study, history: History, batch: int, trials: Sequence[Trial]
) -> Iterator[str]:
    """Yield a line for each trial of a batch that the optimizer would not propose."""
    proposed = points(study, history, batch)
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
