"""Exceptions: which one, with what, and that they cross processes."""

import concurrent.futures
import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest
import tidemark
from tidemark import errors


def raise_mismatch():
    raise tidemark.MismatchError("does not fit", ["a"], [], ["b"], ["c"])


def test_exceptions_cross_processes_with_their_attributes():
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        with pytest.raises(tidemark.MismatchError, match="does not fit") as caught:
            pool.submit(raise_mismatch).result()
    assert (caught.value.missing, caught.value.unexpected, caught.value.reshaped, caught.value.retyped) == (
        ["a"], [], ["b"], ["c"])


def test_every_exception_is_an_error_and_names_its_code():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind is not errors.Error
             and issubclass(kind, BaseException)]
    assert len(kinds) > 10
    for kind in kinds:
        assert issubclass(kind, tidemark.Error) and kind.code != "UNKNOWN", kind


def test_a_store_that_is_held_says_by_which_process_and_how_to_read_it(tmp_path):
    advice = "Close it there first. To read a step meanwhile use tidemark.open, to evaluate its steps tidemark.follow"
    here = f"(pid {os.getpid()} on {os.uname().nodename}) holds it since "
    program = ("import sys, tidemark\ntry:\n    tidemark.Checkpointer(sys.argv[1])\n"
               "except tidemark.AlreadyHeldError as e:\n    print(e)\n")
    with tidemark.Checkpointer(tmp_path / "store"):
        with pytest.raises(tidemark.AlreadyHeldError) as caught:
            tidemark.Checkpointer(tmp_path / "store")
        trainer = tidemark.AsyncTrainer(tmp_path / "store", {"n": 1}, lambda step: {})
        with pytest.raises(tidemark.AlreadyHeldError) as of_trainer:
            trainer.run(1)
        elsewhere = subprocess.run([sys.executable, "-c", program, str(tmp_path / "store")], capture_output=True, text=True,
                                   timeout=120, check=True).stdout.strip()
    for text, holder in ((str(caught.value), "this process"), (str(of_trainer.value), "this process"), (elsewhere, "python")):
        assert text.startswith(f"store {tmp_path / 'store'} is open for writing elsewhere: {holder}"), text
        assert here in text and text.endswith(advice) and "{" not in text
    assert trainer.run(1).next == 1  # the store is free


@pytest.mark.parametrize("note,shown", [
    ('{"host":"vm","pid":9894,"program":"train","since":"2026-11-30"}', "train (pid 9894 on vm) holds it since 2026-11-30"),
    ("a process that wrote no note", "held by a process that wrote no note"),
    ('{"pid":1}', 'held by {"pid":1}'), ("3", "held by 3")])
def test_the_note_of_a_holder_is_text_for_people_if_it_can_be_read(note, shown):
    refusal = errors.AlreadyHeldError(f"store /s is open for writing elsewhere: lock /s/LOCK: held by {note}")
    error = errors.held_elsewhere(refusal)
    assert str(error).startswith(f"store /s is open for writing elsewhere: {shown}. Close it there first.")


def test_a_store_that_is_not_there_is_not_found(tmp_path):
    with pytest.raises(tidemark.NotFoundError, match="there is no store in .*, and the option create is false"):
        tidemark.Checkpointer(tmp_path / "store", create=False)
    with pytest.raises(tidemark.NotFoundError):
        tidemark.open(tmp_path / "store")


@pytest.mark.parametrize("options", [{"when_full": "never"}, {"staging": "later"}, {"compression": "zip"},
                                     {"save_interval_steps": -1}, {"save_timeout": 0.0}])
def test_an_option_out_of_its_range_is_refused(tmp_path, options):
    with pytest.raises(errors.InvalidArgumentError):
        tidemark.Checkpointer(tmp_path / "store", **options)


def test_a_state_that_does_not_fit_lists_all_differences_and_changes_nothing(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.save(1, {"same": np.ones(2), "shape": np.ones(3), "dtype": np.ones(2), "gone": 1})
        state = {"same": np.zeros(2), "shape": np.zeros(4), "dtype": np.zeros(2, np.float32), "new": 5}
        with pytest.raises(tidemark.MismatchError, match="4 differences") as caught:
            checkpointer.resume(state)
        assert caught.value.missing == ["new"]
        assert caught.value.unexpected == ["gone"]
        assert caught.value.reshaped == ["shape"]
        assert caught.value.retyped == ["dtype"]
        assert state["same"].tolist() == [0, 0] and state["new"] == 5
        text = str(caught.value)
        assert "missing in the checkpoint: 'new' value\n" in text
        for way_out in ("allow_missing=True", "allow_unexpected=True", "only=[", "renames=[(", "convert_dtypes=True"):
            assert way_out in text, way_out


def test_one_difference_is_no_plural_and_names_only_ways_out_of_its_own(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.save(1, {"w": np.ones(2)})
        with pytest.raises(tidemark.MismatchError, match="1 difference:") as caught:
            checkpointer.resume({"w": 5})
        assert "'w': kind: checkpoint has tensor, state has a value" in str(caught.value)
        assert "allow_" not in str(caught.value) and "convert_dtypes" not in str(caught.value)


def test_a_damaged_step_is_data_loss(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store", compression="none") as checkpointer:
        checkpointer.save(1, {"w": np.arange(100_000.0)})
    shard = max((path for path in (tmp_path / "store" / "steps").rglob("*") if path.is_file()),
                key=lambda path: path.stat().st_size)
    with open(shard, "r+b") as file:
        file.seek(os.path.getsize(shard) // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    with tidemark.open(tmp_path / "store") as step, pytest.raises(tidemark.DataLossError):
        step.get_tensor("w")
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer, pytest.raises(tidemark.DataLossError):
        checkpointer.resume({"w": np.zeros(100_000)})
