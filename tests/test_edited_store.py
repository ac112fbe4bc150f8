"""Rows changed by hand, in any column to anything: no checksum forbids it, so every verb must read what it shows."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import sqlite3
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_damaged_store import called
from test_rescue import STUDY

from fedpareto import Store, load_study, run
from fedpareto.audit.words import sentence
from fedpareto.report.audit_panel import panel
from fedpareto.report.audits import lines
from fedpareto.report.points import view_of
from fedpareto.store import Audit
from fedpareto.store.checks import KINDS

PNG = b"\x89PNG\r\n\x1a\n"
SCALARS: list[Any] = [None, 0, 1, -1, 3, 0.5, -0.5, 1e300, 10**30, 10**400, True, False, "", "a", "\x1b[31m", "<b>", [], {}, [1], [[1]], {"a": 1}, [None], "x" * 5000,
                      [[0.1, 0.2], [1, "a"]], [0.5, 0.5], float("nan"), float("inf")]
VALUES: list[Any] = [None, 0, -1, 5, 2**62 - 1, 0.5, -2.5, 1e300, "", "a", "{}", "[]", "null", "1", '"a"', "[[]]", '{"a":', b"", PNG + b"xx", b"\xff", "[" * 3000,
                     "9" * 5000, '{"a":' + "9" * 5000 + "}", "done", "pending", "failed", "stopped", "server", "release", "trivial", "unprotected"]
NAMES = ["new", "", "__proto__", "epsilon", "rounds", "[/x]", "auc"]
FOUND: dict[str, dict[str, Any]] = {  # what our attacks find, in small
    "canary": {"epsilon": 3.0, "epsilon_hat": 1.0, "canaries": 100, "confidence": 0.95, "form": "Gaussian fit", "alarm": False},
    "membership": {"auc": 0.6, "client_auc": 0.5, "roc": [[0.0, 0.0], [0.1, 0.4], [1.0, 1.0]], "tpr_at_0.001": 0.1, "tpr_at_0.01": 0.2, "client_tpr_at_0.01": 0.1,
                   "shadow_error": 0.3, "shadows": 4},
    "inversion": {"psnr": 11.0, "psnr_of_mean": 9.0, "lineup": 0.3, "lineup_chance": 0.1, "candidates": 100, "label": 0.5, "form": "search"},
    "noise": {"strength": 1.0, "chances": {"mean": 0.3}, "least": 0.3, "numbers": 1000}}
VERBS = ("front", "pick", "report", "evidence", "compare", "rescue")
SECONDS = 5.0


def changed(value: Any, luck: random.Random) -> Any:
    """Return a JSON value with one change somewhere in it."""
    if isinstance(value, dict) and value and luck.random() < 0.85:
        key, out, way = luck.choice(list(value)), dict(value), luck.random()
        if way < 0.2:
            del out[key]
        elif way < 0.3:
            out[luck.choice([*NAMES, key.upper()])] = out.pop(key)
        elif way < 0.4:
            out[luck.choice(NAMES)] = luck.choice(SCALARS)
        else:
            out[key] = changed(value[key], luck)
        return out
    if isinstance(value, list) and value and luck.random() < 0.8:
        place, way = luck.randrange(len(value)), luck.random()
        if way < 0.3:
            return value[:place] + value[place + 1 :] if way < 0.2 else value * 3
        return [*value[:place], changed(value[place], luck), *value[place + 1 :]]
    return luck.choice(SCALARS)


def edited(db: sqlite3.Connection, luck: random.Random) -> str:
    """Change one value of one row, or of all rows of a table; return what was done."""
    table = luck.choice([*KINDS, "audits", "audits", "data", "baselines"])
    column = luck.choice(list(KINDS[table]))
    rows = [row for (row,) in db.execute(f"SELECT rowid FROM {table}")]
    row = luck.choice(rows)
    (value,) = db.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (row,)).fetchone()
    new = luck.choice(VALUES)
    if isinstance(value, str) and value[:1] in ("[", "{") and luck.random() < 0.8:
        with contextlib.suppress(ValueError):  # an edit before may have left no JSON there
            new = json.dumps(changed(json.loads(value), luck))
    where = "TRUE" if luck.random() < 0.2 else f"rowid = {row}"
    with contextlib.suppress(sqlite3.IntegrityError):
        db.execute(f"UPDATE {table} SET {column} = ?, checksum = NULL WHERE {where}", (new,))
    return f"{table}.{column} where {where}: {str(new)[:300]}"


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study, the points of whose front were attacked in every way."""
    path = tmp_path_factory.mktemp("whole") / "rescued.toml"
    path.write_text(STUDY)
    run(load_study(path)).close()
    study = load_study(path)
    with Store.write(path.with_suffix(".db"), study.name, study.identity, study.repeats) as store:
        front = view_of(study, store).front
        store.add_audits([Audit(p.trial, dict(p.settings), name, "server", 0, {"size": 3}, found, PNG if name == "inversion" else None, "0.2.0")
                          for p in front for name, found in FOUND.items()])
    return path


