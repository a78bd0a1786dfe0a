"""A store that another process or checkpointer holds: each integration says who holds it and how to read it meanwhile, leaves
the holder alone, and works once the store is free."""

import lightning_test
import pytest
import tidemark
import transformers
import transformers_test
from lightning.pytorch.callbacks import ModelCheckpoint
from tidemark.lightning import TidemarkCheckpoint, TidemarkCheckpointIO
from tidemark.transformers import TidemarkCallback

pytestmark = pytest.mark.filterwarnings("ignore")  # the frameworks' advice
MESSAGE = r"this process \(pid .*\) holds it since .*tidemark\.open.*tidemark\.follow"


def lightning_callback(folder):
    callback = TidemarkCheckpoint(folder / "store")
    return lambda: lightning_test.fit(folder, callback, 1)


def lightning_io(folder):
    io = TidemarkCheckpointIO(folder / "store")
    callback = ModelCheckpoint(folder / "files")
    return lambda: lightning_test.fit(folder, callback, 1, plugins=[io])


def transformers_mixin(folder):
    trainer = transformers_test.make(folder, store=folder / "store")
    return trainer.train


def transformers_callback(folder):
    trainer = transformers_test.make(folder, kind=transformers.Trainer, save_strategy="no",
                                     callbacks=[TidemarkCallback(folder / "store", every_steps=8)])
    return trainer.train


@pytest.mark.parametrize("integration", [lightning_callback, lightning_io, transformers_mixin, transformers_callback])
def test_a_held_store_is_an_error_that_says_how_to_read_it(tmp_path, integration):
    train = integration(tmp_path)
    with tidemark.Checkpointer(tmp_path / "store") as holder:
        with pytest.raises(tidemark.AlreadyHeldError, match=MESSAGE):
            train()
        holder.save(0, {"n": 1}).committed.result(60)
        with tidemark.open(tmp_path / "store") as step:  # the way that the message names
            assert step.get_value("n") == 1
        assert [info.step for info in holder.steps()] == [0]
    train()
    assert max(info.step for info in tidemark.steps(tmp_path / "store")) > 0
    tidemark.Checkpointer(tmp_path / "store").close()
