"""What belongs to a training with PyTorch beside modules and optimizers: scalers, samplers, wrappers, DTensors."""

import unittest.mock
import weakref

import numpy as np
import pytest
import tidemark
import torch
from tidemark import errors
from torch.optim import lr_scheduler as schedulers


def make_scaler(**options):
    options = {"init_scale": 16.0, "growth_interval": 2, **options}
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cpu", **options)
    # PyTorch 1.13 has scalers of CUDA only, which are off without it. Their state needs no device.
    with unittest.mock.patch("torch.cuda.amp.grad_scaler.amp_definitely_not_available", return_value=False):
        return torch.cuda.amp.GradScaler(**options)


def test_a_scaler_of_gradients_goes_on(checkpointer):
    scaler = make_scaler()
    scaler.load_state_dict({**scaler.state_dict(), "scale": 4096.0, "_growth_tracker": 1})
    kept = scaler.state_dict()
    checkpointer.save(1, {"scaler": scaler}).committed.result(60)
    restored = make_scaler()
    assert restored.state_dict() != kept
    checkpointer.restore({"scaler": restored})
    assert restored.state_dict() == kept and kept["scale"] == 4096.0
    with tidemark.open(checkpointer.path) as step:
        assert step.get_value("scaler") == kept


@pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="PyTorch 1.13 has scalers of CUDA only")
def test_a_scaler_that_has_seen_an_overflow_goes_on_as_if_nothing_had_been(checkpointer):
    def train(scaler, parameter, optimizer, factors):
        scales = []
        for factor in factors:
            optimizer.zero_grad()
            scaler.scale((parameter * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        return scales

    def make():
        parameter = torch.nn.Parameter(torch.ones(2))
        return make_scaler(), parameter, torch.optim.SGD([parameter], lr=0.1)

    first = make()
    assert train(*first, [1.0, float("inf"), 1.0]) == [16.0, 8.0, 8.0]
    checkpointer.save(1, {"scaler": first[0], "parameter": first[1]}).committed.result(60)
    expected = train(*first, [1.0, 1.0])
    second = make()
    checkpointer.restore({"scaler": second[0], "parameter": second[1]})
    assert train(*second, [1.0, 1.0]) == expected == [16.0, 16.0]
    assert torch.equal(first[1], second[1])


def test_a_scaler_that_is_off_has_no_state(checkpointer):
    checkpointer.save(1, {"scaler": make_scaler(enabled=False)}).committed.result(60)
    checkpointer.restore({"scaler": make_scaler(enabled=False)})
    with tidemark.open(checkpointer.path) as step:
        assert step.get_value("scaler") == {}


def chained(kind, second=lambda o: schedulers.ExponentialLR(o, 0.9)):
    """Of two schedulers with one optimizer."""
    def make(optimizer):
        parts = [schedulers.ConstantLR(optimizer), second(optimizer)]
        if kind == "ChainedScheduler":
            return schedulers.ChainedScheduler(parts)
        return schedulers.SequentialLR(optimizer, parts, [2])

    return make


SCHEDULERS = {
    "StepLR": lambda o: schedulers.StepLR(o, 2), "MultiStepLR": lambda o: schedulers.MultiStepLR(o, [2, 3]),
    "OneCycleLR": lambda o: schedulers.OneCycleLR(o, 0.2, total_steps=9), "CyclicLR": lambda o: schedulers.CyclicLR(o, 0.1, 0.2),
    "LambdaLR": lambda o: schedulers.LambdaLR(o, lambda epoch: 1 / (epoch + 1)), "LinearLR": schedulers.LinearLR,
    "ReduceLROnPlateau": schedulers.ReduceLROnPlateau, "PolynomialLR": lambda o: schedulers.PolynomialLR(o, 7),
    "CosineAnnealingLR": lambda o: schedulers.CosineAnnealingLR(o, 9),
    "CosineAnnealingWarmRestarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 3),
    "MultiplicativeLR": lambda o: schedulers.MultiplicativeLR(o, lambda epoch: 0.9),
    **{kind: chained(kind) for kind in ("ChainedScheduler", "SequentialLR")}}
SCHEDULERS |= {f"{kind} of {part}": chained(kind, SCHEDULERS[part]) for kind in ("ChainedScheduler", "SequentialLR")
               for part in ("OneCycleLR", "CyclicLR")}
SCHEDULERS["ChainedScheduler of SequentialLR of OneCycleLR"] = chained(
    "ChainedScheduler", SCHEDULERS["SequentialLR of OneCycleLR"])


@pytest.mark.filterwarnings("ignore:The epoch parameter in")  # SequentialLR itself gives it
@pytest.mark.parametrize("kind", SCHEDULERS)
def test_every_scheduler_goes_on(checkpointer, kind):
    def step(scheduler, optimizer, times):
        rates = []
        for _ in range(times):
            optimizer.step()
            scheduler.step(*([1.0] if kind == "ReduceLROnPlateau" else []))
            rates.append(optimizer.param_groups[0]["lr"])
        return rates

    def make():
        module = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        return {"model": module, "optimizer": optimizer, "scheduler": SCHEDULERS[kind](optimizer)}

    saved, restored = make(), make()
    step(saved["scheduler"], saved["optimizer"], 3)
    checkpointer.save(1, saved)
    expected = step(saved["scheduler"], saved["optimizer"], 5)
    checkpointer.restore(restored)
    assert step(restored["scheduler"], restored["optimizer"], 5) == expected


def test_a_function_of_the_user_in_the_state_of_a_scheduler_is_refused(checkpointer):
    scheduler = schedulers.StepLR(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1), 2)
    scheduler.shape = lambda epoch: epoch
    with pytest.raises(tidemark.UnsupportedTypeError, match="'scheduler.shape' is a builtins.function"):
        checkpointer.save(1, {"scheduler": scheduler})


def test_a_scheduler_that_has_a_function_of_its_own_in_its_state_goes_on_with_that_of_the_other(checkpointer):
    class Annealed(schedulers.StepLR):
        def __init__(self, optimizer):
            self.anneal, self.bound, self.weak = Annealed.half, self.third, weakref.WeakMethod(self.third)
            super().__init__(optimizer, 2)

        def third(self):
            return 1 / 3

        @staticmethod
        def half():
            return 1 / 2

        def state_dict(self):  # as PyTorch 1.13 has it
            return {name: value for name, value in vars(self).items() if name != "optimizer"}

    saved, restored = (Annealed(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=rate)) for rate in (0.1, 0.2))
    checkpointer.save(1, {"scheduler": saved})
    checkpointer.restore({"scheduler": restored})
    assert restored.base_lrs == [0.1] and restored.bound.__self__ is restored and restored.weak() == restored.third
    assert restored.anneal() == 1 / 2


