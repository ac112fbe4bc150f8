"""Kill a run at every call on the database's files, or take its power away, and the same command goes on."""

from __future__ import annotations

import codecs
import itertools
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fedpareto.errors import LockedStore, StoreError
from fedpareto.store import Store
from fedpareto.trials import Result

WORK = """
import sys
import numpy as np
from fedpareto.store import Store
from fedpareto.trials import Result
store = Store.write(sys.argv[1], "tiny", {"seed": 1}, 1)
store.begin_session("0", 2)
if len(store) == 0:
    store.add(0, np.array([[0.25], [0.5]]), [{"a": 1}, {"a": 2}])
store.record([Result(t.number, 0, {"error": 0.5 + t.number}) for t in store.trials("pending")])
store.close()
"""
CALLS = ("openat", "pwrite64", "write", "fsync", "fdatasync", "rename", "unlink", "ftruncate", "close", "fcntl")


def strace(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the work under strace, or skip the test where that cannot be."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    return subprocess.run(["strace", "-f", *map(str, words)], capture_output=True, text=True, check=False)


def rows(path: Path) -> list[tuple[object, ...]]:
    with Store.read(path) as store:
        return [(t.number, t.state, t.measures) for t in store.trials()]


def calls_on(folder: Path) -> dict[str, list[int]]:
    """Return which calls of each kind, counted from 1, touch a file of the folder."""
    folder.mkdir()
    db, log = folder / "tiny.db", folder / "log"
    done = strace("-y", "-o", log, "-e", f"trace={','.join(CALLS)}", sys.executable, "-c", WORK, db)
    if done.returncode:
        pytest.skip(f"strace may not trace here: {done.stderr[-200:]}")
    counts = dict.fromkeys(CALLS, 0)
    places: dict[str, list[int]] = {}
    for line in log.read_text().splitlines():
        found = re.match(r"\d+ +(\w+)\(", line)
        if found and found[1] in counts:
            counts[found[1]] += 1
            if "tiny.db" in line and "argv" not in line:
                places.setdefault(found[1], []).append(counts[found[1]])
    return places


def check_goes_on(db: Path, blank: bool = False) -> None:
    """Read what a killed run left, unless it is blank, go on with it, and find every row."""
    if db.exists() and not blank:
        found = rows(db)  # whatever the moment, it can be read
        assert found in ([], [(0, "pending", {}), (1, "pending", {})], DONE)
    with Store.write(db, "tiny", {"seed": 1}, 1) as store:
        store.begin_session("0", 2)
        if len(store) == 0:
            store.add(0, np.array([[0.25], [0.5]]), [{"a": 1}, {"a": 2}])
        store.record([Result(t.number, 0, {"error": 0.5 + t.number}) for t in store.trials("pending")])
    assert rows(db) == DONE
    assert {f.name for f in db.parent.iterdir()} <= {"tiny.db", "tiny.db-lock", "log", ".tiny.db-unfinished"}


DONE = [(0, "done", {"error": 0.5}), (1, "done", {"error": 1.5})]


@pytest.mark.parametrize("every", [20, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_killed_at_a_call_on_its_files_leaves_what_the_same_command_goes_on_from(tmp_path: Path, every: int) -> None:
    places = calls_on(tmp_path / "whole")
    assert {"pwrite64", "rename", "unlink"} <= set(places)
    moments = [(call, n) for call, numbers in places.items() for n in numbers]
    chosen = [m for i, m in enumerate(moments) if i % every == 0 or (every > 1 and m[0] in ("rename", "unlink"))]
    killed = 0
    for i, (call, number) in enumerate(chosen):
        db = tmp_path / str(i) / "tiny.db"
        db.parent.mkdir()
        done = strace("-o", os.devnull, "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}",
                      sys.executable, "-c", WORK, db)
        killed += done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
        check_goes_on(db)
    assert killed >= 0.9 * len(chosen)


def hot(db: Path) -> Path:
    """Leave a database as a run killed while closing does: with a journal that is to be rolled back."""
    writer = "import os, sqlite3, sys\ndb = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
    writer += "db.execute('PRAGMA cache_size = 1')\ndb.execute('BEGIN')\ndb.execute('CREATE TABLE junk (x)')\n"
    writer += "for i in range(300): db.execute('INSERT INTO junk VALUES (randomblob(4000))')\nos._exit(9)\n"
    subprocess.run([sys.executable, "-c", writer, str(db)], check=False)
    journal = db.with_name(db.name + "-journal")
    assert journal.stat().st_size > 512
    return journal


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    db = tmp_path / "here" / "tiny.db"
    db.parent.mkdir()
    check_goes_on(db)
    return db


def test_whoever_looks_at_a_database_with_a_journal_left_over_sees_its_rows_and_changes_nothing(finished: Path) -> None:
    journal = hot(finished)
    before = finished.read_bytes(), journal.read_bytes()
    assert rows(finished) == DONE
    assert (finished.read_bytes(), journal.read_bytes()) == before
    check_goes_on(finished)


@pytest.mark.parametrize("side", ["-journal", "-wal"])
def test_a_journal_of_another_program_is_refused_and_left_as_it_is(finished: Path, side: str) -> None:
    journal = finished.with_name(f"tiny.db{side}")
    journal.write_text("dear diary\n" * 200)
    assert rows(finished) == DONE
    with pytest.raises(StoreError) as refused:
        Store.write(finished, "tiny", {"seed": 1}, 1)
    assert str(refused.value) == f"{journal}: must be SQLite's own, found a file of another program. Move it away."
    assert journal.read_text() == "dear diary\n" * 200


@pytest.mark.parametrize("pragma", ["journal_mode = WAL", "journal_mode = DELETE"])
def test_a_database_whose_making_an_older_version_began_is_made(tmp_path: Path, pragma: str) -> None:
    db = tmp_path / "tiny.db"
    with closing(sqlite3.connect(db)) as begun:
        begun.execute("PRAGMA page_size = 4096")
        begun.execute(f"PRAGMA {pragma}")
        begun.execute("VACUUM")
    if db.stat().st_size:
        with pytest.raises(StoreError, match=r"found nothing in it yet\. Run the study first: fedpareto run STUDY"):
            Store.read(db)
    check_goes_on(db, blank=True)


def test_the_log_of_a_database_that_was_deleted_is_not_taken_for_the_new_ones(tmp_path: Path) -> None:
    db = tmp_path / "tiny.db"
    with Store.write(db, "other", {"seed": 9}, 1) as store:
        store.begin_session("0", 1)
        log = db.with_name("tiny.db-wal").read_bytes()
    db.unlink()
    db.with_name("tiny.db-wal").write_bytes(log)
    check_goes_on(db)


def test_a_link_and_the_file_that_it_leads_to_have_one_lock(finished: Path) -> None:
    link = finished.parent.parent / "link.db"
    link.symlink_to(finished)
    with Store.write(link, "tiny", {"seed": 1}, 1), pytest.raises(LockedStore, match="found another run of this study at work"):
        Store.write(finished, "tiny", {"seed": 1}, 1)
    assert link.is_symlink()


def test_a_link_that_leads_nowhere_yet_becomes_a_database_there(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "tiny.db")
    Store.write(link, "tiny", {"seed": 1}, 1).close()
    assert link.is_symlink()
    assert not (tmp_path / "tiny.db").is_symlink()
    assert rows(tmp_path / "tiny.db") == []


def test_a_database_with_two_names_is_refused_to_write_to(finished: Path) -> None:
    os.link(finished, finished.with_name("second.db"))
    with pytest.raises(StoreError) as refused:
        Store.write(finished, "tiny", {"seed": 1}, 1)
    assert str(refused.value) == (
        f"{finished}: must be the only name of its file, found 2 (hard links): a run under another name would not see "
        "this one. Copy it to a file of its own.")
    assert rows(finished) == DONE


Write = tuple[int, bytes | None]  # where it begins, and what; None cuts the file there


def left(writes: list[Write], luck: random.Random, tears: bool) -> list[Write]:
    """Return what a power loss leaves of writes: each or none of it or, where it tears them, a part."""
    found: list[Write] = []
    for at, data in writes:
        if luck.random() < 0.5:
            found += torn(at, data, luck) if tears and data is not None else [(at, data)]
    return found


def torn(at: int, data: bytes, luck: random.Random) -> list[Write]:
    """Return a part of a write: some of its sectors, the bytes before some place, or those after it."""
    cut = luck.randrange(len(data) + 1)
    way = luck.randrange(3)
    if way < 2:
        return [(at, data[:cut])] if way == 0 else [(at + cut, data[cut:])]
    edges = [at, *range(at - at % 512 + 512, at + len(data), 512), at + len(data)]
    return [(a, data[a - at : b - at]) for a, b in itertools.pairwise(edges) if luck.random() < 0.5]


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal", "-lock", "-unfinished"])
def test_a_database_may_not_be_called_as_a_file_beside_another_and_such_files_of_others_stay(tmp_path: Path, end: str) -> None:
    """A past finding: a new database took away what lay at its log's name, even another study's rows."""
    beside = tmp_path / f"tiny.db{end}"
    with pytest.raises(StoreError) as refused:
        Store.write(beside, "tiny", {"seed": 1}, 1)
    assert str(refused.value) == (
        f"{beside}: must not end in {end}, which is kept for a file beside another database. Name another with --db.")
    beside.write_text("dear diary\n" * 9)
    if end != "-unfinished":
        with pytest.raises(StoreError, match="Move it away"):
            Store.write(tmp_path / "tiny.db", "tiny", {"seed": 1}, 1)
        assert beside.read_text() == "dear diary\n" * 9
        assert not (tmp_path / "tiny.db").exists()


def test_a_link_at_the_place_of_an_unfinished_database_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("rows of years")
    (tmp_path / ".tiny.db-unfinished").symlink_to(precious)
    Store.write(tmp_path / "tiny.db", "tiny", {"seed": 1}, 1).close()
    assert precious.read_text() == "rows of years"
    assert not (tmp_path / "tiny.db").is_symlink()


class Disk:
    """What a disk may hold after a power loss: what was synced, and any of what was not."""

    def __init__(self) -> None:
        self.files: dict[str, list[Write]] = {}  # writes that are synced
        self.waiting: dict[str, list[Write]] = {}
        self.names: list[tuple[str, str, str]] = []  # renames and removals that no sync of the folder has made last

    def after(self, luck: random.Random, folder: Path, tears: bool) -> None:
        """Write the files as the disk may hold them; names change in order, pages in none, whole or in part."""
        held = {p: [*done, *left(self.waiting.get(p, []), luck, tears)] for p, done in self.files.items()}
        for kind, path, new in self.names[: luck.randrange(len(self.names) + 1)]:
            content = held.pop(path, None)
            if kind == "rename" and content is not None:
                held[new] = content
        for path, writes in held.items():
            content = bytearray()
            for at, data in writes:
                if data is None:
                    content[at:] = bytes(max(0, at - len(content)))
                else:
                    content[len(content) :] = bytes(max(0, at - len(content)))
                    content[at : at + len(data)] = data
            (folder / Path(path).name).write_bytes(content)

    def sync(self, path: str) -> None:
        if path in self.files:
            self.files[path] += self.waiting.pop(path, [])
            return
        for kind, old, new in self.names:  # the folder
            content = self.files.pop(old, None)
            if kind == "rename" and content is not None:
                self.files[new] = content
                self.waiting[new] = self.waiting.pop(old, [])
        self.names = []

    def take(self, line: str, ends: dict[str, int]) -> bool:
        """Take in one call that strace wrote down; say whether it changes what a power loss may leave."""
        call = re.match(r"\d+ +(\w+)\((.*)\) += (\d+)", line)
        if not call or ("tiny.db" not in line and "sync" not in line) or "-shm" in line or "-lock" in line:
            return False
        kind, words = call[1], call[2]
        path = found[1] if (found := re.search(r"\d<([^>]*)>", words)) else ""
        if kind == "openat":
            path = re.findall(r'"([^"]*)"', words)[0]
            if "O_CREAT" in words and path not in self.files:
                self.files[path] = []
            if "O_TRUNC" in words:
                self.waiting.setdefault(path, []).append((0, None))
                ends[path] = 0
        elif kind in ("pwrite64", "write"):
            data = codecs.escape_decode(words[words.index('"') + 1 : words.rindex('"')].encode())[0]
            at = int(words.split(", ")[-1]) if kind == "pwrite64" else ends.get(path, 0)
            ends[path] = at + len(data)
            self.waiting.setdefault(path, []).append((at, data))
        elif kind == "ftruncate":
            self.waiting.setdefault(path, []).append((int(words.split(", ")[-1]), None))
        elif kind in ("fsync", "fdatasync"):
            self.sync(path)
        elif kind in ("rename", "unlink"):
            named = re.findall(r'"([^"]*)"', words)
            self.names.append((kind, named[0], named[-1]))
        return True


@pytest.mark.parametrize("tries", [1, pytest.param(40, marks=pytest.mark.slow)])
def test_a_power_loss_that_takes_or_tears_any_writes_not_yet_synced_leaves_what_the_same_command_goes_on_from(tmp_path: Path, tries: int) -> None:
    log = tmp_path / "log"
    (tmp_path / "whole").mkdir()
    kinds = "openat,pwrite64,write,fsync,fdatasync,rename,unlink,ftruncate"
    done = strace("-y", "-x", "-s", 10**6, "-o", log, "-e", f"trace={kinds}", sys.executable, "-c", WORK, tmp_path / "whole" / "tiny.db")
    if done.returncode:
        pytest.skip(f"strace may not trace here: {done.stderr[-200:]}")
    disk, luck, ends, moments = Disk(), random.Random(5), {}, 0
    for line in log.read_text().splitlines():
        if not disk.take(line, ends):
            continue
        for tears in (False, True) * tries:
            folder = tmp_path / str(moments)
            folder.mkdir()
            disk.after(luck, folder, tears)
            db = folder / "tiny.db"
            check_goes_on(db, blank=not db.exists() or db.stat().st_size == 0)
            shutil.rmtree(folder)
            moments += 1
    assert moments >= 60 * tries
    assert not disk.waiting.get(str(tmp_path / "whole" / "tiny.db"))  # closed, all of it is on the disk


def test_a_database_that_has_its_name_is_whole_on_the_disk(tmp_path: Path) -> None:
    """The new file is synced before the rename, and its folder after it."""
    (tmp_path / "whole").mkdir()
    log = tmp_path / "log"
    done = strace("-y", "-o", log, "-e", "trace=write,fsync,rename", sys.executable, "-c", WORK, tmp_path / "whole" / "tiny.db")
    if done.returncode:
        pytest.skip(f"strace may not trace here: {done.stderr[-200:]}")
    calls = [line.split(maxsplit=1)[1] for line in log.read_text().splitlines() if str(tmp_path) in line]
    place = next(i for i, call in enumerate(calls) if call.startswith("rename"))
    assert calls[place - 1].startswith("fsync")
    assert ".tiny.db-unfinished>" in calls[place - 1]
    assert calls[place + 1].startswith("fsync")
    assert "/whole>" in calls[place + 1]
