"""Rescue: what can be read of a damaged database, in a new one with which the study goes on."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpareto import __version__
from fedpareto.errors import FedparetoError, StoreError
from fedpareto.loop import followed, points, settings_of
from fedpareto.optimizers import ChoosesRepeats
from fedpareto.problem import Recalls, is_private
from fedpareto.store.access import SIDES, put, take_lock
from fedpareto.store.checks import Row
from fedpareto.store.identity import check_same, read_identity, seed_in
from fedpareto.store.making import rebuilt
from fedpareto.store.rows import read_measures, summed, trial_of, write_measures
from fedpareto.store.salvage import Salvaged, at_rest, salvaged
from fedpareto.study import Study
from fedpareto.trials import MOST_TRIALS, Trial, known_of, unlike, write_curves


@dataclass
class Rescued:
    """What came of a rescue."""

    path: Path
    trials: list[Row] = field(default_factory=list)
    repeats: list[Row] = field(default_factory=list)
    sessions: list[Row] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)  # rows that cannot be read or do not hold
    pending: list[int] = field(default_factory=list)  # trials of which trainings are lost
    proposed: list[int] = field(default_factory=list)  # trials whose row was lost: proposed again
    aside: list[int] = field(default_factory=list)  # trials that hold but cannot be used yet
    why_aside: str = ""


def rescue(study_of: Callable[[int | None], Study], db: Path, output: Path) -> Rescued:
    """Copy what holds of a damaged database into a new one, which `run` can go on with.

    study_of gives the study with the seed that the database has, or with its own. Trials keep
    their numbers: one whose trainings are lost is pending again, one whose row is lost is proposed
    again from those before it. Where that cannot be, the trials after it are set aside.
    """
    study = study_of(None)
    _check_output(db, output)
    with at_rest(db):
        found = salvaged(db, study.repeats)
    if found.study is not None:
        identity = read_identity(found.study["identity"])
        study = study_of(seed_in(identity))
        check_same(db, identity, study.identity)
    elif is_private(study.problem):
        raise StoreError(
            f"{db}: must hold the row of the study, found it lost, and with it the secret of the "
            "noise on private data: nothing true could be stated of its trainings. Take a copy "
            "that was kept, or train anew, in another database: --db."
        )
    done = _assembled(study, found, Rescued(output))
    _put(study, found, done, db)
    return done


def _check_output(db: Path, output: Path) -> None:
    """Refuse to write where something is, or where nothing can be."""
    if not db.is_file():
        raise StoreError(f"{db}: must be the study's database, found no such file.")
    if not output.name:
        raise StoreError(f"--output: must name a file, found {str(output)!r}. Name one.")
    if not output.resolve().parent.is_dir():
        raise StoreError(f"{output}: must be in a folder that exists, found no such folder.")
    for side in ("", *SIDES):
        path = output.with_name(output.name + side)
        if path.exists() or path.is_symlink():
            raise StoreError(
                f"{path}: must not be there yet, since nothing is overwritten, found a file. "
                "Name another with --output."
            )


def _put(study: Study, found: Salvaged, done: Rescued, found_in: Path) -> None:
    """Write the new database, with a session that names the budget if one may be lost."""
    row: dict[str, Any] = {"name": study.name, "repeats": study.repeats}
    row["identity"] = json.dumps(study.identity)
    done.sessions = list(found.sessions)
    if done.aside or any(d.table == "sessions" for d in found.lost):
        now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        reached = max([study.budget, len(done.trials), *(n + 1 for n in done.aside)])
        budget = min(reached, MOST_TRIALS)
        done.sessions.append(
            {"started": now, "seconds": 0, "version": __version__, "budget": budget}
        )
    tables = {
        "study": [found.study or row],
        "trials": done.trials,
        "repeats": done.repeats,
        "sessions": done.sessions,
        "data": _facts(study, found, done),
        "baselines": found.baselines,
        "audits": [row for row in found.audits if row["trial"] < len(done.trials)],
    }
    content = rebuilt(done.path, tables)
    real = done.path.resolve()
    lock = take_lock(real)
    try:
        _check_output(found_in, done.path)  # again, now that nobody else can make it
        put(real, content)
    finally:
        lock.close()


def _facts(study: Study, found: Salvaged, done: Rescued) -> list[Row]:
    """Return the row of what looking needs of the data if it says that; else run writes it anew."""
    problem = study.problem
    for row in found.data:
        try:
            if isinstance(problem, Recalls):
                problem.recalling(json.loads(row["facts"]))
        except FedparetoError as error:
            done.lost.append(f"table data, row {row['key']}, column facts: {error}")
            return []
    return found.data


def _assembled(study: Study, found: Salvaged, done: Rescued) -> Rescued:
    """Put trials together, number by number, as far as a study's batches stay whole."""
    done.lost = [str(damage) for damage in found.lost]
    _leave_out_unlike(study, found, done)
    known = sorted({*found.trials, *(trial for trial, _ in found.repeats)})
    budgets = [study.budget, len(known), *(row["budget"] for row in found.sessions)]
    most = found.study["repeats"] if found.study else study.repeats
    batches: dict[int, list[Row]] = {}
    end = max((n for n in known if n < max(budgets)), default=-1) + 1
    for number in range(end):
        row = found.trials.get(number)
        if row is None:
            row = _proposed(study, done, number, batches, most)
            if row is None:
                done.aside = [n for n in known if n > number]
                first = next(t["number"] for t in done.trials if t["state"] == "pending")
                done.why_aside = (
                    f"the row of trial {number} is lost, and it cannot be proposed again before "
                    f"trial {first} is trained again"
                )
                break
            done.proposed.append(number)
        _take(study, found, done, row, most)
    else:
        done.aside = [n for n in known if n >= end]
        done.why_aside = f"no budget of this study reaches trial {end}" if done.aside else ""
    return done


