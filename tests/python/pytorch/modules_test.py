"""What modules of PyTorch keep beside their tensors, and the names of what they hold, through wrappers and across versions."""

import contextlib

import pytest

torch = pytest.importorskip("torch")

import tidemark  # noqa: E402
from tidemark import errors  # noqa: E402
from tidemark._state import modules, tree  # noqa: E402


class Wrapper(torch.nn.Module):
    """As DDP, FSDP and torch.compile: the module below an attribute."""

    def __init__(self, attribute, module):
        super().__init__()
        setattr(self, attribute, module)


class Counting(torch.nn.Module):
    """Has a parameter, and a count that get_extra_state gives away as a dict or as a tensor."""

    def __init__(self, count=0, as_tensor=False):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((2,), float(count)))
        self.count = count
        self._as_tensor = as_tensor

    def get_extra_state(self):
        return torch.tensor([self.count]) if self._as_tensor else {"n": self.count}

    def set_extra_state(self, state):
        self.count = int(state[0]) if self._as_tensor else state["n"]


WRAPPED = {
    "bare": lambda module: module,
    "ddp": lambda module: Wrapper("module", module),
    "compiled": lambda module: Wrapper("_orig_mod", module),
    "compiled ddp": lambda module: Wrapper("_orig_mod", Wrapper("module", module)),
    "fsdp": lambda module: Wrapper("_fsdp_wrapped_module", module),
}
if hasattr(torch, "compile"):
    WRAPPED["compile itself"] = torch.compile


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("saving", WRAPPED)
def test_extra_state_goes_through_wrappers(checkpointer, saving, as_tensor):
    def parts(count):
        return torch.nn.Sequential(Counting(count, as_tensor), Counting(count + 1, as_tensor))

    checkpointer.save(1, {"model": WRAPPED[saving](parts(7))})
    for wrapper in WRAPPED.values():
        restored = parts(0)
        checkpointer.restore({"model": wrapper(restored)})
        assert [part.count for part in restored] == [7, 8]
        assert restored[1].weight.tolist() == [8, 8]


def test_extra_state_of_an_older_step_has_the_keys_of_the_wrapper_that_was_saved(checkpointer):
    stored = {"weight": torch.ones(2), "_extra_state": {"_orig_mod.module._extra_state": {"n": 7}}}
    checkpointer.save(1, {"model": stored})
    for wrapper in WRAPPED.values():
        module = Counting()
        checkpointer.restore({"model": wrapper(module)})
        assert module.count == 7


@pytest.mark.parametrize("stored,message", [
    ({"other._extra_state": {"n": 7}}, r"'model' has no extra state 'other._extra_state'.*\['_extra_state'\]"),
    (3, "'model._extra_state' is the extra state of a module here, and a int in the checkpoint")])
def test_extra_state_that_fits_nothing_is_refused(checkpointer, stored, message):
    checkpointer.save(1, {"model": {"weight": torch.ones(2), "_extra_state": stored}})
    module = Counting()
    with pytest.raises(errors.InvalidArgumentError, match=message):
        checkpointer.restore({"model": module})
    assert module.count == 0


def test_extra_state_that_the_checkpoint_lacks_is_a_warning(checkpointer, caplog):
    checkpointer.save(1, {"model": {"0": {"weight": torch.ones(2)}, "1": {"weight": torch.ones(2)},
                                    "_extra_state": {"1._extra_state": {"n": 7}}}})
    module = torch.nn.Sequential(Counting(1), Counting(2))
    checkpointer.restore({"model": module})
    assert [part.count for part in module] == [1, 7]
    assert "the checkpoint has no extra state ['0._extra_state'] of 'model'" in caplog.text


class Backbone(torch.nn.Module):
    """Has an attribute of its own that is called as DDP's, among others."""

    def __init__(self):
        super().__init__()
        self.module = torch.nn.Linear(2, 2)
        self.head = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.head(self.module(x))


