"""Check what an attack must hold."""

from __future__ import annotations

import json
import math
from typing import Any

from fedpareto.audit import Attack, Finding, Points
from fedpareto.contract import VIEWS
from fedpareto.federation import Data, Federation, Mlp, Training
from fedpareto.mechanisms import Randomization
from fedpareto.space import Float
from fedpareto.store.audits import finite
from fedpareto.testing.functions import frozen

PNG = b"\x89PNG\r\n\x1a\n"


def points_to_attack() -> Points:
    """Return two points of a small federation, one with ten times the noise of the other."""
    training = Training(0.1, rounds=2, local_steps=1, batch_size=8, sample_ratio=0.5)
    problem = Federation(
        Data("digits", 4), Mlp((8,)), training, Randomization(Float("sigma", 0.1, 10.0), 1.0), ()
    )
    return Points(problem, (0, 1), ({"sigma": 0.1}, {"sigma": 1.0}))


def check_attack(attack: Attack, points: Points | None = None, seed: int = 0) -> None:
    """Check that an attack tells when it applies, repeats itself, and keeps points apart.

    points are those to attack: two of a small federation if left out.
    """
    points = points or points_to_attack()
    assert frozen(attack), "an attack must be a frozen dataclass"
    assert isinstance(attack, Attack), "an attack must have inapplicable, seconds, within and audit"
    applied = 0
    for view in VIEWS:
        why = attack.inapplicable(points, view)
        assert why is None or (isinstance(why, str) and why), (
            f"inapplicable must be None or say why, found {why!r}"
        )
        if why is None:
            applied += 1
            _check_view(attack, points, view, seed)
    assert applied, "an attack must apply to some view"


def _check_view(attack: Attack, points: Points, view: str, seed: int) -> None:
    """Check one attack from one view."""
    seconds = attack.seconds(points, view)
    assert 0 <= seconds < math.inf, f"seconds must be a number of at least 0, found {seconds}"
    least = attack.within(1e-9)
    assert isinstance(least, Attack), "within must return an attack"
    found = least.audit(points, view, seed)
    again = least.audit(points, view, seed)
    assert len(found) == len(points), (
        f"audit must find something of each of {len(points)} points, found {len(found)}"
    )
    for one, other in zip(found, again, strict=True):
        _check_finding(one)
        assert _text(one) == _text(other), "the same seed must give the same findings"
        assert one.picture == other.picture, "the same seed must give the same picture"
    (alone,) = least.audit(points.at([1]), view, seed)
    _check_near(alone.measures, found[1].measures)


def _check_finding(found: Finding) -> None:
    """Check that a finding can be kept."""
    try:
        _text(found)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"measures must be plain data, found {error}") from error
    assert found.measures, "measures must not be empty"
    assert found.picture is None or found.picture.startswith(PNG), "a picture must be a PNG"


def _text(found: Finding) -> str:
    return json.dumps(finite(found.measures), allow_nan=False)


def _check_near(alone: dict[str, Any], beside: dict[str, Any]) -> None:
    """Check that a point is found to be the same without its neighbours, but for rounding."""
    assert alone.keys() == beside.keys(), "a point's measures must not depend on its neighbours"
    for name, value in alone.items():
        if isinstance(value, float):
            near = math.isclose(value, beside[name], rel_tol=1e-2, abs_tol=1e-2)
            both = math.isnan(value) and math.isnan(beside[name])
            assert near or both, (
                f"{name} of a point must not depend on its neighbours, found {value} alone and "
                f"{beside[name]} beside another"
            )
