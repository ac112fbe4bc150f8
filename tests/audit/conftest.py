"""What the tests of attacks share: federations of a few clients, and points of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "federation"))  # its canary_cases

from fedpareto.audit import Points


@pytest.fixture
def one():
    """A function that makes one point of a problem without anything searched."""
    return lambda problem: Points(problem, (0,), ({},))
