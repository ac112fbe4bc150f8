"""The store: rows go in and stay, and what goes wrong around them is told and harms none of them."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto.errors import ChangedStudy, LockedStore, StoreError
from fedpareto.store import APPLICATION, MIGRATIONS, Store, access, differences
from fedpareto.trials import Result, Trial, history_of

IDENTITY: dict[str, Any] = {"seed": 1, "data": {"name": "digits", "clients": 10}, "sigma": {"low": 0.1, "high": 1.0}}
POINTS = np.array([[0.25, 0.5], [0.1, 1 / 3], [1.0, 0.0]])
SETTINGS = [{"sigma": 0.1, "kind": "a"}, {"sigma": 0.2, "kind": "b"}, {"sigma": 1 / 3, "kind": "a"}]


def write(path: Path, repeats: int = 1, identity: dict[str, Any] = IDENTITY) -> Store:
    """Open a store for writing, with a session begun."""
    store = Store.write(path, "tiny", identity, repeats)
    store.begin_session("0", 10)
    return store


def dump(path: Path) -> list[str]:
    """Return every row of every table."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return list(db.iterdump())


def folder(path: Path) -> dict[str, bytes]:
    """Return every file in the folder of this path, with its bytes; an empty lock may stay behind."""
    files = {file.name: file.read_bytes() for file in sorted(path.parent.iterdir())}
    return {name: held for name, held in files.items() if held or not name.endswith("-lock")}


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "tiny.db"


@pytest.fixture
def finished(db: Path) -> Path:
    """A database with two finished trials and a pending one."""
    with write(db) as store:
        store.add(0, POINTS, SETTINGS)
        store.record([Result(0, 0, {"error": 0.5, "bytes": 100.0}), Result(1, 0, {}, "it broke")])
    return db


@contextlib.contextmanager
def process(script: str, *words: object) -> Iterator[subprocess.Popen[str]]:
    """Run a script in another process, past the line in which it says that it is ready."""
    names = ("import json, sqlite3, sys, time", "from fedpareto.errors import *", "from fedpareto.store import *",
             "from fedpareto.trials import Result")
    code = "\n".join([*names, textwrap.dedent(script)])
    with subprocess.Popen([sys.executable, "-c", code, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as other:
        assert other.stdout is not None
        said = [os.read(other.stdout.fileno(), 1) for _ in "ready\n"]  # no byte more, so that communicate has the rest
        assert b"".join(said) == b"ready\n"
        try:
            yield other
        finally:
            other.kill()


def test_a_new_store_is_empty_and_says_which_study_it_is_for(db: Path) -> None:
    with Store.write(db, "tiny", IDENTITY, 3) as store:
        assert (len(store), store.trials(), store.repeats, store.seconds()) == (0, [], 3, 0.0)
        assert store.identity == IDENTITY
        assert len(store.history(["error"])) == 0
    assert list(folder(db)) == ["tiny.db"]


def test_added_trials_are_pending_and_numbered_in_order(db: Path) -> None:
    with write(db, repeats=2) as store:
        store.add(0, POINTS[:2], SETTINGS[:2])
        store.add(1, POINTS[2:], SETTINGS[2:])
        assert len(store) == 3
        trials = store.trials()
        assert trials == store.trials("pending")
        assert store.trials("done") == []
    assert [(t.number, t.batch, t.state, t.repeats_left) for t in trials] == [
        (0, 0, "pending", (0, 1)), (1, 0, "pending", (0, 1)), (2, 1, "pending", (0, 1))]
    assert [t.settings for t in trials] == SETTINGS
    assert [t.point for t in trials] == [tuple(row) for row in POINTS.tolist()]


def test_points_and_settings_that_do_not_pair_up_are_not_added(db: Path) -> None:
    with write(db) as store:
        with pytest.raises(ValueError, match="shorter"):
            store.add(0, POINTS, SETTINGS[:2])
        assert len(store) == 0


def test_what_was_written_is_there_when_the_store_is_opened_again(finished: Path) -> None:
    with Store.write(finished, "tiny", IDENTITY, 1) as again, Store.read(finished) as seen:
        assert again.trials() == seen.trials()
        assert seen.identity == IDENTITY
        assert [t.state for t in seen.trials()] == ["done", "failed", "pending"]
        assert [t.number for t in seen.trials("pending")] == [2]
        again.begin_session("0", 10)
        again.record([Result(2, 0, {"error": 0.25})])
        assert [t.number for t in seen.trials("done")] == [0, 2]


def test_opening_a_store_again_changes_no_row(finished: Path) -> None:
    before = dump(finished)
    Store.write(finished, "another name", IDENTITY, 1).close()
    Store.read(finished).close()
    assert dump(finished) == before


def test_a_trial_that_an_older_version_ended_early_is_read_as_failed(finished: Path) -> None:
    with contextlib.closing(sqlite3.connect(finished)) as db, db:
        db.execute("UPDATE trials SET state = 'stopped', error = 'stopped after round 3', checksum = NULL WHERE number = 0")
    with Store.read(finished) as store:
        first = store.trials()[0]
        assert (first.state, first.error) == ("failed", "stopped after round 3")
        assert [t.number for t in store.trials("failed")] == [0, 1]
        assert store.history(["error"]).failed.tolist() == [True, True]
        assert store.finished() == 2


@pytest.mark.parametrize("ended_early", [True, False])
def test_a_study_that_an_older_version_began_with_a_setting_that_is_gone_goes_on(db: Path, ended_early: bool) -> None:
    optimizer = {"name": "bayesian", "batch": 5}
    Store.write(db, "tiny", {"optimizer": optimizer}, 1).close()
    older = json.dumps({"optimizer": optimizer | {"stop_hopeless": ended_early}})
    with contextlib.closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("UPDATE study SET identity = ?, checksum = NULL", (older,))
    Store.write(db, "tiny", {"optimizer": optimizer}, 1).close()
    with pytest.raises(ChangedStudy, match=r"differs in optimizer\.batch \(5 there, 6 here\)\. To"):
        Store.write(db, "tiny", {"optimizer": optimizer | {"batch": 6}}, 1)


numbers = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(0, 1), st.dictionaries(texts, st.one_of(numbers, st.integers(), texts), max_size=3),
                          st.dictionaries(texts, numbers, max_size=3)), min_size=1, max_size=4))
