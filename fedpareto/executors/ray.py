"""Blocks on Ray: on all of this machine, or on a cluster. The only file that imports ray."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpareto.errors import FedparetoError, MissingPackage, SettingError
from fedpareto.evaluate import Job, blocks_of
from fedpareto.executors.base import More
from fedpareto.executors.worker import Answer, Terms, Unreachable, said_by, terms, trained
from fedpareto.problem import Problem, SendsData, is_private
from fedpareto.trials import Result

ALONE = 5  # deaths of a worker under one training before that is said to have failed
TOGETHER = 2  # deaths under a block before it is halved, to find out which training it is
MISSES = 100  # times in a row that a worker may not get at the data of a block
PAUSE = 0.5  # seconds after each
LOOK = 5.0  # seconds between two looks at the cluster
ANSWERS = 3.0  # seconds in which the head must answer
LOST = 4  # looks in a row without an answer, after which the head is said to be lost

# No address: a cluster for this run alone, which no other machine can reach. Ray listens to the
# network unless it takes this machine for one of a kind on which it makes no clusters.
ALONE_HERE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# Where this machine has Ray's token, `ray start --head` asks every program for it; programs show it
# of themselves for `auto` alone.
TOKEN = Path("~/.ray/auth_token").expanduser()
SHOWS_TOKEN = {"RAY_AUTH_MODE": "token"}
PATIENT = {"RAY_raylet_start_wait_time_s": "120"}  # a busy machine takes more than Ray's 30


@dataclass(frozen=True)
class OnRay:
    """Train blocks on Ray's workers; a block that loses its worker is trained again elsewhere."""

    address: str | None = None
    workers: int | None = None
    gpus_per_block: float = 0.0
    cpus_per_block: int = 1

    def __post_init__(self) -> None:
        for name, found, least in (
            ("workers", 1 if self.workers is None else self.workers, 1),
            ("gpus-per-block", self.gpus_per_block, 0),
            ("cpus-per-block", self.cpus_per_block, 1),
        ):
            if not least <= found < float("inf"):
                raise SettingError(f"--{name}: must be at least {least}, found {found}.")

    def __call__(self, problem: Problem, more: More, seed: int) -> Iterator[Sequence[Result]]:
        """Yield the results of blocks as Ray's workers finish them."""
        with _connected(self) as ray:
            run = _Run(self, ray, problem, seed)
            try:
                yield from run.results(more)
            finally:
                run.leave()


def on_ray(
    address: str | None = None,
    workers: int | None = None,
    gpus_per_block: float = 0.0,
    cpus_per_block: int = 1,
) -> OnRay:
    """Return an executor that trains blocks on a Ray cluster, `run(study, evaluate=on_ray())`.

    Without an address it begins a cluster on this machine, which ends with the run; "auto" is the
    one that is running here, HOST:PORT any other. At most `workers` blocks train at once, each with
    so many processors, as threads of a large training, and GPUs, of which it may share one.
    """
    return OnRay(address, workers, gpus_per_block, cpus_per_block)


@dataclass
class _Block:
    """A block under way, how often its worker died, and how often it could not get at the data."""

    jobs: list[Job]
    deaths: int = 0
    misses: int = 0


