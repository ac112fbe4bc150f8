"""Odd results and odd rows: each is stored, finished or named; none stops a run without a word."""

from __future__ import annotations

import dataclasses
import resource
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from test_spending import Noisy, study_of

from fedpareto import Random, Store, run
from fedpareto.errors import DamagedStore, FedparetoError, StoreError
from fedpareto.store.access import copied


@dataclasses.dataclass(frozen=True)
class Breaks(Noisy):
    """A problem whose trainings end in this error."""

    error: Exception = dataclasses.field(default_factory=ValueError)

    def measure(self, values, seeds):
        raise self.error


class Wordless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


ERRORS = {
    "a lone surrogate": (ValueError("bad \ud83d name"), "ValueError: bad \\ud83d name"),
    "a null and an escape": (ValueError("a\0b\x1b[31m"), "ValueError: a\\x00b\\x1b[31m"),
    "a very long text": (ValueError("x" * 10**6), "ValueError: " + "x" * 988),
    "an error that cannot say what it is": (Wordless(), "Wordless: a message that cannot be read"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_whatever_own_code_raises_is_stored_and_can_be_printed(tmp_path: Path, name: str) -> None:
    error, said = ERRORS[name]
    with run(study_of(Breaks(error=error), Random(batch=2), budget=2, repeats=1), tmp_path / "odd.db"):
        pass
    with Store.read(tmp_path / "odd.db") as store:
        assert [t.error for t in store.trials()] == [said, said]


def test_an_executor_that_gives_nothing_is_told_so_and_the_run_ends(tmp_path: Path) -> None:
    with pytest.raises(FedparetoError) as ended:
        run(study_of(Noisy(), Random(batch=2), budget=2), tmp_path / "none.db", evaluate=lambda problem, more, seed: [])
    assert str(ended.value) == (
        "study spending: evaluate must give results of all trials that it is handed, and ask for more until there are none, found "
        "that it ended after 0 of 2 trials. What was finished is kept; repair evaluate and run again.")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "odd.db"
    run(study_of(Noisy(), Random(batch=2), budget=4, repeats=2), path).close()
    return path


@pytest.fixture
def db(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made, tmp_path))


def change(db: Path, sql: str) -> None:
    with closing(sqlite3.connect(db)) as connection:
        connection.executescript(sql)


def test_a_trial_pending_though_all_its_trainings_are_there_is_finished(db: Path, made: Path) -> None:
    change(db, "UPDATE trials SET state = 'pending', measures = NULL, spread = NULL, checksum = NULL WHERE number = 1")
    run(study_of(Noisy(), Random(batch=2), budget=4, repeats=2), db).close()
    with Store.read(db) as store, Store.read(made) as whole:
        assert store.trials() == whole.trials()


DAMAGE = {
    "UPDATE trials SET measures = '{\"error\": 0.25}' WHERE number = 1":
        "table trials, row 1, column checksum: must be that of the row's values and of its 2 trainings, found '",
    "UPDATE trials SET measures = 'much', checksum = NULL WHERE number = 1":
        "table trials, row 1, column measures: must be a JSON table of numbers or NULL, found 'much'.",
    "UPDATE trials SET measures = NULL, checksum = NULL WHERE number = 1":
        "table trials, row 1, column measures: must be there of a trial done, found none.",
    "UPDATE trials SET settings = '{\"sigma\": 0.5}', checksum = NULL WHERE number = 1":
        "table trials, row 1, column settings: must have what other trials have, sigma, rate, found 'sigma'.",
    "UPDATE trials SET point = '[0.5]', checksum = NULL WHERE number = 1":
        "table trials, row 1, column point: must have what other trials have, 2 numbers, found '1 numbers'.",
    "DELETE FROM trials WHERE number = 1": "table trials, row 2, column number: must be 1, the next in order, found 2 (and 2 more).",
    "UPDATE repeats SET repeat = 7, checksum = NULL WHERE trial = 3 AND repeat = 1":
        "table repeats, row 8, column repeat: must be below 2 and there once, found 7.",
    "DELETE FROM repeats WHERE trial = 1 AND repeat = 1":
        "table trials, row 1, column checksum: must be that of the row's values and of its 1 trainings, found '",
    "DELETE FROM study": "table study, row 1, column name: must be one row, found 0",
    "ALTER TABLE trials DROP COLUMN curves":
        "table trials: version 7 must have the columns number, batch, point, settings, state, measures, spread, error, curves, checksum, "
        "found number, batch, point, settings, state, measures, spread, error, checksum.",
    "DROP TABLE sessions": "table sessions: version 7 must have the columns started, seconds, version, budget, ended, checksum, work, found no such table.",
}


@pytest.mark.parametrize("sql", DAMAGE)
def test_damage_is_named_by_table_row_and_column_and_the_file_is_left_alone(db: Path, sql: str) -> None:
    change(db, sql)
    before = db.read_bytes()
    study = study_of(Noisy(), Random(batch=2), budget=4, repeats=2)
    for opened in (lambda: Store.read(db), lambda: run(study, db)):
        with pytest.raises(DamagedStore) as refused:
            opened()
        said = str(refused.value)
        assert said.startswith(f"{db}: must hold what was written, found damage: {DAMAGE[sql]}")
        assert said.endswith(" It was left as it is. Take a copy that was kept, or copy what can be read into a new database: "
                             "fedpareto rescue STUDY")
    assert db.read_bytes() == before


def test_a_damaged_name_in_what_sqlite_says_is_an_error_like_others(db: Path) -> None:
    content = db.read_bytes()
    at = content.index(b"tablesessionssessions")
    db.write_bytes(content[:at] + b"tables\xffssionssessions" + content[at + 21 :].replace(b"CREATE TABLE sessions", b"CREBTE TABLE sessions"))
    with pytest.raises(StoreError, match="must hold what was written, found damage: ") as refused:
        Store.read(db)
    str(refused.value).encode()


def test_a_database_that_cannot_be_made_is_not_begun(tmp_path: Path) -> None:
    code = "import sys; from fedpareto.store import Store; Store.write(sys.argv[1], 'tiny', {'seed': 1}, 1)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "tiny.db")], capture_output=True, text=True, check=False,
                          env={"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(Path(__file__).parents[1])},
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
    assert f"{tmp_path / 'tiny.db'}: needs free disk space, found: File too large. Nothing was begun; make room and run" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["tiny.db-lock"]
    (tmp_path / ".tiny.db-unfinished").mkdir()
    with pytest.raises(StoreError) as refused:
        Store.write(tmp_path / "tiny.db", "tiny", {"seed": 1}, 1)
    assert str(refused.value) == f"{tmp_path / 'tiny.db'}: must be in a folder that can be written to, found: Is a directory."


def test_a_database_that_cannot_be_copied_is_named(db: Path) -> None:
    db.with_name("odd.db-wal").mkdir()
    with pytest.raises(StoreError) as refused, copied(db):
        pass
    assert str(refused.value) == f"{db}: must be readable, found: Is a directory."


@pytest.mark.slow
def test_a_large_database_is_opened_in_a_moment(tmp_path: Path) -> None:
    import time

    from fedpareto.trials import Result

    path = tmp_path / "large.db"
    with Store.write(path, "large", {"seed": 1}, 2) as store:
        store.begin_session("0", 5000)
        store.add(0, np.random.default_rng(0).random((5000, 6)), [{f"setting_{j}": i / 7 for j in range(6)} for i in range(5000)])
        store.record([Result(i, r, {f"measure_{j}": i * j / 3 for j in range(12)}) for i in range(5000) for r in range(2)])
    began = time.monotonic()
    Store.read(path).close()
    took = time.monotonic() - began
    print(f"opened 5,000 trials of {path.stat().st_size / 1e6:.1f} MB in {took:.2f} s")
    assert took < 5
