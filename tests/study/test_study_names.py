"""The names by which points know settings, the same where they are searched and written."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.make import ROWS, STUDIES, study

from fedpareto.errors import StudyError
from fedpareto.mechanisms import Chain, Pruning, Quantization
from fedpareto.settings import Whole, named, searched
from fedpareto.space import Choice, Float
from fedpareto.study import Study, encrypted, load_study
from fedpareto.study.write import fixed_study

TWICE = """\
[mechanism]
name = "chain"

[[mechanism.links]]
name = "pruning"
prune_rate = [0.1, 0.5]

[[mechanism.links]]
name = "pruning"
threshold = { low = 1e-5, high = 1e-3, log = true }

[[mechanism.links]]
name = "quantization"
bits = [4, 8]

"""


FEDPARETO_PARTS = ["Rounded"]


@dataclass(frozen=True)
class Rounded:
    """A model with a width whose name training has too."""

    rounds: Whole = 4

    def build(self, shape: tuple[int, ...], classes: int) -> Any:
        raise NotImplementedError


@pytest.fixture
def twice(tiny_study: Path) -> Path:
    """The path of a study that prunes twice: once by a rate, once by a threshold."""
    text = tiny_study.read_text().replace("kang23_eq13", "size_ratio")
    start, end = text.index("[mechanism]"), text.index("[objectives.utility_loss]")
    tiny_study.write_text(text[:start] + TWICE + text[end:])
    return tiny_study


def known(settings: Any) -> dict[str, Any]:
    """Return settings by the names of points, each element of a list by its place."""
    out = {}
    for name, value in named(settings).items():
        places = (
            {f"{name}_{i}": v for i, v in enumerate(value, 1)} if isinstance(value, tuple) else {}
        )
        out |= {name: value} | places
    return out


def test_links_that_declare_the_same_setting_are_numbered_whether_or_not_it_is_given() -> None:
    rate, threshold = Float("prune_rate", 0, 0.5), Float("threshold", 0.1, 0.2)
    chain = Chain(
        (Pruning(rate), Pruning(threshold=threshold), Quantization(Choice("bits", (4, 8))))
    )
    assert [v.name for v in searched(chain)] == ["prune_rate_1", "threshold_2", "bits"]
    assert named(chain)["threshold_1"] is None
    assert named(chain)["prune_rate_1"] == chain.links[0].prune_rate


def test_a_chain_that_prunes_twice_runs_and_is_picked(twice: Path, fedpareto: Any) -> None:
    assert load_study(twice).problem.space.names == (
        "learning_rate",
        "prune_rate_1",
        "threshold_2",
        "bits",
    )
    status, _, err = fedpareto("run", twice)
    assert (status, "error" in err) == (0, False)
    ready = twice.with_name("ready.toml")
    status, out, err = fedpareto("pick", twice, "--output", ready, "--json")
    assert (status, err) == (0, "")
    settings = json.loads(out)["settings"]
    first, second, third = tomllib.loads(ready.read_text())["mechanism"]["links"]
    assert (first["prune_rate"], second["threshold"], third["bits"]) == (
        settings["prune_rate_1"],
        settings["threshold_2"],
        settings["bits"],
    )
    assert ("threshold" in first, "prune_rate" in second) == (False, False)
    assert fedpareto("run", ready).status == 0
    again = json.loads(fedpareto("front", ready, "--json").out)["points"][0]
    assert again["measures"]["size_ratio"] < 1


def same_columns(ours: Study, settings: dict[str, Any], again: Study) -> None:
    """Assert that a fixed study trains what its point trained."""
    theirs = ours.problem.columns({name: [value] for name, value in settings.items()}, 1)
    found = again.problem.columns({}, 1)
    assert set(found) == set(theirs)
    for name, column in theirs.items():
        np.testing.assert_array_equal(found[name], column, err_msg=name)


@pytest.mark.parametrize("name", STUDIES)
def test_the_study_file_of_a_point_holds_its_settings_and_all_else_of_the_study(
    name: str, tmp_path: Path
) -> None:
    ours = study(name)
    for row in json.loads(ROWS.read_text())["studies"][name][:3]:
        path = tmp_path / "picked.toml"
        path.write_text(fixed_study(ours, row["settings"]), encoding="utf-8")
        again = load_study(path)
        assert (again.name, again.budget, again.repeats, again.seed) == (
            f"{name}-pick",
            1,
            5,
            ours.seed,
        )
        assert again.problem.space.names == ()
        held = (
            known(again.problem.training)
            | known(again.problem.mechanism)
            | known(again.problem.model)
        )
        assert {key: held[key] for key in ours.problem.space.names} == row["settings"]
        for part in ("data", "privacy", "cost", "objectives"):
            assert getattr(again.problem, part) == getattr(ours.problem, part)
        same_columns(ours, row["settings"], again)


def test_a_point_has_the_same_study_file_whether_or_not_encryption_is_run() -> None:
    ours = study("batchcrypt")
    settings = json.loads(ROWS.read_text())["studies"]["batchcrypt"][0]["settings"]
    assert fixed_study(encrypted(ours), settings) == fixed_study(ours, settings)


def test_a_width_with_the_name_of_a_setting_of_training_is_refused(tiny_study: Path) -> None:
    tiny_study.write_text(
        tiny_study.read_text().replace(
            'name = "lr"', f'name = "{__name__}:Rounded"\nrounds = [1, 4]'
        )
    )
    with pytest.raises(StudyError) as refused:
        load_study(tiny_study)
    assert str(refused.value) == (
        f"{tiny_study}: line 11, model.rounds: must have a name of its own, found one that "
        "[training] has: rounds."
    )


def test_a_chain_within_a_chain_is_refused(twice: Path) -> None:
    twice.write_text(
        twice.read_text().replace(
            'name = "quantization"\nbits = [4, 8]', 'name = "chain"\nlinks = [{ name = "none" }]'
        )
    )
    with pytest.raises(StudyError) as refused:
        load_study(twice)
    assert str(refused.value) == (
        f"{twice}: line 30, mechanism.links.3.name: must not be a chain within a chain, found one. "
        "Write its links in its place."
    )
