"""Restores while PyTorch makes new tensors on another device by default."""

import pytest
import tidemark
import tidemark._evaluation as evaluation
import torch


@pytest.fixture
def checkpointer(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def on_meta():
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


def trained(seed):
    with torch.device("cpu"):
        torch.manual_seed(seed)
        module = torch.nn.Linear(2, 2)
        optimizer = torch.optim.Adam(module.parameters())
        module(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        return {"model": module, "optimizer": optimizer, "generator": torch.Generator("cpu"), "rng": tidemark.rng()}


@pytest.mark.parametrize("how", ["restore", "load"])
def test_state_comes_back_to_the_host_whatever_the_default_device_is(checkpointer, on_meta, how):
    saved = trained(1)
    saved["generator"].manual_seed(5)
    checkpointer.save(1, saved)
    with torch.device("cpu"):
        drawn = torch.rand(3)
    restored = trained(2)
    if how == "restore":
        checkpointer.restore(restored)
    else:
        restored = checkpointer.load(like=restored)
    steps = [state["step"] for state in restored["optimizer"].state.values()]
    assert [(step.device.type, step.item()) for step in steps] == [("cpu", 1), ("cpu", 1)]
    restored["optimizer"].step()
    assert torch.equal(restored["generator"].get_state(), saved["generator"].get_state())
    with torch.device("cpu"):
        assert torch.equal(torch.rand(3), drawn)


def test_a_snapshot_fills_a_module_of_another_dtype_whatever_the_default_device_is(on_meta):
    saved = trained(1)
    module = trained(2)["model"].to(torch.bfloat16)
    evaluation.load_module(tidemark.capture({"model": saved["model"]}), module)
    assert torch.equal(module.weight, saved["model"].weight.to(torch.bfloat16))
