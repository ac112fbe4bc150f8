"""Thousands of damaged databases: a clear error or the right answer, never a wrong number, never a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import sqlite3
import time
from collections import Counter
from pathlib import Path

import click
import pytest
from test_rescue import STUDY
from test_resume import rows

from fedpareto import load_study, run
from fedpareto.cli import cli
from fedpareto.errors import FedparetoError

CORPUS = [  # past findings, and one of each kind
    "UPDATE trials SET state = 'pending' WHERE number = 2",
    "UPDATE trials SET state = 'pending', checksum = NULL WHERE number = 2",
    "UPDATE trials SET batch = 'one' WHERE number = 1",
    "UPDATE trials SET measures = 'nothing' WHERE number = 1",
    "UPDATE trials SET measures = '[1]', checksum = NULL WHERE number = 1",
    "UPDATE trials SET measures = replace(measures, '0.', '1.') WHERE number = 1",
    "UPDATE trials SET measures = NULL, checksum = NULL WHERE number = 1",
    "UPDATE trials SET point = '[\"a\"]', checksum = NULL WHERE number = 1",
    "UPDATE trials SET point = '[2, 0.5, 0.5]', checksum = NULL WHERE number = 1",
    "UPDATE trials SET settings = '{', checksum = NULL WHERE number = 1",
    "UPDATE trials SET settings = '{}', checksum = NULL WHERE number = 1",
    "UPDATE trials SET point = '[0.5]', checksum = NULL WHERE number = 1",
    "UPDATE trials SET batch = -1, checksum = NULL WHERE number = 1",
    "UPDATE trials SET batch = 99 WHERE number = 1",
    "UPDATE trials SET state = x'ff00', checksum = NULL WHERE number = 1",
    "UPDATE trials SET error = CAST(x'edb080' AS TEXT) WHERE number = 1",
    "UPDATE trials SET error = CAST(x'ff' AS TEXT), checksum = NULL WHERE number = 1",
    "UPDATE trials SET curves = '{\"test_error\": 3}', checksum = NULL",
    "UPDATE repeats SET measures = '{\"test_error\": 1e999}', checksum = NULL WHERE trial = 1",
    "UPDATE repeats SET measures = '{\"test_error\": \"0.5\"}', checksum = NULL WHERE trial = 1",
    "UPDATE repeats SET repeat = 5 WHERE trial = 1 AND repeat = 1",
    "UPDATE repeats SET trial = 99, checksum = NULL WHERE trial = 1",
    "UPDATE study SET identity = '{}'",
    "UPDATE study SET identity = '{}', checksum = NULL",
    "UPDATE study SET identity = json_set(identity, '$.seed', 'a'), checksum = NULL",
    "UPDATE study SET identity = json_remove(identity, '$.seed'), checksum = NULL",
    "UPDATE study SET identity = json_set(identity, '$.optimizer', 7), checksum = NULL",
    "UPDATE study SET repeats = 0",
    "UPDATE study SET repeats = 'many', checksum = NULL",
    "INSERT INTO study SELECT * FROM study",
    "DELETE FROM study",
    "DELETE FROM trials WHERE number = 4",
    "DELETE FROM repeats WHERE trial = 4",
    "DELETE FROM repeats",
    "UPDATE sessions SET budget = 'all', checksum = NULL",
    "UPDATE sessions SET seconds = -1, checksum = NULL",
    "UPDATE sessions SET started = x'00'",
    *(f"DROP TABLE {table}" for table in ("study", "trials", "repeats", "sessions", "audits")),
    "INSERT INTO audits VALUES (99, '{}', 'canary', 'server', 1, '{}', '{}', NULL, '0', NULL)",
    "INSERT INTO audits VALUES (1, '{}', 'canary', 'server', 1, '{}', '{}', x'00', '0', NULL)",
    "ALTER TABLE trials DROP COLUMN curves",
    "ALTER TABLE trials RENAME COLUMN point TO place",
    "ALTER TABLE repeats DROP COLUMN checksum",
    "CREATE TABLE copied AS SELECT * FROM trials; DROP TABLE trials; ALTER TABLE copied RENAME TO trials; INSERT INTO trials SELECT * FROM trials",
    "CREATE TRIGGER gone AFTER INSERT ON sessions BEGIN DELETE FROM repeats; DELETE FROM trials; END",
    "DROP TABLE sessions; CREATE VIEW sessions AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
    "SELECT x AS started, x AS seconds, x AS version, x AS budget, x AS ended, NULL AS checksum FROM c",
    "DROP TABLE sessions; CREATE VIRTUAL TABLE Sessions USING fts5 (started, seconds, version, budget, ended, checksum)",
    "DROP TABLE sessions; CREATE TABLE sessions (started, seconds, version, budget, ended, checksum, x AS (hex(zeroblob(99999999))))",
    "PRAGMA application_id = 7",
    "PRAGMA user_version = 99",
    "PRAGMA user_version = 1",
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "rescued.toml"
    path.write_text(STUDY)
    run(load_study(path)).close()
    return path


def called(*words: object) -> tuple[str | None, str]:
    """Call the command line; return the error, if it ends in one of ours, and what it printed. Others are raised."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        try:
            cli.main([str(w) for w in words], standalone_mode=False)
        except (FedparetoError, click.ClickException) as error:
            text = str(error)
            text.encode()  # it can be printed
            return text, out.getvalue()
    return None, out.getvalue()


