"""What a restore says of a checkpoint that does not fit the state of PyTorch's objects."""

import logging
import random

import numpy
import pytest

torch = pytest.importorskip("torch")

import tidemark  # noqa: E402

WAY_OUT = "pass the optimizer itself, not its state_dict()"


def trained():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return model, optimizer


def fresh():
    model = torch.nn.Linear(2, 2)
    return model, torch.optim.AdamW(model.parameters())


@pytest.mark.parametrize("wrap", [lambda part: {"optimizer": part}, lambda part: {"parts": [part, part]}],
                         ids=["a dict", "a list"])
def test_the_state_dict_of_a_fresh_optimizer_is_refused_with_the_way_out(checkpointer, wrap):
    _, optimizer = trained()
    checkpointer.save(1, wrap(optimizer.state_dict()))
    with pytest.raises(tidemark.MismatchError) as caught:
        checkpointer.resume(wrap(fresh()[1].state_dict()))
    assert f"' is the state_dict() of an optimizer: {WAY_OUT}" in str(caught.value)


def test_another_mismatch_says_nothing_of_state_dicts(checkpointer):
    _, optimizer = trained()
    checkpointer.save(1, {"optimizer": optimizer.state_dict(), "gone": 1})
    with pytest.raises(tidemark.MismatchError) as caught:
        checkpointer.resume({"optimizer": optimizer.state_dict(), "new": 1})
    assert "new" in str(caught.value) and "state_dict()" not in str(caught.value)


def test_a_save_warns_once_of_a_state_dict(checkpointer, caplog):
    for step, (_, optimizer) in enumerate((trained(), fresh())):
        with caplog.at_level(logging.WARNING, "tidemark"):
            checkpointer.save(step, {"parts": {"optimizer": optimizer.state_dict()}})
    warnings = [record.getMessage() for record in caplog.records if WAY_OUT in record.getMessage()]
    assert len(warnings) == 1 and warnings[0].startswith("'parts.optimizer' is the state_dict() of an optimizer")


def test_a_save_of_the_optimizer_itself_warns_of_nothing(checkpointer, caplog):
    model, optimizer = trained()
    with caplog.at_level(logging.WARNING, "tidemark"):
        checkpointer.save(1, {"model": model, "optimizer": optimizer})
    assert not caplog.records


def test_a_step_with_a_state_dict_can_be_read_into_one_of_a_step(checkpointer):
    _, optimizer = trained()
    checkpointer.save(1, {"optimizer": optimizer.state_dict()})
    _, other = trained()
    state = {"optimizer": other.state_dict()}
    checkpointer.restore(state)
    other.load_state_dict(state["optimizer"])
    for mine, saved in zip(other.state.values(), optimizer.state.values()):
        assert torch.equal(mine["exp_avg"], saved["exp_avg"])


def other_groups(model):
    return torch.optim.AdamW([{"params": [model.weight]}, {"params": [model.bias]}])


@pytest.mark.parametrize("optimizer_of, reason", [
    (lambda model: torch.optim.SGD(model.parameters(), lr=0.1), "'optimizer' is a SGD here, and a AdamW in the checkpoint"),
    (lambda model: torch.optim.AdamW([model.weight]), "'optimizer' has other parameters than in the checkpoint"),
    (other_groups, "'optimizer' has its parameters in other groups"),
    (lambda model: torch.optim.Adadelta(model.parameters()), "'optimizer' is a Adadelta here, and a AdamW in the checkpoint")],
    ids=["type", "parameters", "groups", "stored as one object"])
@pytest.mark.parametrize("from_snapshot", [False, True], ids=["step", "snapshot"])
def test_an_optimizer_that_does_not_fit_is_found_before_anything_is_written(checkpointer, optimizer_of, reason, from_snapshot):
    model, optimizer = trained()
    checkpointer.save(1, {"model": model, "optimizer": optimizer, "epoch": 3})
    other = torch.nn.Linear(2, 2)
    before = other.weight.clone()
    state = {"model": other, "optimizer": optimizer_of(other), "epoch": 0}
    with pytest.raises(tidemark.MismatchError, match="1 difference:") as caught:
        if from_snapshot:
            tidemark.capture({"model": model, "optimizer": optimizer, "epoch": 3}).restore(state)
        else:
            checkpointer.resume(state)
    assert reason in str(caught.value)
    assert torch.equal(other.weight, before) and state["epoch"] == 0


