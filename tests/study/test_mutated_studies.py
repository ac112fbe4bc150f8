"""Study files changed at random: each is read or refused in our own words, quickly, and nothing it names is run."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest

from fedpareto import load_study
from fedpareto.errors import FedparetoError, StudyError
from fedpareto.study.lines import longest_key

EXAMPLES = Path(__file__).parents[2] / "examples"
VALUES = ["nan", "inf", "-inf", "1979-05-27", "07:32:00", "1979-05-27T07:32:00Z", "1" * 5000, '""', '"\\u0000"', "[]", "{}", "[[[]]]", "true", "-1",
          "0", "1e400", '"os:system"', '"subprocess:getoutput"', '"builtins:exec"', '"fedpareto.cli:main"', "{low=1,high=0}", '{low="a"}',
          "{choices=[]}", '"\\u007f\\u202e"', "{low=1,high=2,log=3}", "[1,2,3]", "9" * 400, '"../x:y"', '"' + "[" * 40_000 + '"']
LINES = ["a." * 3000 + "b = 1", "x = " + "[" * 5000, "[a]\n[a]", '["co\\u0000st"]', "cost = 5", "cost = {a=1}", "cost.upload_rate = 5.0", '["cost"]']
LETTERS = "\0\a\n\"'[]{}.\u2028\x7fA=,#\ud800"


def mutated(text: str, luck: random.Random) -> str:
    lines = text.split("\n")
    for _ in range(luck.randint(1, 3)):
        at = luck.randrange(len(lines))
        line = lines[at]
        way = luck.randrange(6)
        if way == 0 and "=" in line:
            lines[at] = f"{line.split('=')[0]}= {luck.choice(VALUES)}"
        elif way == 1:
            lines[at] = ""
        elif way == 2 and line:
            place = luck.randrange(len(line))
            lines[at] = line[:place] + luck.choice(LETTERS) + line[place + 1:]
        elif way == 3:
            lines.insert(at, luck.choice(lines))
        elif way == 4:
            lines.insert(at, luck.choice(LINES))
        else:
            other = luck.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
    return "\n".join(lines)


HEAD = 'name = "large"\n'
LARGE = {
    "bytes": ("#" * 2**20, "file: must be of at most 1048576 bytes, found more."),
    "parts of a key": ("a." * 500_000 + "b = 1", "syntax: must have keys of at most 50 parts, found a longer one."),
    "quoted parts": ('"a" . ' * 50 + "b = 1", "syntax: must have keys of at most 50 parts"),
    "parts of a table": ("[" + "a." * 50 + "b]", "syntax: must have keys of at most 50 parts"),
    "unknown keys": ("\n".join(f"k{i} = 1" for i in range(50_000)), "and 49"),
    "links": ('[mechanism]\nname = "chain"\nlinks = [' + '{name = "none"}, ' * 5000 + "]", "a chain must have at most 20 links, found 5000"),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_study_file_too_large_to_read_is_refused_soon(tmp_path: Path, name: str) -> None:
    more, said = LARGE[name]
    (tmp_path / "study.toml").write_text(HEAD + more)
    began = time.process_time()
    with pytest.raises(StudyError) as refused:
        load_study(tmp_path / "study.toml")
    assert said in str(refused.value)
    assert time.process_time() - began < 5
    assert len(str(refused.value).splitlines()) <= 102


def test_dots_in_texts_comments_and_numbers_are_no_parts_of_keys() -> None:
    assert longest_key('a.b.c = 0.5\nd = ["x.y.z.w.v", 1.5]\n# a.b.c.d.e.f.g.h\n') == 3
    assert longest_key("") == 1


@pytest.mark.parametrize(("count", "seed"), [(500, 15), *(pytest.param(10_000, seed, marks=pytest.mark.slow) for seed in range(10))])
def test_a_study_file_changed_at_random_is_read_or_refused_in_words(tmp_path: Path, count: int, seed: int) -> None:
    texts = [path.read_text() for path in sorted(EXAMPLES.glob("*.toml"))]
    for path in EXAMPLES.glob("own_*.py"):
        shutil.copy(path, tmp_path)
    luck, study, refused = random.Random(seed), tmp_path / "study.toml", 0
    for _ in range(count):
        content = mutated(luck.choice(texts), luck).encode("utf-8", "surrogatepass")
        study.write_bytes(content)
        began, computed = time.monotonic(), time.process_time()
        try:
            load_study(study)
        except FedparetoError as error:
            refused += 1
            str(error).encode()
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error} of a study file that reads\n{content[:3000]!r}") from error
        assert time.process_time() - computed < 5  # a busy machine may let it wait longer
        assert time.monotonic() - began < 60
        assert study.read_bytes() == content
    assert 0.2 * count < refused < count
