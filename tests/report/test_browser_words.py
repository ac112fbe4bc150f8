"""The page in a browser: words that explain themselves, what moves what, tables that say they are wider, colours of classes."""

from __future__ import annotations

import pytest

from fedpareto import load_study, run, view
from fedpareto.report.glossary import WORDS

from .pages import made_up
from .test_importance import seen_of


def ringed(tab, name="best"):
    return int(tab.locator(f"#ring-{name}").get_attribute("data-index"))


@pytest.fixture
def moved():
    return seen_of(lambda x: x[:, 0] + 0.3 * x[:, 1], n=60)


def test_a_word_explains_itself_when_pointed_at_and_when_reached_by_keys(shown):
    tab = shown(made_up(40, 3))
    word = tab.locator("#summary .term[data-word=hypervolume]")
    word.hover()
    assert tab.locator("#tip").inner_text() == WORDS["hypervolume"]
    tab.mouse.move(5, 500)
    assert tab.locator("#tip").is_hidden()
    reached = []
    for _ in range(8):
        tab.keyboard.press("Tab")
        reached.append(tab.evaluate("document.activeElement.dataset.word"))
        if reached[-1] == "hypervolume":
            break
    assert "hypervolume" in reached
    assert tab.locator("#tip").inner_text() == WORDS["hypervolume"]
    tab.keyboard.press("Escape")
    assert tab.locator("#tip").is_hidden()


def test_a_tap_explains_a_word_on_a_phone_and_its_text_stands_on_the_page(shown):
    tab = shown(made_up(40, 3), width=390, has_touch=True)
    tab.locator("#why .term").first.tap()
    word = tab.locator("#why .term").first.get_attribute("data-word")
    assert tab.locator("#tip").inner_text() == WORDS[word]
    described = tab.locator("#why .term").first.get_attribute("aria-describedby")
    assert tab.locator(f"#{described}").text_content() == WORDS[word]
    tab.locator("#words-part summary").tap()
    assert tab.locator("#words dd").count() == len(WORDS)


def test_words_are_marked_once_in_a_text_and_never_inside_another_word(shown):
    tab = shown(made_up(30, 2))
    tab.evaluate("tell(byId('why'), 'the front of the front, frontier, adjacency δ=1 view')")
    assert tab.locator("#why").inner_text() == "the front of the front, frontier, adjacency δ=1 view"
    assert tab.locator("#why .term").all_inner_texts() == ["front", "adjacency", "δ", "view"]


def test_what_moves_a_measure_is_drawn_and_a_slice_can_be_picked_from(shown, moved):
    tab = shown(moved)
    assert tab.locator("#moved").input_value() == "o:f1"
    rows = tab.locator("#shares-moved .share-row").all_inner_texts()
    assert [row.split("\n")[0] for row in rows] == ["x1", "x2", "x3"]
    assert "%" in rows[0]
    assert tab.locator("#slices .slice").count() == 3
    at = tab.evaluate("""() => { const b = document.querySelector('#slices .over').getBoundingClientRect();
        const [x, y] = slices[0].at(data.points.front[0]); return [b.left + x, b.top + y, data.points.front[0]]; }""")
    tab.locator("#slices").scroll_into_view_if_needed()
    at = tab.evaluate("""() => { const b = document.querySelector('#slices .over').getBoundingClientRect();
        const [x, y] = slices[0].at(data.points.front[0]); return [b.left + x, b.top + y, data.points.front[0]]; }""")
    tab.mouse.click(*at[:2])
    assert ringed(tab, "pick") == at[2]


def test_where_a_model_explains_little_no_share_is_shown(shown):
    tab = shown(made_up(30, 2))
    assert tab.locator("#shares-moved .share-row").count() == 0
    assert "from 20 trials on" in tab.locator("#moved-words").inner_text()
    assert tab.locator("#slices .slice").count() == 3


def test_a_table_wider_than_a_phone_says_so_and_scrolls(shown):
    tab = shown(made_up(40, 3, full=True), width=390)
    box = tab.locator(".scroll.wider")
    assert box.count() == 1
    assert "move it sideways" in tab.locator(".cue").inner_text()
    assert box.evaluate("b => { b.scrollLeft = 200; return b.scrollLeft; }") == 200
    assert shown(made_up(40, 2), width=1280).locator(".cue").count() == 0


def test_the_split_names_the_class_of_each_colour_and_speaks_of_records(shown, finished_study):
    study = load_study(finished_study)
    with run(study) as store:
        tab = shown(view(study, store))
    assert tab.locator("#split-legend span").all_inner_texts() == [f"class {c}" for c in range(10)]
    first, second = (tab.locator("#split-legend rect").nth(c).get_attribute("fill") for c in (0, 1))
    assert first != second
    assert first in tab.locator("#shares rect").evaluate_all("all => all.map((r) => r.getAttribute('fill'))")
    assert "images" not in tab.locator("#split").inner_text()
    tab.evaluate("data.split = data.split.map((row) => [...row, ...row, ...row]); drawSplit()")
    assert tab.locator("#split-legend span").first.inner_text() == "class 0, 10, 20"
    tab.evaluate("data.split = data.split.map((row) => [row[0] + 1]); drawSplit()")
    assert tab.locator("#split-legend span").count() == 0
