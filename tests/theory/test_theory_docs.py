"""What docs/theory.md says of the closed form is what the functions compute."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np

from fedpareto import theory

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "theory.md").read_text()
ROWS = re.findall(r"(?m)^\| (I+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \| (.+?) \| (.+?) \|$", TEXT)


def interval(low, high, is_open=False):
    return f"{'(' if is_open else '['}{low:.6g}, {high:.6g}{')' if np.isinf(high) else ']'}"


def test_the_table_of_differences_is_computed():
    assert len(ROWS) == 9
    for case, *numbers, printed, exact in ROWS:
        k, K, q, top, last, T = (None if n == "none" else float(n) for n in numbers)
        assert theory.case(k, K, q, last, top) == case
        rows = theory.printed_set(k=k, clients=K, sample_ratio=q, rounds_max=last, sigma_max=top)
        rows = rows[rows["rounds"] == T]
        assert " and ".join(f"{r['high']:.6g}" if r["low"] == r["high"] else interval(r["low"], r["high"]) for r in rows) == printed
        band = theory.band(T, k, K, q, last, top)
        assert interval(float(band.low), float(band.high), bool(band.open_low)) == exact


def test_the_gap_to_the_continuous_curve_is_as_documented():
    for T, share in ((1, "6.07 %"), (2, "2.06 %"), (10, "0.11 %")):
        f1, f2 = theory.objectives(T, theory.band(T, 25, 10, 1, 50).low, 25, 10, 1)
        assert f"{100 * (f1 * f2 / (2 * np.sqrt(2.5)) - 1):.2f} %" == share
        assert share in TEXT


def test_every_public_name_is_documented():
    assert [name for name in theory.__all__ if name not in {"Band", "Design", "Estimate", "Found"} and f"`{name}" not in TEXT] == []
    assert theory.__all__ == sorted(theory.__all__)


def test_the_snippet_is_part_of_an_example_that_runs(capsys):
    snippet = re.findall(r"```python\n(.*?)```", TEXT, re.S)[0]
    assert snippet in (ROOT / "examples" / "theory_by_hand.py").read_text()
    runpy.run_path(str(ROOT / "examples" / "theory_by_hand.py"))
    assert "The law fits" in capsys.readouterr().out
