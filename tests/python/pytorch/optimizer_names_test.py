"""The state of an optimizer goes by the names of its parameters, wherever in the state their modules are."""

import json

import pytest

torch = pytest.importorskip("torch")

import tidemark  # noqa: E402
from tidemark import errors  # noqa: E402
from tidemark._state import codec, objects, parameters  # noqa: E402


def adam(*modules, turned=False):
    """One that has seen a gradient of each parameter. `turned`: it has them in the opposite order."""
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimizer = torch.optim.Adam(parameters[::-1] if turned else parameters, lr=0.1)
    for parameter in parameters:
        parameter.grad = torch.rand_like(parameter)
    optimizer.step()
    return optimizer


def averages(optimizer, *modules):
    """In the order of the modules' parameters; without modules in that of the optimizer's."""
    parameters = [parameter for module in modules for parameter in module.parameters()]
    return [optimizer.state[parameter]["exp_avg"] for parameter in parameters or optimizer.param_groups[0]["params"]]


def same(first, second):
    return len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second))


def names_of(checkpointer, path):
    checkpointer.wait_until_committed()
    with tidemark.open(checkpointer.path) as step:
        return {name[len(path) + 1:-len(".exp_avg")] for name in step.keys()
                if name.startswith(path) and name.endswith(".exp_avg")}


def gan(turned=False):
    generator, critic = torch.nn.Sequential(torch.nn.Linear(2, 3)), torch.nn.Sequential(torch.nn.Linear(3, 1))
    return {"gan": {"G": generator, "D": critic},
            "optimizers": {"G": adam(generator, turned=turned), "D": adam(critic, turned=turned)}}


def both(turned=False):
    state = gan()
    state["optimizers"] = {"G": adam(state["gan"]["G"], state["gan"]["D"], turned=turned)}
    return state


def test_modules_in_containers_name_the_parameters(checkpointer):
    saved = gan()
    checkpointer.save(1, saved)
    assert names_of(checkpointer, "optimizers.G") == names_of(checkpointer, "optimizers.D") == {"0.weight", "0.bias"}
    restored = gan(turned=True)
    checkpointer.restore(restored)
    for key in ("G", "D"):
        assert same(averages(saved["optimizers"][key], saved["gan"][key]),
                    averages(restored["optimizers"][key], restored["gan"][key]))


@pytest.mark.parametrize("make,paths", [
    (lambda a, b: {"nets": [a, b]}, ["nets.0.", "nets.1."]), (lambda a, b: {"nets": (a, {"b": b})}, ["nets.0.", "nets.1.b."]),
    (lambda a, b: {"a": a, "b": b}, ["a.", "b."]), (lambda a, b: {"nets": torch.nn.ModuleList([a, b])}, ["0.", "1."])])
def test_parameters_of_one_name_have_the_paths_of_their_modules(checkpointer, make, paths):
    def state_of(turned=False):
        modules = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
        return modules, {**make(*modules), "optimizer": adam(*modules, turned=turned)}

    modules, saved = state_of()
    checkpointer.save(1, saved)
    assert names_of(checkpointer, "optimizer") == {path + name for path in paths for name in ("weight", "bias")}
    others, restored = state_of(turned=True)
    checkpointer.restore(restored)
    assert same(averages(saved["optimizer"], *modules), averages(restored["optimizer"], *others))


def test_a_module_at_the_top_of_the_state_names_its_parameters_first(checkpointer):
    module = torch.nn.Linear(2, 3)
    checkpointer.save(1, {"parts": [torch.nn.Sequential(module)], "model": module, "optimizer": adam(module)})
    assert names_of(checkpointer, "optimizer") == {"weight", "bias"}


def test_a_tensor_beside_the_modules_goes_by_its_path(checkpointer):
    def state_of():
        model, temperature = torch.nn.Linear(2, 1), torch.nn.Parameter(torch.zeros(()))
        optimizer = adam(model)
        optimizer.add_param_group({"params": [temperature]})
        temperature.grad = torch.rand(())
        optimizer.step()
        return {"model": model, "losses": {"temperature": temperature}, "optimizer": optimizer}

    saved, restored = state_of(), state_of()
    checkpointer.save(1, saved)
    assert names_of(checkpointer, "optimizer") == {"weight", "bias", "losses.temperature"}
    checkpointer.restore(restored)
    assert torch.equal(restored["optimizer"].state[restored["losses"]["temperature"]]["exp_avg"],
                       saved["optimizer"].state[saved["losses"]["temperature"]]["exp_avg"])


