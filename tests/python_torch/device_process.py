"""Restores by the integrations to tensors on the pretend accelerator, in a process of its own: optimizers of this PyTorch ask
the module of a device that is loaded for more than the pretend one has.

  device_process.py FOLDER
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))

import lightning
import pretend_device
import torch
import torch.distributed.checkpoint as dcp
from lightning.pytorch.demos.boring_classes import BoringModel
from tidemark.dcp import LoadPlanner, Reader, SavePlanner, Writer
from tidemark.lightning import TidemarkCheckpointIO


def make(value, place):
    return {"w": place(torch.full((300, 2), value)), "half": place(torch.full((5,), value, dtype=torch.bfloat16)),
            "scalar": place(torch.tensor(value)), "host": torch.full((4,), value), "epoch": int(value)}


def by_dcp(folder):
    """What is on the device comes back there, whatever device had it, and in the same memory."""
    for step, (saved, loaded) in enumerate([(0, 0), (0, 1), (None, 1), (1, None)]):
        def place(index):
            return (lambda tensor: tensor) if index is None else lambda tensor: pretend_device.on_device(tensor, index)

        dcp.save(make(2.0, place(saved)), storage_writer=Writer(folder / "store", step=step), planner=SavePlanner(), no_dist=True)
        state = make(0.0, place(loaded))
        before = {name: (tensor.device, tensor.data_ptr()) for name, tensor in state.items() if torch.is_tensor(tensor)}
        dcp.load(state, storage_reader=Reader(folder / "store", step), planner=LoadPlanner(), no_dist=True)
        expected = make(2.0, lambda tensor: tensor)
        for name, place_before in before.items():
            assert (state[name].device, state[name].data_ptr()) == place_before, (step, name)
            assert torch.equal(pretend_device.to_host(state[name]), expected[name]), (step, name)
        assert state["epoch"] == 2


def by_lightning(folder):
    """A checkpoint is in host memory, and Lightning copies it to where the model is."""
    io = TidemarkCheckpointIO(folder / "lightning")
    weights = {name: torch.full_like(tensor, 3.0) for name, tensor in BoringModel().state_dict().items()}
    on_device = {name: pretend_device.on_device(tensor) for name, tensor in weights.items()}
    io.save_checkpoint({"state_dict": on_device}, folder / "a.ckpt")
    checkpoint = io.load_checkpoint(folder / "a.ckpt")
    io.teardown()
    assert {tensor.device.type for tensor in checkpoint["state_dict"].values()} == {"cpu"}
    model = BoringModel().to(pretend_device.DEVICES[1])
    trainer = lightning.Trainer(accelerator="cpu", logger=False)
    trainer.strategy.connect(model)
    trainer.strategy.load_model_state_dict(checkpoint)
    assert {parameter.device for parameter in model.parameters()} == {pretend_device.DEVICES[1]}
    assert all(torch.equal(pretend_device.to_host(tensor), weights[name]) for name, tensor in model.state_dict().items())


if __name__ == "__main__":
    by_dcp(pathlib.Path(sys.argv[1]))
    by_lightning(pathlib.Path(sys.argv[1]))
