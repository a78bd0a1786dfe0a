"""A checkpoint of each integration is read by tidemark.open, by checkpoint-inspect and by the C++ library."""

import lightning_test
import programs
import pytest
import tidemark
import torch
import torch.distributed.checkpoint as dcp
import transformers
import transformers_test
from lightning.pytorch.callbacks import ModelCheckpoint
from tidemark.dcp import SavePlanner, Writer
from tidemark.lightning import TidemarkCheckpoint, TidemarkCheckpointIO
from tidemark.transformers import TidemarkCallback

pytestmark = pytest.mark.filterwarnings("ignore")  # the frameworks' advice


def tensors(module):
    return {f"model.{name}": tensor.detach().numpy() for name, tensor in module.state_dict().items()}


def loop(folder):
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    with tidemark.Checkpointer(folder / "store") as checkpointer:
        checkpointer.save(7, {"model": model, "optimizer": optimizer, "rng": tidemark.rng(), "epoch": 2})
    return tensors(model), {"epoch": 2, "optimizer.type": "AdamW", "optimizer.weight.step": 1}


def distributed_checkpoint(folder):
    model = torch.nn.Linear(4, 3)
    dcp.save({"model": model.state_dict(), "epoch": 3}, storage_writer=Writer(folder / "store", step=7), planner=SavePlanner(),
             no_dist=True)
    return tensors(model), {"epoch": 3}


def transformers_mixin(folder):
    trainer = transformers_test.make(folder, store=folder / "store")
    trainer.train()
    return tensors(trainer.model), {"optimizer.type": "AdamW"}


def transformers_callback(folder):
    callback = TidemarkCallback(folder / "store", every_steps=8)
    trainer = transformers_test.make(folder, kind=transformers.Trainer, callbacks=[callback], save_strategy="no")
    trainer.train()
    return tensors(trainer.model), {"optimizer.type": "AdamW"}


def lightning_callback(folder):
    model, _ = lightning_test.fit(folder, TidemarkCheckpoint(folder / "store"), 2)
    return tensors(model), {}


def lightning_io(folder):
    io = TidemarkCheckpointIO(folder / "store")
    model, _ = lightning_test.fit(folder, ModelCheckpoint(folder / "files"), 2, plugins=[io])
    io.teardown()
    return tensors(model), {}


# Each with the entries that are states of objects.
INTEGRATIONS = {loop: ["rng"], distributed_checkpoint: [], transformers_mixin: ["scheduler", "rng"],
                transformers_callback: ["scheduler", "rng"], lightning_callback: ["lightning", "optimizers"],
                lightning_io: ["lightning", "optimizers"]}


@pytest.fixture(scope="module", params=INTEGRATIONS, ids=lambda integration: integration.__name__)
def written(request, tmp_path_factory):
    """(store, tensors of the model, some values, names of objects)"""
    folder = tmp_path_factory.mktemp(request.param.__name__)
    return folder / "store", *request.param(folder), INTEGRATIONS[request.param]


def test_open_reads_every_entry(written):
    store, model, values, objects = written
    programs.check_tensors(store, model, [*objects, "optimizer"])
    with tidemark.open(store, framework="pt") as step:
        read = {name: step.get_value(name) for name in step.value_keys()}
        assert read.items() >= values.items() and read.keys() >= set(objects)
        assert all(isinstance(step.get_tensor(name), torch.Tensor) for name in step.keys())


def test_checkpoint_inspect_reads_every_entry(written):
    programs.check_inspected(written[0])


def test_the_library_reads_what_open_reads(written, tmp_path):
    programs.check_compared(written[0], tmp_path / "copy", objects=written[3], framework="pt")


def test_a_copy_with_one_other_value_or_byte_is_told_apart(tmp_path):
    loop(tmp_path)

    def change_value(state):
        state["epoch"] = 3

    def change_tensor(state):
        state["model.weight"][2, 3] += 1

    for change, name in ((change_value, "epoch"), (change_tensor, "model.weight")):
        status, said, _ = programs.compare_with_what_python_reads(tmp_path / "store", tmp_path / name, objects=["rng"],
                                                                  framework="pt", change=change)
        assert status == 1 and said == f"{name}: the bytes differ"