def test_points_settings_and_measures_come_back_to_the_last_bit(rows: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "tiny.db"
        with write(path) as store:
            store.add(0, np.array([[point] for point, _, _ in rows]), [values for _, values, _ in rows])
            store.record([Result(i, 0, measures) for i, (_, _, measures) in enumerate(rows)])
        with Store.read(path) as seen:
            assert [(t.point[0], t.settings, t.measures) for t in seen.trials()] == rows


def test_one_repeat_has_its_measures_and_no_spread(finished: Path) -> None:
    with Store.read(finished) as store:
        trial = store.trials("done")[0]
    assert (trial.measures, trial.spread, trial.error) == ({"error": 0.5, "bytes": 100.0}, {"error": 0.0, "bytes": 0.0}, None)


def test_a_trial_is_finished_by_its_last_repeat_with_mean_and_spread(db: Path) -> None:
    values = [0.5, 0.25, 1.0]
    with write(db, repeats=3) as store:
        store.add(0, POINTS[:1], SETTINGS[:1])
        for repeat in (1, 2, 0):
            assert repeat in store.trials("pending")[0].repeats_left
            store.record([Result(0, repeat, {"error": values[repeat]})])
        (trial,) = store.trials("done")
        assert store.repeat_measures(0) == [{"error": value} for value in values]
    assert trial.measures == {"error": pytest.approx(statistics.mean(values))}
    assert trial.spread == {"error": pytest.approx(statistics.stdev(values))}
    assert trial.repeats_left == ()


def test_repeats_left_are_those_not_yet_recorded(db: Path) -> None:
    with write(db, repeats=4) as store:
        store.add(0, POINTS, SETTINGS)
        store.record([Result(0, 2, {"error": 1.0}), Result(2, 0, {"error": 1.0}), Result(2, 3, {"error": 1.0})])
    with Store.read(db) as seen:
        assert [t.repeats_left for t in seen.trials()] == [(0, 1, 3), (0, 1, 2, 3), (1, 2)]
        assert len(seen.history(["error"])) == 0


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_trial_with_a_failing_repeat_failed_and_says_which(db: Path, broken: int) -> None:
    with write(db, repeats=3) as store:
        store.add(0, POINTS[:1], SETTINGS[:1])
        for repeat in range(3):
            assert [t.state for t in store.trials()] == ["pending"]
            gave = Result(0, repeat, {}, "it broke") if repeat == broken else Result(0, repeat, {"error": 0.5})
            store.record([gave])
        (trial,) = store.trials("failed")
    assert trial.error == f"it broke (repeat {broken})"
    assert trial.measures == {}


def test_the_first_of_several_failing_repeats_says_why(db: Path) -> None:
    with write(db, repeats=2) as store:
        store.add(0, POINTS[:1], SETTINGS[:1])
        store.record([Result(0, 1, {}, "second"), Result(0, 0, {}, "first")])
        assert store.trials("failed")[0].error == "first (repeat 0)"


def test_a_measure_that_is_not_finite_is_read_back_as_not_a_number(db: Path) -> None:
    with write(db, repeats=2) as store:
        store.add(0, POINTS[:1], SETTINGS[:1])
        store.record([Result(0, 0, {"error": math.inf, "loss": 1.0}), Result(0, 1, {"error": 1.0, "loss": math.nan})])
        (trial,) = store.trials("done")
    assert all(math.isnan(v) for v in [*trial.measures.values(), *trial.spread.values()])
    assert set(trial.measures) == set(trial.spread) == {"error", "loss"}


def test_huge_measures_can_be_recorded(db: Path) -> None:
    with write(db, repeats=2) as store:
        store.add(0, POINTS[:1], SETTINGS[:1])
        store.record([Result(0, repeat, {"error": 1.5e308}) for repeat in range(2)])
        assert len(store.trials("pending")) == 0


def test_a_failed_trial_is_a_row_with_its_error(finished: Path) -> None:
    with Store.read(finished) as store:
        (trial,) = store.trials("failed")
    assert (trial.number, trial.error, trial.measures, trial.settings) == (1, "it broke", {}, SETTINGS[1])


def test_a_finished_trial_never_changes(finished: Path) -> None:
    before = dump(finished)
    with write(finished) as store:
        for result in (Result(0, 0, {"error": 0.0}), Result(1, 0, {"error": 0.0})):
            with pytest.raises(StoreError, match="UNIQUE constraint failed"):
                store.record([Result(2, 0, {"error": 0.0}), result])
    assert [line for line in dump(finished) if "sessions" not in line] == [line for line in before if "sessions" not in line]


def test_a_history_holds_finished_trials_in_order_and_nothing_of_those_that_failed(finished: Path) -> None:
    with Store.read(finished) as store:
        history = store.history(["bytes", "error", "unknown"])
    assert (history.x == POINTS[:2]).all()
    assert history.batch.tolist() == [0, 0]
    assert np.array_equal(history.y, [[100.0, 0.5, math.nan], [math.nan] * 3], equal_nan=True)


def test_a_history_of_trials_keeps_a_failed_one_out_of_the_objectives_whatever_it_measured() -> None:
    trials = [Trial(0, 4, (0.5,), {}, "failed", {"error": 0.1}), Trial(1, 5, (0.25,), {}, "done", {"error": 0.2})]
    history = history_of(trials, ["error"])
    assert np.array_equal(history.y, [[math.nan], [0.2]], equal_nan=True)
    assert history.batch.tolist() == [4, 5]
    assert history_of([], ["error", "loss"]).y.shape == (0, 2)


def test_the_time_of_all_sessions_is_added_up(db: Path) -> None:
    for number in range(2):
        with write(db) as store:
            store.add(0, POINTS[:1], SETTINGS[:1])
            time.sleep(0.05)
            store.record([Result(number, 0, {"error": 0.5})])
            assert 0.05 * (number + 1) <= store.seconds() < 5


def test_the_rows_can_be_asked_for_in_sql(finished: Path) -> None:
    query = "SELECT json_extract(settings, '$.sigma'), json_extract(measures, '$.error') FROM trials WHERE state = 'done'"
    with contextlib.closing(sqlite3.connect(finished)) as user:
        assert user.execute(query).fetchall() == [(0.1, 0.5)]
        assert user.execute("SELECT name, repeats FROM study").fetchall() == [("tiny", 1)]


@pytest.mark.parametrize(("stored", "found", "changes"), [
    ({"a": 1}, {"a": 1}, []),
    ({"a": 1, "b": [1, 2]}, {"b": [1, 2], "a": 1.0}, []),
    ({"a": 1}, {"a": 2}, ["a (1 there, 2 here)"]),
    ({"a": {"b": {"c": 1}}}, {"a": {"b": {"c": 2}}}, ["a.b.c (1 there, 2 here)"]),
    ({"a": {"b": 1}}, {"a": 3}, ["a ({'b': 1} there, 3 here)"]),
    ({"a": 1}, {}, ["a (1 there, None here)"]),
    ({}, {"a": 1}, ["a (None there, 1 here)"]),
    ({"a": {"x": 1}, "b": 1, "c": 1}, {"a": {"x": 2, "y": 3}, "b": 1, "d": 4},
     ["a.x (1 there, 2 here)", "a.y (None there, 3 here)", "c (1 there, None here)", "d (None there, 4 here)"]),
    ({"a": [1, 2]}, {"a": [2, 1]}, ["a ([1, 2] there, [2, 1] here)"]),
])
def test_differences_name_every_key_that_changed(stored: Any, found: Any, changes: list[str]) -> None:
    assert differences(stored, found) == changes


plain = st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), numbers, texts),
                     lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)))