def _leave_out_unlike(study: Study, found: Salvaged, done: Rescued) -> None:
    """Leave out the rows of trials that are no points of the study's space."""
    for number, row in list(found.trials.items()):
        wrong = unlike(study.problem.space, json.loads(row["point"]), json.loads(row["settings"]))
        if wrong:
            done.lost.append(f"table trials, row {number}, {wrong}")
            del found.trials[number]


def _proposed(
    study: Study, done: Rescued, number: int, batches: dict[int, list[Row]], most: int
) -> Row | None:
    """Return a trial as the optimizer proposes it, pending; None if that is not known yet."""
    batch, place = divmod(number, study.optimizer.batch)
    if batch not in batches:
        before = [_trial(row, most) for row in done.trials if row["batch"] < batch]
        if any(t.state == "pending" and t.batch < batch - study.in_flight for t in before):
            return None
        history = followed(study, known_of(study.problem, before), before, batch)
        x = points(study, history, batch)
        batches[batch] = [
            {
                "batch": batch,
                "point": json.dumps(point.tolist()),
                "settings": json.dumps(dict(settings)),
                "state": "pending",
            }
            for point, settings in zip(x, settings_of(study, x), strict=True)
        ]
    return {"number": number, **batches[batch][place]}


COLUMNS = ("number", "batch", "point", "settings", "state", "measures", "spread", "error", "curves")


def _trial(row: Row, most: int) -> Trial:
    """Return the trial that a row to be written holds."""
    return trial_of(tuple(row.get(c) for c in COLUMNS), range(row.get("runs", 0)), most)


def _take(study: Study, found: Salvaged, done: Rescued, row: Row, most: int) -> None:
    """Take a trial over with its trainings: finished if all are there, else pending."""
    trainings = found.trainings(row["number"])
    if isinstance(study.optimizer, ChoosesRepeats):  # it is asked after the first, the second, …
        trainings = [t for place, t in enumerate(trainings) if t["repeat"] == place]
    expected = found.trained.get(row["number"])
    if expected is not None:
        trainings = [t for t in trainings if t["repeat"] < expected]
    whole = row["state"] == "stopped"  # by an older version, whose rules are no more
    if row["state"] in ("done", "failed"):
        whole = len(trainings) == expected if expected is not None else _agrees(row, trainings)
    if not whole:
        row = _unfinished(row)
        if len(trainings) >= most:
            row = {**row, **_summary(trainings)}
        elif found.trials.get(row["number"], row)["state"] != "pending":
            done.pending.append(row["number"])
    done.trials.append({**row, "runs": len(trainings)})
    done.repeats.extend(trainings)


def _unfinished(row: Row) -> Row:
    """Return a trial's row as it was before it was measured."""
    return {c: row[c] for c in ("number", "batch", "point", "settings")} | {"state": "pending"}


def _summary(trainings: Sequence[Row]) -> Row:
    """Return the columns of a finished trial that come from its trainings."""
    found = summed([(t["measures"], t["error"], t["curves"]) for t in trainings])
    return {
        "state": found["state"],
        "measures": write_measures(found["measures"]),
        "spread": write_measures(found["spread"]),
        "error": found["error"],
        "curves": write_curves(found["curves"]),
    }


def _agrees(row: Row, trainings: Sequence[Row]) -> bool:
    """Say whether a finished trial without a checksum is what its trainings come to."""
    if not trainings:
        return False
    summary = _summary(trainings)
    stored = read_measures(row["measures"])
    means = read_measures(summary["measures"])
    return (summary["state"], *stored) == (row["state"], *means) and all(
        math.isclose(stored[name], means[name], rel_tol=1e-9)
        or math.isnan(stored[name]) == math.isnan(means[name]) is True
        for name in means
    )
