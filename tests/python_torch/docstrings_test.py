"""What users name of the integrations of this folder has a docstring; a framework's hook may have that of the framework."""

import importlib

import pytest
from documented import undocumented


@pytest.mark.parametrize("name", ["dcp", "lightning", "transformers"])
def test_every_public_name_has_a_docstring(name):
    assert undocumented(importlib.import_module(f"tidemark.{name}")) == []
