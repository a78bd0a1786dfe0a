"""What is saved comes back: arrays in place, values, containers and objects with state."""

import collections
import dataclasses
import math
import random
import re
import tracemalloc
import weakref

import ml_dtypes
import numpy as np
import pytest
import tidemark


def test_a_fresh_run_resumes_at_zero(checkpointer):
    state = {"w": np.ones(2)}
    assert checkpointer.resume(state) == 0
    assert state["w"].tolist() == [1, 1]


def test_arrays_are_restored_in_place(checkpointer):
    weights = np.arange(12.0).reshape(3, 4)
    checkpointer.save(7, {"w": weights})
    kept = weights.copy()
    weights[:] = 0
    assert checkpointer.resume({"w": weights}) == 8
    np.testing.assert_array_equal(weights, kept)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int16, np.int64, np.float16, np.float64, np.complex64,
                                   ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3, 4)])
def test_every_dtype_and_shape_comes_back(checkpointer, dtype, shape):
    array = (np.arange(math.prod(shape)) % 7).reshape(shape).astype(dtype)
    kept = array.copy()
    checkpointer.save(1, {"a": array})
    array[...] = 0
    checkpointer.resume({"a": array})
    assert array.tobytes() == kept.tobytes()


@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: a[::2], lambda a: a[:, 1:3], lambda a: a[::-1, ::-2],
                                  lambda a: a.transpose(2, 0, 1), lambda a: a[:, :, 0], lambda a: a[1:2, :, 1:2]])
def test_views_are_saved_as_they_read_and_restored_through_their_strides(checkpointer, view):
    base = np.arange(120, dtype=np.int32).reshape(4, 5, 6)
    kept = base.copy()
    checkpointer.save(1, {"v": view(base)})
    view(base)[...] = -1
    checkpointer.resume({"v": view(base)})
    np.testing.assert_array_equal(base, kept)


def test_tied_arrays_are_stored_once(checkpointer):
    array = np.random.default_rng(0).random(100_000)
    checkpointer.save(1, {"a": array, "b": array, "part": array[:10]})
    checkpointer.wait_until_committed()
    assert checkpointer.steps()[0].logical_bytes == array.nbytes + 80


@pytest.mark.parametrize("value", [
    None, True, False, 0, -(2**63), 2**63, 2**200, 1.5, -0.0, math.inf, "", "text", "\u00e9", b"", b"\0\xff", bytearray(b"x"),
    1 + 2j, [], {}, (), [1, [2, (3, None)]], (1,), {"a": {1: 2}}, {1, 2}, frozenset("a"), {"$float": "nan"}, {"$x": 1},
    collections.Counter("aab"), collections.OrderedDict(b=1, a=2), "tidemark.value.1\n", "tidemark.value.1\n{}"])
def test_every_value_comes_back_with_its_type(checkpointer, value):
    checkpointer.save(1, {"v": value})
    state = {"v": "other"}
    checkpointer.resume(state)
    assert state["v"] == value and type(state["v"]) is type(value)
    assert repr(state["v"]) == repr(value)


def test_nan_and_numpy_scalars_come_back(checkpointer):
    checkpointer.save(1, {"nan": math.nan, "list": [math.nan], "scalar": np.float32(1.5)})
    state = {"nan": 0, "list": 0, "scalar": 0}
    checkpointer.resume(state)
    assert math.isnan(state["nan"]) and math.isnan(state["list"][0])
    assert state["scalar"] == 1.5 and type(state["scalar"]) is np.float32


