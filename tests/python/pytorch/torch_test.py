"""PyTorch: modules, optimizers, schedulers and tensors."""

import random
import subprocess
import sys

import numpy as np
import pytest
import tidemark
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(10, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.head = torch.nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight  # tied

    def forward(self, x):
        return self.head(self.norm(self.embed(x)))


def make(seed):
    torch.manual_seed(seed)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler, "rng": tidemark.rng(), "step": 0}


def train(state, steps):
    losses = []
    for _ in range(steps):
        x = torch.randint(10, (16,))
        loss = torch.nn.functional.cross_entropy(state["model"](x), x)
        state["optimizer"].zero_grad()
        loss.backward()
        state["optimizer"].step()
        state["scheduler"].step()
        state["step"] += 1
        losses.append(loss.item())
    return losses


def test_training_goes_on_bit_for_bit(checkpointer):
    state = make(0)
    train(state, 3)
    checkpointer.save(3, state)
    expected = train(state, 5)
    resumed = make(1)
    assert checkpointer.resume(resumed) == 4
    assert train(resumed, 5) == expected
    assert all(torch.equal(a, b) for a, b in zip(resumed["model"].state_dict().values(), state["model"].state_dict().values()))
    assert resumed["scheduler"].state_dict() == state["scheduler"].state_dict()


def test_names_are_those_of_the_cpp_library_and_tied_weights_are_stored_once(checkpointer):
    state = make(0)
    train(state, 1)
    checkpointer.save(1, state).committed.result()
    with tidemark.open(checkpointer.path, framework="pt") as step:
        names = step.keys()
        assert {"model.embed.weight", "model.head.weight", "model.norm.running_mean", "model.norm.num_batches_tracked",
                "optimizer.embed.weight.exp_avg", "optimizer.norm.bias.exp_avg_sq"} <= set(names)
        assert torch.equal(step.get_tensor("model.norm.running_mean"), state["model"].norm.running_mean)
    checkpointer.save(2, {"model": state["model"]}).committed.result()
    tensors = {tensor.data_ptr(): tensor for tensor in state["model"].state_dict().values()}
    assert len(tensors) == len(state["model"].state_dict()) - 1
    assert checkpointer.steps()[1].logical_bytes == sum(t.numel() * t.element_size() for t in tensors.values())


def test_wrappers_leave_no_trace_in_names(checkpointer):
    class Wrapper(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

    checkpointer.save(1, {"model": Wrapper(torch.nn.Linear(2, 2))})
    plain = torch.nn.Linear(2, 2)
    checkpointer.resume({"model": plain})
    checkpointer.wait_until_committed()
    with tidemark.open(checkpointer.path) as step:
        assert sorted(step.keys()) == ["model.bias", "model.weight"]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32,
                                   torch.complex64])
def test_every_dtype_comes_back(checkpointer, dtype):
    tensor = torch.arange(6).to(dtype).reshape(2, 3)
    kept = tensor.clone()
    checkpointer.save(1, {"t": tensor, "view": tensor.t()})
    tensor.zero_()
    checkpointer.resume({"t": tensor, "view": tensor.t()})
    assert torch.equal(tensor, kept)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_complex_numbers_of_half_precision_come_back(checkpointer):
    tensor = torch.arange(8).half().view(torch.complex32)
    checkpointer.save(1, {"t": tensor})
    restored = torch.zeros(8).half().view(torch.complex32)
    checkpointer.restore({"t": restored})
    assert torch.equal(restored.view(torch.float16), torch.arange(8).half())


def test_a_parameter_that_autograd_uses_is_restored_in_place(checkpointer):
    parameter = torch.nn.Parameter(torch.ones(3))
    checkpointer.save(1, {"p": parameter})
    address = parameter.data_ptr()
    with torch.no_grad():
        parameter.zero_()
    checkpointer.resume({"p": parameter})
    assert parameter.data_ptr() == address and parameter.tolist() == [1, 1, 1] and parameter.requires_grad


