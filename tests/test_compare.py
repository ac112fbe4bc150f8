"""Studies side by side, as a user compares them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest

from fedpareto.report.compare import compare
from fedpareto.report.compare_page import comparison_page


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
    box = np.prod(list(found["reference"].values()))
    assert second["share"] == pytest.approx(second["hypervolume"] / box)
    assert second["evaluations"] == 6
    assert first["curve"] == sorted(first["curve"])


def test_equal_points_are_one_on_the_front_as_everywhere_else(pair):
    (group,) = compare([pair[1]]).groups
    twice = replace(group, y=np.vstack([group.y, group.y]), of=np.tile(group.of, 2), rounds=np.concatenate([group.rounds + 1, group.rounds]))
    assert twice.front.tolist() == group.front.tolist()
    assert (twice.rounds[twice.kept] == 0).all()  # the end of a trial before what it showed on the way
    none = replace(group, y=group.y[:0], of=group.of[:0], rounds=group.rounds[:0])
    assert len(none.kept) == len(none.front) == 0


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


def words(html):
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html[html.index("<body>"):])))


@pytest.fixture
def mechanisms(pair, tiny_study, fedpareto):
    """Noise against sparsification, each with the leakage scale of its own."""
    sparse = tiny_study.with_name("sparse.toml")
    text = pair[0].read_text().replace('name = "first"', 'name = "sparse"').replace("kang23_eq13", "kang23_eq15")
    text = re.sub(r"\[mechanism\][^[]*\[0.5, 4.0\]", '[mechanism]\nname = "sparsification"\nconnection_probability = [0.3, 1.0]\n'
                                                   "private_fraction = [0.0, 0.9]", text)
    sparse.write_text(text.replace("limit = 0.8", "limit = 1.0"))
    first = tiny_study.with_name("noise.toml")
    first.write_text(pair[0].read_text().replace('name = "first"', 'name = "noise"').replace("limit = 0.8", "limit = 1.0"))
    for path in (sparse, first):
        assert fedpareto("run", path).status == 0
    return first, sparse


def test_the_page_shows_curves_fronts_limits_ends_and_differences(pair, fedpareto, tmp_path):
    path = tmp_path / "page.html"
    status, out, err = fedpareto("compare", *pair, "--output", path)
    assert (status, err) == (0, "")
    assert f"page    {path}" in out
    html = path.read_text()
    text = words(html)
    for heading in ("Hypervolume over evaluations", "Fronts", "The least utility_loss for each limit on leakage (proxy)",
                    "The least utility_loss for each true ε", "Where each front ends", "What differs between the studies"):
        assert heading in text
    assert "Studies compared: first (nsga2), second (random)" in text
    assert "optimizer.name nsga2 random" in text
    assert "seed" not in text[text.index("What differs"):]
    assert 'class="band' in html
    assert not re.search(r"""<script|(src|href)\s*=|@import|url\(""", html)
    assert "scale of its own" not in text


def test_the_best_under_a_limit_is_the_best_trial_within_it(mechanisms, fedpareto):
    points = json.loads(fedpareto("front", mechanisms[0], "--json").out)["points"]
    html = comparison_page(compare(mechanisms[:1]))
    best, ends = html[html.index("for each limit on leakage"):html.index("for each true ε")], html[html.index("Where each front ends"):]
    rows = re.findall(r"<tr><td>≤ ([\d.e+-]+)</td><td>([\d.]+)<small>", best)
    assert len(rows) > 2
    for limit, least in rows:
        assert least == f"{min(p['objectives']['utility_loss'] for p in points if p['objectives']['leakage'] <= float(limit)):.4g}"
    for name in ("utility_loss", "leakage"):
        assert f"<td>{min(p['objectives'][name] for p in points):.4g}<small>" in ends


def test_a_proxy_with_other_constants_is_on_another_scale(tiny_study, fedpareto):
    text = tiny_study.read_text()
    one, two = tiny_study.with_name("one.toml"), tiny_study.with_name("two.toml")
    one.write_text(text.replace('name = "tiny"', 'name = "one"'))
    two.write_text(text.replace('name = "tiny"', 'name = "two"').replace('name = "randomization"', 'name = "randomization"\nleakage_c1 = 0.5'))
    for path in (one, two):
        assert fedpareto("run", path).status == 0
    said = "leakage is a proxy, and its constants are not the same in all studies: leakage_c1 = 0.5; leakage_c1 = 1.0."
    assert said in fedpareto("compare", one, two).out
    text = words(comparison_page(compare([one, two])))
    assert said in text
    assert "leakage is a proxy on scales of different constants: read along a column, not across" in text
    assert "its constants" not in words(comparison_page(compare([one])))


def test_proxies_of_different_mechanisms_are_shown_side_by_side_but_not_ranked(mechanisms, fedpareto):
    html = comparison_page(compare(mechanisms))
    text = words(html)
    assert "Mechanisms compared: randomization and sparsification" in text
    assert "leakage is a proxy (kang23_eq13, kang23_eq15), and every mechanism has a scale of its own" in text
    assert "read along a column, not across" in text
    assert "No true ε is promised by sparse (nsga2): without noise, nothing is." in text
    proxied = html[html.index("for each limit on leakage"):html.index("for each true ε")]
    true = html[html.index("for each true ε"):html.index("Where each front ends")]
    assert ('class="best"' in proxied, 'class="best"' in true) == (False, True)
    assert "scale of its own" in fedpareto("compare", *mechanisms).out
    found = json.loads(fedpareto("compare", *mechanisms, "--json").out)
    assert [s["mechanism"] for s in found["studies"]] == ["randomization", "sparsification"]


def test_studies_that_promise_on_other_terms_or_limits_are_told_apart(mechanisms, pair):
    other = mechanisms[0].with_name("other.toml")
    other.write_text(mechanisms[0].read_text().replace("clients = 4", "clients = 5"))
    from fedpareto import load_study, run

    run(load_study(other)).close()
    text = words(comparison_page(compare([mechanisms[0], other])))
    assert "noise (nsga2) 1" in text
    assert "noise (nsga2) 2" in text
    assert "The studies promise on different terms" in text
    assert "data.clients 4 5" in text
    assert "The limit of leakage is not the same in all studies: 0.8, 1.0." in words(comparison_page(compare([mechanisms[0], pair[0]])))


def test_markup_in_a_name_is_shown_and_not_run(pair, fedpareto, tiny_study):
    nasty = "<script>alert(1)</script>"
    path = tiny_study.with_name("nasty.toml")
    text = pair[0].read_text().replace('name = "first"', f'name = "{nasty}"')
    path.write_text(text.replace("objectives.leakage", f'objectives."{nasty}"'))
    assert fedpareto("run", path).status == 0
    html = comparison_page(compare([path]))
    assert "<script" not in html
    assert nasty in words(html)


def test_rounds_that_a_run_passed_count_and_say_so(tiny_study, fedpareto):
    text = tiny_study.read_text().replace("rounds = 1", "rounds = [1, 6]").replace("budget = 2", "budget = 8")
    tiny_study.write_text(text.replace("kang23_eq13", "gu24_eq2").replace("limit = 0.8", "reference = 1000"))
    assert fedpareto("run", tiny_study).status == 0
    group = compare([tiny_study]).groups[0]
    assert set(group.rounds) > {0}
    text = words(comparison_page(compare([tiny_study])))
    assert re.search(r"true ε ≤ [\d.]+, trial \d+ after \d rounds?", text)
    row = int(next(i for i in group.kept if group.rounds[i]))
    assert group.found(row).settings["rounds"] == group.rounds[row] < group.found(row).trial.settings["rounds"]


@pytest.mark.parametrize("count", [1, 3])
def test_a_page_can_be_made_of_one_objective_and_of_three(tiny_study, fedpareto, count):
    text = tiny_study.read_text().replace("budget = 2", "budget = 8").replace("limit = 0.8", "limit = 1.0")
    if count == 1:
        text = re.sub(r"\[objectives.leakage\][^[]*", "", text)
    else:
        text = text.replace("[optimizer]", '[objectives.epsilon]\nreference = 1e6\n\n[optimizer]')
    tiny_study.write_text(text)
    assert fedpareto("run", tiny_study).status == 0
    html = comparison_page(compare([tiny_study]))
    assert ("<h2>Fronts</h2>" in html, "One picture for each budget of epsilon." in html) == (count > 1, count == 3)
    assert "Where each front ends" in html