def answered(verb: str, study: Path) -> str | None:
    """Call a verb that looks, and return the error that it ends in."""
    words: dict[str, list[Any]] = {"front": ["--json"], "report": ["--output", study.with_name("page.html")], "compare": [study, "--output", study.with_name("c.html")],
                                   "evidence": ["--evidence", "--output", study.with_name("e.html")], "rescue": ["--output", study.with_name("new.db")]}
    error, _ = called("report" if verb == "evidence" else verb, study, *words.get(verb, []))
    return error


def case(audited: Path, folder: Path, luck: random.Random, told: Counter[str]) -> None:
    """Edit a copy of a study in one or two places, and look at it with every verb."""
    for path in folder.iterdir():
        path.unlink()
    study = folder / audited.name
    for end in (".toml", ".db"):
        shutil.copy(audited.with_suffix(end), study.with_suffix(end))
    with contextlib.closing(sqlite3.connect(study.with_suffix(".db"))) as db:
        done = [edited(db, luck) for _ in range(luck.choice([1, 1, 2]))]
        db.commit()
    before = study.with_suffix(".db").read_bytes()
    for verb in luck.sample(VERBS, 4):
        began = time.process_time()
        try:
            error = answered(verb, study)
        except Exception as fault:
            raise AssertionError(f"{verb} ended in {fault!r} after {done}") from fault
        assert time.process_time() - began < SECONDS, (verb, done)
        assert error is None or "must " in error or "needs " in error, (verb, error, done)
        told["error" if error else "answer"] += 1
    assert study.with_suffix(".db").read_bytes() == before
    if study.with_name("new.db").exists():  # what rescue wrote can be looked at
        error, _ = called("front", study, "--db", study.with_name("new.db"))
        assert error is None, (error, done)


@pytest.mark.parametrize(("cases", "seed"), [(30, 15), *(pytest.param(1000, seed, marks=pytest.mark.slow) for seed in range(5))])
def test_a_row_changed_by_hand_ends_in_a_clear_error_or_an_answer(audited: Path, tmp_path: Path, cases: int, seed: int) -> None:
    luck, told = random.Random(seed), Counter[str]()
    for _ in range(cases):
        case(audited, tmp_path, luck, told)
    print(told)
    assert told["error"] > cases / 2
    assert told["answer"] > cases / 2


CORPUS = {  # past findings
    "settings of another space": ("trials", "settings", '{"learning_rate": 0.4, "sigma": 0.1, "epsilon": 0.6}', "must have learning_rate, sigma, clipping_norm, found no clipping_norm"),
    "a setting that is no single value": ("trials", "settings", '{"learning_rate": [], "sigma": 0.8, "clipping_norm": 1.1}', "must be a JSON table of finite numbers, words, true and false, found"),
    "a budget beyond any study's": ("sessions", "budget", str(2**62 - 1), "must be a whole number of at most 10,000,000"),
    "a table for a setting": ("trials", "settings", '{"learning_rate": {"a": 1}, "sigma": 0.8, "clipping_norm": 1.1}', "must be a JSON table of finite numbers, words, true and false, found"),
    "points of another space": ("trials", "point", "[0.5, 0.5]", "must have 3 numbers, found 2"),
    "facts without the number of records": ("data", "facts", '{"shape": [1, 8, 8], "classes": 10, "split": [], "sizes": []}', "images must be a whole number above 0, found None"),
    "a table of who holds what with a number for a row": ("data", "facts", '{"shape": [1, 8, 8], "classes": 10, "images": 3, "split": [3], "sizes": []}',
                                                          "split must be a table of whole numbers"),
    "a share of classes without end": ("data", "facts", '{"shape": [1, 8, 8], "classes": 10, "images": 3, "split": [[Infinity]], "sizes": []}', "must be a JSON table, its numbers finite"),
    "a setting without end of what trials are held against": ("baselines", "settings", '{"learning_rate": 0.4, "sigma": Infinity}', "must be a JSON table of finite numbers"),
    "a measure that no float can hold": ("repeats", "measures", '{"test_error": 1' + "0" * 400 + "}", "measures: must be a JSON table of numbers"),
    "seconds that no float can hold": ("sessions", "work", '{"here": {"device": "CPU", "trainings": 1, "seconds": 1' + "0" * 400 + ', "trial": 1}}', "work: must be")}


