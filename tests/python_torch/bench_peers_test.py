"""python/bench/peers.py on a small state, with the peers that the environment of these tests has."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

BENCH = pathlib.Path(__file__).parents[2] / "python" / "bench" / "peers.py"
# DCP's process mode starts a Python more for each save, and is left out for that.
MEASURED = ("tidemark", "torch-save", "safetensors", "dcp", "dcp-thread")
MISSING = "zipnn"


def run(*arguments):
    return subprocess.run([sys.executable, str(BENCH), *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    chosen = [argument for name in (*MEASURED, MISSING) for argument in ("--peer", name)]
    done = run("--size-mb", 4, "--steps", 2, "--runs", 1, "--dir", folder, "--json", folder / "found.json", *chosen)
    assert done.returncode == 0, done.stderr + done.stdout
    assert os.listdir(folder) == ["found.json"]
    return json.loads((folder / "found.json").read_text(encoding="utf-8")), done.stdout


def columns(found, name):
    return next(peer["columns"] for peer in found[0]["peers"] if peer["name"] == name)


@pytest.mark.parametrize("name", MEASURED)
def test_every_column_is_there_and_what_is_restored_is_the_state(found, name):
    values = columns(found, name)
    assert set(values) == {"blocked", "durable", "restore", "bytes", "cpu", "memory", "first_blocked", "first_durable", "flip",
                           "truncation", "equal"}
    memory = values.pop("memory")
    assert memory is None or memory >= 0, "None: no look at the memory fell into a save of 4 MB"
    assert all(value is not None for value in values.values()), values
    assert values["equal"] is True
    assert 0 < values["restore"] and 0 < values["durable"]
    assert values["bytes"] > 0.5 * found[0]["conditions"]["state"]["bytes"]
    assert values["flip"] in ("noticed", "silent") and values["truncation"] == "noticed"


def test_tidemark_notices_damage(found):
    values = columns(found, "tidemark")
    assert (values["flip"], values["truncation"]) == ("noticed", "noticed")


def test_a_goal_names_the_best_other_and_says_whether_it_is_met(found):
    goals = {goal["goal"]: goal for goal in found[0]["goals"]}
    assert set(goals) == {"blocked", "durable", "restore", "bytes", "cpu", "memory", "first_blocked", "first_durable"}
    ours, bytes_goal = columns(found, "tidemark"), goals["bytes"]
    best = min(columns(found, name)["bytes"] for name in MEASURED if name != "tidemark")
    assert columns(found, bytes_goal["against"])["bytes"] == best
    assert bytes_goal["measured"] == pytest.approx(ours["bytes"] / best)
    for goal in goals.values():
        assert goal["met"] == (goal["measured"] is not None and goal["measured"] <= goal["limit"])


def test_a_library_that_is_missing_has_a_row_that_says_so(found):
    missing = next(peer for peer in found[0]["peers"] if peer["name"] == MISSING)
    assert missing["columns"] is None and "zipnn" in missing["unavailable"]
    assert "not installed: No module named 'zipnn'" in found[1]


def test_too_little_disk_is_said_before_anything_begins(tmp_path):
    done = run("--size-mb", 10**12, "--dir", tmp_path)
    assert done.returncode == 2
    assert "5000000000.1 GB are needed" in done.stderr and "GB are free" in done.stderr
    assert os.listdir(tmp_path) == []


def test_a_wrong_python_is_refused(tmp_path):
    done = run("--python", "jax=/nowhere/python3", "--dir", tmp_path)
    assert done.returncode == 2 and "expected torch=PATH or jax=PATH" in done.stderr