class Nested(torch.nn.Module):
    """The same beside a parameter, whose name is that of one of its child's without "module."."""

    def __init__(self):
        super().__init__()
        self.module = torch.nn.Linear(2, 2)
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.module(x) * self.weight


class Shell(torch.nn.Module):
    """Has nothing else."""

    def __init__(self):
        super().__init__()
        self.module = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.module(x)


OWN = {
    Backbone: ["head.bias", "head.weight", "module.bias", "module.weight"],
    Nested: ["module.bias", "module.weight", "weight"],
    Shell: ["bias", "weight"],
}


def trained(kind, seed, wrapper):
    torch.manual_seed(seed)
    module = kind()
    model = WRAPPED[wrapper](module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    module(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return {"model": model, "optimizer": optimizer}, module


def same(one, other):
    (state, module), (others, copy) = one, other
    momenta = [[found["optimizer"].state[p]["momentum_buffer"] for p in found["model"].parameters()] for found in (state, others)]
    return (all(torch.equal(a, b) for a, b in zip(module.state_dict().values(), copy.state_dict().values()))
            and all(torch.equal(a, b) for a, b in zip(*momenta)))


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("wrapper", ["ddp", "compiled", "compiled ddp"])
def test_an_own_attribute_that_is_called_module_keeps_its_name_through_wrappers(checkpointer, kind, wrapper):
    for step, (saving, restoring) in enumerate([("bare", "bare"), ("bare", wrapper), (wrapper, "bare"), (wrapper, wrapper)]):
        saved, restored = trained(kind, 1, saving), trained(kind, 2, restoring)
        checkpointer.save(step, saved[0]).committed.result(60)
        with tidemark.open(checkpointer.path, step) as opened:
            assert sorted(name[6:] for name in opened.keys() if name.startswith("model.")) == OWN[kind]
        checkpointer.restore(restored[0], step)
        assert same(saved, restored)


@contextlib.contextmanager
def older_version(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(tree, "names_of", lambda module: modules.older_name)
        yield


# An older version could not restore a Shell that it had saved in DDP without DDP.
@pytest.mark.parametrize("kind,saving,restoring", [
    (Backbone, "bare", "bare"), (Backbone, "ddp", "ddp"), (Backbone, "ddp", "bare"), (Backbone, "compiled ddp", "ddp"),
    (Shell, "bare", "bare"), (Shell, "ddp", "ddp"), (Shell, "compiled ddp", "ddp")])
def test_a_step_with_the_names_of_an_older_version_is_restored(checkpointer, monkeypatch, kind, saving, restoring):
    saved, restored = trained(kind, 1, saving), trained(kind, 2, restoring)
    with older_version(monkeypatch):
        checkpointer.save(1, saved[0])
    assert checkpointer.resume(restored[0]) == 2
    assert same(saved, restored)


def test_a_step_that_fits_by_neither_names_lists_the_differences_to_the_present_ones(checkpointer):
    checkpointer.save(1, {"model": torch.nn.Linear(2, 2)})
    with pytest.raises(tidemark.MismatchError) as caught:
        checkpointer.restore({"model": Backbone()})
    assert caught.value.missing == ["model.head.bias", "model.head.weight", "model.module.bias", "model.module.weight"]
    assert caught.value.unexpected == ["model.bias", "model.weight"]


def test_an_averaged_model_has_the_names_of_its_model(checkpointer):
    averaged = torch.optim.swa_utils.AveragedModel(torch.nn.Linear(2, 2))
    checkpointer.save(1, {"model": averaged}).committed.result(60)
    with tidemark.open(checkpointer.path) as opened:
        assert sorted(opened.keys()) == ["model.bias", "model.n_averaged", "model.weight"]
    module = torch.nn.Linear(2, 2)
    checkpointer.restore({"model": module}, allow_unexpected=True)
    assert torch.equal(module.weight, averaged.module.weight)