def test_containers_that_hold_arrays_are_walked(checkpointer):
    @dataclasses.dataclass
    class Run:
        weights: np.ndarray
        epoch: int

    Pair = collections.namedtuple("Pair", "array count")

    def make(fill):
        return {"layers": [np.full(2, fill), {"bias": np.full(3, fill), 5: fill}], "pair": Pair(np.full(1, fill), fill),
                "run": Run(np.full(2, fill), fill)}

    state = make(1)
    checkpointer.save(1, state)
    other = make(0)
    checkpointer.resume(other)
    assert repr(other) == repr(state)
    with tidemark.open(checkpointer_path(checkpointer)) as step:
        assert sorted(step.keys()) == ["layers.0", "layers.1.bias", "pair.0", "run.weights"]
        assert sorted(step.value_keys()) == ["layers.1.5", "pair.1", "run.epoch"]


def checkpointer_path(checkpointer):
    checkpointer.wait_until_committed()
    return checkpointer.path


def test_objects_with_state_get_new_arrays(checkpointer):
    class Average:
        def __init__(self):
            self.state = {}

        def state_dict(self):
            return self.state

        def load_state_dict(self, state):
            self.state = state

    saved = Average()
    saved.state = {0: {"mean": np.arange(3.0), "count": 4}, "name": "a", "nested": [(np.ones(1), None)]}
    checkpointer.save(1, {"average": saved})
    loaded = Average()
    checkpointer.resume({"average": loaded})
    assert repr(loaded.state) == repr(saved.state)


def test_generators_go_on_where_they_were(checkpointer):
    state = {"rng": tidemark.rng(), "numpy": np.random.default_rng(1), "philox": np.random.Generator(np.random.Philox(2)),
             "python": random.Random(3), "legacy": np.random.RandomState(4),
             "legacy pcg64": np.random.RandomState(np.random.PCG64(5))}

    def draw():  # the second half of a pair of normal numbers is a part of the state
        return [random.random(), np.random.random(), state["numpy"].random(), state["philox"].integers(1000),
                state["python"].random(), state["legacy"].normal(), state["legacy pcg64"].normal()]

    draw()

    checkpointer.save(1, state)
    drawn = draw()
    draw()
    checkpointer.resume(state)
    assert draw() == drawn


def test_what_changes_between_two_saves_is_noticed(checkpointer):
    first, second = np.arange(6), np.arange(6) + 10
    states = [{"a": first, "n": 1}, {"a": first, "n": "a text"}, {"a": second, "n": 2}, {"a": second[::2], "n": 2},
              {"a": second.astype(np.float32), "n": 2}, {"a": second.reshape(2, 3), "n": 2}, {"b": second, "n": 2},
              {"b": second, "c": second, "n": 2}, {"b": second, "c": second.copy(), "n": 2}, {"b": second}, {"n": 2}]
    for step, state in enumerate(states):
        if step in (3, 7):  # a state that is refused, and then again, and leaves nothing behind
            for _ in range(2):
                with pytest.raises(tidemark.errors.InvalidArgumentError):
                    checkpointer.save(100, {"a": first, "x" * 100_000: first})
        if step == 2:
            first += 1  # the same place
            checkpointer.save(200, states[0])
        checkpointer.save(step, state).committed.result(60)
    for step, state in enumerate(states):
        with tidemark.open(checkpointer.path, step) as opened:
            for name in opened.keys():
                expected = np.arange(6) if state[name] is first else state[name]
                assert opened.get_tensor(name).dtype == expected.dtype
                np.testing.assert_array_equal(opened.get_tensor(name), expected)
            assert {*opened.keys(), *opened.value_keys()} == set(state)
            assert all(opened.get_value(name) == state[name] for name in opened.value_keys())
    with tidemark.open(checkpointer.path, 200) as opened:
        assert opened.get_tensor("a").tolist() == [1, 2, 3, 4, 5, 6]


class Point:
    def __init__(self, x):
        self.x = x


def test_what_cannot_be_stored_is_named_with_the_way_out(checkpointer):
    with pytest.raises(tidemark.UnsupportedTypeError, match=r"'a\.1' is a .*Point.*tidemark\.register"):
        checkpointer.save(1, {"a": [1, Point(2)]})
    with pytest.raises(tidemark.UnsupportedTypeError, match="'names' is an array of"):
        checkpointer.save(1, {"names": np.array(["x"])})
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="contains itself"):
        loop = []
        loop.append(loop)
        checkpointer.save(1, {"loop": loop})
    assert checkpointer.steps() == []