@given(st.dictionaries(texts, plain, max_size=4))
def test_a_study_written_as_json_differs_in_nothing_from_itself(identity: dict[str, Any]) -> None:
    assert differences(json.loads(json.dumps(identity)), identity) == []


def test_a_changed_study_is_refused_with_the_change_and_both_ways_out(finished: Path) -> None:
    changed = IDENTITY | {"seed": 2, "data": {"name": "digits", "clients": 20}}
    before = dump(finished)
    with pytest.raises(ChangedStudy) as refused:
        Store.write(finished, "tiny", changed, 1)
    assert str(refused.value) == (
        f"{finished}: must belong to this study, found one that differs in seed (1 there, 2 here); data.clients (10 there, "
        "20 here). To continue that study, undo the change (the budget may change freely); to start the changed one beside "
        "it, name a new database with --db.")
    with Store.read(finished) as store, pytest.raises(ChangedStudy, match="undo the change"):
        store.check(changed)
    assert dump(finished) == before
    write(finished).close()


def test_a_study_whose_tuples_became_lists_is_the_same_study(db: Path) -> None:
    Store.write(db, "tiny", {"hidden": (32, 16)}, 1).close()
    Store.write(db, "tiny", {"hidden": [32, 16]}, 1).close()


def other_program(path: Path, wal: bool) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        if wal:
            db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE trials (number INTEGER, mine TEXT)")
        db.execute("INSERT INTO trials VALUES (1, 'precious')")
        db.commit()


