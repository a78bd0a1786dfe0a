"""The CheckpointIO of tidemark.lightning: links, and what fails when it closes."""

import os

import pytest
import tidemark
from tidemark.lightning import TidemarkCheckpointIO

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice


def committed(store):
    return [info.step for info in tidemark.steps(store) if info.state == "committed"]


def test_removing_a_link_leaves_the_step_of_the_file_that_it_names(tmp_path):
    """So does ModelCheckpoint with save_last="link" and a CHECKPOINT_NAME_LAST that has the step in it."""
    io = TidemarkCheckpointIO(tmp_path / "store")
    for step in (1, 2):
        io.save_checkpoint({"global_step": step}, tmp_path / f"{step}.ckpt")
    os.symlink("1.ckpt", tmp_path / "last.ckpt")
    io.remove_checkpoint(tmp_path / "last.ckpt")
    assert not os.path.lexists(tmp_path / "last.ckpt")
    assert io.load_checkpoint(tmp_path / "1.ckpt")["global_step"] == 1
    os.symlink("none.ckpt", tmp_path / "last.ckpt")
    io.remove_checkpoint(tmp_path / "last.ckpt")
    io.teardown()
    assert not os.path.lexists(tmp_path / "last.ckpt") and committed(tmp_path / "store") == [1, 2]


def test_a_save_that_replaces_a_link_is_removed_with_its_step(tmp_path):
    io = TidemarkCheckpointIO(tmp_path / "store")
    io.save_checkpoint({"global_step": 1}, tmp_path / "1.ckpt")
    os.symlink("1.ckpt", tmp_path / "last.ckpt")
    io.save_checkpoint({"global_step": 2}, tmp_path / "last.ckpt")
    io.remove_checkpoint(tmp_path / "last.ckpt")
    io.save_checkpoint({"global_step": 3}, tmp_path / "3.ckpt")
    io.teardown()
    assert not os.path.lexists(tmp_path / "last.ckpt") and committed(tmp_path / "store") == [1, 3]