def test_a_masked_array_is_refused(tmp_path):
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        for state in ({"w": masked}, {"deep": [{"w": masked}]}):
            with pytest.raises(tidemark.UnsupportedTypeError, match=r"w' is a masked array.*array\.mask"):
                checkpointer.save(1, state)
        checkpointer.save(1, {"w": {"data": masked.data, "mask": masked.mask}})
        with pytest.raises(tidemark.UnsupportedTypeError, match="'w' is a masked array"):
            checkpointer.restore({"w": masked})
        checkpointer.save(2, {"w": np.array([1.0, 2.0]).view(np.recarray)})  # other subclasses have no more than their numbers


def test_a_registered_type_comes_back(checkpointer):
    class Spot(Point):
        pass

    tidemark.register(Spot, lambda spot: [spot.x], lambda stored: Spot(stored[0]), name="spot")
    checkpointer.save(1, {"spots": [Spot(3)]})
    state = {"spots": None}
    checkpointer.resume(state)
    assert type(state["spots"][0]) is Spot and state["spots"][0].x == 3


def test_nothing_is_restored_into_read_only_or_expanded_arrays(checkpointer):
    array = np.ones(3)
    checkpointer.save(1, {"a": np.broadcast_to(array, (2, 3))})
    array.flags.writeable = False
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="'a' is a read-only array"):
        checkpointer.resume({"a": array})
    expanded = np.lib.stride_tricks.as_strided(np.ones(3), (2, 3), (0, 8))
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="'a' is expanded"):
        checkpointer.resume({"a": expanded})


def test_parts_are_restored_by_pattern_and_under_other_names(checkpointer):
    checkpointer.save(1, {"model": {"a": np.ones(1), "b": np.ones(1)}, "epoch": 3})
    state = {"model": {"a": np.zeros(1), "b": np.zeros(1)}, "epoch": 0}
    checkpointer.restore(state, only=["*.a"])
    assert (state["model"]["a"][0], state["model"]["b"][0], state["epoch"]) == (1, 0, 0)
    other = {"net": {"a": np.zeros(1), "b": np.zeros(1)}, "epoch": 0, "new": 7}
    report = checkpointer.restore(other, renames=[("model", "net")], allow_missing=True)
    assert (other["net"]["b"][0], other["epoch"], other["new"], report.missing) == (1, 3, 7, ["new"])


def test_steps_are_selected_tagged_pinned_and_deleted(checkpointer):
    for step in range(4):
        checkpointer.save(step, {"n": step}, metrics={"loss": abs(step - 1.0)})
    checkpointer.wait_until_committed()
    assert [info.step for info in checkpointer.steps()] == [0, 1, 2, 3]
    assert checkpointer.latest_step().step == 3
    assert checkpointer.best_step("loss").step == 1
    assert checkpointer.best_step("loss", "highest").step == 3
    checkpointer.tag(2, "paper")
    state = {"n": -1}
    assert checkpointer.restore(state, "tag:paper").step == 2 and state["n"] == 2
    assert checkpointer.restore(state, 0).step == 0 and state["n"] == 0
    assert checkpointer.restore(state, "best:loss").step == 1
    checkpointer.untag("paper")
    checkpointer.unpin(2)
    checkpointer.delete(2)
    checkpointer.pin(0, "first")
    with pytest.raises(tidemark.errors.FailedPreconditionError, match="pin"):
        checkpointer.delete(0)
    with pytest.raises(tidemark.NotFoundError):
        checkpointer.restore(state, "tag:paper")
    checkpointer.report_metrics(1, "validation", {"loss": 0.5}).result()
    assert checkpointer.best_step("validation/loss").step == 1
    with pytest.raises(tidemark.errors.AlreadyExistsError):
        checkpointer.save(1, {"n": 1})
    checkpointer.save(1, {"n": 10}, overwrite=True)


