"""Exceptions: which one, with what, and that they cross processes."""

import concurrent.futures
import multiprocessing
import os

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


def test_a_store_that_is_held_says_so(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store"):
        with pytest.raises(tidemark.AlreadyHeldError, match="store"):
            tidemark.Checkpointer(tmp_path / "store")


def test_a_store_that_is_not_there_is_not_found(tmp_path):
    with pytest.raises(tidemark.NotFoundError):
        tidemark.Checkpointer(tmp_path / "store", create=False)
    with pytest.raises(tidemark.NotFoundError):
        tidemark.open(tmp_path / "store")


@pytest.mark.parametrize("options", [{"when_full": "never"}, {"staging": "later"}, {"compression": "zip"},
                                     {"save_interval_steps": -1}, {"save_timeout": 0.0}])
def test_an_option_out_of_its_range_is_refused(tmp_path, options):
    with pytest.raises(errors.InvalidArgumentError):
        tidemark.Checkpointer(tmp_path / "store", **options)


def test_a_closed_checkpointer_refuses(tmp_path):
    checkpointer = tidemark.Checkpointer(tmp_path / "store")
    checkpointer.close()
    checkpointer.close()
    assert not checkpointer.should_save(1)
    for call in (lambda: checkpointer.save(1, {}), lambda: checkpointer.resume({}), checkpointer.steps,
                 checkpointer.wait_until_committed):
        with pytest.raises(errors.FailedPreconditionError, match="closed"):
            call()


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
