"""Ray trains what this process trains, row for row, on three nodes that no other machine can reach."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import ON_LOOPBACK, cluster_of
from golden.make import STUDIES, study

from fedpareto import (
    FedparetoError,
    Float,
    Objective,
    Random,
    Space,
    Store,
    Study,
    load_study,
    on_ray,
    run,
    verify,
)
from fedpareto.errors import SettingError
from fedpareto.executors import worker
from fedpareto.testing import check_executor

ray = pytest.importorskip("ray")
QUICK = (("chain", 1), ("convolutions", 0), ("sparsification", 4))  # data of one's own and a limit among them


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with cluster_of(3) as made:
        ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
        yield made
        ray.shutdown()


def rows(db: Path) -> dict[str, list[Any]]:
    """Everything the database says of the study, but for when and where it was trained."""
    with closing(sqlite3.connect(db)) as connection, connection:
        return {t: connection.execute(f"SELECT * FROM {t} ORDER BY 1, 2").fetchall() for t in ("study", "trials", "repeats")}


@dataclass(frozen=True)
class Deadly:
    """A problem one of whose points kills the process that measures it."""

    block: int = 5
    deadly: tuple[float, ...] = ()
    sleep: float = 0.0

    space = Space((Float("x", 0.0, 1.0),))
    objectives = (Objective("y"),)
    failures = {}  # noqa: RUF012

    def measure(self, values: Any, seeds: Sequence[int]) -> dict[str, Any]:
        x = np.array(values["x"])
        time.sleep(self.sleep)
        if set(self.deadly) & set(values["x"]):
            os.kill(os.getpid(), signal.SIGKILL)
        return {"y": x**2}


@dataclass(frozen=True)
class Endless:
    """A problem half of whose points take very long."""

    block: int = 1

    space = Space((Float("x", 0.0, 1.0),))
    objectives = (Objective("y"),)
    failures = {}  # noqa: RUF012

    def measure(self, values: Any, seeds: Sequence[int]) -> dict[str, Any]:
        if max(values["x"]) > 0.5:
            time.sleep(3600)
        return {"y": np.array(values["x"])}


@dataclass(frozen=True)
class Large:
    """A problem that fits into memory two at a time."""

    block: int = 8

    space = Space((Float("x", 0.0, 1.0),))
    objectives = (Objective("y"),)
    failures = {}  # noqa: RUF012

    def measure(self, values: Any, seeds: Sequence[int]) -> dict[str, Any]:
        if self.block > 2:
            raise MemoryError(f"no room for {self.block}")
        return {"y": np.array(values["x"]) ** 2}


def test_ray_is_an_executor(cluster: Any) -> None:
    check_executor(on_ray())


@pytest.mark.parametrize(("name", "in_flight"), [
    pytest.param(name, L, marks=[] if (name, L) in QUICK else [pytest.mark.slow]) for name in STUDIES for L in (0, 1, 4)])
def test_rows_are_those_of_this_process(cluster: Any, tmp_path: Path, name: str, in_flight: int) -> None:
    asked = replace(study(name), in_flight=in_flight, description=study(name).description | {"in_flight": in_flight})
    here, there = tmp_path / "here.db", tmp_path / "there.db"
    run(asked, here).close()
    with run(asked, there, evaluate=on_ray()) as store:
        assert list(verify(asked, store)) == []
        works = store.works()
        assert sum(work.trainings for work in works.values()) == store.trainings()
        assert all(re.fullmatch(r"127\.0\.0\.1 \(\w{6}\)", where) for where in works)
    assert rows(here) == rows(there)


def test_a_study_begun_on_ray_ends_here_as_if_it_had_been_here_all_the_time(cluster: Any, tmp_path: Path) -> None:
    whole, both = tmp_path / "whole.db", tmp_path / "both.db"
    asked = study("sparsification")
    run(asked, whole).close()
    run(replace(asked, budget=asked.budget // 2), both, evaluate=on_ray()).close()
    run(asked, both).close()
    assert rows(whole) == rows(both)


def test_a_run_that_is_interrupted_leaves_nothing_behind_that_trains(cluster: Any, tmp_path: Path) -> None:
    def interrupted(problem: Any, more: Any, seed: int) -> Iterator[Any]:
        results = on_ray()(problem, more, seed)
        yield next(results)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Study("left", Endless(), Random(batch=6), budget=6), tmp_path / "left.db", evaluate=interrupted)
    end = time.monotonic() + 60
    while ray.available_resources().get("CPU") != 3:
        assert time.monotonic() < end, "workers must be free again"
        time.sleep(0.2)


@pytest.mark.slow
def test_a_point_that_kills_its_worker_fails_alone(cluster: Any, tmp_path: Path) -> None:
    asked = Study("deadly", Deadly(), Random(batch=10), budget=10)
    with run(asked, tmp_path / "alive.db") as store:
        points = [t.settings["x"] for t in store.trials()]
    killing = replace(asked, problem=Deadly(deadly=(points[3],)))
    with run(killing, tmp_path / "dead.db", evaluate=on_ray()) as store:
        failed = {t.number: t.error for t in store.trials() if t.state == "failed"}
        assert failed == {3: "the worker that trained it died, 5 times in a row"}
        assert [t.measures["y"] for t in store.trials() if t.number != 3] == [x**2 for i, x in enumerate(points) if i != 3]


def test_out_of_memory_a_worker_halves_the_block_and_says_so(cluster: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked = Study("large", Large(), Random(batch=16), budget=16)
    with caplog.at_level(logging.WARNING, "fedpareto"), run(asked, tmp_path / "large.db", evaluate=on_ray()) as store:
        assert [t.state for t in store.trials()] == ["done"] * 16
        assert [t.measures["y"] for t in store.trials()] == [t.settings["x"] ** 2 for t in store.trials()]
    said = {r.getMessage().partition("): ")[2] for r in caplog.records}
    assert said == {f"out of memory: going on with blocks of {size}" for size in (4, 2)}
    assert all(r.getMessage().startswith("127.0.0.1 (") for r in caplog.records)


@pytest.mark.parametrize("name", ["fedpareto", "torch", "numpy", "Python"])
def test_a_worker_of_another_version_is_refused(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(worker.versions(), name, "99.1")
    with pytest.raises(FedparetoError, match=rf"worker: must have {name} as the run was started with, 99\.1, found .* \(on 127"):
        run(Study("other", Deadly(), Random(batch=2), budget=2), tmp_path / "other.db", evaluate=on_ray())


def test_a_block_that_fits_no_machine_is_refused(cluster: Any, tmp_path: Path) -> None:
    asked = Study("large", Deadly(), Random(batch=2), budget=2)
    for executor, wanted in ((on_ray(gpus_per_block=0.5), "1 CPUs and 0.5 GPUs"), (on_ray(cpus_per_block=9), "9 CPUs and 0 GPUs")):
        with pytest.raises(SettingError) as refused:
            run(asked, tmp_path / "large.db", evaluate=executor)
        assert str(refused.value).startswith(f"on ray: must have a machine with {wanted} for a block, found 3 CPUs and 0 GPUs in all.")


def unused_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.parametrize("address", ["127.0.0.1:PORT", "[::1]:PORT", "nowhere", "127.0.0.1:"])
def test_an_address_where_no_cluster_is_is_refused_at_once(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # it is asked before the one of these tests is found
    asked = address.replace("PORT", str(unused_port()))
    began = time.monotonic()
    with pytest.raises(SettingError) as refused:
        list(on_ray(address=asked)(Deadly(), lambda: [], 0))
    assert str(refused.value) == (
        "--address: must be HOST:PORT of the head of a Ray cluster, or `auto` where one runs here, "
        f"found {asked}, where nothing answers.")
    assert time.monotonic() - began < 60


def test_what_is_no_ray_cluster_is_refused(tmp_path: Path) -> None:
    """Ray says itself why it cannot begin: here, since there is no such folder for its files."""
    code = ("from fedpareto.executors import on_ray\nfrom fedpareto.testing.executors import Awkward\n"
            "from fedpareto.errors import SettingError\ntry:\n    list(on_ray()(Awkward(), lambda: [], 0))\n"
            "except SettingError as error:\n    print(error)")
    (tmp_path / "file").write_text("")
    env = os.environ | {"PYTHONWARNINGS": "ignore", "RAY_TMPDIR": str(tmp_path / "file")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120, check=False)
    assert done.stdout.startswith("--address: must be a Ray cluster of this version, "), done.stderr
    assert ", or `auto` where one runs here, found none that could be begun: " in done.stdout


def test_the_cluster_listens_to_this_machine_alone(cluster: Any) -> None:
    """Ray's own ports, of this process and those below it, as Linux lists them."""
    ours = {line.split()[9] for line in sockets() if line.split()[3] == "0A" and line.split()[9] in inodes()}
    listening = [line.split()[1].partition(":")[0] for line in sockets() if line.split()[9] in ours]
    assert len(listening) > 5
    assert set(listening) <= {"0100007F", "0000000000000000FFFF00000100007F"}


