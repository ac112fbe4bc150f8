"""The page on scale shows what is kept of the benchmarks, and nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def growth() -> ModuleType:
    spec = importlib.util.spec_from_file_location("growth", ROOT / "benchmarks" / "growth.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_table_of_the_page_is_what_the_command_prints(growth: ModuleType) -> None:
    found, scale = growth.kept()
    tables = growth.tables(growth.modelled(found, scale), scale)
    shown = [line for line in (ROOT / "docs" / "scale.md").read_text().splitlines() if line.startswith("|")]
    assert sorted(shown) == sorted(line for lines in tables.values() for line in lines)


def test_the_figures_in_its_words_are_those_that_are_kept(growth: ModuleType) -> None:
    text = " ".join((ROOT / "docs" / "scale.md").read_text().split())
    scale = growth.kept()[1]
    few, many = scale["memory"][0], scale["memory"][-1]
    assert f"{scale['overhead']['ray_ms_a_block']:.1f} ms on Ray and {scale['overhead']['here_ms_a_block']:.1f} ms here" in text
    assert f"held {few['peak_mb']:.0f} MB for {few['trials']:,} trials and {many['peak_mb']:.0f} MB for {many['trials']:,}" in text
    first = next(growth.searches(growth.h200()))
    assert f"by the model {first['seconds_a_block'] / first['block']:.3f} s" in text


def test_the_model_of_a_round_is_right_for_what_it_was_not_fitted_to_within_a_half(growth: ModuleType) -> None:
    found, _ = growth.kept()
    again = growth.fitted([dict(row) for row in found["rounds"]])
    assert again["terms"] == pytest.approx(found["terms"])
    unseen = [row["ratio"] for row in again["rounds"] if not row["fitted"]]
    assert len(unseen) == len(growth.SERIES)
    assert all(2 / 3 < ratio < 3 / 2 for ratio in unseen)


def test_hours_on_more_gpus_end_at_one_block(growth: ModuleType) -> None:
    search = {"trials": 100, "block": 10, "seconds_a_block": 36.0}
    assert growth.on_gpus(search, 1, 1.0) == pytest.approx(0.1)
    assert growth.on_gpus(search, 5, 0.5) == pytest.approx(0.04)
    assert growth.on_gpus(search, 100, 0.5) == pytest.approx(0.01)
