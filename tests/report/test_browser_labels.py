"""Labels of the page's charts never cover one another, on any screen, wherever the limits are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .pages import address, made_up, proxied

# Every pair of texts or knobs of one chart that cover one another by more than a hair, and every one that leaves the screen.
COVERED = """() => {
  const out = [];
  for (const svg of document.querySelectorAll(".chart")) {
    const texts = [...svg.querySelectorAll("text, .knob")].filter((t) => (t.textContent || t.matches(".knob")) && getComputedStyle(t).display !== "none");
    const boxes = texts.map((t) => t.getBoundingClientRect());
    boxes.forEach((a, i) => {
      if (!a.width) return;
      if (a.left < -1 || a.right > innerWidth + 1) out.push(`${svg.id}: "${texts[i].textContent}" leaves the screen`);
      boxes.slice(i + 1).forEach((b, j) => {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left), high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 1 && high > 3) out.push(`${svg.id || svg.className}: "${texts[i].textContent}" and "${texts[i + 1 + j].textContent}"`);
      });
    });
  }
  return out;
}"""


def scaled(seen, name, factor):
    """Return a view with one objective's values multiplied: a hundredth, or millions."""
    def larger(p):
        return replace(p, objectives=p.objectives | {name: p.objectives[name] * factor})

    at = {id(p): larger(p) for p in seen.points}
    problem = seen.study.problem
    goals = tuple(replace(o, limit=o.limit and o.limit * factor, reference=o.reference * factor) if o.name == name else o
                  for o in problem.objectives)
    return replace(seen, study=replace(seen.study, problem=replace(problem, objectives=goals)), points=tuple(at.values()),
                   front=tuple(at[id(p)] for p in seen.front), recommended=at[id(seen.recommended)], knee=at.get(id(seen.knee)))


@pytest.mark.parametrize("width", [360, 390, 800, 1280])
@pytest.mark.parametrize("factor", [1, 3e-5, 4e7])
def test_no_label_covers_another(shown, width, factor):
    seen = scaled(proxied(made_up(80, 3, full=True)), "leakage", factor)
    tab = shown(seen, width=width)
    assert tab.evaluate(COVERED) == []
    for limits in ({"leakage": 0.15 * factor}, {"loss": 0.9, "leakage": 0.85 * factor}, {"loss": 0.1, "leakage": 0.98 * factor}, {"loss": 0.97}):
        tab.evaluate("(limits) => { state.limits = limits; refresh(); }", limits)
        assert tab.evaluate(COVERED) == [], limits


LONG = ("randomization", "sparsification of the top", "quantization", "a chain of all three", "batchcrypt", "none")


@pytest.mark.parametrize("width", [360, 1280])
def test_long_names_of_many_choices_are_cut_before_they_meet(shown, width):
    seen = made_up(60, 3)
    points = {id(p): replace(p, settings=p.settings | {"kind": LONG[i % len(LONG)], "a_rather_long_name_of_a_setting": 0.1 * (i % 7)})
              for i, p in enumerate(seen.points)}
    tab = shown(replace(seen, points=tuple(points.values()), front=tuple(points[id(p)] for p in seen.front),
                        recommended=points[id(seen.recommended)], knee=points.get(id(seen.knee))), width=width)
    assert tab.evaluate(COVERED) == []
    assert "…" in tab.locator("#parallel").text_content()


def quick(n=60):
    """Return a view with the objectives and limits of the quickstart: an error without a limit up, ε ≤ 3 across."""
    seen = made_up(n, 2, names=("test_error", "epsilon"))
    problem = scaled(seen, "epsilon", 3.0).study.problem
    goals = tuple(replace(o, limit={"epsilon": 3.0}.get(o.name)) for o in problem.objectives)
    return replace(scaled(seen, "epsilon", 3.0), study=replace(seen.study, problem=replace(problem, objectives=goals)))


@pytest.mark.parametrize("width", [360, 390, 800, 1280])
@pytest.mark.parametrize("focus", [None, "limit-x", "limit-y"])
def test_labels_and_knobs_of_limits_give_way_to_each_other_and_to_the_titles(shown, width, focus):
    tab = shown(quick(), width=width)
    lows = [{}, {"epsilon": 0.001}, {"epsilon": 1}, {"epsilon": 2.99}, {"test_error": 0.8}, {"test_error": 0.001}]
    both = [{"test_error": error, "epsilon": e} for error in (0.02, 0.5, 0.8, 0.99) for e in (0.001, 0.3, 1, 2, 3)]
    for limits in (*lows, *both):
        tab.evaluate("(limits) => { state.limits = limits; refresh(); }", limits)
        if focus:  # a line without a limit says so while it is in focus
            tab.locator(f"#{focus}").focus()
            tab.keyboard.press("Shift")
            assert tab.locator(f"#{focus} text").is_visible()
        assert tab.evaluate(COVERED) == [], limits


def test_the_check_finds_labels_that_cover_one_another(shown):
    tab = shown(made_up(40, 2))
    tab.evaluate("() => { for (const t of document.querySelectorAll('#front text')) t.setAttribute('x', 60); }")
    assert tab.evaluate(COVERED) != []


@pytest.mark.parametrize("width", [390, 1200])
def test_no_label_of_a_printed_page_covers_another_and_nothing_but_tables_is_wider_than_the_screen(tabs, finished_study, fedpareto, width):
    assert fedpareto("report", finished_study, "--evidence").status == 0
    output = finished_study.with_name("both.html")
    assert fedpareto("compare", finished_study, "--output", output).status == 0
    for page in (finished_study.with_name("tiny-evidence.html"), output):
        tab = tabs(address(page), width=width)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate(COVERED.replace('".chart"', '"svg"')) == []
        smallest = min(tab.evaluate("[...document.querySelectorAll('svg text')].map((t) => t.getBoundingClientRect().height)"))
        assert smallest >= 11
