"""Is an ε acceptable? It stands in its place among published ones, on the page and in words."""

from __future__ import annotations

import pytest

from fedpareto.privacy import rounded_up
from fedpareto.report.evidence import evidence
from fedpareto.report.scale import SCALE, among_published

from .test_evidence import words
from .test_one_number import public  # noqa: F401
from .test_what_holds import private  # noqa: F401


def numbers(tab):
    return [float(text.removeprefix("ε = ")) for text in tab.locator("#scale b").all_inner_texts()]


def own(tab):
    return tab.locator("#scale .here").all_inner_texts()


def test_published_values_are_in_order():
    values = [s["epsilon"] for s in SCALE]
    assert values == sorted(values)


def test_the_page_puts_the_points_epsilon_among_published_ones(shown, public):  # noqa: F811
    seen, _ = public
    tab = shown(seen)
    row = rounded_up(seen.recommended.measures["epsilon_release"])
    assert numbers(tab) == sorted([*(s["epsilon"] for s in SCALE), float(row)])
    assert tab.locator("#scale").is_visible()
    assert own(tab) == [f"ε = {float(row):g}\ntrial {seen.recommended.trial} of this study, for one client's data"]
    other = next(i for i, p in enumerate(seen.points) if p is not seen.recommended)
    tab.evaluate("i => choose(i)", other)
    assert own(tab)[0].split("\n")[1].startswith(f"trial {seen.points[other].trial} ")
    tab.evaluate("() => { for (const m of Object.keys(data.points.measures)) if (m.startsWith('epsilon')) data.points.measures[m] = null; draw(); }")
    assert own(tab) == []
    assert "Without a promise this point has no place among them." in tab.locator("#scale-note").inner_text()


def test_of_a_private_search_the_scale_shows_what_holds(shown, private):  # noqa: F811
    tab = shown(private[0], width=390)
    whole = tab.evaluate("() => data.search.epsilon.release")
    assert own(tab) == [f"ε = {whole:g}\nthis search, for one client's data"]
    assert numbers(tab) == sorted(numbers(tab))
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize(("epsilon", "said"), [(0.5, "ε = 0.5000 stands below the least, 1 (strong"), (2.8547, "ε = 2.855 stands between 2.64 (a day of one user"),
                                               (10.0, "between 10 (the most"), (400.0, "above the largest, 17.14 (a person")])
def test_the_place_in_words(epsilon, said):
    assert said in among_published(epsilon)
    assert "reference points, not rules" in among_published(epsilon)


def test_the_evidence_says_where_its_epsilon_stands(public, private):  # noqa: F811
    seen, rows = public
    assert among_published(seen.recommended.measures["epsilon"]) in words(evidence(seen, rows))
    seen, rows = private
    text = words(evidence(seen, rows))
    assert text.count("Among published values, ε = ") == 1
    assert among_published(seen.recommended.measures["epsilon"]) not in text