@dataclass
class _Run:
    """A study's blocks on a cluster."""

    on: OnRay
    ray: Any
    problem: Problem
    seed: int
    waiting: deque[_Block] = field(default_factory=deque)
    under_way: dict[Any, _Block] = field(default_factory=dict)  # by Ray's reference
    looked: float = 0.0
    silent: int = 0
    room: int = 1

    def results(self, more: More) -> Iterator[Sequence[Result]]:
        """Yield results as they come, and begin what `more` gives while there is room."""
        train, cargo = self._loaded()
        while True:
            self._look()
            while len(self.waiting) + len(self.under_way) < self.room and (trials := more()):
                self.waiting.extend(map(_Block, blocks_of(self.problem, trials)))
            while self.waiting and len(self.under_way) < self.room:
                block = self.waiting.popleft()
                self.under_way[train.remote(cargo, block.jobs, self.seed)] = block
            if not self.under_way:
                return
            done, _ = self.ray.wait([*self.under_way], timeout=LOOK)
            for reference in done:
                found = self._found(reference, self.under_way.pop(reference))
                if found:
                    yield found

    def leave(self) -> None:
        """End what is still under way: a cluster joined before would train it for nobody."""
        if self.silent > 0:  # there may be nobody to ask
            return
        with contextlib.suppress(self.ray.exceptions.RayError):
            for reference in self.under_way:
                self.ray.cancel(reference, force=True)

    def _loaded(self) -> tuple[Any, Any]:
        """Put problem and data where every worker finds them; return the task and its cargo."""
        train = self.ray.remote(
            num_cpus=self.on.cpus_per_block, num_gpus=self.on.gpus_per_block, max_retries=0
        )(_trained)
        data = self.problem.data_to_send() if isinstance(self.problem, SendsData) else None
        cargo = (terms(self.on.cpus_per_block), self.ray.put(self.problem), self.ray.put(data))
        return train, cargo

    def _found(self, reference: Any, block: _Block) -> Sequence[Result]:
        """Return the results of a block that has ended; if its worker died, have it done again."""
        errors = self.ray.exceptions
        try:
            where, answer = self.ray.get(reference)
        except errors.RayTaskError as error:
            raise FedparetoError(
                f"worker: must be able to train blocks, found {_last_line(error)}. "
                "Install the same fedpareto on every machine."
            ) from error
        except errors.RayError as error:
            return self._died(block, error)
        if answer is None:
            return self._missed(block, where)
        said_by(where, answer.said)
        if answer.refused:
            raise FedparetoError(f"{answer.refused} (on {where})")
        return answer.results  # type: ignore[no-any-return]

    def _missed(self, block: _Block, where: str) -> Sequence[Result]:
        """Put back a block whose worker could not get at the data: a machine may be lost."""
        block.misses += 1
        if block.misses >= MISSES:
            raise FedparetoError(
                f"worker: must get at the data of the run, found {MISSES} times that it did not "
                f"(on {where}). Look at the network between it and this machine."
            )
        time.sleep(PAUSE)
        self.waiting.appendleft(block)
        return ()

    def _died(self, block: _Block, error: Exception) -> Sequence[Result]:
        """Put a block whose worker died back, in halves if that is not new; one alone fails."""
        block.deaths += 1
        if len(block.jobs) > 1 and block.deaths >= TOGETHER:
            half = len(block.jobs) // 2
            halves = block.jobs[half:], block.jobs[:half]
            self.waiting.extendleft(map(_Block, halves))
            return ()
        if len(block.jobs) > 1 or block.deaths < ALONE:
            self.waiting.appendleft(block)
            return ()
        ((trial, repeat),) = block.jobs
        short = isinstance(error, self.ray.exceptions.OutOfMemoryError)
        why = "out of memory: " if short else ""
        why += f"the worker that trained it died, {ALONE} times in a row"
        if is_private(self.problem):
            why = "training ended with its worker"
        return [Result(trial.number, repeat, {}, why)]

    def _look(self) -> None:
        """See, now and then, whether the head is there and how many blocks may be under way."""
        if time.monotonic() - self.looked < LOOK:
            return
        self.looked = time.monotonic()
        if not _answers(self.ray.get_runtime_context().gcs_address):
            self.silent += 1
            if self.silent >= LOST:
                raise FedparetoError(
                    "on ray: the head of the cluster must be there, found that it no longer "
                    "answers. What was finished is kept; the same command goes on, once there is a "
                    "cluster again."
                )
            return
        self.silent = 0
        slots = self._slots()
        limit = self.on.workers or slots
        self.room = limit if limit < slots else 2 * max(1, slots)  # the next ones wait there

    def _slots(self) -> int:
        """Return how many blocks the cluster can train at once."""
        has = self.ray.cluster_resources()
        slots = int(has.get("CPU", 0) // self.on.cpus_per_block)
        if self.on.gpus_per_block:
            whole = self.on.gpus_per_block >= 1
            each = self.on.gpus_per_block if whole else 1 / int(1 / self.on.gpus_per_block)
            slots = min(slots, int(has.get("GPU", 0) / each + 1e-9))
        if slots == 0 and not self.under_way:
            wanted = f"{self.on.cpus_per_block} CPUs and {self.on.gpus_per_block:g} GPUs"
            found = f"{has.get('CPU', 0):g} CPUs and {has.get('GPU', 0):g} GPUs in all"
            raise SettingError(
                f"on ray: must have a machine with {wanted} for a block, found {found}. Lower "
                "--cpus-per-block or --gpus-per-block, or add machines."
            )
        return slots


def _trained(
    cargo: tuple[Terms, Any, Any], jobs: list[Job], seed: int
) -> tuple[str, Answer | None]:  # runs in Ray's workers
    """Train a block in a worker, and say where that is; None if the data were not to be had."""
    ray: Any = importlib.import_module("ray")
    need, problem, data = cargo
    here = ray.get_runtime_context()
    where = f"{ray.util.get_node_ip_address()} ({here.get_node_id()[:6]})"
    gpus = ",".join(map(str, ray.get_gpu_ids()))
    where += f" GPU {gpus}" if gpus else ""

    def fetch() -> tuple[Problem, Any]:
        try:
            return ray.get(problem), ray.get(data)
        except ray.exceptions.ObjectLostError as error:
            raise Unreachable(_last_line(error)) from error

    try:
        return where, trained(need, fetch, jobs, seed, where)
    except Unreachable:
        return where, None


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1]