def test_the_options_say_when_to_save_and_what_to_keep(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store", save_interval_steps=2, save_on_steps=[3],
                               retention=tidemark.Retention(max_to_keep=1, keep_best=["loss"])) as checkpointer:
        assert [step for step in range(6) if checkpointer.should_save(step)] == [0, 2, 3, 4]
        for step in range(4):
            checkpointer.save(step, {"n": step}, metrics={"loss": float(step)})
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        assert [info.step for info in checkpointer.steps() if info.state == "committed"] == [0, 3]


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_entries_have_the_order_of_the_dict(kind):
    names = ["a", "b", "list", "c", "wide", "d"]
    state = kind((name, np.arange(3.0)) for name in names)
    state["list"] = [np.ones(1), {"x": np.ones(2)}]
    state["wide"] = np.ones((4, 4))[:, ::2]
    if kind is not dict:
        state.move_to_end("a")
        names = [*names[1:], "a"]
    expected = [entry for name in names for entry in (["list.0", "list.1.x"] if name == "list" else [name])]
    copy = tidemark.capture(state)
    assert [name for name in copy if copy.dtype_of(name)] == expected
    for name in ("a", "wide"):
        np.testing.assert_array_equal(copy[name], state[name])


def test_keys_that_are_no_plain_strings_are_stored_as_text_or_refused(checkpointer):
    class Name(str):
        pass

    checkpointer.save(1, {7: np.ones(2), "n": {-1: np.ones(1), "x": np.ones(1)}}).committed.result(60)
    with tidemark.open(checkpointer.path) as opened:
        assert sorted(opened.keys()) == ["7", "n.-1", "n.x"]
    for key in (Name("a"), 1.5, None, True, (1, 2)):
        kind = type(key).__name__
        with pytest.raises(tidemark.UnsupportedTypeError, match=rf"has the key .*, a {kind}: .* must be str or int"):
            checkpointer.save(2, {"first": np.ones(1), key: np.ones(1)})


@pytest.mark.parametrize("value", [np.ones(1), 1, {"x": np.ones(1)}])
def test_keys_that_utf_8_does_not_have_are_refused(checkpointer, value):
    for state in ({"n": {"\udc80": value, "last": np.ones(1)}}, {"n": {"first": np.ones(1), "\udc80": value}}):
        with pytest.raises(tidemark.UnsupportedTypeError, match=r"'n' has the key '\\udc80', which has half of a surrogate pair"):
            checkpointer.save(1, state)


@pytest.mark.parametrize("key", [10**5000, -10**5000], ids=["positive", "negative"])
def test_keys_of_more_digits_than_names_have_are_for_values_alone(checkpointer, key):
    for state, where in (({key: np.ones(1)}, "the state"), ({"n": {"first": np.ones(1), key: 1}}, "'n'")):
        with pytest.raises(tidemark.UnsupportedTypeError, match=f"{where} has a key that is an int of 16610 bits, more than"):
            checkpointer.save(1, state)
    state = {"n": {"first": 1, key: [2, {key: 3}]}}
    checkpointer.save(1, state).committed.result(60)
    restored = {"n": {}}
    checkpointer.restore(restored)
    assert restored == state


class Described:
    """An object whose state_dict() it was given."""

    def __init__(self, state):
        self.state_dict = lambda: state
        self.load_state_dict = lambda loaded, strict=True: state.update(loaded)


class Module(Described):
    def named_parameters(self):
        return ()


@pytest.mark.parametrize(("value", "name"), [
    (Module({"\udc80": np.ones(1)}), r"'m.\udc80'"), (Described({"a": [{"\udc80": np.ones(1)}]}), r"'m.a.0.\udc80'")])
