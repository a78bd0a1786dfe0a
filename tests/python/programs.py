"""The C++ programs as readers of a store that Python has written: checkpoint-inspect, and compare-steps, which reads every
entry by the C++ library.

They are those of the build in the folder TIDEMARK_PROGRAMS. Where it has none, a test that asks for one is skipped.
"""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import tidemark
from stateful import Stateful

FILES = {"checkpoint-inspect": "tools/checkpoint-inspect", "compare-steps": "examples/compare_steps/compare-steps"}


def run(program, *arguments):
    path = pathlib.Path(os.environ.get("TIDEMARK_PROGRAMS", "build/dev"), FILES[program])
    if not path.exists():
        pytest.skip(f"{path} is not built: cmake --build --preset dev --target {program}")
    return subprocess.run([path, *map(os.fspath, arguments)], capture_output=True, text=True, timeout=300)


def inspect(store, command, step):
    result = run("checkpoint-inspect", "--store", store, "--json", command, str(step))
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout)


def check_inspected(store):
    """checkpoint-inspect finds the latest step sound, and its entries are those that tidemark.open finds."""
    with tidemark.open(store) as step:
        number, values = step.info.step, step.value_keys()
        tensors = {name: (step.get_slice(name).get_dtype(), step.get_slice(name).get_shape()) for name in step.keys()}
    [verified] = inspect(store, "verify", number)["steps"]
    assert (verified["result"], verified["damage"], verified["chunks"]) == ("sound", [], verified["chunks_total"])
    shown = inspect(store, "show", number)["step"]
    assert (shown["step"], shown["state"], shown["entries"]) == (number, "committed", len(tensors) + len(values))
    entries = inspect(store, "tensors", number)["entries"]
    assert {entry["name"]: (entry["dtype"], entry["shape"]) for entry in entries if entry["kind"] == "tensor"} == tensors
    assert sorted(entry["name"] for entry in entries if entry["kind"] != "tensor") == sorted(values)


def compare_with_what_python_reads(store, copy, *, objects=(), framework="np", change=None):
    """What compare-steps says of the latest step, and of a store `copy` of all that tidemark.open reads of it. `objects`: the
    names of the entries that are states of objects. `change`: is given what was read, to change it."""
    with tidemark.open(store, framework=framework) as step:
        number, count = step.info.step, len(step.keys()) + len(step.value_keys())
        state = {name: step.get_value(name) for name in step.value_keys()}
        state |= {name: Stateful(state[name]) for name in objects}  # which have arrays of their own
        state |= {name: step.get_tensor(name) for name in step.keys()
                  if not any(name.startswith(f"{owner}.") for owner in objects)}
    if change is not None:
        change(state)
    with tidemark.Checkpointer(copy) as checkpointer:
        checkpointer.save(number, state)
    result = run("compare-steps", store, copy)
    return result.returncode, result.stdout.strip(), f"step {number} is the same in both, bit for bit: {count} entries"


def check_compared(store, copy, **options):
    """The C++ library reads the names and bytes that tidemark.open reads."""
    status, said, same = compare_with_what_python_reads(store, copy, **options)
    assert (status, said) == (0, same)


def check_tensors(store, expected, others=()):
    """tidemark.open finds these tensors, {name: array of NumPy}, and no more, except below the names `others`."""
    with tidemark.open(store) as step:
        names = [name for name in step.keys() if not name.startswith(tuple(f"{other}." for other in others))]
        assert sorted(names) == sorted(expected)
        for name, array in expected.items():
            found = step.get_tensor(name)
            assert found.dtype == array.dtype and found.shape == array.shape, name
            assert found.tobytes() == np.ascontiguousarray(array).tobytes(), name
