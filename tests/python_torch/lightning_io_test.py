"""The CheckpointIO of tidemark.lightning: links, and what fails when it closes."""

import os
import threading

import pytest
import tidemark
from tidemark._checkpointer.closing import close_owned
from tidemark.lightning import TidemarkCheckpointIO, _checkpoint_io

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


def test_a_file_that_cannot_be_written_while_the_store_closes_is_an_error_of_the_close(tmp_path, monkeypatch):
    """The close holds the lock, and waits for the thread that writes the file."""
    io, closing = TidemarkCheckpointIO(tmp_path / "store"), threading.Event()

    def fail(path, text):
        assert closing.wait(60)
        raise OSError("the disk is full")

    def close(*arguments):
        closing.set()
        close_owned(*arguments)

    monkeypatch.setattr(_checkpoint_io, "_write", fail)
    monkeypatch.setattr(_checkpoint_io, "close_owned", close)
    monkeypatch.setattr(io, "_wait", lambda path: None)  # as for a save that another thread begins meanwhile
    io.save_checkpoint({"global_step": 1}, tmp_path / "a.ckpt")
    errors = []

    def teardown():
        try:
            io.teardown()
        except OSError as error:
            errors.append(str(error))

    thread = threading.Thread(target=teardown, daemon=True)
    thread.start()
    thread.join(60)
    assert errors == ["the disk is full"]


def test_of_several_failures_the_first_is_raised_and_steps_without_a_file_are_deleted(tmp_path, monkeypatch, caplog):
    io, ready = TidemarkCheckpointIO(tmp_path / "store"), threading.Event()
    write = _checkpoint_io._write

    def fail(path, text):
        assert ready.wait(60)
        if path.endswith("c.ckpt"):
            write(path, text)
        if not path.endswith("d.ckpt"):
            raise OSError(f"{path} failed")
        write(path, text)

    monkeypatch.setattr(_checkpoint_io, "_write", fail)
    for step, name in enumerate("abcd", 1):
        io.save_checkpoint({"global_step": step}, tmp_path / f"{name}.ckpt")
    ready.set()
    with pytest.raises(OSError, match="a.ckpt failed"):
        io.teardown()
    assert "b.ckpt failed" in caplog.text and "c.ckpt failed" in caplog.text and "a.ckpt failed" not in caplog.text
    io.teardown()
    assert committed(tmp_path / "store") == [3, 4]  # the file of 3 is there
    assert io.load_checkpoint(tmp_path / "c.ckpt")["global_step"] == 3


@pytest.mark.parametrize("wait", [
    lambda io, path: io.teardown(), lambda io, path: io.load_checkpoint(path), lambda io, path: io.remove_checkpoint(path)])
def test_what_waits_for_a_save_hurries_it(tmp_path, monkeypatch, wait):
    io, hurried = TidemarkCheckpointIO(tmp_path / "store"), threading.Event()
    hurry, write = tidemark._native.Checkpointer.hurry, _checkpoint_io._write

    def write_later(path, text):
        assert hurried.wait(20)
        write(path, text)

    monkeypatch.setattr(tidemark._native.Checkpointer, "hurry", lambda native: (hurried.set(), hurry(native)))
    monkeypatch.setattr(_checkpoint_io, "_write", write_later)
    io.save_checkpoint({"global_step": 1}, tmp_path / "a.ckpt")
    wait(io, tmp_path / "a.ckpt")
    io.teardown()
