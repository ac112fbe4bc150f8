"""Studies side by side, as a user compares them."""

from __future__ import annotations

import json

import pytest

from fedpareto.report.compare import compare


@pytest.fixture
def pair(tiny_study, fedpareto):
    """Two studies that differ in the optimizer, the first with two seeds."""
    text = tiny_study.read_text().replace("budget = 2", "budget = 6")
    first, second = tiny_study.with_name("first.toml"), tiny_study.with_name("second.toml")
    first.write_text(text.replace('name = "tiny"', 'name = "first"'))
    second.write_text(text.replace('name = "tiny"', 'name = "second"').replace('name = "nsga2"\npopulation = 2',
                                                                               'name = "random"\nbatch = 2'))
    other = tiny_study.with_name("first-2.db")
    for words in ([first], [second], [first, "--seed", 2, "--db", other]):
        assert fedpareto("run", *words).status == 0
    return first, second, other


def test_compare_prints_a_table_with_mean_and_spread_over_seeds(pair, fedpareto, tmp_path):
    status, out, err = fedpareto("compare", *pair, "--figure", tmp_path / "both.png")
    assert (status, err) == (0, "")
    assert "first (nsga2)" in out
    assert "second (random)" in out
    assert "one seed" in out
    assert "±" in out
    assert "reference utility_loss 1, leakage 1" in out
    for kind in ("hypervolume", "fronts"):
        assert (tmp_path / f"both-{kind}.png").read_bytes().startswith(b"\x89PNG")


def test_compare_as_json_agrees_with_each_study_alone(pair, fedpareto):
    found = json.loads(fedpareto("compare", *pair, "--json").out)
    first, second = found["studies"]
    assert (first["seeds"], second["seeds"]) == ([1, 2], [1])
    alone = json.loads(fedpareto("front", pair[1], "--json").out)
    assert second["hypervolume"] == pytest.approx(alone["hypervolume"])
    assert second["evaluations"] == 6
    assert first["curve"] == sorted(first["curve"])


def test_one_reference_point_is_used_for_all_and_can_be_given(pair, fedpareto):
    usual = json.loads(fedpareto("compare", pair[1], "--json").out)["studies"][0]["hypervolume"]
    wide = json.loads(fedpareto("compare", pair[1], "--reference", "leakage=2", "--json").out)
    assert wide["reference"] == {"utility_loss": 1.0, "leakage": 2.0}
    assert wide["studies"][0]["hypervolume"] > usual


def test_what_cannot_be_compared_is_said(pair, fedpareto, tiny_study):
    other = tiny_study.with_name("other.toml")
    other.write_text(pair[0].read_text().replace("[objectives.leakage]\n", "[objectives.leak]\n"))
    assert fedpareto("run", other).status == 0
    assert "all studies must have the same objectives" in fedpareto("compare", pair[0], other).err
    assert "a reference must name one of utility_loss, leakage" in fedpareto("compare", pair[0], "--reference", "x=1").err
    assert "--reference: must be NAME=VALUE" in fedpareto("compare", pair[0], "--reference", "x").err
    assert "found no such file" in fedpareto("compare", tiny_study.with_name("nothing.toml")).err


def test_the_python_call_gives_the_same(pair):
    assert [g.label for g in compare(pair).groups] == ["first (nsga2)", "second (random)"]
