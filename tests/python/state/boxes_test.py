"""Boxes: parts of tensors that ranks hold together, as leaves of a state."""

import ctypes
import itertools

import ml_dtypes
import numpy as np
import pytest
import tidemark
import torch
from pretend_device import on_device
from rank_jobs import DEADLINE, Job, all_ok
from tidemark import _native, errors
from tidemark._state.boxes import Boxes
from tidemark._state.tree import Tree

WHOLE = np.random.default_rng(3).standard_normal((6, 8, 5)).astype(np.float32)


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


def save(store, states, step=1, **options):
    """The step is saved by as many ranks as there are states."""
    with Job(store, len(states), **options) as job:
        all_ok(job.save(step, lambda rank, _: states[rank]))


def read(store, name):
    with tidemark.open(store) as step:
        return step.get_tensor(name)


def part(begin, end):
    """Of WHOLE, between two corners."""
    return WHOLE[tuple(slice(b, e) for b, e in zip(begin, end))]


def strided(array):
    """The same elements in other places: every second element of a larger array whose dimensions are reversed."""
    larger = np.zeros(tuple(2 * size for size in reversed(array.shape)), array.dtype).T
    view = larger[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    assert not view.flags.c_contiguous
    return view


def of_numpy(array):
    return np.ascontiguousarray(array)


def of_torch(array):
    """Without NumPy, which Debian's PyTorch does not find."""
    dtype = getattr(torch, array.dtype.name)
    return torch.frombuffer(bytearray(array.tobytes()), dtype=dtype).view(array.shape).clone()


def strided_torch(array):
    larger = torch.zeros([2 * size for size in reversed(array.shape)], dtype=getattr(torch, array.dtype.name))
    view = larger.permute(*reversed(range(array.ndim)))[tuple(slice(None, None, 2) for _ in array.shape)]
    view.copy_(of_torch(array))
    assert not view.is_contiguous()
    return view


KINDS = {
    "numpy": of_numpy,
    "numpy strided": strided,
    "torch": of_torch,
    "torch strided": strided_torch,
    "device": lambda array: on_device(of_torch(array)),
}


def content(array):
    """Its bytes in row-major order."""
    if not isinstance(array, torch.Tensor):
        return array.tobytes()
    host = array.cpu().contiguous()
    return ctypes.string_at(host.data_ptr(), host.numel() * host.element_size())


@pytest.mark.parametrize("staging", ["blocking", "overlapped", "on_device"])
@pytest.mark.parametrize("kind", KINDS)
def test_boxes_of_every_kind_are_saved(store, kind, staging):
    corners = list(itertools.product((0, 4), (0, 3)))
    boxes = [((first, second, 0), (4 if first == 0 else 6, 3 if second == 0 else 8, 5)) for first, second in corners]
    save(store, [{"w": tidemark.Box(KINDS[kind](part(*box)), WHOLE.shape, box[0]), "n": 1} for box in boxes], staging=staging)
    assert read(store, "w").tobytes() == WHOLE.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_boxes_of_every_kind_are_restored(store, kind):
    save(store, [{"w": tidemark.Box(WHOLE[:3].copy(), WHOLE.shape, (0, 0, 0))},
                 {"w": tidemark.Box(WHOLE[3:].copy(), WHOLE.shape, (3, 0, 0))}])
    begin, end = (1, 2, 0), (5, 7, 4)
    box = tidemark.Box(KINDS[kind](np.zeros_like(part(begin, end))), WHOLE.shape, begin)
    array = box.array
    with tidemark.Checkpointer(store) as checkpointer:
        checkpointer.restore({"w": box})
    assert box.array is array and content(array) == part(begin, end).tobytes()


def test_a_box_of_a_tensor_that_was_saved_whole(store):
    with tidemark.Checkpointer(store) as checkpointer:
        checkpointer.save(1, {"w": WHOLE, "s": np.full((), 3, np.float32)}).committed.result(DEADLINE)
        state = {"w": tidemark.Box(np.zeros((2, 2, 2), np.float32), WHOLE.shape, (4, 6, 3)),
                 "s": tidemark.Box(np.zeros((), np.float32), (), ())}
        checkpointer.restore(state)
    assert state["w"].array.tobytes() == part((4, 6, 3), (6, 8, 5)).tobytes() and state["s"].array == 3


def test_an_empty_box_and_equal_boxes(store):
    save(store, [{"w": tidemark.Box(WHOLE.copy(), WHOLE.shape, (0, 0, 0))},
                 {"w": tidemark.Box(np.zeros((0, 8, 5), np.float32), WHOLE.shape, (6, 0, 0))},
                 {"w": tidemark.Box(WHOLE[2:5].copy(), WHOLE.shape, (2, 0, 0))}])
    assert read(store, "w").tobytes() == WHOLE.tobytes()
    with Job(store, 2) as job:
        states = [{"w": tidemark.Box(np.ones((0, 8, 5), np.float32), WHOLE.shape, (0, 0, 0))}, {"w": np.zeros_like(WHOLE)}]
        all_ok(job.each(lambda rank, checkpointer: checkpointer.restore(states[rank])))
    assert states[1]["w"].tobytes() == WHOLE.tobytes()


def test_several_boxes_of_one_rank_under_one_name(store):
    def state(fill):
        def box(rows, first):
            return tidemark.Box(rows.copy() if fill else np.zeros_like(rows), WHOLE.shape, (first, 0, 0))

        return {"w": Boxes([box(WHOLE[:2], 0), box(WHOLE[4:], 4)]), "v": Boxes([box(WHOLE[2:4], 2)])}

    saved, other = state(True), state(True)
    other["w"], other["v"] = other["v"], other["w"]
    save(store, [saved, other])
    assert read(store, "w").tobytes() == read(store, "v").tobytes() == WHOLE.tobytes()
    found = state(False)
    with tidemark.Checkpointer(store) as checkpointer:
        checkpointer.restore(found, allow_unexpected=True)
    assert [box.array.tobytes() for box in found["w"].boxes] == [WHOLE[:2].tobytes(), WHOLE[4:].tobytes()]
    overlapping = [tidemark.Box(WHOLE[:4], WHOLE.shape, (0, 0, 0)), tidemark.Box(WHOLE[3:], WHOLE.shape, (3, 0, 0))]
    with Job(store, 2) as job:
        of_0, of_1 = job.save(5, lambda rank, _: {"w": Boxes(overlapping)} if rank == 0 else saved)
        assert isinstance(of_0, errors.InvalidArgumentError) and "'w'" in str(of_0) and "overlap" in str(of_0)
        assert isinstance(of_1, errors.AbortedError)


def test_the_boxes_of_a_state_may_change_between_saves(store):
    rows = np.arange(8.0)
    with Job(store, 2) as job:
        for step, cut in ((1, 2), (2, 5), (3, 5), (4, 8)):
            rows += step
            all_ok(job.save(step, lambda rank, _: {"w": tidemark.Box(rows[:cut] if rank == 0 else rows[cut:], (8,),
                                                                     (0 if rank == 0 else cut,))}))
            assert read(store, "w").tobytes() == rows.tobytes()
        # A plain array lies where a box did: the list of arrays must not be taken for that of the save before.
        for step, state in ((5, {"w": tidemark.Box(rows, (8,), (0,))}), (6, {"w": rows}), (7, {"w": rows})):
            all_ok(job.save(step, lambda rank, _: state))
            assert read(store, "w").tobytes() == rows.tobytes()


def test_tied_boxes_are_stored_once(store):
    rows = np.random.default_rng(1).standard_normal(100_000)
    save(store, [{"a": tidemark.Box(rows, (200_000,), (100_000 * rank,)), "b": tidemark.Box(rows, (200_000,), (100_000 * rank,))}
                 for rank in range(2)], compression="none")
    assert sum(file.stat().st_size for file in store.rglob("shard-*")) < 2.5 * rows.nbytes
    assert read(store, "a").tobytes() == read(store, "b").tobytes() == rows.tobytes() * 2


# Dtypes and new arrays.


def test_boxes_are_converted_both_ways(store):
    rows = [np.linspace(0, 1, 6, dtype=np.float32), np.linspace(2, 3, 4, dtype=np.float32)]
    save(store, [{"w": tidemark.Box(rows[0].copy(), (10,), (0,)), "x": Boxes([
        tidemark.Box(rows[0][:2].copy(), (10,), (0,)), tidemark.Box(rows[0][2:].copy(), (10,), (2,))])},
        {"w": tidemark.Box(on_device(of_torch(rows[1])), (10,), (6,)),
         "x": tidemark.Box(rows[1].copy(), (10,), (6,))}], saved_dtypes={"*": "bfloat16"})
    wanted = np.concatenate(rows).astype(ml_dtypes.bfloat16)
    assert read(store, "w").tobytes() == read(store, "x").tobytes() == wanted.tobytes()
    state = {"w": tidemark.Box(np.zeros(3, np.float32), (10,), (5,)), "x": Boxes([
        tidemark.Box(torch.zeros(2), (10,), (7,)), tidemark.Box(np.zeros(4), (10,), (1,))])}
    with tidemark.Checkpointer(store) as checkpointer:
        with pytest.raises(errors.MismatchError) as mismatch:
            checkpointer.restore(state)
        assert mismatch.value.retyped == ["w", "x"]
        checkpointer.restore(state, convert_dtypes=True)
    assert state["w"].array.tobytes() == wanted[5:8].astype(np.float32).tobytes()
    first, second = state["x"].boxes
    assert content(first.array) == wanted[7:9].astype(np.float32).tobytes()
    assert second.array.tobytes() == wanted[1:5].astype(np.float64).tobytes()


def test_converted_boxes_of_one_size_are_kept_apart(store):
    parts = [np.full(3, 1.0, np.float32), np.full(3, 2.0, np.float32)]
    state = {"x": Boxes([tidemark.Box(parts[0], (6,), (0,)), tidemark.Box(parts[1], (6,), (3,))])}
    with Job(store, 2, saved_dtypes={"*": "bfloat16"}) as job:
        for step in (1, 2, 3):  # the copies of the save before are used again
            parts[0] += 1
            assert all_ok(job.save(step, lambda rank, world_size: state if rank == 0 else {})) == [step] * 2
            assert read(store, "x").astype(np.float32).tolist() == [1.0 + step] * 3 + [2.0] * 3


def test_load_makes_new_boxes(store):
    with tidemark.Checkpointer(store) as checkpointer:
        checkpointer.save(1, {"w": WHOLE}).committed.result(DEADLINE)
        like = {"w": tidemark.Box(np.zeros((2, 8, 5), np.float32), WHOLE.shape, (1, 0, 0))}
        loaded = checkpointer.load(like=like)
        assert loaded["w"].array.tobytes() == WHOLE[1:3].tobytes() and not like["w"].array.any()
        assert (loaded["w"].shape, loaded["w"].offset) == ((6, 8, 5), (1, 0, 0))
        on_meta = {"w": tidemark.Box(torch.zeros(2, 8, 5, device="meta"), WHOLE.shape, (1, 0, 0))}
        checkpointer.restore(on_meta)
        assert content(on_meta["w"].array) == WHOLE[1:3].tobytes()


# Errors.


@pytest.mark.parametrize("box, error, text", [
    (tidemark.Box(np.zeros(3), (6, 2), (0, 0)), errors.InvalidArgumentError, "has 1 dimensions"),
    (tidemark.Box(np.zeros((3, 2)), (6, 2), (0,)), errors.InvalidArgumentError, "offset has 1"),
    (tidemark.Box(np.zeros((3, 2)), (6, 2), (4, 0)), errors.InvalidArgumentError, "the elements 4 to 7 of dimension 0"),
    (tidemark.Box(np.zeros((3, 2)), (6, 2), (0, -1)), errors.InvalidArgumentError, "the elements -1 to 1 of dimension 1"),
    (tidemark.Box(np.zeros((0, 2)), (6, 2), (7, 0)), errors.InvalidArgumentError, "the elements 7 to 7"),
    (tidemark.Box([1.0, 2.0], (6,), (0,)), errors.UnsupportedTypeError, "a Box of a builtins.list"),
    (tidemark.Box(np.zeros(2, object), (6,), (0,)), errors.UnsupportedTypeError, "array of object"),
])
def test_a_box_that_cannot_be_is_refused_by_its_name(store, box, error, text):
    with tidemark.Checkpointer(store) as checkpointer:
        checkpointer.save(1, {"layer": {"w": np.zeros((6, 2))}}).committed.result(DEADLINE)
        for call in (lambda: checkpointer.save(2, {"layer": {"w": box}}), lambda: checkpointer.restore({"layer": {"w": box}}),
                     lambda: checkpointer.load(like={"layer": {"w": box}})):
            with pytest.raises(error, match="layer.w") as caught:
                call()
            assert text in str(caught.value)
        assert [info.step for info in checkpointer.steps()] == [1]


def test_the_numbers_of_a_box_are_integers():
    with pytest.raises(TypeError):
        tidemark.Box(np.zeros(2), (4.0,), (0,))
    with pytest.raises(TypeError):
        tidemark.Box(np.zeros(2), (4,), (0.5,))
    assert repr(tidemark.Box(np.zeros((2, 3)), (4, np.int64(3)), (np.int64(2), 0))) == (
        "<tidemark.Box [2:4, 0:3] of a tensor of [4, 3]>")


def test_a_box_of_another_tensor_is_a_mismatch(store):
    with tidemark.Checkpointer(store) as checkpointer:
        checkpointer.save(1, {"w": WHOLE}).committed.result(DEADLINE)
        box = tidemark.Box(np.zeros((2, 8, 5), np.float32), (7, 8, 5), (0, 0, 0))
        with pytest.raises(errors.MismatchError) as mismatch:
            checkpointer.restore({"w": box})
        assert mismatch.value.reshaped == ["w"] and not box.array.any()


def test_a_region_that_no_rank_has_saved_cannot_be_restored(store):
    holed = Tree({"w": Boxes([tidemark.Box(np.arange(4.0), (8,), (2,)), tidemark.Box(np.ones(1), (8,), (7,))])}, writable=False)
    with tidemark.Checkpointer(store) as checkpointer:
        state = _native.TreeState()  # past the package, which would not save it
        state.set_entries(holed.arrays, [])
        assert checkpointer._native.save(1, state, {}, "{}", False, None, None).committed.wait(DEADLINE)
        box = tidemark.Box(np.zeros(3), (8,), (4,))
        with pytest.raises(errors.DataLossError, match=r"'w' of step 1 is float64 \[8\], and no rank has saved \[6:7\]"):
            checkpointer.restore({"w": box})
        assert not box.array.any()
        there = tidemark.Box(np.zeros(4), (8,), (2,))
        checkpointer.restore({"w": there})
        assert there.array.tolist() == [0.0, 1.0, 2.0, 3.0]
    with tidemark.open(store) as step, pytest.raises(errors.DataLossError, match="no rank has saved"):
        step.get_tensor("w")


def test_a_part_without_ranks_is_not_saved(store):
    state = {"a": np.zeros(3), "layer": {"w": tidemark.Box(np.zeros(3), (4,), (0,))}}
    with tidemark.Checkpointer(store) as checkpointer:
        for call in (checkpointer.save, checkpointer.evaluate):
            with pytest.raises(errors.InvalidArgumentError, match="'layer.w' is a part of a tensor.*`ranks`"):
                call(1, state)
        assert checkpointer.steps() == []


def test_a_box_of_all_is_the_tensor(store):
    with tidemark.Checkpointer(store) as checkpointer:
        checkpointer.save(1, {"w": tidemark.Box(WHOLE.copy(), WHOLE.shape, (0, 0, 0))}).committed.result(DEADLINE)
        box = tidemark.Box(np.zeros_like(WHOLE), WHOLE.shape, (0, 0, 0))
        checkpointer.restore({"w": box})
        assert box.array.tobytes() == WHOLE.tobytes()


def test_an_expanded_or_read_only_box_is_not_restored(store):
    with tidemark.Checkpointer(store) as checkpointer:
        checkpointer.save(1, {"w": np.zeros((4, 3))}).committed.result(DEADLINE)
        read_only = np.zeros((2, 3))
        read_only.flags.writeable = False
        for array, text in ((np.broadcast_to(np.zeros(3), (2, 3)), "read-only"), (read_only, "read-only"),
                            (torch.zeros(1, 3, dtype=torch.float64).expand(2, 3), "expanded")):
            with pytest.raises(errors.InvalidArgumentError, match=f"'w'.*{text}"):
                checkpointer.restore({"w": tidemark.Box(array, (4, 3), (0, 0))})


def test_a_capture_has_boxes_and_does_not_restore_them():
    box = tidemark.Box(np.arange(3.0), (6,), (3,))
    snapshot = tidemark.capture({"w": box})
    assert snapshot["w"].tolist() == [0, 1, 2]
    with pytest.raises(errors.InvalidArgumentError, match="'w'"):
        snapshot.restore({"w": box})


def test_several_boxes_of_one_array_are_not_one_array_of_a_snapshot(store):
    with Job(store, 2) as job:
        results = {}

        def evaluate(rank, snapshot):
            assert set(snapshot) == {f"n.{rank}", "w"} and snapshot[f"n.{rank}"] == rank
            with pytest.raises(errors.UnimplementedError, match="'w' is in the snapshot of this rank as 2 parts of an array"):
                snapshot["w"]
            results[rank] = "refused"

        for rank, checkpointer in enumerate(job.checkpointers):
            checkpointer.evaluator(f"of {rank}", lambda snapshot, rank=rank: evaluate(rank, snapshot))
        rows = np.arange(8, dtype=np.float32)
        all_ok(job.save(1, lambda rank, _: {f"n.{rank}": rank, "w": Boxes([
            tidemark.Box(rows[first:first + 2].copy(), (8,), (first,)) for first in (4 * rank, 4 * rank + 2)])}))
        for checkpointer in job.checkpointers:
            checkpointer.wait_until_evaluated(DEADLINE)
        assert results == {0: "refused", 1: "refused"}
    # What the message says works.
    seen = []
    tidemark.follow(store, lambda snapshot: seen.append(snapshot["w"].tolist()), evaluator="whole", idle_timeout=0, report=False,
                    stop_on_signal=False)
    with tidemark.open(store) as step:
        assert [step.get_tensor("w").tolist()] == seen == [rows.tolist()]