def sockets() -> list[str]:
    return [line for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]


def inodes() -> set[str]:
    """Return the sockets of all processes that Ray began."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"ray" in (process / "cmdline").read_bytes():
                found |= set(re.findall(r"socket:\[(\d+)\]", " ".join(os.readlink(f) for f in (process / "fd").iterdir())))
        except OSError:
            continue
    return found


def test_ray_tells_its_makers_nothing(cluster: Any) -> None:
    from ray._common.usage.usage_lib import usage_stats_enabled

    assert not usage_stats_enabled()


def test_the_command_line_begins_and_ends_a_cluster_of_its_own(tiny_study: Path, tmp_path: Path) -> None:
    tiny_study.write_text(tiny_study.read_text().replace("budget = 2", "budget = 4\nin_flight = 1"))
    env = {k: v for k, v in os.environ.items() if k not in ON_LOOPBACK} | {"PYTHONWARNINGS": "ignore"}
    words = [sys.executable, "-m", "fedpareto", "run", str(tiny_study)]
    done = subprocess.run([*words, "--on", "ray", "--workers", "1"], capture_output=True, text=True, env=env, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "cost: at most 4 trainings; by a few rounds on this machine, 1 s of one worker; 1 worker needs at least 1 s." in done.stderr
    run(load_study(tiny_study), tmp_path / "here.db").close()
    assert rows(tiny_study.with_suffix(".db")) == rows(tmp_path / "here.db")
    with Store.read(tiny_study.with_suffix(".db")) as store:
        assert all(where.startswith("127.0.0.1 (") for where in store.works())
