"""The page on encryption says what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import fedpareto.crypto
from fedpareto.crypto import Codec
from fedpareto.errors import CapacityError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "encryption.md").read_text()
EXAMPLE = ROOT / "examples" / "encrypt_by_hand.py"


def test_the_snippet_is_a_file_that_runs(tmp_path):
    assert re.findall(r"```python\n(.*?)```", PAGE, re.S)[0] in EXAMPLE.read_text()
    done = subprocess.run([sys.executable, str(EXAMPLE)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "the decrypted sum is exact: True" in done.stdout


def test_the_capacity_table_is_what_the_codec_computes():
    rows = re.findall(r"\| (\d{4})(, degree 2)? \| (.*) \|", PAGE.split("S / Q for 5 clients")[1])
    assert len(rows) == 4
    for bits, degree, cells in rows:
        for batch, cell in zip((100, 200, 400, 800), cells.split(" | "), strict=True):
            try:
                codec = Codec(int(bits), batch, 5, 2 if degree else 1)
                found = f"{codec.slot} / " + ("2³¹ - 1" if codec.magnitude == 2**31 - 1 else f"{codec.magnitude:,}")
            except CapacityError:
                found = "does not fit"
            assert cell == found, (bits, degree, batch)


def test_public_names_are_sorted_and_documented():
    names = fedpareto.crypto.__all__
    assert sorted(names, key=lambda n: (not n.isupper(), n)) == names
    assert set(names) <= set(re.findall(r"\w+", PAGE))