FOREIGN = {
    "a database": lambda path: other_program(path, wal=False),
    "a database with a log": lambda path: other_program(path, wal=True),
    "a short text": lambda path: path.write_text("hello\n"),
    "a long text": lambda path: path.write_text("nothing of ours\n" * 1000),
    "half a database": lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(50)),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_of_another_program_is_refused_and_left_as_it_is(db: Path, name: str) -> None:
    FOREIGN[name](db)
    before = db.read_bytes()
    with pytest.raises(StoreError) as refused:
        Store.write(db, "tiny", IDENTITY, 1)
    assert str(refused.value).startswith(f"{db}: must be a fedpareto database, found")
    assert "ame another file with --db." in str(refused.value)
    with pytest.raises(StoreError, match="must be a fedpareto database, found"):
        Store.read(db)
    assert db.read_bytes() == before


def test_a_database_of_a_newer_version_is_refused_and_left_as_it_is(finished: Path) -> None:
    with contextlib.closing(sqlite3.connect(finished)) as newer:
        newer.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    before = finished.read_bytes()
    message = (f"{finished}: must be of version {len(MIGRATIONS)} or older, found version {len(MIGRATIONS) + 1}. "
               "Install a newer fedpareto.")
    for opened in (lambda: Store.write(finished, "tiny", IDENTITY, 1), lambda: Store.read(finished)):
        with pytest.raises(StoreError) as refused:
            opened()
        assert str(refused.value) == message
    assert finished.read_bytes() == before


def test_a_database_of_ours_says_so_in_its_header(finished: Path) -> None:
    header = finished.read_bytes()[:100]
    assert int.from_bytes(header[68:72], "big") == APPLICATION
    assert int.from_bytes(header[60:64], "big") == len(MIGRATIONS)


def test_an_empty_file_becomes_a_database(db: Path) -> None:
    db.touch()
    write(db).close()
    with Store.read(db) as store:
        assert len(store) == 0