@pytest.mark.parametrize("make", [gan, both])
def test_an_older_step_has_indices_and_is_restored_by_them(checkpointer, monkeypatch, make):
    saved = make()
    with monkeypatch.context() as older:
        older.setattr(parameters.ParameterNames, "possible", lambda self, optimizer: [])
        checkpointer.save(1, saved)
        assert names_of(checkpointer, "optimizers.G.state") == {str(i) for i in range(2 if make is gan else 4)}
    restored = make()
    checkpointer.restore(restored)
    for key, optimizer in saved["optimizers"].items():
        assert same(averages(optimizer), averages(restored["optimizers"][key]))


def test_names_with_paths_fit_where_names_alone_would_do(checkpointer):
    # As the C++ library writes it if the caller of AddOptimizer names the module "net".
    group = {"params": "net.weight\nnet.bias", "lr": 0.5, "momentum": 0.9, "dampening": 0.0, "weight_decay": 0.0,
             "nesterov": False}
    buffers = {f"net.{name}": {"momentum_buffer": torch.full(shape, 7.0)} for name, shape in (("weight", (3, 2)), ("bias", (3,)))}
    net = torch.nn.Linear(2, 3)
    checkpointer.save(1, {"net": net, "optimizer": {
        "type": "SGD", **{f"param_groups.0.{name}": value for name, value in group.items()}, **buffers}})
    optimizer = torch.optim.SGD([net.bias, net.weight], lr=0.1, momentum=0.9)
    checkpointer.restore({"net": net, "optimizer": optimizer})
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert optimizer.state[net.weight]["momentum_buffer"].tolist() == [[7.0, 7.0]] * 3
    assert optimizer.state[net.bias]["momentum_buffer"].tolist() == [7.0] * 3


def test_parameters_that_the_state_lacks_or_whose_names_are_no_line_go_by_indices(checkpointer):
    module, tensor = torch.nn.Linear(2, 3), torch.nn.Parameter(torch.zeros(2))
    holder = torch.nn.ParameterList([tensor])
    checkpointer.save(1, {"optimizer": adam(module), "lines": {"a\nb": tensor}, "other": adam(holder)})
    assert names_of(checkpointer, "optimizer.state") == {"0", "1"} and names_of(checkpointer, "other.state") == {"0"}


class Counting(torch.optim.SGD):
    calls = 0

    def state_dict(self):
        return {**super().state_dict(), "calls": self.calls}

    def load_state_dict(self, state):
        self.calls = state["calls"]
        super().load_state_dict({key: value for key, value in state.items() if key != "calls"})


class Wrapper:
    """Shows the groups of an optimizer, and has a state_dict() of its own shape."""

    def __init__(self, optimizer):
        self.optimizer, self.param_groups, self.scale = optimizer, optimizer.param_groups, 1.0

    def state_dict(self):
        return {"scale": self.scale, "inner": self.optimizer.state_dict()}

    def load_state_dict(self, state):
        self.scale = state["scale"]
        self.optimizer.load_state_dict(state["inner"])


@pytest.mark.parametrize("make,attribute", [
    (Counting, "calls"), (lambda *args, **options: Wrapper(torch.optim.SGD(*args, **options)), "scale")])
@pytest.mark.parametrize("place", [lambda module: {"model": module}, lambda module: {"nets": [module]}, lambda module: {}])
def test_other_keys_of_an_optimizers_state_dict_come_back(checkpointer, make, attribute, place):
    module = torch.nn.Linear(2, 1)
    optimizer = make(module.parameters(), lr=0.1, momentum=0.9)
    inner = getattr(optimizer, "optimizer", optimizer)
    module(torch.ones(1, 2)).sum().backward()
    inner.step()
    setattr(optimizer, attribute, 7)
    state = {**place(module), "optimizer": optimizer}
    checkpointer.save(1, state)
    setattr(optimizer, attribute, 0)
    inner.state[module.weight]["momentum_buffer"].zero_()
    checkpointer.restore(state)
    assert getattr(optimizer, attribute) == 7 and inner.state[module.weight]["momentum_buffer"].tolist() == [[1, 1]]


