"""The samples of docs/python-jax.md run as they stand."""

import pathlib
import re

import pytest

SAMPLES = re.findall(r"^```python\n(.*?)^```", (pathlib.Path(__file__).parents[2] / "docs/python-jax.md").read_text(),
                     re.M | re.S)


@pytest.mark.parametrize("number", range(4))
def test_a_sample_runs(tmp_path, monkeypatch, number):
    assert len(SAMPLES) == 4
    monkeypatch.chdir(tmp_path)
    exec(compile(SAMPLES[number], f"docs/python-jax.md, sample {number}", "exec"), {})
