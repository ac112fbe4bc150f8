"""Rows that a study need not train, since another study has them.

A row depends on its settings and the study's seed alone. So where two studies differ in nothing but
their optimizer, whoever comes second takes the rows that the first has, and trains the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedpareto.errors import SettingError
from fedpareto.executors import Executor, here
from fedpareto.executors.base import More
from fedpareto.loop import database
from fedpareto.problem import Problem
from fedpareto.store import Store
from fedpareto.study import Study, load_study
from fedpareto.trials import Result, Trial

Lent = Mapping[str, Sequence[tuple[dict[str, float], dict[str, list[float]]]]]  # settings → repeats


def borrowing(study: Study, lender: Path | None) -> Executor:
    """Return what trains a study's trials here, but for those that a lender has rows of."""
    lent = rows_of(study, lender) if lender is not None else {}

    def evaluate(problem: Problem, more: More, seed: int) -> Iterator[Sequence[Result]]:
        if problem is not study.problem:  # the federation without protection is another one
            yield from here(problem, more, seed)
            return
        while trials := more():
            known = [t for t in trials if _key(t) in lent]
            if known:
                yield [result for t in known for result in _results(t, lent[_key(t)])]
            yield from here(problem, _once([t for t in trials if _key(t) not in lent]), seed)

    return evaluate


def _once(trials: Sequence[Trial]) -> More:
    """Return what hands out these trials, and then none."""
    left = [trials]
    return lambda: left.pop() if left else ()


def rows_of(study: Study, lender: Path) -> Lent:
    """Return the finished rows of a lender by their settings; none where it was not begun."""
    other = load_study(lender)
    if _asked(other) != _asked(study):
        raise SettingError(
            f"reproduce: {lender} must differ from {study.path} in its optimizer alone, found "
            "another problem, whose rows are others."
        )
    path = database(other)
    if not path.is_file():
        return {}
    with Store.read(path) as store:
        store.check(other.identity)
        whole = [t for t in store.trials("done") if t.runs == study.repeats]
        return {
            _key(t): list(
                zip(store.repeat_measures(t.number), store.repeat_curves(t.number), strict=True)
            )
            for t in whole
        }


def _asked(study: Study) -> dict[str, Any]:
    return {key: value for key, value in study.identity.items() if key != "optimizer"}


def _key(trial: Trial) -> str:
    return json.dumps(trial.settings, sort_keys=True)


def _results(
    trial: Trial, rows: Sequence[tuple[dict[str, float], dict[str, list[float]]]]
) -> Iterator[Result]:
    """Yield the rows of a trial's repeats; what it took was counted where it was trained."""
    for repeat in trial.repeats_left:
        measures, curves = rows[repeat]
        yield Result(trial.number, repeat, measures, curves=curves)