DATA = torch.utils.data.TensorDataset(torch.arange(10))
WITHOUT_STATE = {
    "RandomSampler": lambda: torch.utils.data.RandomSampler(DATA),
    "DistributedSampler": lambda: torch.utils.data.DistributedSampler(DATA, num_replicas=1, rank=0),
    "DataLoader": lambda: torch.utils.data.DataLoader(DATA)}


@pytest.mark.parametrize("kind", WITHOUT_STATE)
def test_what_has_no_state_dict_is_refused_with_what_to_store_instead(checkpointer, kind):
    value = WITHOUT_STATE[kind]()
    if hasattr(value, "state_dict"):
        pytest.skip(f"this PyTorch's {kind} has a state_dict")
    with pytest.raises(tidemark.UnsupportedTypeError,
                       match=rf"'data.loader' is a torch\.utils\.data\..*{kind}.*state_dict.*Generator.*epoch.*set_epoch"):
        checkpointer.save(1, {"data": {"loader": value}})
    assert checkpointer.steps() == []


def test_samplers_go_on_by_their_generator_and_epoch(checkpointer):
    generator = torch.Generator().manual_seed(3)
    sampler = torch.utils.data.RandomSampler(DATA, generator=generator)
    list(sampler)
    checkpointer.save(1, {"shuffle": generator, "epoch": 5}).committed.result(60)
    expected = list(sampler)
    state = {"shuffle": torch.Generator(), "epoch": 0}
    checkpointer.restore(state)
    assert list(torch.utils.data.RandomSampler(DATA, generator=state["shuffle"])) == expected
    distributed = [torch.utils.data.DistributedSampler(DATA, num_replicas=2, rank=1) for _ in range(2)]
    for one, epoch in zip(distributed, (5, state["epoch"])):
        one.set_epoch(epoch)
    assert list(distributed[0]) == list(distributed[1])