def test_a_study_without_rows_says_how_to_get_some(db: Path) -> None:
    with pytest.raises(StoreError) as refused:
        Store.read(db)
    assert str(refused.value) == (f"{db}: must hold the study's results, found no such file. Run the study first: "
                                  "fedpareto run STUDY")
    assert folder(db) == {}


def test_a_database_in_no_folder_or_where_a_folder_stands_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as refused:
        Store.write(tmp_path / "no" / "tiny.db", "tiny", IDENTITY, 1)
    missing = tmp_path / "no"
    assert str(refused.value) == f"{missing / 'tiny.db'}: must be in a folder that exists, found no folder {missing}."
    with pytest.raises(StoreError) as refused:
        Store.write(tmp_path, "tiny", IDENTITY, 1)
    assert str(refused.value) == f"{tmp_path}: must be a file, found something else there. Name a file with --db."


def test_a_folder_in_which_no_lock_can_be_made_is_refused(db: Path) -> None:
    db.with_name("tiny.db-lock").mkdir()
    with pytest.raises(StoreError) as refused:
        Store.write(db, "tiny", IDENTITY, 1)
    assert str(refused.value) == f"{db}: must be in a folder that can be written to, found: unable to open database file."
    assert not db.exists()


def test_another_programs_file_in_place_of_the_lock_is_refused_and_left_as_it_is(db: Path) -> None:
    db.with_name("tiny.db-lock").write_text("not a lock of ours\n" * 100)
    before = folder(db)
    with pytest.raises(StoreError):
        Store.write(db, "tiny", IDENTITY, 1)
    assert folder(db) == before


HOLD_STORE = """
    store = Store.write(sys.argv[1], "tiny", json.loads(sys.argv[2]), 1)
    print("ready", flush=True)
    sys.stdin.read()
    store.close()
"""

HOLD_DATABASE = """
    db = sqlite3.connect(sys.argv[1], isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_second_run_of_a_study_is_refused_at_once_until_the_first_has_ended(finished: Path) -> None:
    before = dump(finished)
    with process(HOLD_STORE, finished, json.dumps(IDENTITY)) as first:
        started = time.monotonic()
        with pytest.raises(LockedStore) as refused:
            Store.write(finished, "tiny", IDENTITY, 1)
        assert time.monotonic() - started < 3
        assert str(refused.value) == (f"{finished}: must not be in use, found another run of this study at work. Wait for "
                                      "it to end, or give this run its own database with --db.")
        with Store.read(finished) as seen:
            assert len(seen) == 3
        first.communicate("")
    write(finished).close()
    assert [line for line in dump(finished) if "sessions" not in line] == [line for line in before if "sessions" not in line]


def test_a_second_run_is_refused_even_before_the_first_has_written_anything(db: Path) -> None:
    with process(HOLD_STORE, db, json.dumps(IDENTITY)), pytest.raises(LockedStore, match="another run of this study"):
        Store.write(db, "tiny", IDENTITY, 1)
    assert db.exists()


def test_the_lock_of_a_killed_run_is_gone(db: Path) -> None:
    with process(HOLD_STORE, db, json.dumps(IDENTITY)) as first:
        first.kill()
        first.wait()
    write(db).close()
    assert list(folder(db)) == ["tiny.db"]


def test_a_closed_store_is_one_file_beside_a_lock_that_stays(db: Path) -> None:
    with write(db) as store:
        store.add(0, POINTS, SETTINGS)
        assert {"tiny.db", "tiny.db-lock", "tiny.db-wal"} <= {file.name for file in db.parent.iterdir()}
    assert {file.name: file.stat().st_size > 0 for file in db.parent.iterdir()} == {"tiny.db": True, "tiny.db-lock": False}
    with contextlib.closing(sqlite3.connect(db)) as look:
        assert look.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_store_closed_while_another_process_reads_it_loses_nothing(finished: Path) -> None:
    with process(READ_ON, finished) as reader:
        with write(finished) as store:
            store.record([Result(2, 0, {"error": 0.75})])
        said, _ = reader.communicate("")
        assert said == "3\n"
    with Store.read(finished) as seen:
        assert [t.number for t in seen.trials("done")] == [0, 2]


READ_ON = """
    store = Store.read(sys.argv[1])
    store.trials()
    print("ready", flush=True)
    sys.stdin.read()
    print(len(store.trials()))