def test_names_of_an_objects_arrays_that_utf_8_does_not_have_are_refused(checkpointer, value, name):
    for call in (lambda: checkpointer.save(1, {"m": value}), lambda: tidemark.capture({"m": value})):
        with pytest.raises(tidemark.UnsupportedTypeError, match=f"the array {re.escape(name)} has half of a surrogate pair"):
            call()


def test_names_of_an_objects_values_may_be_any_string(checkpointer):
    state = {"\udc80": 1, "b": "\ud800"}
    for value in (Module(dict(state)), Described(dict(state))):
        checkpointer.save(1, {"m": value, "w": np.ones(1)}, overwrite=True).committed.result(60)
        found = type(value)(dict.fromkeys(state))
        checkpointer.restore({"m": found, "w": np.ones(1)})
        assert found.state_dict() == state


class ChangingState:
    """A state of arrays and numbers in two levels, which random changes keep so."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.state = {letter: {"fixed": self.array(), "w": self.array(), "b": self.array()} for letter in "abc"}
        self.state["b"].update({f"w{i}": self.array() for i in range(100)})  # more than the library fetches ahead

    def array(self):
        dtype = self.chance.choice([np.float32, np.float64, np.int16])
        whole = np.arange(self.chance.randrange(1, 30), dtype=dtype) + self.chance.randrange(9)
        return self.chance.choice([whole, whole[::-1], whole[::2], whole.reshape(1, -1), np.array(whole[0]),
                                   whole.reshape(1, 1, 1, 1, -1), whole.reshape(1, 1, -1, 1)])

    def shuffle(self, items):
        pairs = list(items.items())
        self.chance.shuffle(pairs)
        items.clear()
        items.update(pairs)

    def change(self):
        part = self.chance.choice(list(self.state.values()))
        name = self.chance.choice(["w", "b", "n", f"w{self.chance.randrange(100)}"])  # the last one as a new object
        self.chance.choice([
            lambda: part.pop(name, None),
            lambda: part.update({name: self.array()}),
            lambda: part.update({name: self.chance.randrange(100)}),
            lambda: part.update({name: part["fixed"].copy()}),
            lambda: part.update({name: part.pop("w", 0)}),
            lambda: self.state.update({letter: {"".join(n): v for n, v in p.items()} for letter, p in self.state.items()}),
            lambda: part.update(fixed=part["fixed"][:1] if part["fixed"].ndim else self.array()),
            lambda: part.update(fixed=part["fixed"].reshape(-1, 1)),
            lambda: part["fixed"].fill(self.chance.randrange(100)),
            lambda: self.shuffle(part),
            lambda: self.shuffle(self.state),
            lambda: self.state.update({self.chance.choice("xyz"): self.state.popitem()[1]}),
            lambda: self.state.update({self.chance.choice("xyz"): part})])()  # the same dict, under another name

    def flat(self):
        return {f"{letter}.{name}": value for letter, part in self.state.items() for name, value in part.items()}


def test_every_change_of_a_state_between_two_saves_is_stored(checkpointer):
    seed = random.randrange(2**31)
    changing = ChangingState(seed)
    for step in range(1, 80):
        for _ in range(changing.chance.randrange(3)):
            changing.change()
        checkpointer.save(step, changing.state).committed.result(60)
        with tidemark.open(checkpointer.path, step) as opened:
            found = {name: opened.get_tensor(name) for name in opened.keys()}
            found.update({name: opened.get_value(name) for name in opened.value_keys()})
        wanted = changing.flat()
        assert found.keys() == wanted.keys(), f"seed {seed}, step {step}"
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value, strict=isinstance(value, np.ndarray),
                                          err_msg=f"seed {seed}, step {step}")


@pytest.mark.parametrize("keys", [("a0", "a1", "a2"), ()])
def test_a_dict_that_changes_while_it_is_read_is_refused(checkpointer, keys):
    part = {f"a{i}": np.zeros(2) for i in range(3)}

    class Changing:
        added = 20

        def state_dict(self):
            return {}

        @property
        def load_state_dict(self):  # looked for when the dict is walked
            for key in keys if self.added else ():
                part.pop(key)
            part.update({f"new{i}": np.ones(1) for i in range(self.added)})
            self.added = 0
            return lambda state: None

    part["object"] = Changing()
    part.update({f"b{i}": np.full(2, i) for i in range(3)})
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="'part' is a dict whose keys were changed while it was read"):
        checkpointer.save(1, {"part": part})
    checkpointer.save(1, {"part": part}).committed.result(60)
    with tidemark.open(checkpointer.path) as opened:
        assert {"part.b0", "part.b1", "part.b2", "part.new19"} <= set(opened.keys())


def test_an_array_that_moves_to_the_dict_before_is_stored_by_its_new_name(checkpointer):
    first, second = np.ones(2), np.zeros(3)
    checkpointer.save(1, {"a": {"v": first}, "b": {"w": second}}).committed.result(60)
    checkpointer.save(2, {"a": {"v": first, "w": second}, "b": {"v": first}}).committed.result(60)
    with tidemark.open(checkpointer.path, 2) as opened:
        assert sorted(opened.keys()) == ["a.v", "a.w", "b.v"]


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # of NumPy 2.5
def test_an_array_that_was_reshaped_or_resized_is_stored_as_it_is_then(checkpointer):
    array, other = np.arange(6), np.arange(4)
    state = {"other": other, "a": array}
    checkpointer.save(1, state).committed.result(60)
    array.resize((2, 5), refcheck=False)
    other.shape = (2, 2)
    checkpointer.save(2, state).committed.result(60)
    for step, shapes in ((1, [(6,), (4,)]), (2, [(2, 5), (2, 2)])):
        with tidemark.open(checkpointer.path, step) as opened:
            assert [opened.get_tensor(name).shape for name in ("a", "other")] == shapes
    np.testing.assert_array_equal(tidemark.capture(state)["a"], array)


def test_a_read_only_array_among_others_is_refused_by_a_restore(checkpointer):
    state = {name: np.ones(3) for name in "abc"}
    checkpointer.save(1, state)
    state["b"].flags.writeable = False
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="'b' is a read-only array"):
        checkpointer.resume(state)


@pytest.mark.parametrize("staging", ["blocking", "overlapped"])
def test_a_save_of_arrays_allocates_no_memory_of_python_for_them(tmp_path, staging):
    state = {"w": np.ones(2 << 20), "view": np.ones((1024, 2048), np.float32).T, "pair": (np.ones(1 << 20), 1)}
    size = sum(array.nbytes for array in (state["w"], state["view"], state["pair"][0]))

    def peak_of(call):
        """Bytes; NumPy tells tracemalloc of its arrays."""
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before

    tracemalloc.start()
    try:
        assert peak_of(state["view"].copy) >= state["view"].nbytes
        with tidemark.Checkpointer(tmp_path / "store", staging=staging) as checkpointer:
            checkpointer.save(0, state).committed.result(60)  # the first one imports modules
            for step in (1, 2, 3):
                assert peak_of(lambda: checkpointer.save(step, state).committed.result(60)) < size / 100
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("call", [lambda c, state: c.save(1, state), lambda c, state: c.evaluate(1, state),
                                  lambda c, state: c.prepare({**state, "x" * 5000: 1}),
                                  lambda c, state: c.save(2, {**state, "w.b": 1, "w": {"b": 1, "a": state["w"]}})])
def test_the_arrays_of_a_call_that_fails_are_not_kept(checkpointer, call):
    checkpointer.save(1, {"n": 1}).committed.result()
    state = {"w": np.ones(10)}
    alive = weakref.ref(state["w"])
    with pytest.raises(tidemark.Error):
        call(checkpointer, state)
    state.clear()
    assert alive() is None
