"""Ctrl-C, or another exception, in the middle of a training of Lightning or Transformers, or of a save or load of DCP: what was
committed stays, the store can be opened again, and the next training goes on where it was."""

import gc
import signal

import dcp_test
import lightning
import lightning_test
import pytest
import tidemark
import torch
import transformers
import transformers_test
from interruption import interrupted_at_drawn_moments
from lightning.pytorch.callbacks import ModelCheckpoint
from tidemark.dcp import Reader, Writer
from tidemark.lightning import TidemarkCheckpoint, TidemarkCheckpointIO
from tidemark.transformers import ModuleEvaluation, TidemarkCallback
from torch.distributed.checkpoint.api import CheckpointException

pytestmark = pytest.mark.filterwarnings("ignore")  # the frameworks' advice


def committed(store):
    """The steps of the store, which must be free."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Lightning ignores a second Ctrl-C
    with tidemark.Checkpointer(store) as checkpointer:
        return {info.step for info in checkpointer.steps() if info.state == "committed"}


def weight_sum(module):
    return {"sum": float(sum(tensor.double().sum() for tensor in module.state_dict().values()))}


def test_a_fit_with_the_callback_goes_on(tmp_path):
    whole, _ = lightning_test.fit(tmp_path, TidemarkCheckpoint(tmp_path / "whole"), 3)

    def fit(moment):
        callback = TidemarkCheckpoint(tmp_path / f"store{moment}", save_top_k=-1, evaluation=ModuleEvaluation(weight_sum))
        try:
            return lightning_test.fit(tmp_path, callback, 3, callback.resume_path)[0]
        except SystemExit:  # what Lightning makes of Ctrl-C
            return None

    def after(moment):
        before = committed(tmp_path / f"store{moment}")
        resumed = fit(moment)
        assert before <= {3, 6, 9} and committed(tmp_path / f"store{moment}") == {3, 6, 9}
        assert lightning_test.same_weights(resumed, whole)

    interrupted_at_drawn_moments(fit, after, 8, lightning)


def test_a_fit_with_the_io_goes_on(tmp_path):
    def fit(moment):
        files = tmp_path / f"files{moment}"
        latest = max(files.glob("*.ckpt"), key=lambda path: int(path.stem), default=None)
        callback = ModelCheckpoint(files, filename="{step}", auto_insert_metric_name=False, save_top_k=-1, every_n_train_steps=1)
        try:
            lightning_test.fit(tmp_path, callback, 2, latest, plugins=[TidemarkCheckpointIO(tmp_path / f"store{moment}")])
        except SystemExit:
            pass

    def after(moment):
        before = committed(tmp_path / f"store{moment}")
        files = list((tmp_path / f"files{moment}").glob("*.ckpt"))
        io = TidemarkCheckpointIO(tmp_path / f"store{moment}")
        for path in files:  # each names a step that is there
            assert io.load_checkpoint(path)["global_step"] == int(path.stem)
        fit(moment)
        assert before <= committed(tmp_path / f"store{moment}")
        assert io.load_checkpoint(tmp_path / f"files{moment}" / "6.ckpt")["global_step"] == 6

    interrupted_at_drawn_moments(fit, after, 8, lightning)


def test_a_training_with_the_mixin_goes_on(tmp_path):
    whole = transformers_test.make(tmp_path / "whole")
    whole.train()

    def train(moment):
        trainer = transformers_test.make(tmp_path / f"run{moment}", evaluation=ModuleEvaluation(weight_sum))
        trainer.train(resume_from_checkpoint=True)
        return trainer

    def after(moment):
        gc.collect()  # the Trainer, which an exception kept
        store = tmp_path / f"run{moment}" / "tidemark"
        before = committed(store)
        resumed = train(moment)
        assert before <= committed(store) and 24 in committed(store)
        assert torch.equal(transformers_test.weights(resumed), transformers_test.weights(whole))

    interrupted_at_drawn_moments(train, after, 5, transformers)


def test_a_training_with_the_callback_leaves_its_steps(tmp_path):
    def train(moment):
        callback = TidemarkCallback(tmp_path / f"store{moment}", every_steps=8, evaluation=ModuleEvaluation(weight_sum))
        trainer = transformers_test.make(tmp_path / "plain", kind=transformers.Trainer, callbacks=[callback], save_strategy="no")
        try:
            trainer.train()
        finally:
            callback.close()

    def after(moment):
        before = committed(tmp_path / f"store{moment}")
        assert before <= {8, 16, 24}
        train(moment)
        assert committed(tmp_path / f"store{moment}") == {8, 16, 24}

    interrupted_at_drawn_moments(train, after, 5, transformers)


def test_a_distributed_checkpoint_is_whole_or_not_there_and_can_be_loaded_again(tmp_path):
    def state(fill):
        return {"w": torch.full((100,), float(fill)), "epoch": fill}

    def save_and_load(moment):
        store = tmp_path / f"store{moment}"
        try:
            dcp_test.save(state(3), Writer(store, step=1))
            loaded = state(0)
            dcp_test.load(loaded, Reader(store))
            dcp_test.assert_same(loaded, state(3))
        except CheckpointException as error:  # what DCP makes of Ctrl-C in its own calls
            assert isinstance(error.failures[0][0], KeyboardInterrupt)

    def after(moment):
        gc.collect()  # DCP's exception refers to itself, and to a Checkpointer that was being opened
        store, loaded = tmp_path / f"store{moment}", state(0)
        if 1 in committed(store):
            dcp_test.load(loaded, Reader(store, step=1))
            dcp_test.assert_same(loaded, state(3))
        dcp_test.save(state(4), Writer(store, step=2))
        dcp_test.load(loaded, Reader(store))
        dcp_test.assert_same(loaded, state(4))

    interrupted_at_drawn_moments(save_and_load, after, 20)


def test_the_store_of_a_callback_whose_training_raises_is_free_after_close_and_for_the_next_training(tmp_path):
    class Stop(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == 13:
                raise ValueError("stopped")

    def make(*others):
        callback = TidemarkCallback(tmp_path / "store", every_steps=4)
        return callback, transformers_test.make(tmp_path / "plain", kind=transformers.Trainer, callbacks=[callback, *others],
                                                save_strategy="no")

    first, trainer = make(Stop())
    first.close()  # before a training it does nothing
    with pytest.raises(ValueError, match="stopped"):  # as in a notebook, where the process goes on
        trainer.train()
    with pytest.raises(tidemark.AlreadyHeldError, match="this process"):
        tidemark.Checkpointer(tmp_path / "store")
    first.close()
    assert committed(tmp_path / "store") == {4, 8, 12}
    first.close()
    with pytest.raises(ValueError, match="stopped"):
        trainer.train()
    second, another = make()
    another.train()  # closes what the first one has left open
    assert committed(tmp_path / "store") == {4, 8, 12, 16, 20, 24}
    second.close()
    with pytest.raises(ValueError, match="stopped"):
        trainer.train()
    transformers_test.make(tmp_path / "mixin", store=tmp_path / "store").train("tidemark:latest")  # closes it, too
    assert committed(tmp_path / "store") >= {4, 8, 12, 16, 20, 24}


def test_a_training_within_a_training_takes_its_store_with_a_warning(tmp_path, caplog):
    class Inner(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == 13:
                make(TidemarkCallback(tmp_path / "store", every_steps=20)).train()

    def make(*callbacks):
        return transformers_test.make(tmp_path / "plain", kind=transformers.Trainer, callbacks=list(callbacks),
                                      save_strategy="no")

    with pytest.raises(tidemark.errors.FailedPreconditionError, match="closed"):
        make(TidemarkCallback(tmp_path / "store", every_steps=8), Inner()).train()
    assert "give each training a store of its own" in caplog.text
