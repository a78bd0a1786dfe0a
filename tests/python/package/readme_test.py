"""The samples of Python in the documents run as they stand."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[3]
# The samples of these are run with torch 2.x, in tests/python_torch.
ELSEWHERE = ("import lightning", "import transformers")
SAMPLES = [(document, number, sample) for document in ("README.md", "docs/python.md")
           for number, sample in enumerate(re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(), re.M | re.S))
           if not any(line in sample for line in ELSEWHERE)]


@pytest.mark.parametrize("document, number, sample", SAMPLES, ids=[f"{d}-{n}" for d, n, _ in SAMPLES])
def test_a_sample_runs(tmp_path, monkeypatch, document, number, sample):
    if "import torch" in sample:
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    exec(compile(sample, f"{document}, sample {number}", "exec"), {})


def test_both_documents_have_samples():
    assert {document for document, _, _ in SAMPLES} == {"README.md", "docs/python.md"}
