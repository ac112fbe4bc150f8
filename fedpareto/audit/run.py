"""The loop of audits: which attacks on which points, how long it takes, rows as they finish."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fedpareto import __version__
from fedpareto.audit.base import Attack, Finding, Points
from fedpareto.contract import VIEWS
from fedpareto.errors import FedparetoError, SettingError, did_you_mean, guarded, told
from fedpareto.federation import Federation
from fedpareto.problem import Problem
from fedpareto.settings import imported, is_own
from fedpareto.store import Audit, Store
from fedpareto.store.audits import finite
from fedpareto.store.checks import PNG

AT_ONCE = 20  # points that are attacked side by side
Chosen = tuple[int, Mapping[str, Any]]  # a trial and its settings


@dataclass(frozen=True)
class Job:
    """One attack on some points, from one view."""

    name: str
    attack: Attack
    view: str
    points: Points
    seconds: float

    @property
    def options(self) -> dict[str, Any]:
        """The settings of the attack, as they are kept."""
        return asdict(self.attack)  # type: ignore[call-overload, no-any-return]


@dataclass(frozen=True)
class Plan:
    """What is attacked, what is not and why, and what was done already."""

    jobs: tuple[Job, ...]
    without: Mapping[str, str]  # "attack, view" → why it does not apply
    before: int  # findings that are there already
    limit: float | None = None  # seconds that it may take

    @property
    def seconds(self) -> float:
        return sum(job.seconds for job in self.jobs)


def attacks_of(names: Sequence[str], options: Mapping[str, Any]) -> dict[str, Attack]:
    """Return attacks by name, with those of these settings that each has."""
    from fedpareto.audit import ATTACKS

    found: dict[str, Attack] = {}
    for name in names:
        if not is_own(name) and name not in ATTACKS:
            hint = did_you_mean(name, ATTACKS)
            raise SettingError(
                f"--attack: must be one of {', '.join(ATTACKS)}, or your own as package.module:"
                f"Name, found {name!r}. {hint}".rstrip()
            )
        cls = imported(name) if is_own(name) else ATTACKS[name]
        fields = getattr(cls, "__dataclass_fields__", {})
        with _named(name):
            made = cls(**{key: value for key, value in options.items() if key in fields})
        if not isinstance(made, Attack):
            raise SettingError(
                f"--attack: {name} must have inapplicable, seconds, within and audit, found "
                f"{type(made).__name__}. Try it with fedpareto.testing.check_attack."
            )
        found[name] = made
    known = {key for made in found.values() for key in getattr(made, "__dataclass_fields__", {})}
    for key in options:
        if key not in known:
            raise SettingError(
                f"--set: must name a setting of {', '.join(found)}, found {key!r}. "
                f"{did_you_mean(key, known)}".rstrip()
            )
    return found


def plan(
    problem: Problem,
    chosen: Sequence[Chosen],
    attacks: Mapping[str, Attack],
    views: Sequence[str] = VIEWS,
    seed: int = 0,
    seconds: float | None = None,
    done: Sequence[Audit] = (),
) -> Plan:
    """Return what is to be attacked, within so many seconds if these are given.

    done is what was found before: the same attack on the same point is not made again. Within a
    time the first point comes first, and how much is tried of each attack is found on the way.
    """
    if not isinstance(problem, Federation):
        raise SettingError(
            f"audit: must be of a federation, found {type(problem).__name__}: nothing is trained "
            "that could be attacked."
        )
    jobs: list[Job] = []
    without: dict[str, str] = {}
    timed = seconds is not None
    kept = {_key(a, timed) for a in done}
    before = 0
    for part in _groups(chosen, timed):
        every = Points(problem, tuple(t for t, _ in part), tuple(dict(s) for _, s in part))
        for name, view in itertools.product(attacks, views):
            attack = attacks[name]
            with _named(name):
                why = attack.inapplicable(every, view)
            if why is not None:
                without[f"{name}, {view}"] = why
                continue
            job = Job(name, attack, view, every, 0.0)
            new = [_key(a, timed) not in kept for a in _empty(job, seed)]
            before += len(new) - sum(new)
            if any(new):
                jobs.append(replace(job, points=every.where(new)))
    return Plan(_estimated(jobs, seconds), without, before, seconds)


def _groups(chosen: Sequence[Chosen], timed: bool) -> list[Sequence[Chosen]]:
    """Return points that are attacked side by side; within a time the first one by itself."""
    first = [chosen[:1]] if timed else []
    rest = chosen[len(first) :]
    return first + [rest[i : i + AT_ONCE] for i in range(0, len(rest), AT_ONCE)]


def _estimated(jobs: Sequence[Job], limit: float | None) -> tuple[Job, ...]:
    """Return jobs with about how long each takes: of a time that is given its share."""
    if limit is not None:
        points = sum(len(job.points) for job in jobs)
        return tuple(replace(job, seconds=limit * len(job.points) / points) for job in jobs)
    out = []
    for job in jobs:
        with _named(job.name):
            out.append(replace(job, seconds=_length(job.attack.seconds(job.points, job.view))))
    return tuple(out)


def _shortened(job: Job, seconds: float) -> Job:
    """Return a job with as much less work as it takes to end within so many seconds."""
    began = time.perf_counter()
    with _named(job.name):
        whole = _length(job.attack.seconds(job.points, job.view))
        left = max(0.0, seconds - (time.perf_counter() - began))
        if whole <= left:
            return job
        less = job.attack.within(left / whole)
        if not isinstance(less, Attack):
            raise TypeError(f"within must return an attack, not {type(less).__name__}")
        return replace(job, attack=less)


def _length(seconds: float) -> float:
    """Return how long an attack says it takes; raise where it says nothing."""
    if not 0 <= seconds < math.inf:
        raise ValueError(f"seconds must return a number of at least 0, not {seconds!r}")
    return float(seconds)


def _empty(job: Job, seed: int) -> list[Audit]:
    """Return the audits of a job, without what they found."""
    pairs = zip(job.points.trials, job.points.settings, strict=True)
    return [Audit(t, s, job.name, job.view, seed, job.options, {}) for t, s in pairs]


def _key(audit: Audit, timed: bool) -> str:
    """Return what tells an audit from any other; within a time, how much work it was does not."""
    parts = [audit.trial, audit.settings, audit.attack, audit.view, audit.seed]
    return json.dumps([*parts, None if timed else audit.options], sort_keys=True)


def audit(
    planned: Plan,
    seed: int = 0,
    store: Store | None = None,
    watch: Callable[[Job], None] = lambda job: None,
) -> Iterator[Audit]:
    """Make the attacks that are planned, and yield what they found; with a store, keep it too.

    What one job found is kept before the next begins, so that it can be interrupted. Within a time
    no job begins when it is up.
    """
    began = time.perf_counter()
    for i, job in enumerate(planned.jobs):
        watch(job)
        if planned.limit is not None:
            left = planned.limit - (time.perf_counter() - began)
            if i and left <= 0:
                return
            job = _shortened(job, left * job.seconds / sum(j.seconds for j in planned.jobs[i:]))
        with _named(job.name):
            findings = job.attack.audit(job.points, job.view, seed)
            rows = [_kept(a, f) for a, f in zip(_empty(job, seed), findings, strict=True)]
        if store is not None:
            store.add_audits(rows)
        yield from rows


def _kept(empty: Audit, found: Finding) -> Audit:
    """Return what was found of a point; raise where it cannot be kept."""
    picture, measures = found.picture, dict(found.measures)
    if picture is not None and not (isinstance(picture, bytes) and picture.startswith(PNG)):
        raise TypeError("a picture must be the bytes of a PNG")
    json.dumps(finite(measures), allow_nan=False)
    return replace(empty, measures=measures, picture=picture, version=__version__)


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Say which attack failed, where one of the user's own does."""
    try:
        with guarded():
            yield
    except FedparetoError:
        raise
    except Exception as error:
        if not is_own(name):
            raise
        raise FedparetoError(
            f"audit: attack {name} must run to its end, found {told(error)}. Try it with "
            "fedpareto.testing.check_attack."
        ) from error