class StatefulLoader:
    """As torchdata's StatefulDataLoader describes itself: nested dicts of numbers, bytes and tensors."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.workers = {0: {"position": seed, "buffer": [b"\0\xff", None], "done": False}, 1: None}
        self.order = torch.randperm(6, generator=self.generator)

    def state_dict(self):
        return {"_snapshot": {"workers": self.workers, "rng": self.generator.get_state(), "order": self.order},
                "_steps_since_snapshot": np.int64(2)}

    def load_state_dict(self, state):
        snapshot = state["_snapshot"]
        self.workers, self.order = snapshot["workers"], snapshot["order"]
        self.generator.set_state(snapshot["rng"])


def test_a_loader_with_a_state_dict_goes_on(checkpointer):
    loader, other = StatefulLoader(3), StatefulLoader(4)
    checkpointer.save(1, {"loader": loader}).committed.result(60)
    checkpointer.restore({"loader": other})
    assert other.workers == loader.workers and torch.equal(other.order, loader.order)
    assert torch.equal(torch.rand(3, generator=other.generator), torch.rand(3, generator=loader.generator))


class Wrapper(torch.nn.Module):
    """As DDP, FSDP and torch.compile: the module below an attribute."""

    def __init__(self, attribute, module):
        super().__init__()
        setattr(self, attribute, module)


def bare():
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))


def each_wrapped(attribute, module):
    return torch.nn.Sequential(*[Wrapper(attribute, child) for child in module])


WRAPPED = {
    "ddp": lambda module: Wrapper("module", module),
    "compile": lambda module: Wrapper("_orig_mod", module),
    "fsdp": lambda module: Wrapper("_fsdp_wrapped_module", each_wrapped("_fsdp_wrapped_module", module)),
    "checkpointed": lambda module: each_wrapped("_checkpoint_wrapped_module", module),
    "compiled ddp": lambda module: Wrapper("_orig_mod", Wrapper("module", module)),
    "ddp of compiled": lambda module: Wrapper("module", Wrapper("_orig_mod", module)),
    "compiled parts in fsdp": lambda module: Wrapper("_fsdp_wrapped_module", each_wrapped("_orig_mod", module)),
}
if hasattr(torch, "compile"):
    WRAPPED["compile itself"] = torch.compile


@pytest.mark.parametrize("wrapper", WRAPPED)
def test_prefixes_of_wrappers_go_both_ways(checkpointer, wrapper):
    def state_of(seed, wrap):
        torch.manual_seed(seed)
        module = bare()
        model = wrap(module)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        module(torch.ones(4, 2)).sum().backward()
        optimizer.step()
        return {"model": model, "optimizer": optimizer}, module

    def momenta(state):
        return [state["optimizer"].state[parameter]["momentum_buffer"] for parameter in state["model"].parameters()]

    def unwrapped(module):
        return module

    for step, (saving, restoring) in enumerate([(WRAPPED[wrapper], unwrapped), (unwrapped, WRAPPED[wrapper])]):
        saved, module = state_of(1, saving)
        checkpointer.save(step, saved).committed.result(60)
        with tidemark.open(checkpointer.path, step) as opened:
            assert {"model.0.weight", "model.1.running_mean", "optimizer.0.weight.momentum_buffer"} <= set(opened.keys())
            assert not [name for name in opened.keys() if "wrapped" in name or "_orig" in name or "module" in name]
        restored, other = state_of(2, restoring)
        checkpointer.restore(restored, step)
        assert all(torch.equal(a, b) for a, b in zip(module.state_dict().values(), other.state_dict().values()))
        assert all(torch.equal(a, b) for a, b in zip(momenta(saved), momenta(restored)))


@pytest.fixture
def mesh(tmp_path):
    if not hasattr(torch.distributed, "device_mesh"):
        pytest.skip("PyTorch 1.13 has no DTensor")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    yield torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


# Jobs of several processes: tests/python_torch/dtensor_test.py.
def test_a_dtensor_that_one_process_holds_is_its_tensor(checkpointer, mesh):
    from torch.distributed.tensor import Shard, distribute_tensor

    tensor = distribute_tensor(torch.arange(6.0), mesh, [Shard(0)])
    checkpointer.save(1, {"w": tensor}).committed.result(60)
    other = distribute_tensor(torch.zeros(6), mesh, [Shard(0)])
    with pytest.raises(errors.UnimplementedError, match="'w' is a DTensor of the state.*makes no new ones"):
        checkpointer.load(like={"w": other})
    checkpointer.restore({"w": other})
    assert other.full_tensor().tolist() == [0, 1, 2, 3, 4, 5]
    plain = torch.zeros(6)
    checkpointer.restore({"w": plain})
    assert plain.tolist() == [0, 1, 2, 3, 4, 5]
    module = torch.nn.Linear(2, 2)
    module.weight = torch.nn.Parameter(distribute_tensor(module.weight.detach(), mesh, [Shard(0)]))
    checkpointer.save(2, {"model": module}).committed.result(60)
    wanted = module.weight.full_tensor().tolist()
    with torch.no_grad():
        module.weight.zero_()
    checkpointer.restore({"model": module})
    assert module.weight.full_tensor().tolist() == wanted


@pytest.mark.parametrize("trains", [True, False])
def test_a_pattern_of_saved_dtypes_waits_for_the_arrays_of_an_optimizer(tmp_path, caplog, trains):
    model = torch.nn.Linear(2, 2)
    state = {"model": model, "optimizer": torch.optim.Adam(model.parameters())}
    with tidemark.Checkpointer(tmp_path / "store", saved_dtypes={"optimizer.*.exp_avg*": "bfloat16"}) as checkpointer:
        for step in range(4):
            checkpointer.save(step, state)
            assert sum("saved_dtypes" in record.getMessage() for record in caplog.records) == (step >= 2 and not trains)
            if trains:
                model(torch.ones(1, 2)).sum().backward()
                state["optimizer"].step()
