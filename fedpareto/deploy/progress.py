"""How far a deployment is, for whoever watches, and for the server that goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.deploy.deployment import Deployment
from fedpareto.errors import DeploymentError
from fedpareto.files import json_of, write_whole

FILE = "progress.json"
MOST_BYTES = 2**28
Measures = dict[str, float]


@dataclass(frozen=True)
class Progress:
    """What has happened so far; each list has an entry a round."""

    of: int  # rounds that are agreed
    rounds: int = 0  # that are done
    asked: tuple[int, ...] = ()  # how many sites
    answered: tuple[int, ...] = ()
    measures: tuple[Measures, ...] = ()  # of the model after each round
    refused: tuple[str, ...] = ()  # answers that were not counted, and why
    why: str = ""  # why it stopped, if it did
    done: bool = False

    @property
    def judged(self) -> bool:
        """Whether the model has been judged after the last round."""
        return len(self.measures) == self.rounds

    def after(
        self, t: int, asked: Sequence[int], came: Sequence[int], refused: Sequence[Any]
    ) -> Progress:
        """Return the progress after a round."""
        told = tuple(f"round {t + 1}, site {one.client}: {one.why}" for one in refused)
        return replace(
            self,
            rounds=t + 1,
            asked=(*self.asked, len(asked)),
            answered=(*self.answered, len(came)),
            refused=self.refused + told,
            why="",
        )

    def measured(
        self, answers: Sequence[tuple[int, Mapping[str, Any]]], agreed: Deployment
    ) -> Progress:
        """Return it with the measures of the model that sites judged, as the study counts them."""
        told = {k: a for k, a in answers if _counts(a)}
        records = sum(a["records"] for a in told.values())
        found: Measures = {"sites": len(told), "test_records": records}
        if records:
            numbers = [(a["wrong"], a["loss"]) for a in told.values()]
            wrong, loss = np.sum(numbers, axis=0)
            found["test_loss"] = float(loss / records)
            if agreed.classes > 1:  # as a study has it, in single precision
                found["test_error"] = float(np.float32(wrong) / np.float32(records))
        return replace(self, measures=(*self.measures, found))

    def stopped(self, why: str) -> Progress:
        """Return it with the reason for which it stopped."""
        return replace(self, why=why)

    def finished(self, folder: Path) -> Progress:
        """Return it as done, and say so on disk."""
        done = replace(self, done=True, why="")
        done.write(folder)
        return done

    def plain(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return asdict(self)

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Progress:
        """Return what JSON holds."""
        lists = {k: tuple(v) for k, v in found.items() if isinstance(v, list)}
        return cls(**{**found, **lists})

    def write(self, folder: Path) -> None:
        """Write it for whoever watches."""
        write_whole(folder / FILE, (json.dumps(self.plain(), indent=1) + "\n").encode())


def there(folder: Path) -> Progress | None:
    """Return how far the deployment of a server's folder is; None where it has said nothing."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        return Progress.read(json_of(path, MOST_BYTES))
    except (ValueError, TypeError, AttributeError) as error:
        raise DeploymentError(
            f"{path}: must say how far the deployment is, found damage: {error}. Remove it: the "
            "server writes it anew from its state."
        ) from None


def _counts(answer: Mapping[str, Any]) -> bool:
    """Say whether an answer judges a model, in numbers that can be."""
    names = ("records", "wrong", "loss")
    if "refused" in answer or not all(isinstance(answer.get(n), int | float) for n in names):
        return False
    possible = 0 <= answer["wrong"] <= answer["records"] and np.isfinite(answer["loss"])
    return bool(possible and 0 < answer["records"] < 10**12)