def test_an_optimizer_by_indices_with_other_groups_is_found_before_anything_is_written(checkpointer):
    model, optimizer = trained()  # the state lacks the model, so the entries go by indices
    checkpointer.save(1, {"optimizer": optimizer, "weight": torch.ones(2)})
    state = {"optimizer": other_groups(torch.nn.Linear(2, 2)), "weight": torch.zeros(2)}
    with pytest.raises(tidemark.MismatchError, match=r"'optimizer' has groups of \[1, 1\] parameters here, and of \[2\]"):
        checkpointer.resume(state)
    assert state["weight"].tolist() == [0, 0]


def test_all_names_that_do_not_fit_are_in_one_error_and_then_all_objects(checkpointer):
    model, optimizer = trained()
    checkpointer.save(1, {"model": model, "optimizer": optimizer, "rng": random.Random(), "gone": 1})
    other = torch.nn.Linear(2, 2)
    before = other.weight.clone()
    state = {"model": other, "optimizer": torch.optim.SGD(other.parameters(), lr=0.1), "rng": numpy.random.default_rng()}
    with pytest.raises(tidemark.MismatchError, match="2 differences:(.|\n)*'new'(.|\n)*'gone'") as caught:
        checkpointer.resume({**state, "new": 1})
    assert (caught.value.missing, caught.value.unexpected) == (["new"], ["gone"])
    with pytest.raises(tidemark.MismatchError, match="2 differences:\n  'optimizer' is a SGD here.*\n  'rng' has a state in the"):
        checkpointer.resume(state, allow_unexpected=True)
    assert torch.equal(other.weight, before)


GENERATORS = {"python": random.Random, "numpy": lambda: numpy.random.default_rng(1),
              "mt19937": lambda: numpy.random.Generator(numpy.random.MT19937(1)),
              "legacy": lambda: numpy.random.RandomState(1), "torch": torch.Generator, "all": tidemark.rng}


@pytest.mark.parametrize("here", GENERATORS)
@pytest.mark.parametrize("stored", GENERATORS)
def test_a_generator_of_another_kind_is_found_before_anything_is_written(checkpointer, here, stored):
    checkpointer.save(1, {"w": torch.ones(2), "rng": GENERATORS[stored]()})
    state = {"w": torch.zeros(2), "rng": GENERATORS[here]()}
    if here == stored or {here, stored} == {"mt19937", "legacy"}:  # these have one state
        checkpointer.resume(state)
        assert state["w"].tolist() == [1, 1]
        return
    with pytest.raises(tidemark.MismatchError, match="'rng['.]"):
        checkpointer.resume(state)
    assert state["w"].tolist() == [0, 0]


def test_what_is_left_out_of_a_restore_need_not_fit(checkpointer):
    model, optimizer = trained()
    checkpointer.save(1, {"model": model, "optimizer": optimizer})
    other = torch.nn.Linear(2, 2)
    checkpointer.restore({"model": other, "optimizer": torch.optim.SGD(other.parameters(), lr=0.1)}, only=["model.*"])
    assert torch.equal(other.weight, model.weight)


def test_accept_still_chooses_and_may_be_interrupted(checkpointer):
    model, optimizer = trained()
    for step in (1, 2):
        checkpointer.save(step, {"model": model, "optimizer": optimizer})
    checkpointer.wait_until_committed()
    state = {"model": model, "optimizer": optimizer}
    assert checkpointer.restore(state, accept=lambda info: info.step < 2).step == 1

    def interrupt(info):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpointer.restore(state, accept=interrupt)


class Refusing:
    def state_dict(self):
        return {"n": 1}

    def load_state_dict(self, state):
        raise KeyError("gamma")


def test_what_load_state_dict_raises_has_the_path_and_says_that_arrays_were_written(checkpointer):
    checkpointer.save(1, {"w": torch.ones(2), "parts": [Refusing()]})
    state = {"w": torch.zeros(2), "parts": [Refusing()]}
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="'parts.0': load_state_dict.* of Refusing raised "
                                                                  r"KeyError\('gamma'\).*have been written") as caught:
        checkpointer.resume(state)
    assert isinstance(caught.value.__cause__, KeyError) and not isinstance(caught.value, tidemark.MismatchError)
    assert state["w"].tolist() == [1, 1]


def test_a_value_in_the_place_of_an_object_is_told_by_its_path(checkpointer):
    checkpointer.save(1, {"part": Refusing()})
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="'part' is an object with state in the checkpoint, and a int"):
        checkpointer.resume({"part": 1})
