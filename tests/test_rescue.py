"""Rescue: what holds of a damaged database goes into a new one, and the study ends as it would have ended."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from test_resume import rows

from fedpareto import Store, load_study, run
from fedpareto.store import MIGRATIONS

STUDY = """\
name = "rescued"
seed = 3
budget = 12
repeats = 2
[data]
clients = 4
[model]
name = "lr"
[training]
rounds = 1
local_steps = 1
batch_size = 8
learning_rate = { low = 0.01, high = 0.5, log = true }
[mechanism]
name = "randomization"
sigma = { low = 0.01, high = 1.0, log = true }
clipping_norm = [0.5, 4.0]
[objectives.utility_loss]
measure = "test_error"
[objectives.leakage]
measure = "kang23_eq13"
limit = 0.8
[optimizer]
name = "nsga2"
population = 4
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "rescued.toml"
    path.write_text(STUDY)
    run(load_study(path)).close()
    return path


@pytest.fixture
def study(whole: Path, tmp_path: Path) -> Path:
    for suffix in (".toml", ".db"):
        shutil.copy(whole.with_suffix(suffix), tmp_path)
    return tmp_path / "rescued.toml"


def change(db: Path, sql: str) -> bytes:
    with closing(sqlite3.connect(db)) as connection:
        connection.executescript(sql)
    return db.read_bytes()


