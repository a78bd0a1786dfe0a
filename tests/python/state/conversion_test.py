"""Floating-point arrays that are stored, or restored, in another dtype than the state's."""

import ml_dtypes
import numpy as np
import pytest
import tidemark
from tidemark import errors

VALUES = np.array([1.0, 1 / 3, -2.5e-5, 65519.0, 1e6, np.inf, np.nan, 1.00390625])  # the last lies between two of bfloat16


def stored(store, name, step="latest"):
    with tidemark.open(store, step) as opened:
        return opened.get_tensor(name)


def same(a, b):
    return a.dtype == b.dtype and np.array_equal(a.astype(np.float64), b.astype(np.float64), equal_nan=True)


@pytest.mark.parametrize("own", ["float16", "float32", "float64", "bfloat16"])
@pytest.mark.parametrize("other", ["float16", "bfloat16", "float32", "float64"])
def test_every_pair_of_dtypes_is_converted_both_ways(tmp_path, own, other):
    kinds = {name: getattr(ml_dtypes, name, None) or np.dtype(name) for name in (own, other)}
    with np.errstate(over="ignore"):
        weights = VALUES.astype(kinds[own]).reshape(2, 4)
        expected = weights.astype(kinds[other])
        back = expected.astype(kinds[own])
    state = {"w": weights.copy(), "n": np.arange(3), "epoch": 2.5}
    with tidemark.Checkpointer(tmp_path / "store", saved_dtypes={"w": other}) as checkpointer:
        checkpointer.save(1, state).committed.result(60)
        assert same(stored(tmp_path / "store", "w"), expected) and same(state["w"], weights)
        state["w"][:] = 0
        checkpointer.restore(state, convert_dtypes=True)
        assert same(state["w"], back) and state["epoch"] == 2.5


def test_without_leave_another_dtype_is_a_mismatch(tmp_path):
    state = {"w": np.ones(3, np.float32), "n": np.ones(3, np.float32)}
    with tidemark.Checkpointer(tmp_path / "store", saved_dtypes={"w": "float16"}) as checkpointer:
        checkpointer.save(1, state)
        with pytest.raises(tidemark.MismatchError) as caught:
            checkpointer.resume(state)
        assert caught.value.retyped == ["w"]
        for other, reshaped, retyped in (({"w": np.zeros(3, np.int32), "n": np.zeros(3)}, [], ["w"]),
                                         ({"w": np.zeros(4), "n": np.zeros(3)}, ["w"], []),
                                         ({"w": np.zeros(3, np.complex64), "n": np.zeros(3)}, [], ["w"])):
            with pytest.raises(tidemark.MismatchError) as caught:
                checkpointer.restore(other, convert_dtypes=True)
            assert (caught.value.reshaped, caught.value.retyped) == (reshaped, retyped)
            assert not other["w"].any() and not other["n"].any()


def test_the_first_pattern_counts_and_tied_arrays_are_stored_once(tmp_path):
    tied = np.arange(1000, dtype=np.float32).reshape(20, 50)
    state = {"a": {"x": tied}, "b": {"x": tied, "y": np.ones((4, 6), np.float32).T, "empty": np.zeros((0, 3))}}
    saved_dtypes = {"b.y": "float64", "*.x": "bfloat16", "*": "float16"}
    with tidemark.Checkpointer(tmp_path / "store", saved_dtypes=saved_dtypes) as checkpointer:
        checkpointer.save(1, state).committed.result(60)
        assert checkpointer.latest_step().logical_bytes < 2000 + 24 * 8 + 500
        for name, dtype in (("a.x", "bfloat16"), ("b.x", "bfloat16"), ("b.y", "float64"), ("b.empty", "float16")):
            assert stored(tmp_path / "store", name).dtype.name == dtype
        tied[:], state["b"]["y"][:] = 0, 0
        checkpointer.restore(state, convert_dtypes=True)
        assert (tied == np.arange(1000).reshape(20, 50).astype(ml_dtypes.bfloat16).astype(np.float32)).all()
        assert (state["b"]["y"] == 1).all()


def test_the_copies_are_those_of_the_moment_of_the_save(tmp_path):
    state = {"w": np.zeros(1 << 16, np.float32)}
    with tidemark.Checkpointer(tmp_path / "store", saved_dtypes={"*": "bfloat16"}, staging="overlapped") as checkpointer:
        for step in range(1, 6):
            state["w"][:] = step
            checkpointer.save(step, state)
            state["w"][:] = -1  # the copy was made
        checkpointer.wait_until_committed()
        for step in range(1, 6):
            assert (stored(tmp_path / "store", "w", step) == step).all()
        state["w"] = np.ones(3)  # another shape: another copy
        checkpointer.save(6, state).committed.result(60)
        assert stored(tmp_path / "store", "w").shape == (3,)