EYE = torch.eye(4)
# What cannot be stored, and what the error says of it.
REFUSED = {
    "meta": (lambda: torch.empty(3, device="meta"), "is on the device meta, which has no memory.*Give the state a tensor"),
    "coo": (lambda: EYE.to_sparse(), r"is a sparse tensor.*torch\.sparse_coo, torch\.float32.*indices\(\), \.values\(\)"),
    "csr": (lambda: EYE.to_sparse_csr(), r"is a sparse tensor.*torch\.sparse_csr.*crow_indices\(\), \.col_indices\(\)"),
    "csc": (lambda: EYE.to_sparse_csc(), r"is a sparse tensor.*torch\.sparse_csc.*ccol_indices\(\), \.row_indices\(\)"),
    "bsr": (lambda: EYE.to_sparse_bsr((2, 2)), r"is a sparse tensor.*torch\.sparse_bsr.*crow_indices\(\)"),
    "bsc": (lambda: EYE.to_sparse_bsc((2, 2)), r"is a sparse tensor.*torch\.sparse_bsc.*ccol_indices\(\)"),
    "mkldnn": (lambda: EYE.to_mkldnn(), r"is a special tensor.*torch\._mkldnn.*to_dense\(\)"),
    "nested": (lambda: torch.nested.nested_tensor([EYE[0], EYE[1, :2]]), r"is a nested tensor.*tensor\.unbind\(\)"),
    "jagged": (lambda: torch.nested.nested_tensor([EYE[0], EYE[1, :2]], layout=torch.jagged),
               r"is a nested tensor.*torch\.jagged.*values\(\) and tensor\.offsets\(\)"),
    "quantised": (lambda: torch.quantize_per_tensor(EYE, 0.1, 0, torch.qint8),
                  r"is a quantised tensor.*torch\.qint8.*int_repr\(\), tensor\.q_scale\(\) and tensor\.q_zero_point\(\)"),
    "quantised by channel": (lambda: torch.quantize_per_channel(EYE, torch.ones(4), torch.zeros(4), 0, torch.qint8),
                             r"is a quantised tensor.*int_repr\(\), tensor\.q_per_channel_scales\(\)"),
    "bits": (lambda: torch.zeros(4, dtype=torch.uint8).view(torch.bits8), r"is a tensor of torch\.bits8.*view\(torch\.uint8\)"),
    "conjugate": (lambda: torch.ones(2, dtype=torch.complex64).conj(), r"is a lazy conjugate.*resolve_conj\(\)\.resolve_neg\(\)"),
}


@pytest.mark.filterwarnings("ignore:torch.quantize_per:UserWarning", "ignore:torch.quantize_per:DeprecationWarning",
                            "ignore:The PyTorch API of nested tensors", "ignore:Sparse")
@pytest.mark.parametrize("kind", REFUSED)
def test_a_tensor_that_cannot_be_stored_is_named_with_its_path_its_type_and_the_way_out(checkpointer, kind):
    make, message = REFUSED[kind]
    try:
        tensor = make()
    except (AttributeError, TypeError, RuntimeError) as error:
        pytest.skip(f"this PyTorch cannot make it: {error}")
    module = torch.nn.Module()
    module.register_buffer("t", tensor)
    for state, path in (({"t": tensor}, "t"), ({"a": [tensor]}, "a.0"), ({"m": module}, "m.t")):
        with pytest.raises(tidemark.UnsupportedTypeError, match=f"'{path}' {message}"):
            checkpointer.save(1, state)
    assert checkpointer.steps() == []


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_tensor_may_be_stored_as_the_parts_that_the_error_names_or_pickled(checkpointer):
    tensor = EYE.to_sparse().coalesce()
    checkpointer.save(1, {"i": tensor.indices(), "v": tensor.values(), "shape": tensor.shape, "all": tidemark.Pickled(tensor)})
    state = {"i": torch.zeros(2, 4, dtype=torch.int64), "v": torch.zeros(4), "shape": None, "all": tidemark.Pickled()}
    checkpointer.restore(state)
    assert torch.equal(torch.sparse_coo_tensor(state["i"], state["v"], state["shape"]).to_dense(), EYE)
    assert torch.equal(state["all"].value.to_dense(), EYE)