"""

READ_WITHOUT_RIGHTS = """
    import os
    import urllib.parse  # which pathlib imports when it is needed, when Python itself may be closed to who reads
    if os.geteuid() == 0:  # who may write everywhere
        os.setuid(65534)
    folder = os.path.dirname(sys.argv[1])
    print("ready" if not os.access(folder, os.W_OK) else "the folder can be written to", flush=True)
    with Store.read(sys.argv[1]) as store:
        print(len(store.trials("done")), store.identity["seed"], sorted(os.listdir(folder)))
"""


def test_a_finished_study_can_be_read_where_nothing_can_be_written(finished: Path) -> None:
    with tempfile.TemporaryDirectory() as place:  # pytest's own folders are closed to other users
        there = Path(place) / "tiny.db"
        there.write_bytes(finished.read_bytes())
        there.chmod(0o444)
        Path(place).chmod(0o555)
        try:
            with process(READ_WITHOUT_RIGHTS, there) as other:
                assert other.communicate(timeout=60)[0] == "1 1 ['tiny.db']\n"
        finally:
            Path(place).chmod(0o755)


def test_a_database_held_by_another_program_is_refused_until_it_is_free(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert access.PATIENCE == 5
    monkeypatch.setattr(access, "PATIENCE", 0.5)
    before = dump(finished)
    with process(HOLD_DATABASE, finished), ThreadPoolExecutor() as both:  # each waits a while for it to become free
        tries = [both.submit(Store.write, finished, "tiny", IDENTITY, 1), both.submit(Store.read, finished)]
        refused = [tried.exception() for tried in tries]
    message = (f"{finished}: must not be in use, found it locked by another process. Wait for that one to end, or give this "
               "run its own with --db.")
    assert [(type(error), str(error)) for error in refused] == [(LockedStore, message)] * 2
    assert dump(finished) == before
    with Store.read(finished) as seen:
        assert len(seen.trials("done")) == 1
    write(finished).close()


def test_results_refused_by_a_held_database_can_be_recorded_once_it_is_free(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "PATIENCE", 0.5)
    with write(finished) as store:
        with process(HOLD_DATABASE, finished):
            with pytest.raises(LockedStore, match="locked by another process"):
                store.record([Result(2, 0, {"error": 0.75})])
            with Store.read(finished) as seen:
                assert len(seen.trials("done")) == 1
        assert [t.number for t in store.trials("pending")] == [2]
        store.record([Result(2, 0, {"error": 0.75})])
        assert store.trials("pending") == []


TAKE_TURNS = """
    import os, time
    print("ready", flush=True)
    held = together = wrong = 0
    end = time.monotonic() + 2
    while time.monotonic() < end:
        try:
            store = Store.write(sys.argv[1], "tiny", {}, 1)
        except LockedStore:
            continue
        except StoreError:
            wrong += 1
            continue
        held += 1
        try:
            os.close(os.open(sys.argv[1] + ".mark", os.O_CREAT | os.O_EXCL))
            time.sleep(0.0005)
            os.unlink(sys.argv[1] + ".mark")
        except FileExistsError:
            together += 1
        store.close()
    print(held, together, wrong)
"""


def test_of_many_runs_that_come_and_go_only_one_holds_the_store_at_a_time(db: Path) -> None:
    with contextlib.ExitStack() as stack:
        others = [stack.enter_context(process(TAKE_TURNS, db)) for _ in range(4)]
        said = [other.communicate(timeout=60)[0].split() for other in others]
    held, together, wrong = (sum(map(int, column)) for column in zip(*said, strict=True))
    assert (together, wrong) == (0, 0)
    assert held > 10


FILL_THE_DISK = """
    import resource, signal
    import numpy as np
    store = Store.write(sys.argv[1], "tiny", json.loads(sys.argv[2]), 1)
    store.begin_session("0", 10)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
    print("ready", flush=True)
    number = 0
    try:
        while number < 10_000:
            store.add(number, np.full((1, 50), 1 / 3), [{"sigma": 0.1}])
            store.record([Result(number, 0, {"error": 0.5 * number})])
            number += 1
    except StoreError as error:
        print(type(error).__name__, number, error, sep="|", flush=True)
    store.close()
"""

CREATE_ON_A_FULL_DISK = """
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    print("ready", flush=True)
    try:
        Store.write(sys.argv[1], "tiny", json.loads(sys.argv[2]), 1)
    except StoreError as error:
        print(type(error).__name__, error, sep="|", flush=True)