DAMAGE = {
    "nothing": ("", "12 trials, 12 of them finished, and 24 trainings"),
    "a training is lost": ("DELETE FROM repeats WHERE trial = 1 AND repeat = 0", "to be trained again, since trainings are lost: trial 1\n"),
    "a training has another value": ("UPDATE repeats SET measures = '{}' WHERE trial = 7", "column checksum: must be that of the row's values, found '"),
    "a trial is lost": ("DELETE FROM trials WHERE number IN (5, 6)", "proposed again, since their rows are lost: trials 5 to 6\n"),
    "a trial has other settings": ("UPDATE trials SET settings = '{}' WHERE number = 3", "proposed again, since their rows are lost: trial 3\n"),
    "a trial is lost, and a training before it": (
        "DELETE FROM repeats WHERE trial = 1; DELETE FROM trials WHERE number = 6",
        "left behind, since the row of trial 6 is lost, and it cannot be proposed again before trial 1 is trained again: trials 7 to 11. "),
    "all trials are lost": ("DROP TABLE trials", "table trials, row all, column all: must be a table, found none of this name"),
    "all trainings are lost": ("DROP TABLE repeats", "to be trained again, since trainings are lost: trials 0 to 11\n"),
    "the study is lost": ("DELETE FROM study", "table study, row 1, column all: must be one row, found none"),
    "the sessions are lost": ("DROP TABLE sessions", "12 trials, 12 of them finished"),
    "a trial too far": ("UPDATE trials SET number = 1e15, checksum = NULL WHERE number = 11",
                        "left behind, since no budget of this study reaches trial 12: trial 1000000000000000. "),
    "rows of an older version": ("UPDATE trials SET checksum = NULL; UPDATE repeats SET checksum = NULL; DELETE FROM repeats WHERE trial = 2",
                                 "to be trained again, since trainings are lost: trial 2\n"),
    "the header says another program": ("PRAGMA application_id = 5", "12 trials, 12 of them finished"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_rescued_study_goes_on_and_ends_as_it_would_have_ended(study, whole, fedpareto, name):
    sql, said = DAMAGE[name]
    db, new = study.with_suffix(".db"), study.with_name("rescued-rescued.db")
    before = change(db, sql)
    done = fedpareto("rescue", study)
    assert (done.status, done.err) == (0, "")
    assert said in done.out
    assert done.out.endswith(f"Go on with it: fedpareto run {study} --db {new}\n")
    assert db.read_bytes() == before
    assert {p.name for p in study.parent.iterdir()} <= {"rescued.toml", "rescued.db", new.name, new.name + "-lock"}
    assert fedpareto("verify", study, "--db", new).status == 0
    run(load_study(study), new).close()
    assert rows(new) == rows(whole.with_suffix(".db"))
    assert "all 12 proposals follow" in fedpareto("verify", study, "--db", new).out


def test_verify_says_which_trials_of_a_rescued_study_it_cannot_check_yet(study, fedpareto):
    change(study.with_suffix(".db"), "DELETE FROM repeats WHERE trial = 1")
    new = study.with_name("new.db")
    assert fedpareto("rescue", study, "--output", new).status == 0
    assert fedpareto("verify", study, "--db", new).out == (
        f"{new}: the first 4 proposals follow from the rows before them\n"
        "8 more come after trials that are not finished. Run the study, then verify them.\n")


@pytest.mark.parametrize("page", range(8))
def test_whichever_page_is_zeroed_what_is_left_goes_on(study, whole, fedpareto, page):
    db, new = study.with_suffix(".db"), study.with_name("new.db")
    content = bytearray(db.read_bytes())
    content[page * 4096 : (page + 1) * 4096] = bytes(4096)
    db.write_bytes(content)
    done = fedpareto("rescue", study, "--output", new)
    assert (done.status, done.err) == (0, "")
    run(load_study(study), new).close()
    assert rows(new) == rows(whole.with_suffix(".db"))


@pytest.mark.parametrize("side", ["", "-wal", "-journal"])
def test_nothing_is_overwritten(study, fedpareto, side):
    there = study.with_name(f"new.db{side}")
    there.write_text("precious")
    done = fedpareto("rescue", study, "--output", study.with_name("new.db"))
    assert done.status == 2
    assert done.err == (f"error: {there}: must not be there yet, since nothing is overwritten, found a file. "
                        "Name another with --output.\n")
    assert there.read_text() == "precious"


def test_places_that_cannot_be_read_or_written_are_named(study, fedpareto):
    away = study.parent / "no" / "new.db"
    assert fedpareto("rescue", study, "--output", away).err == f"error: {away}: must be in a folder that exists, found no such folder.\n"
    gone = study.with_name("gone.db")
    assert fedpareto("rescue", study, "--db", gone).err == f"error: {gone}: must be the study's database, found no such file.\n"


@pytest.mark.parametrize("content", [b"", b"dear diary\n" * 2000, b"SQLite format 3\0" + bytes(9000)])
def test_a_file_without_a_row_is_no_database_to_rescue(study, fedpareto, content):
    db = study.with_name("other.db")
    db.write_bytes(content)
    assert fedpareto("rescue", study, "--db", db).err == (
        f"error: {db}: must have rows of a study that can be read, found none. Take a copy that was kept, or begin anew with "
        "another file: --db.\n")
    assert not study.with_name("other-rescued.db").exists()


def test_a_newer_database_is_not_rescued_without_its_new_columns(study, fedpareto):
    newer = len(MIGRATIONS) + 1
    change(study.with_suffix(".db"), f"ALTER TABLE trials ADD COLUMN mood TEXT; PRAGMA user_version = {newer}")
    assert f"must be of version {newer - 1} or older, found version {newer}. Install a newer fedpareto." in fedpareto("rescue", study).err


def test_a_database_of_another_study_is_not_rescued(study, fedpareto):
    study.write_text(STUDY.replace("clients = 4", "clients = 5"))
    assert "found one that differs in data.clients (4 there, 5 here)" in fedpareto("rescue", study).err


def test_a_database_that_a_run_is_using_is_not_rescued(study, fedpareto):
    loaded = load_study(study)
    with Store.write(study.with_suffix(".db"), loaded.name, loaded.identity, loaded.repeats):
        assert "found another run of this study at work" in fedpareto("rescue", study).err


def test_trainings_on_private_data_are_not_rescued_without_the_secret_of_their_noise(tmp_path, fedpareto):
    path = shutil.copy(Path(__file__).parents[1] / "examples" / "private_search.toml", tmp_path)
    loaded = load_study(path)
    db = tmp_path / "private_search.db"
    with Store.write(db, loaded.name, loaded.identity, loaded.repeats) as store:
        store.begin_session("0", 2, private=True)
        store.add(0, np.full((1, len(loaded.problem.space)), 0.5), [{"a": 1}])
    change(db, "DELETE FROM study")
    assert fedpareto("rescue", path).err == (
        f"error: {db}: must hold the row of the study, found it lost, and with it the secret of the noise on private data: nothing "
        "true could be stated of its trainings. Take a copy that was kept, or train anew, in another database: --db.\n")
