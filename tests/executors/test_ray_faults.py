"""What goes wrong on a cluster: the head is lost; workers, machines and the run itself are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from clusters import ON_LOOPBACK, cluster_of
from slow_studies import study_of
from test_on_ray import rows

from fedpareto import Store, run, verify

ray = pytest.importorskip("ray")
COMMAND = Path(__file__).with_name("slow_studies.py")
KILLS = 50
LEVELS = (1, 0, 4)  # batches in flight, study by study
TRAINS = (b"ray::_trained", b"ray::IDLE")  # Ray's other processes are a machine's: it ends with them
LONG = 1.0  # seconds of a block: 80 of them on two workers last longer than it takes to miss the head


def begun(db: Path, seed: int, in_flight: int, address: str, sleep: float = 0.25) -> subprocess.Popen[str]:
    """Begin a run in a process of its own."""
    words = [sys.executable, str(COMMAND), str(db), str(seed), str(in_flight), str(sleep), address]
    env = os.environ | ON_LOOPBACK | {"PYTHONWARNINGS": "ignore"}
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def trained(db: Path) -> int:
    if not db.is_file():
        return 0
    with Store.read(db) as store:
        return store.trainings()


def until(condition: Any, seconds: float) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "must come within time"
        time.sleep(0.1)


@pytest.mark.slow
def test_without_the_head_a_run_ends_with_what_was_finished_and_the_same_command_goes_on(tmp_path: Path) -> None:
    from ray._private import ray_constants

    db = tmp_path / "headless.db"
    with cluster_of(2) as made:
        process = begun(db, 1, 1, made.address, LONG)
        until(lambda: trained(db) > 12, 120)
        made.head_node.kill_gcs_server(check_alive=False)
        assert ray_constants.PROCESS_TYPE_GCS_SERVER not in dict(made.head_node.live_processes())
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "on ray: the head of the cluster must be there, found that it no longer answers. What was finished is kept" in said
    before = trained(db)
    assert 12 < before < 240
    with cluster_of(2) as made:
        process = begun(db, 1, 1, made.address, LONG)
        said, _ = process.communicate(timeout=180)
        assert process.returncode == 0, said
    run(study_of(1, 1, sleep=0.0), tmp_path / "alone.db").close()
    assert rows(db) == rows(tmp_path / "alone.db")


class Victims:
    """A cluster of three nodes, and a run on it, to be killed."""

    def __init__(self, made: Any, luck: random.Random) -> None:
        self.made = made
        self.luck = luck
        self.killed = {"worker": 0, "node": 0, "run": 0}

    def workers(self) -> list[int]:
        """Return the processes that train, or wait for something to train."""
        found = []
        raylets = {p.process.pid for node in self.made.list_all_nodes() for p in node.all_processes["raylet"]}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in raylets and (process / "cmdline").read_bytes().startswith(TRAINS):
                    found.append(int(process.name))
            except OSError:
                continue
        return found

    def node(self, used: str) -> Any:
        """Return a machine that is neither the head nor the one that the run is on."""
        every = {node.node_id for node in self.made.list_all_nodes()}
        assert used in every
        return self.luck.choice(sorted((n for n in self.made.worker_nodes if n.node_id != used), key=lambda n: n.node_id))

    def kill(self, process: subprocess.Popen[str], used: str) -> None:
        """Kill a worker, a machine that nothing but workers need, or the run."""
        what = self.luck.choice(("worker", "worker", "node", "run"))
        workers = self.workers()
        if what == "worker" and not workers:
            what = "run"
        if what == "worker":
            os.kill(self.luck.choice(workers), signal.SIGKILL)
        elif what == "node":
            self.made.remove_node(self.node(used), allow_graceful=False)
            self.made.add_node(num_cpus=1, wait=False)
        else:
            process.kill()
            process.communicate()
        self.killed[what] += 1


@pytest.mark.slow
def test_whatever_is_killed_a_study_ends_with_the_rows_of_one_left_alone(tmp_path: Path) -> None:
    luck = random.Random(20)
    with cluster_of(3) as made:
        victims = Victims(made, luck)
        seed = 0
        while sum(victims.killed.values()) < KILLS or seed < len(LEVELS):
            in_flight = LEVELS[seed % len(LEVELS)]
            seed += 1
            db = tmp_path / f"{seed}.db"
            ended_in_a_storm(victims, db, seed, in_flight, most=-(-KILLS * seed // len(LEVELS)))
            asked = study_of(seed, in_flight, sleep=0.0)
            run(asked, tmp_path / f"{seed}-alone.db").close()
            with Store.read(db) as store:
                assert list(verify(asked, store)) == []
            assert rows(db) == rows(tmp_path / f"{seed}-alone.db")
            print(f"{victims.killed} killed, {seed} studies, the last with in_flight {in_flight}", flush=True)
    assert min(victims.killed.values()) >= 5


def wait_for_more(process: subprocess.Popen[str], db: Path) -> None:
    """Wait until a run has trained something more, or has ended."""
    had = trained(db)
    until(lambda: process.poll() is not None or trained(db) > had, 180)


def ended_in_a_storm(victims: Victims, db: Path, seed: int, in_flight: int, most: int) -> None:
    """Run a study to its end, killing this and that on the way, up to so many in all."""
    process = begun(db, seed, in_flight, victims.made.address)
    while process.poll() is None:
        wait_for_more(process, db)
        time.sleep(victims.luck.uniform(0.0, 1.5))
        if process.poll() is None and sum(victims.killed.values()) < min(most, KILLS):
            victims.kill(process, db.with_suffix(".node").read_text())
        if process.returncode == -signal.SIGKILL:
            process = begun(db, seed, in_flight, victims.made.address)
    said, _ = process.communicate()
    assert process.returncode == 0, said