def layers():
    return torch.nn.ModuleDict({"encoder": torch.nn.Linear(2, 3), "head": torch.nn.Linear(2, 3)})


@pytest.mark.parametrize("before,after,renames", [
    (lambda a, b: {"nets": [a, b]}, lambda a, b: {"models": [a, b]}, [("nets", "models")]),
    (lambda a, b: {"G": a, "D": b}, lambda a, b: {"D": a, "G": b}, [("G", "D"), ("D", "G")]),
    (lambda a, b: {"G": a, "D": b}, lambda a, b: {"gan": {"G": a, "D": b}}, [("G", "gan.G"), ("D", "gan.D")]),
    (lambda a, b: {"nets": [a, b]}, lambda a, b: {"nets": [a, b.head, b.encoder]},
     [("nets.1.head", "nets.1"), ("nets.1.encoder", "nets.2")])])
@pytest.mark.parametrize("restore", ["restore", "load", "resume", "capture"])
def test_renames_move_the_parameters_of_the_optimizer_too(checkpointer, before, after, renames, restore):
    def make(place, turned):
        modules = layers(), layers()
        return modules, {**place(*modules), "optimizer": adam(*modules, turned=turned)}

    modules, saved = make(before, False)
    others, restored = make(after, True)
    if restore == "capture":
        tidemark.capture(saved).restore(restored, renames=renames)
    else:
        checkpointer.save(1, saved)
        if restore == "load":
            restored = checkpointer.load(like=restored, renames=renames)
        else:
            getattr(checkpointer, restore)(restored, renames=renames)
    assert same(averages(saved["optimizer"], *modules), averages(restored["optimizer"], *others))
    assert same(list(modules[1].parameters()), list(others[1].parameters()))


def test_renames_within_a_module_move_the_parameters_of_its_optimizer(checkpointer):
    saved = layers()
    checkpointer.save(1, {"nets": [saved], "optimizer": (first := adam(saved))})
    restored = torch.nn.ModuleDict({"tail": torch.nn.Linear(2, 3), "body": torch.nn.Linear(2, 3)})
    second = adam(restored)
    checkpointer.restore({"nets": [restored], "optimizer": second},
                         renames=[("nets.0.encoder", "nets.0.body"), ("nets.0.head", "nets.0.tail")])
    assert same(averages(first, saved["encoder"], saved["head"]), averages(second, restored["body"], restored["tail"]))


def test_renames_leave_an_optimizer_whose_parameters_have_the_names_already(checkpointer):
    model, average = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
    checkpointer.save(1, {"model": model, "other": average, "ema": {"model": average}, "optimizer": adam(model, average)})
    state = {"model": torch.nn.Linear(2, 3), "other": torch.nn.Linear(2, 3)}
    state["optimizer"] = adam(state["model"], state["other"])
    checkpointer.restore(state, renames=[("ema.model", "model")], allow_unexpected=True)
    assert torch.equal(state["model"].weight, average.weight)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.NAdam])
def test_param_names_keep_the_order_that_the_parameters_have_here(checkpointer, kind):
    def make(turned):
        module = torch.nn.Linear(2, 1)
        named = sorted(module.named_parameters(), reverse=turned)
        optimizer = kind([parameter for _, parameter in named], lr=0.2 if turned else 0.1)
        optimizer.param_groups[0]["param_names"] = [name for name, _ in named]  # as PyTorch 2.6 has it
        return {"model": module, "optimizer": optimizer}

    state = make(turned=True)
    checkpointer.save(1, make(turned=False))
    checkpointer.restore(state)
    group = state["optimizer"].param_groups[0]
    assert group["lr"] == 0.1
    assert [list(parameter.shape) for parameter in group["params"]] == [[1, 2], [1]]
    if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6):
        assert group["param_names"] == ["weight", "bias"]
    else:
        assert "param_names" not in group