def bytes_damaged(content: bytes, luck: random.Random) -> tuple[str, bytes]:
    """Return a database file with one kind of damage to its bytes."""
    new = bytearray(content)
    kind = luck.choice(["bit", "bit", "byte", "bytes", "cut", "zeroed page", "swapped pages", "longer", "header", "ones"])
    place = luck.randrange(len(new))
    page = place // 4096 * 4096
    if kind == "bit":
        new[place] ^= 1 << luck.randrange(8)
    elif kind == "byte":
        new[place] = luck.randrange(256)
    elif kind == "bytes":
        new[place : place + 50] = luck.randbytes(len(new[place : place + 50]))
    elif kind == "cut":
        del new[place:]
    elif kind == "zeroed page":
        new[page : page + 4096] = bytes(4096)
    elif kind == "swapped pages":
        other = luck.randrange(len(new) // 4096) * 4096
        new[page : page + 4096], new[other : other + 4096] = new[other : other + 4096], new[page : page + 4096]
    elif kind == "longer":
        new += luck.randbytes(luck.randrange(1, 9000))
    elif kind == "header":
        new[luck.randrange(100)] = luck.randrange(256)
    else:
        new[place : place + 8] = b"\xff" * len(new[place : place + 8])
    return kind, bytes(new)


def side_damaged(db: Path, luck: random.Random) -> str:
    """Put a file beside a database that is foreign, cut or of nothing."""
    side = luck.choice(["-wal", "-journal", "-lock"])
    content = luck.choice([b"", b"dear diary\n" * 300, luck.randbytes(5000), bytes.fromhex("377f0682") + luck.randbytes(luck.randrange(9000)),
                           bytes.fromhex("d9d505f920a163d7") + luck.randbytes(luck.randrange(9000)), bytes(600)])
    db.with_name(db.name + side).write_bytes(content)
    return f"beside: {side}"


class Examined:
    """Commands on damaged copies of one study, each compared with the answers of the whole one."""

    def __init__(self, whole: Path, folder: Path) -> None:
        self.whole, self.study, self.db = whole, folder / "rescued.toml", folder / "rescued.db"
        self.folder = folder
        self.right = {verb: self.words(verb, whole)[1] for verb in ("front", "pick")}
        self.rows = rows(whole.with_suffix(".db"))
        self.told: Counter[str] = Counter()
        self.slowest = 0.0

    def words(self, verb: str, study: Path) -> tuple[str | None, str]:
        more = {"front": ["--json"], "pick": ["--json"], "report": ["--output", study.with_suffix(".html")],
                "rescue": ["--output", study.with_name("new.db")], "train": ["--json", "--trial", 3]}
        return called(verb, study, *more.get(verb, []))

    def case(self, damage: str, verbs: list[str], edited: bool = False) -> None:
        """Call commands on what lies in the folder; `edited` rows are valid to the eye and may answer otherwise."""
        for verb in verbs:
            before = {p.name: p.read_bytes() for p in self.folder.iterdir() if not p.name.endswith("-shm")}
            began = time.process_time()
            try:
                error, out = self.words(verb, self.study)
            except Exception as fault:
                raise AssertionError(f"{damage}: {verb} ended in {fault!r}") from fault
            self.slowest = max(self.slowest, time.process_time() - began)
            self.told["error" if error else "answer"] += 1
            after = {p.name: p.read_bytes() for p in self.folder.iterdir() if not p.name.endswith("-shm")}
            if error:
                assert ": must " in error, f"{damage}: {verb} said {error}"
            elif verb in self.right and not edited:
                assert json.loads(out) == json.loads(self.right[verb]), f"{damage}: {verb} answered otherwise"
            elif verb == "rescue" and not edited:
                self.check_rescued(damage)
            elif verb == "run" and not edited:
                assert rows(self.db) == self.rows, f"{damage}: run ended otherwise"
            if verb != "run" or error:
                kept = {n: b for n, b in after.items() if n in before and not (n.endswith("-wal") and not b)}
                assert all(before[n] == b for n, b in kept.items()), f"{damage}: {verb} changed a file"
                assert {n for n, b in before.items() if b} <= set(after), f"{damage}: {verb} removed a file"

    def check_rescued(self, damage: str) -> None:
        found = rows(self.folder / "new.db")
        for table in ("trials", "repeats"):
            kept = [row for row in found[table] if "pending" not in row]
            assert set(kept) <= set(self.rows[table]), f"{damage}: rescue kept a row that was not written"

    def clear(self) -> None:
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copy(self.whole, self.study)
        shutil.copy(self.whole.with_suffix(".db"), self.db)


@pytest.fixture
def examined(whole: Path, tmp_path: Path) -> Examined:
    return Examined(whole, tmp_path)


@pytest.mark.parametrize("number", range(len(CORPUS)), ids=[sql[:60] for sql in CORPUS])
def test_a_past_finding_ends_in_a_clear_error_or_the_right_answer(examined: Examined, number: int) -> None:
    examined.clear()
    with contextlib.closing(sqlite3.connect(examined.db)) as db:
        db.executescript(CORPUS[number])
    edited = "checksum = NULL" in CORPUS[number]
    examined.case(CORPUS[number], ["front", "pick", "report", "verify", "train", "rescue", "run"], edited)


@pytest.mark.parametrize(("cases", "seed"), [(150, 150), *(pytest.param(1000, seed, marks=pytest.mark.slow) for seed in range(5))])
def test_a_database_damaged_at_random_ends_in_a_clear_error_or_the_right_answer(examined: Examined, cases: int, seed: int) -> None:
    luck = random.Random(seed)
    content = examined.whole.with_suffix(".db").read_bytes()
    kinds: Counter[str] = Counter()
    for number in range(cases):
        examined.clear()
        if number % 8 == 7:
            kind = side_damaged(examined.db, luck)
        else:
            kind, changed = bytes_damaged(content, luck)
            examined.db.write_bytes(changed)
        kinds[kind] += 1
        verbs = ["front", ("pick", "report", "verify", "rescue", "run")[number % 5]]
        examined.case(f"case {number}, {kind}", verbs)
    print(kinds, examined.told, f"slowest {examined.slowest:.2f} s")
    assert examined.slowest < 5
    assert examined.told["error"] > cases / 2
