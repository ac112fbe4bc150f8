"""Who trained what: a note per session, of which no row of a trial depends."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from fedpareto.trials import Result


@dataclass(frozen=True)
class Work:
    """What one machine, or one of its devices, trained."""

    device: str
    trainings: int = 0
    seconds: float = 0.0  # of its trainings, all together
    trial: int = 0  # that it finished last


Works = dict[str, Work]  # by where


def more_work(works: Works, results: Sequence[Result]) -> Works:
    """Return what was trained where, with these results."""
    found = dict(works)
    for result in results:
        if result.ran is not None:
            ran = result.ran
            old = found.get(ran.where, Work(ran.device))
            found[ran.where] = replace(
                old,
                trainings=old.trainings + 1,
                seconds=round(old.seconds + ran.seconds, 6),
                trial=result.trial,
            )
    return found


def write_works(works: Works) -> str | None:
    """Return what was trained where as JSON, None for nothing."""
    return json.dumps({where: asdict(work) for where, work in works.items()}) if works else None


def read_works(texts: Iterable[str | None]) -> Works:
    """Return what was trained where, in all of these sessions together."""
    found: Works = {}
    for text in texts:
        for where, table in json.loads(text or "{}").items():
            work = Work(**table)
            old = found.get(where, Work(work.device))
            found[where] = replace(
                work,
                trainings=old.trainings + work.trainings,
                seconds=old.seconds + work.seconds,
            )
    return found