def refused(checkpointer, state, message):
    with pytest.raises(errors.InvalidArgumentError, match=message):
        checkpointer.restore(state, allow_missing=True, allow_unexpected=True)


def test_names_without_their_parameters_are_refused(checkpointer):
    saved = gan()
    checkpointer.save(1, saved)
    refused(checkpointer, {"optimizers": saved["optimizers"]},
            r"'optimizers.G': the checkpoint has its parameters by name, and here parameter 0 of group 0, of the shape \[3, 2\], "
            r"is neither in a module of the state nor a tensor of it\. Put its module into the state")
    layer = saved["gan"]["G"][0]
    two_groups = torch.optim.Adam([{"params": [layer.weight]}, {"params": [layer.bias]}])
    refused(checkpointer, {"model": layer.weight, "optimizers": {"G": two_groups}}, r"parameter 0 of group 1, of the shape \[3\]")
    refused(checkpointer, {"a\nb": layer.weight, "optimizers": {"G": torch.optim.Adam([layer.weight])}},
            "and here two of its parameters have one name, or a name has a line break")


def test_names_in_the_place_of_another_object_are_refused(checkpointer):
    module = torch.nn.Linear(2, 3)
    checkpointer.save(1, {"model": module, "o": torch.optim.NAdam(module.parameters())})
    scheduler = torch.optim.lr_scheduler.StepLR(torch.optim.NAdam(module.parameters()), 2)
    refused(checkpointer, {"model": module, "o": scheduler},
            "here it is a StepLR, which has no param_groups. Put an optimizer there")


def test_other_parameters_are_refused_with_the_way_out(checkpointer):
    saved = gan()
    checkpointer.save(1, saved)
    layer = saved["gan"]["G"][0]
    refused(checkpointer, {**saved, "optimizers": {"G": torch.optim.Adam([layer.weight])}},
            "'optimizers.G' has other parameters than in the checkpoint: '0.bias' only there, and none only here. Create it with "
            "the parameters of the save; if their modules have moved in the state, name the places as `renames`")
    wide = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(5)))
    refused(checkpointer, {"wide": wide, "optimizers": {"G": torch.optim.Adam(wide.parameters())}},
            "none only there, and '1.bias', '1.weight', '2.bias' and 5 more only here")


def test_other_groups_are_refused_with_the_way_out(checkpointer):
    saved = gan()
    checkpointer.save(1, saved)
    layer = saved["gan"]["G"][0]
    two_groups = torch.optim.Adam([{"params": [layer.weight]}, {"params": [layer.bias]}])
    refused(checkpointer, {**saved, "optimizers": {"G": two_groups}},
            "'optimizers.G' has its parameters in other groups than in the checkpoint, whose groups begin with '0.weight'. "
            "Create it with the groups of the save")


def test_modules_in_containers_that_are_on_the_meta_device_give_the_optimizer_their_new_parameters(checkpointer):
    saved = gan()
    checkpointer.save(1, saved)
    with torch.no_grad():
        generator = torch.nn.Sequential(torch.nn.Linear(2, 3, device="meta"))
    restored = {"gan": {"G": generator}, "optimizers": {"G": torch.optim.Adam(generator.parameters())}}
    checkpointer.restore(restored, allow_unexpected=True)
    assert same(averages(saved["optimizers"]["G"], saved["gan"]["G"]), averages(restored["optimizers"]["G"], generator))
    assert torch.equal(generator[0].weight, saved["gan"]["G"][0].weight)


def test_a_text_that_has_an_array_by_two_names_is_refused():
    content = {"$object": [[{"$array": "o.state.a"}, {"$array": "o.a"}], {"o.state.a": "np", "o.a": "np"}, True]}
    read = []
    with pytest.raises(errors.DataLossError, match="has the array 'o.a' twice"):
        text = (codec.MARK + json.dumps(content)).encode()
        objects.object_state("string", text, "o", lambda entry, framework: read.append(entry))
    assert read == ["o.a"]
