"""What the documents say is what the product does."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)


def test_the_reference_is_current():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert generate.REFERENCE.read_text() == generate.reference(), "run: python docs/generate.py"


def test_the_reference_has_every_section_of_a_study_file_and_every_key_of_it():
    from fedpareto.study.sections import FAMILIES, PLAIN, SECTIONS

    assert set(SECTIONS) == {*PLAIN, *FAMILIES, "objectives", "limits"}
    parts = (ROOT / "docs" / "reference.md").read_text().split("\n### ")
    for section, cls in PLAIN.items():
        (part,) = [p for p in parts if p.startswith(f"[{section}]\n")]
        assert re.findall(r"(?m)^\| `(\w+)` \|", part) == [*cls.__dataclass_fields__]


def test_every_mechanism_has_a_row_and_words_on_its_page():
    from fedpareto.mechanisms import MECHANISMS

    text = (ROOT / "docs" / "mechanisms.md").read_text()
    assert re.findall(r"(?m)^\| `(\w+)` \|", text) == [*MECHANISMS]
    for word in ("**Noise**", "**Sparsification.**", "**BatchCrypt**", "**A chain**"):
        assert word in text


def test_every_setting_and_measure_says_what_it_is():
    empty = [line for line in (ROOT / "docs" / "reference.md").read_text().splitlines() if re.match(r"\| `\w+` \|\s*\|", line)]
    assert empty == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_readme_is_short_and_its_first_screen_has_picture_and_commands():
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") <= 150
    first = text[: text.index("## ")]
    assert "docs/quickstart-front.png" in first
    assert "make demo" in first
    assert "make test" in first


def test_snippets_are_files_that_run():
    assert blocks(ROOT / "README.md", "python")[0] in (ROOT / "examples" / "quickstart.py").read_text()
    quickstart = (ROOT / "examples" / "quickstart.toml").read_text().splitlines()
    for line in blocks(ROOT / "README.md", "toml")[0].splitlines():
        assert line in quickstart


def test_every_command_of_the_readme_runs(fedpareto, tmp_path):
    study = tmp_path / "quickstart.toml"
    text = (ROOT / "examples" / "quickstart.toml").read_text()
    study.write_text(re.sub(r"(?m)^(budget|repeats) = \d+", r"\1 = 1", text).replace("budget = 1 ", "budget = 20 "))
    commands = [line.split("#")[0].split() for block in blocks(ROOT / "README.md", "sh") for line in block.splitlines()
                if line.startswith("fedpareto ")]
    assert len(commands) == 10
    for _, *words in commands:
        few = ["--budget", "6"] if words == ["run", "my-study/study.toml"] else []
        words = [str(tmp_path / w) if w.startswith("my-study") else w for w in [*words, *few]]
        words = ["6" if before == "--seconds" else w for before, w in pairwise(["", *words])]  # of attacks
        done = fedpareto(*[study if w == "examples/quickstart.toml" else w for w in words])
        assert done.status == 0, done.err


def test_the_documented_faults_are_what_is_printed(fedpareto, tmp_path):
    shown = blocks(ROOT / "docs" / "all-of-fedpareto.md", "text")[0]
    study = tmp_path / "quickstart.toml"
    study.write_text((ROOT / "examples" / "quickstart.toml").read_text().replace("noise_multiplier =", "noise_multiplyer =")
                     .replace("rounds = 20", "rounds = 0"))
    assert fedpareto("run", study).err == shown.replace("examples/quickstart.toml", str(study))


@pytest.mark.parametrize("script", ["quickstart.py", "fedavg_by_hand.py", "own_mechanism.py", "protect_by_hand.py", "encrypt_by_hand.py", "dp_sgd_by_hand.py"])
def test_examples_run(script, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run([sys.executable, f"examples/{script}"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_example_with_a_mechanism_of_ones_own_runs(fedpareto, tmp_path):
    assert fedpareto("run", ROOT / "examples" / "own_mechanism.toml", "--budget", 10, "--db", tmp_path / "own.db").status == 0


def test_the_example_of_a_private_search_prints_the_sentence_that_it_explains(fedpareto, tmp_path):
    """All that it explains but for the number, which is of eight trials: these are two."""
    example = ROOT / "examples" / "private_search.toml"
    (shown,) = re.findall(r"(?m)^#   (The search .*ε = )[\d.]+( at .*) \.\.\.$", example.read_text())
    done = fedpareto("run", example, "--budget", 2, "--db", tmp_path / "private.db")
    assert done.status == 0, done.err
    assert re.search(rf"{re.escape(shown[0])}[\d.]+{re.escape(shown[1])}", done.out)


def test_the_numbers_of_the_private_search_are_its_price():
    """Its noise, cohort and rounds are fixed, so that its ε follows without a training."""
    from fedpareto import load_study

    example = ROOT / "examples" / "private_search.toml"
    study = load_study(example)
    point = {v.name: v.decode(0.5) for v in study.problem.space.variables}
    found = study.problem.search_guarantee([point] * study.budget, study.repeats, study.budget, "drawn")
    stated = found.statement().split(",")[0]
    assert f"All of it together: {stated}" in example.read_text()
    assert stated.split(" at ")[0] in (ROOT / "docs" / "privacy.md").read_text()
    assert found.epsilon < 5


def test_every_error_is_in_the_tree_at_the_head_of_its_file():
    from fedpareto import errors

    classes = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert set(re.findall(r"(?m)^(?:[├└│─ ]*)([A-Z]\w+)", errors.__doc__.split("A message reads")[0])) >= classes


def test_every_page_that_promises_equal_bits_says_on_what_machines():
    """A past finding: another processor has another quickstart, with another star."""
    for page in ("README.md", "docs/all-of-fedpareto.md"):
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert "bit for bit on one kind of machine and one version of torch" in text
    first = (ROOT / "README.md").read_text(encoding="utf-8").split("```")[0]
    assert "Another processor or torch rounds the last digits otherwise" in first