class Wrapped(torch.Tensor):
    """A tensor whose elements are elsewhere, as those of a DTensor are."""


def test_a_subclass_of_tensor_is_refused_by_name(checkpointer):
    with pytest.raises(tidemark.UnsupportedTypeError, match="'t' is a torch_test.Wrapped, a tensor without memory of its own"):
        checkpointer.save(1, {"t": torch.ones(3).as_subclass(Wrapped)})


def test_another_model_is_a_mismatch_with_names(checkpointer):
    checkpointer.save(1, {"model": torch.nn.Linear(2, 3)})
    with pytest.raises(tidemark.MismatchError) as caught:
        checkpointer.resume({"model": torch.nn.Linear(4, 3, bias=False)})
    assert caught.value.reshaped == ["model.weight"] and caught.value.unexpected == ["model.bias"]


def test_an_array_of_numpy_is_read_as_a_tensor(checkpointer):
    checkpointer.save(1, {"a": np.arange(4.0)})
    tensor = torch.zeros(4, dtype=torch.float64)
    checkpointer.resume({"a": tensor})
    assert tensor.tolist() == [0, 1, 2, 3]


def test_a_generator_goes_on(checkpointer):
    generator = torch.Generator().manual_seed(5)
    checkpointer.save(1, {"g": generator})
    drawn = torch.rand(3, generator=generator)
    checkpointer.resume({"g": generator})
    assert torch.equal(torch.rand(3, generator=generator), drawn)


def train_once(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()


def optimizers(parameters):
    return {"SGD": torch.optim.SGD(parameters, lr=0.1, momentum=0.9), "plain SGD": torch.optim.SGD(parameters, lr=0.1),
            "Adam": torch.optim.Adam(parameters, lr=0.1, amsgrad=True), "AdamW": torch.optim.AdamW(parameters),
            "RMSprop": torch.optim.RMSprop(parameters, momentum=0.5, centered=True),
            "Adagrad": torch.optim.Adagrad(parameters), "maximising": torch.optim.Adam(parameters, maximize=True),
            "NAdam": torch.optim.NAdam(parameters)}


@pytest.mark.parametrize("kind", list(optimizers([torch.zeros(1, requires_grad=True)])))
def test_every_optimizer_goes_on_as_if_nothing_had_been(checkpointer, kind):
    model = torch.nn.Linear(3, 2)
    optimizer = optimizers(list(model.parameters()))[kind]
    train_once(model, optimizer)
    checkpointer.save(1, {"model": model, "optimizer": optimizer})
    other = torch.nn.Linear(3, 2)
    resumed = optimizers(list(other.parameters()))[kind]
    resumed.param_groups[0]["lr"] = 7.0
    checkpointer.resume({"model": other, "optimizer": resumed})
    assert resumed.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]
    for _ in range(2):
        train_once(model, optimizer)
        train_once(other, resumed)
    assert torch.equal(other.weight, model.weight) and torch.equal(other.bias, model.bias)
    checkpointer.wait_until_committed()
    with tidemark.open(checkpointer.path) as step:
        names = step.value_keys()
    assert ("optimizer" in names) == (kind == "NAdam")
    assert ("optimizer.param_groups.0.python" in names) == (kind == "maximising")


def test_an_optimizer_has_the_entries_of_the_cpp_library(checkpointer):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    train_once(model, optimizer)
    checkpointer.save(1, {"model": model, "optimizer": optimizer}).committed.result()
    with tidemark.open(checkpointer.path) as step:
        values = {name: step.get_value(name) for name in step.value_keys()}
    group = "optimizer.param_groups.0."
    assert values == {"optimizer.type": "AdamW", group + "params": "weight\nbias", group + "lr": 0.5, group + "betas.0": 0.9,
                      group + "betas.1": 0.999, group + "eps": 1e-8, group + "weight_decay": 0.01, group + "amsgrad": False,
                      "optimizer.weight.step": 1, "optimizer.bias.step": 1}