@pytest.mark.parametrize("name", CORPUS)
def test_a_row_that_was_once_read_unseen_is_named(audited: Path, tmp_path: Path, name: str) -> None:
    table, column, value, said = CORPUS[name]
    for end in (".toml", ".db"):
        shutil.copy(audited.with_suffix(end), tmp_path / f"rescued{end}")
    with contextlib.closing(sqlite3.connect(tmp_path / "rescued.db")) as db:
        db.executescript(f"UPDATE {table} SET {column} = '{value}', checksum = NULL")
    for verb in ("front", "evidence"):
        error = answered(verb, tmp_path / "rescued.toml")
        assert error is not None
        assert f"table {table}, row" in error
        assert said in error
    assert answered("rescue", tmp_path / "rescued.toml") is None
    assert called("front", tmp_path / "rescued.toml", "--db", tmp_path / "new.db")[0] is None


def test_a_point_of_one_trial_with_another_length_is_left_out_by_rescue(audited: Path, tmp_path: Path) -> None:
    """A past finding: rescue took it over, and its own database could not be looked at."""
    for end in (".toml", ".db"):
        shutil.copy(audited.with_suffix(end), tmp_path / f"rescued{end}")
    with contextlib.closing(sqlite3.connect(tmp_path / "rescued.db")) as db:
        db.executescript("UPDATE trials SET point = '[0.5, 0.5]', checksum = NULL WHERE number = 2")
    assert "table trials, row 2" in str(answered("front", tmp_path / "rescued.toml"))
    assert answered("rescue", tmp_path / "rescued.toml") is None
    assert called("front", tmp_path / "rescued.toml", "--db", tmp_path / "new.db")[0] is None


@pytest.mark.parametrize(("key", "value"), [("privacy.view", "'0'"), ("privacy", "3"), ("mechanism", "'x'"), ("mechanism.links", "json('[3]')"), ("data", "json('[]')"),
                                            ("training.rounds", "'a'"), ("training.rounds", "json('{\"low\": null}')"), ("training", "0")])
def test_a_description_that_no_study_file_has_is_named_by_compare(audited: Path, tmp_path: Path, key: str, value: str) -> None:
    """A past finding: the view of nobody ended `compare` in a KeyError."""
    shutil.copy(audited.with_suffix(".db"), tmp_path / "rescued.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "rescued.db")) as db:
        db.executescript(f"UPDATE study SET identity = json_set(identity, '$.{key}', {value}), checksum = NULL")
    error, _ = called("compare", tmp_path / "rescued.db", "--output", tmp_path / "c.html")
    assert f"table study, column identity: {key} must be what a study file holds" in str(error)


@pytest.mark.parametrize("attack", FOUND)
def test_what_an_attack_of_ones_own_calls_as_ours_do_is_shown_as_far_as_it_is_a_number(audited: Path, attack: str) -> None:
    """A past finding: an attack that found an `auc` alone ended in a KeyError, after hours."""
    with Store.read(audited.with_suffix(".db")) as store:
        seen = view_of(load_study(audited), store)
    for name in FOUND[attack]:
        for found in ({name: FOUND[attack][name]}, dict.fromkeys(FOUND[attack], "words"), {name: 10**400}, {name: None}, {name: [["a"], 3, {}]}):
            view = replace(seen, audits=tuple(replace(audit, measures=found) for audit in seen.audits))
            assert "What an attacker really gets" in panel(view)
            assert len(lines(view, view.front[0])) > 1
            assert sentence(found) is not None


def test_a_training_of_a_trial_beyond_any_study_is_left_out_by_rescue(audited: Path, tmp_path: Path) -> None:
    """A past finding: the new database named a budget that no study may have."""
    for end in (".toml", ".db"):
        shutil.copy(audited.with_suffix(end), tmp_path / f"rescued{end}")
    with contextlib.closing(sqlite3.connect(tmp_path / "rescued.db")) as db:
        db.executescript(f"UPDATE repeats SET trial = {2**62 - 1}, checksum = NULL WHERE rowid = 1")
    assert answered("rescue", tmp_path / "rescued.toml") is None
    assert called("front", tmp_path / "rescued.toml", "--db", tmp_path / "new.db")[0] is None
