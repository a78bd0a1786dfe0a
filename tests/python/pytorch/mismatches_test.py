"""What a restore says of a checkpoint that does not fit the state of PyTorch's objects."""

import logging

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