"""


def test_a_full_disk_is_told_and_costs_no_row_that_was_written_before(db: Path) -> None:
    with process(FILL_THE_DISK, db, json.dumps(IDENTITY)) as other:
        said, _ = other.communicate(timeout=60)
        assert other.returncode == 0
    kind, number, message = said.strip().split("|")
    assert kind == "StoreError"
    assert message.startswith(f"{db}: needs free disk space, found: ")
    assert message.endswith(". What was finished is kept; make room and run the same command again.")
    assert int(number) > 10
    with Store.read(db) as seen:
        done = seen.trials("done")
        assert [(t.number, t.measures) for t in done] == [(i, {"error": 0.5 * i}) for i in range(int(number))]
        assert len(seen.trials("pending")) <= 1
    with write(db) as store:
        store.record([Result(t.number, 0, {"error": 0.0}) for t in store.trials("pending")])
        store.add(0, POINTS[:1], SETTINGS[:1])
        assert len(store) in (len(done) + 1, len(done) + 2)
    with contextlib.closing(sqlite3.connect(db)) as look:
        assert look.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_disk_too_full_to_begin_is_told_and_nothing_is_left_behind(db: Path) -> None:
    with process(CREATE_ON_A_FULL_DISK, db, json.dumps(IDENTITY)) as other:
        said, _ = other.communicate(timeout=60)
    kind, message = said.strip().split("|")
    assert kind == "StoreError"
    assert message.startswith(f"{db}: needs free disk space, found: ")
    assert folder(db) == {}


DIE_IN_THE_MIDDLE = """
    import os, signal
    import numpy as np
    class Dying(list):
        def __iter__(self):
            for i, item in enumerate(list.__iter__(self)):
                if i == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield item
    store = Store.write(sys.argv[1], "tiny", json.loads(sys.argv[2]), 1)
    store.begin_session("0", 10)
    store.add(0, np.zeros((8, 1)), [{}] * 8)
    store.record([Result(i, 0, {"error": 0.5}) for i in range(2)])
    print("ready", flush=True)
    store.record(Dying(Result(i, 0, {"error": 0.5}) for i in range(2, 8)))
"""

WORK_ON = """
    import numpy as np
    store = Store.write(sys.argv[1], "tiny", json.loads(sys.argv[2]), 2)
    store.begin_session("0", 10)
    print("ready", flush=True)
    while True:
        batch = len(store) // 5
        store.add(batch, np.full((5, 1), batch / 1e6), [{"batch": batch}] * 5)
        for repeat in range(2):
            store.record([Result(batch * 5 + i, repeat, {"error": 0.5}) for i in range(5)])
"""


def test_a_run_killed_inside_a_transaction_leaves_nothing_of_it(db: Path) -> None:
    with process(DIE_IN_THE_MIDDLE, db, json.dumps(IDENTITY)) as other:
        assert other.wait(timeout=60) == -signal.SIGKILL
    with write(db) as store:
        assert [t.number for t in store.trials("done")] == [0, 1]
        assert [t.number for t in store.trials("pending")] == [2, 3, 4, 5, 6, 7]
        assert store._rows("SELECT count(*) FROM repeats") == [(2,)]
        store.record([Result(i, 0, {"error": 0.5}) for i in range(2, 8)])
        assert store.trials("pending") == []


def test_a_run_killed_at_any_moment_leaves_whole_transactions_only(db: Path) -> None:
    counted = 0
    for moment in (0.0, 0.01, 0.05, 0.1):
        with process(WORK_ON, db, json.dumps(IDENTITY)) as other:
            time.sleep(moment)
            os.kill(other.pid, signal.SIGKILL)
            other.wait()
        with write(db, repeats=2) as store:
            trials = store.trials()
            assert len(trials) % 5 == 0
            assert [t.batch for t in trials] == [n // 5 for n in range(len(trials))]
            left = {batch: {t.repeats_left for t in trials if t.batch == batch} for batch in range(len(trials) // 5)}
            assert all(len(of_batch) == 1 for of_batch in left.values())
            assert len(trials) >= counted
            counted = len(trials)
            for repeat in range(2):
                store.record([Result(t.number, repeat, {"error": 0.5}) for t in store.trials("pending")
                              if repeat in t.repeats_left])
            assert store.trials("pending") == []
    assert counted > 0