def test_an_optimizer_of_another_class_or_with_other_parameters_is_refused(checkpointer):
    model = torch.nn.Linear(3, 2)
    checkpointer.save(1, {"model": model, "optimizer": torch.optim.Adam(model.parameters())})
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="is a SGD here, and a Adam in the checkpoint"):
        checkpointer.resume({"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=1.0)})
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="other parameters than in the checkpoint: 'bias' only there"):
        checkpointer.resume({"model": model, "optimizer": torch.optim.Adam([model.weight])})
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="in other groups"):
        both = torch.optim.Adam([{"params": [model.weight]}, {"params": [model.bias]}])
        checkpointer.save(2, {"model": model, "optimizer": torch.optim.Adam([
            {"params": [model.weight, model.bias]}])}).committed.result()
        checkpointer.resume({"model": model, "optimizer": both})


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.NAdam])
def test_states_go_by_names_if_the_order_of_the_parameters_has_changed(checkpointer, kind):
    model = torch.nn.Linear(3, 2)
    optimizer = kind([{"params": [model.weight], "lr": 0.25}, {"params": [model.bias]}])
    train_once(model, optimizer)
    checkpointer.save(1, {"model": model, "optimizer": optimizer})
    other = torch.nn.Linear(3, 2)
    resumed = kind([{"params": [other.bias]}, {"params": [other.weight]}])
    checkpointer.resume({"model": other, "optimizer": resumed})
    assert [group["lr"] for group in resumed.param_groups] == [optimizer.param_groups[1]["lr"], 0.25]
    assert torch.equal(resumed.state[other.weight]["exp_avg"], optimizer.state[model.weight]["exp_avg"])
    assert torch.equal(resumed.state[other.bias]["exp_avg"], optimizer.state[model.bias]["exp_avg"])


def test_bytes_of_another_generator_are_refused(checkpointer):
    checkpointer.save(1, {"g": b"123"})
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="'g' has 3 bytes, which the generator refuses"):
        checkpointer.resume({"g": torch.Generator()})
    checkpointer.save(2, {"g": 5}).committed.result()
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="'g' is a generator of PyTorch here, and a int"):
        checkpointer.resume({"g": torch.Generator()})


def test_the_state_of_an_object_is_read_without_the_object(checkpointer):
    optimizer = torch.optim.Adam([torch.zeros(2, requires_grad=True)])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    checkpointer.save(1, {"scheduler": scheduler}).committed.result()
    with tidemark.open(checkpointer.path) as step:
        assert step.get_value("scheduler") == scheduler.state_dict()


def test_generators_of_libraries_that_are_not_imported_are_left_out_of_a_restore(checkpointer):
    random.seed(5)
    checkpointer.save(1, {"rng": tidemark.rng(), "epoch": 3}).committed.result(60)
    drawn = random.random()
    program = ("import logging, random, sys, tidemark\n"
               "class NoTorch:\n"
               "    def find_spec(self, name, path=None, target=None):\n"
               "        if name in ('torch', 'numpy'):\n"
               "            raise ModuleNotFoundError(name)\n"
               "sys.meta_path.insert(0, NoTorch())\n"
               "logging.basicConfig(level=logging.INFO)\n"
               "state = {'rng': tidemark.rng(), 'epoch': 0}\n"
               "with tidemark.Checkpointer(sys.argv[1]) as checkpointer:\n"
               "    print(checkpointer.resume(state), state['epoch'], random.random())\n")
    checkpointer.close()
    result = subprocess.run([sys.executable, "-c", program, checkpointer.path], capture_output=True, text=True, timeout=120)
    assert result.stdout == f"2 3 {drawn}\n", result.stderr
    assert "the generator of torch stays as it is, for torch has not been imported" in result.stderr
