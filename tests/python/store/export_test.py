"""Safetensors files of steps, of snapshots, and of the best step so far."""

import json
import os
import struct
import subprocess
import sys
import time

import numpy as np
import pytest
import tidemark
from tidemark import errors


def contents(path):
    """(metadata, {name: (dtype, shape, bytes)}) of a safetensors file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__", {})
    return metadata, {name: (entry["dtype"], entry["shape"], data[8 + size + entry["data_offsets"][0]:8 + size + entry[
        "data_offsets"][1]]) for name, entry in header.items()}


def state_of(step):
    return {"model": {"w": np.full((2, 3), step, np.float32), "n": np.arange(3)}, "epoch": step}


def test_a_step_becomes_a_file(tmp_path):
    path = tmp_path / "out.safetensors"
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, state_of(step)).committed.result(60)
        assert tidemark.export_safetensors(tmp_path / "store", path) == 2  # beside the trainer
    metadata, tensors = contents(path)
    assert tensors["model.w"] == ("F32", [2, 3], np.full((2, 3), 2, np.float32).tobytes())
    assert tensors["model.n"] == ("I64", [3], np.arange(3).tobytes()) and len(tensors) == 2
    assert any(value == "2" for value in metadata.values())
    assert tidemark.export_safetensors(tmp_path / "store", path, 1, entries=["model.*"], renames=[("model", "")],
                                       dtype="float16", replace=True) == 1
    assert contents(path)[1]["w"] == ("F16", [2, 3], np.full((2, 3), 1, np.float16).tobytes())


def test_what_cannot_be_exported_is_refused(tmp_path):
    path = tmp_path / "out.safetensors"
    path.write_bytes(b"mine")
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.save(1, state_of(1)).committed.result(60)
    store = tmp_path / "store"
    for error, options in ((errors.AlreadyExistsError, {}),
                           (errors.InvalidArgumentError, {"entries": ["nothing.*"], "replace": True}),
                           (errors.InvalidArgumentError, {"renames": [("nothing", "x")], "replace": True}),
                           (errors.InvalidArgumentError, {"dtype": "float128", "replace": True}),
                           (errors.InvalidArgumentError, {"dtype": "int8", "replace": True}),
                           (tidemark.NotFoundError, {"step": 7, "replace": True}),
                           (errors.InvalidArgumentError, {"step": "first", "replace": True})):
        with pytest.raises(error):
            tidemark.export_safetensors(store, path, **options)
    with pytest.raises(tidemark.NotFoundError):
        tidemark.export_safetensors(tmp_path / "none", path)
    with pytest.raises(tidemark.NotFoundError):
        tidemark.export_safetensors(store, tmp_path / "none" / "out.safetensors")
    assert path.read_bytes() == b"mine" and sorted(os.listdir(tmp_path)) == ["out.safetensors", "store"]


def test_a_snapshot_becomes_a_file(tmp_path):
    path = tmp_path / "out.safetensors"
    tidemark.capture(state_of(5)).export_safetensors(path, entries=["model.w"])
    assert contents(path)[1] == {"model.w": ("F32", [2, 3], np.full((2, 3), 5, np.float32).tobytes())}
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.evaluator("e", lambda snapshot: snapshot.export_safetensors(path, replace=True))
        checkpointer.save(6, state_of(6))
        checkpointer.wait_until_evaluated(60)
        assert checkpointer.steps()[0].evaluations[0].outcome == "done", checkpointer.steps()[0].evaluations
    assert contents(path)[1]["model.w"][2] == np.full((2, 3), 6, np.float32).tobytes()


def test_the_file_is_that_of_the_best_step(tmp_path):
    path = tmp_path / "best.safetensors"

    def weight():
        return np.frombuffer(contents(path)[1]["w"][2], np.float32)[0]

    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.save(0, state_of(0)).committed.result(60)
        with tidemark.BestFile(tmp_path / "store", "loss", path, entries=["model.w"], renames=[("model", "")],
                               poll_interval=600) as best:
            best.update()
            assert not path.exists()
            for step, loss, expected in ((1, 3.0, 1), (2, 5.0, 1), (3, 1.0, 3)):
                checkpointer.save(step, state_of(step), metrics={"loss": loss}).committed.result(60)
                best.update()
                assert weight() == expected
        best.close()
        with pytest.raises(errors.FailedPreconditionError, match="the best file is closed"):
            best.update()
    with tidemark.BestFile(tmp_path / "store", "loss", path, mode="highest", entries=["model.w"]) as best:
        best.update()  # it replaces an export of the same store
        assert np.frombuffer(contents(path)[1]["model.w"][2], np.float32)[0] == 2


def test_a_thread_exports_by_itself_and_its_warnings_are_logged(tmp_path, caplog):
    path = tmp_path / "best.safetensors"
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.save(1, state_of(1), metrics={"loss": 1.0}).committed.result(60)
    with tidemark.BestFile(tmp_path / "store", "loss", path, poll_interval=0.01):
        deadline = time.monotonic() + 120
        while not path.exists():
            assert time.monotonic() < deadline, caplog.text
            os.sched_yield()
    with tidemark.BestFile(tmp_path / "store", "loss", tmp_path / "other", entries=["nothing"], poll_interval=600) as best:
        with pytest.raises(errors.InvalidArgumentError, match="nothing"):
            best.update()
    assert "nothing" in caplog.text


def test_a_best_file_that_cannot_work_is_refused(tmp_path):
    with pytest.raises(tidemark.NotFoundError):
        tidemark.BestFile(tmp_path / "none", "loss", tmp_path / "out")
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.save(1, state_of(1), metrics={"loss": 1.0, "x": 1.0}).committed.result(60)
    with pytest.raises(errors.InvalidArgumentError, match="mode is 'up'"):
        tidemark.BestFile(tmp_path / "store", "loss", tmp_path / "out", mode="up")
    with pytest.raises(errors.InvalidArgumentError, match="'?x'?"):
        tidemark.BestFile(tmp_path / "store", "x", tmp_path / "out")
    (tmp_path / "out").write_bytes(b"mine")
    with pytest.raises(errors.AlreadyExistsError):
        tidemark.BestFile(tmp_path / "store", "loss", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"mine"


def test_one_that_was_not_closed_ends_with_the_process_and_with_its_last_reference(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.save(1, state_of(1), metrics={"loss": 1.0}).committed.result(60)
    program = ("import sys, tidemark\n"
               "best = tidemark.BestFile(sys.argv[1], 'loss', sys.argv[2], poll_interval=0.001)\n"
               "best.update()\n")
    result = subprocess.run([sys.executable, "-W", "error", "-c", program, str(tmp_path / "store"), str(tmp_path / "out")],
                            capture_output=True, text=True, timeout=300)
    assert (result.returncode, result.stderr) == (0, "") and (tmp_path / "out").exists()
    best = tidemark.BestFile(tmp_path / "store", "loss", tmp_path / "out")
    with pytest.warns(ResourceWarning, match="BestFile was not closed"):
        del best
