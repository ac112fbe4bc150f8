"""Kill a study anywhere, run it again, and it ends where it would have ended."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest
import torch

from fedpareto import Store, load_study, run, verify
from fedpareto.optimizers import OPTIMIZERS

STUDY = """
name = "killed"
seed = 4
budget = 44
repeats = 2
block = 2
[data]
clients = 6
[model]
name = "mlp"
hidden = [16]
[training]
rounds = 8
local_epochs = 1
batch_size = 64
learning_rate = { low = 0.01, high = 0.5, log = true }
[mechanism]
name = "randomization"
sigma = { low = 0.001, high = 1.0, log = true }
clipping_norm = [0.5, 4.0]
[objectives.utility_loss]
measure = "test_error"
[objectives.leakage]
measure = "kang23_eq13"
limit = 0.8
[optimizer]
name = "nsga2"
population = 8
"""


SEARCHED = """
name = "searched"
seed = 3
budget = 12
block = 2
[data]
clients = 10
[model]
name = "lr"
[training]
rounds = [3, 12]
local_epochs = 1
batch_size = 64
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
"""
SMALL = {"bayesian": "batch = 4\nstart = 4", "fedmoeac": "population = 4", "grid": "points = 3\nbatch = 4",
         "nsga2": "population = 4", "psl": "batch = 4\nstart = 4\nsteps = 50",
         "qlognehvi": "batch = 4\nstart = 4\nsamples = 4\nsteps = 4\nrestarts = 1",
         "random": "batch = 4"}


def rows(db):
    """Everything the database says of the study, but for when it was run."""
    with closing(sqlite3.connect(db)) as connection, connection:
        return {table: connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()
                for table in ("study", "trials", "repeats")}


def start(study, db, verb="run", **env):
    return subprocess.Popen([sys.executable, "-m", "fedpareto", verb, str(study), "--db", str(db)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=os.environ | {"PYTHONWARNINGS": "ignore"} | env)


def progress(db):
    """How many trainings are on record."""
    if not db.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True, timeout=1)) as connection, connection:
            return connection.execute("SELECT count(*) FROM repeats").fetchone()[0]
    except sqlite3.Error:
        return 0


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "killed.toml"
    path.write_text(STUDY)
    return path


LOADED = ["fedpareto.loop", "fedpareto.study.read", "fedpareto.federation.run", "fedpareto.federation.stack", "sklearn.datasets", "torch", "botorch"]


def forked(study, db, threads=None):
    """Begin a run in a process of its own, forked off one that has loaded everything and run nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    process = context.Process(target=go_on, args=(study, db, threads))
    process.start()
    return process


def go_on(study, db, threads):
    if threads:
        torch.set_num_threads(threads)
    run(load_study(study), db).close()


def killed_once(process, db, trainings):
    """Kill a process once so many trainings are on record, or later."""
    deadline = time.monotonic() + 60
    while progress(db) < trainings and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.002)
    process.kill()
    process.join()


def test_a_study_killed_twenty_times_equals_the_study_left_alone(study, tmp_path):
    alone, killed = tmp_path / "alone.db", tmp_path / "killed.db"
    with run(load_study(study), alone):
        pass
    luck = random.Random(0)
    for kill in range(20):
        target = min(progress(killed) + luck.randrange(1, 4), 86)
        process = forked(study, killed)
        deadline = time.monotonic() + 60
        while progress(killed) < target and process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(luck.random() * 0.1)
        process.kill()
        process.join()
        assert process.exitcode in (-signal.SIGKILL, 0), f"kill {kill}"
    last = start(study, killed)
    _, errors = last.communicate(timeout=120)
    assert last.returncode == 0, errors.decode()
    assert rows(killed) == rows(alone)
    with closing(sqlite3.connect(killed)) as connection, connection:
        assert connection.execute("SELECT count(*) FROM sessions").fetchone()[0] >= 15  # it was killed while at work
    loaded = load_study(study)
    with Store.read(killed) as store:
        assert list(verify(loaded, store)) == []


@pytest.mark.parametrize("rounds", ["[3, 12]", pytest.param("6", marks=pytest.mark.slow)])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_goes_on_in_a_fresh_process_as_in_one_that_trained(optimizer, rounds, tmp_path):
    """Left alone here, where trainings ran between proposals; killed on two threads, resumed on one."""
    study, alone, killed = (tmp_path / name for name in ("searched.toml", "alone.db", "killed.db"))
    text = SEARCHED.replace("rounds = [3, 12]", f"rounds = {rounds}")
    study.write_text(f"{text}name = \"{optimizer}\"\n{SMALL[optimizer]}\n")
    loaded = load_study(study)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with run(loaded, alone) as store:
        assert list(verify(loaded, store)) == []
    torch.set_num_threads(before)
    killed_once(forked(study, killed, threads=2), killed, 9)
    resumed = forked(study, killed, threads=1)
    resumed.join(timeout=120)
    assert resumed.exitcode == 0
    assert rows(killed) == rows(alone)
    for threads in "12" if rounds == "6" else "2":
        process = start(study, killed, "verify", OMP_NUM_THREADS=threads)
        said, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
        assert b"all 12 proposals follow" in said or (optimizer == "grid" and b"proposals follow" in said)


def test_a_search_with_the_default_optimizer_verifies_in_another_process(tmp_path):
    """The study in which proposals differed by process: waiting threads and MKL's state were the cause."""
    study, db = tmp_path / "searched.toml", tmp_path / "searched.db"
    text = SEARCHED.replace("budget = 12", "budget = 24").replace("[3, 12]", "[5, 40]")
    study.write_text(f"{text}batch = 4\nstart = 8\n")
    run(load_study(study), db).close()
    process = start(study, db, "verify")
    said, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()
    assert b"all 24 proposals follow" in said


@pytest.mark.parametrize("first", [3, 8, 13])
def test_a_raised_budget_continues_exactly(study, tmp_path, first):
    whole, raised = tmp_path / "whole.db", tmp_path / "raised.db"
    run(load_study(study, budget=20), whole).close()
    run(load_study(study, budget=first), raised).close()
    run(load_study(study, budget=20), raised).close()
    assert rows(whole) == rows(raised)


def test_a_finished_study_is_left_as_it_is(study, tmp_path):
    db = tmp_path / "done.db"
    run(load_study(study, budget=8), db).close()
    before = rows(db)
    run(load_study(study, budget=8), db).close()
    run(load_study(study, budget=5), db).close()
    assert rows(db) == before


def test_verify_finds_a_row_that_was_tampered_with(study, tmp_path):
    db = tmp_path / "tampered.db"
    run(load_study(study, budget=24), db).close()
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("UPDATE trials SET settings = json_set(settings, '$.sigma', 0.5), checksum = NULL WHERE number = 3")
        connection.execute("UPDATE trials SET measures = json_set(measures, '$.test_error', 0.0), checksum = NULL WHERE number = 9")
    with Store.read(db) as store:
        differing = list(verify(load_study(study), store))
    assert differing[0].startswith("trial 3: must be {")
    assert any(line.startswith("trial 2") for line in differing)  # a child of the third generation, bred from a false row