def test_evaluators_get_the_stored_dtype_and_snapshots_convert_back(tmp_path):
    found = {}
    with tidemark.Checkpointer(tmp_path / "store", saved_dtypes={"w": "float16"}) as checkpointer:
        @checkpointer.evaluator("e")
        def look(snapshot):
            found["dtype"] = snapshot.dtype_of("w")
            state = {"w": np.zeros(3)}
            with pytest.raises(tidemark.MismatchError):
                snapshot.restore(state)
            snapshot.restore(state, convert_dtypes=True)
            found["w"] = state["w"]

        checkpointer.save(1, {"w": np.full(3, 1.5)})
        checkpointer.wait_until_evaluated(60)
        assert checkpointer.steps()[0].evaluations[0].outcome == "done", checkpointer.steps()[0].evaluations
    assert found["dtype"] == "float16" and found["w"].tolist() == [1.5] * 3


def test_a_model_and_its_optimizer_are_stored_smaller(tmp_path):
    torch = pytest.importorskip("torch")

    def training():
        torch.manual_seed(0)
        model = torch.nn.Linear(30, 20)
        return model, torch.optim.Adam(model.parameters(), lr=0.01)

    def step(model, optimizer):
        optimizer.zero_grad()
        model(torch.ones(4, 30)).square().mean().backward()
        optimizer.step()

    model, optimizer = training()
    step(model, optimizer)
    state = {"model": model, "optimizer": optimizer}
    options = {"saved_dtypes": {"model.*": "bfloat16", "optimizer.*.exp_avg*": "float16"}}
    with tidemark.Checkpointer(tmp_path / "store", **options) as checkpointer:
        checkpointer.save(1, state).committed.result(60)
    with tidemark.open(tmp_path / "store", framework="pt") as opened:
        assert torch.equal(opened.get_tensor("model.weight"), model.weight.detach().bfloat16())
        averages = [name for name in opened.keys() if "exp_avg" in name]
        assert averages and all(opened.get_tensor(name).dtype == torch.float16 for name in averages)
    other, other_optimizer = training()
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        assert checkpointer.resume({"model": other, "optimizer": other_optimizer}, convert_dtypes=True) == 2
    assert other.weight.dtype == torch.float32 and torch.equal(other.weight, model.weight.bfloat16().float())
    restored = other_optimizer.state[other.weight]["exp_avg"]
    assert restored.dtype == torch.float32
    assert torch.equal(restored, optimizer.state[model.weight]["exp_avg"].half().float())
    step(other, other_optimizer)


def test_a_trainer_resumes_what_it_has_converted(tmp_path):
    state = {"w": np.full(10, 0.1)}

    def train(step):
        state["w"] += 1.0

    trainer = tidemark.AsyncTrainer(tmp_path / "store", state, train, saved_dtypes={"w": "float32"})
    trainer.run(3)
    state["w"][:] = 0
    assert trainer.run(4).first == 3 and state["w"][0] == np.float32(3.1) + 1.0


@pytest.mark.parametrize("dtypes", [{"w": "int8"}, {"w": "float8_e5m2"}, {"w": ""}])
def test_a_dtype_that_is_none_of_the_four_is_refused(tmp_path, dtypes):
    with pytest.raises(errors.InvalidArgumentError, match=r"saved_dtypes\['w'\]"):
        tidemark.Checkpointer(tmp_path / "store", saved_dtypes=dtypes)
    assert not (tmp_path / "store").exists()


def warnings_of_patterns(caplog):
    return [record.getMessage() for record in caplog.records if "saved_dtypes" in record.getMessage()]


def test_a_pattern_that_matches_no_array_is_warned_of_once(tmp_path, caplog):
    state = {"model": {"weight": np.ones(3), "bias": np.ones(2), "steps": np.ones(2, np.int64)}, "n": 3}
    patterns = {"modell.*": "float16", "model.w*": "float16", "model.steps": "float16", "*.bias": "float16", "*": "float32"}
    with tidemark.Checkpointer(tmp_path / "store", saved_dtypes=patterns) as checkpointer:
        for step in range(4):
            checkpointer.save(step, state)
            assert warnings_of_patterns(caplog) == [
                "saved_dtypes['modell.*'] matches no floating-point array of the state: the closest name is 'model.bias'",
                "saved_dtypes['model.steps'] matches no floating-point array of the state: the closest name is 'model.bias'"]


def test_a_state_without_floats_is_warned_of_with_saved_dtypes(tmp_path, caplog):
    with tidemark.Checkpointer(tmp_path / "store", saved_dtypes={"*": "float16"}) as checkpointer:
        checkpointer.save(1, {"n": 3})
    assert warnings_of_patterns(caplog) == ["saved_dtypes['*'] matches no floating-point array of the state, which has none"]
