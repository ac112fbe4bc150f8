"""What the tests of several optimizers share."""

from __future__ import annotations

import pytest


@pytest.fixture(params=[10, pytest.param(None, marks=pytest.mark.slow)], ids=["few steps", "all steps"])
def fits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search for length scales in few steps: a contract holds however well a process fits."""
    if request.param:
        monkeypatch.setattr("fedpareto.optimizers.surrogate.STEPS", request.param)