def _answers(address: str) -> bool:
    """Say whether something listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    with (
        contextlib.suppress(OSError, ValueError),
        socket.create_connection((host.strip("[]"), int(port)), ANSWERS),
    ):
        return True
    return False


@contextlib.contextmanager
def _connected(on: OnRay) -> Iterator[Any]:
    """Connect to a cluster, or begin one here, and leave it at the end; one joined before stays."""
    ray = _imported(alone=on.address is None)
    if ray.is_initialized():
        yield ray
        return
    if on.address not in (None, "auto") and not _answers(on.address):  # Ray tries for minutes
        raise SettingError(
            "--address: must be HOST:PORT of the head of a Ray cluster, or `auto` where one runs "
            f"here, found {on.address}, where nothing answers."
        )
    options: dict[str, Any] = {"address": on.address or "local"}
    if on.address is None:
        cpus = on.workers * on.cpus_per_block if on.workers else None
        options |= {"num_cpus": cpus, "include_dashboard": False}
    try:
        with _signals_kept():
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as error:  # Ray raises nothing more special where a cluster does not start
        found = f"{on.address or 'none that could be begun'}: {_last_line(error)}"
        raise SettingError(
            f"--address: must be a Ray cluster of this version, {ray.__version__}, or `auto` where "
            f"one runs here, found {found}. "
            "If it asks for a token, ~/.ray/auth_token here must be that of its head."
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Leave to SIGTERM what it does: Ray prints a stack and exits as if the program had ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _imported(alone: bool) -> Any:
    """Return ray, which says nothing to its makers and, alone, listens to this machine only."""
    told = QUIET | PATIENT | (ALONE_HERE if alone else {})
    for name, value in (told | _shown("ray" in sys.modules)).items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise MissingPackage("ray", "ray", "training on Ray") from error
    return ray


def _shown(imported: bool) -> dict[str, str]:
    """Return what makes Ray show this machine's token, as long as Ray can take notice of it.

    Ray reads it once, as it is imported, but the cluster that it begins reads it anew: told later,
    the cluster would ask for a token that the program does not show. The first cluster of one's own
    makes the token.
    """
    return SHOWS_TOKEN if TOKEN.is_file() and not imported else {}
