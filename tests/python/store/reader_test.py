"""tidemark.open reads entries and parts of them."""

import dataclasses
import random
import re

import ml_dtypes
import numpy as np
import pytest
import tidemark


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("reader") / "store"
    with tidemark.Checkpointer(path) as checkpointer:
        for step in range(3):
            checkpointer.save(step, {"w": np.arange(60.0).reshape(10, 6) + step, "half": np.ones(4, ml_dtypes.bfloat16),
                                     "epoch": step, "history": [1, (2, 3)]}, metrics={"loss": float(step)})
        checkpointer.wait_until_committed()
        checkpointer.tag(1, "paper")
    return path


def test_names_values_and_tensors(store):
    with tidemark.open(store) as step:
        assert step.info.step == 2 and step.info.metrics == {"loss": 2.0}
        assert sorted(step.keys()) == ["half", "w"] and sorted(step.value_keys()) == ["epoch", "history"]
        assert step.get_value("epoch") == 2 and step.get_value("history") == [1, (2, 3)]
        assert step.get_tensor("half").dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(step.get_tensor("w"), np.arange(60.0).reshape(10, 6) + 2)


@pytest.mark.parametrize("selector, step", [(0, 0), ("1", 1), ("latest", 2), ("best:loss", 0), ("tag:paper", 1),
                                            ("best:loss:highest", 2)])
def test_a_step_is_selected(store, selector, step):
    with tidemark.open(store, selector) as opened:
        assert opened.info.step == step


@pytest.mark.parametrize("key", [
    slice(None), slice(2, 5), slice(-3, None), slice(5, 2), slice(1, 9, 3), slice(None, None, -1), slice(8, 1, -3),
    slice(20, 30), 0, -1, (), True, np.int64(3), np.array(2), np.array([2]), [1, 0], np.bool_(False), (np.int32(-1), 2),
    (slice(2, 4), 1), (slice(2, 4), slice(None, None, 2)), (3, slice(1, 3)), (3, 4), Ellipsis,
    (Ellipsis, 0), [1, 2], None])
def test_a_slice_reads_what_numpy_would(store, key):
    whole = np.arange(60.0).reshape(10, 6)
    with tidemark.open(store, 0) as step:
        part = step.get_slice("w")
        assert part.get_shape() == [10, 6] and part.get_dtype() == "float64"
        np.testing.assert_array_equal(part[key], whole[key])


def drawn_key(chance, shape):
    """A key that NumPy takes for an array of this shape: numbers, slices, None, at most one Ellipsis, and a list or a mask."""
    def drawn_slice(extent):
        return slice(*(chance.choice([None, chance.randrange(-extent - 1, extent + 2)]) for _ in range(2)),
                     chance.choice([None, 1, 2, 3, -1, -2]))

    keys = []
    for extent in shape[:chance.randrange(len(shape) + 1)]:
        keys.append(chance.choice([chance.randrange(-extent, extent), drawn_slice(extent), drawn_slice(extent)]))
    rest = shape[len(keys):]
    if rest and chance.random() < 0.3:
        keys.append(chance.choice([[0, rest[0] - 1], np.arange(rest[0]) % 2 == 0]))
    elif chance.random() < 0.5:
        keys.append(Ellipsis)
        if rest and chance.random() < 0.5:
            keys.append(drawn_slice(rest[-1]))
    if chance.random() < 0.3:
        keys.insert(chance.randrange(len(keys) + 1), None)
    return tuple(keys)


def test_any_slice_reads_what_numpy_would(tmp_path):
    seed = random.randrange(2**31)
    chance = random.Random(seed)
    whole = np.arange(7 * 5 * 4 * 3, dtype=np.int32).reshape(7, 5, 4, 3)
    with tidemark.Checkpointer(tmp_path / "store", tuning=tidemark.Tuning(chunk_bytes=4096)) as checkpointer:
        checkpointer.save(1, {"w": whole, "empty": np.zeros((3, 0, 2)), "scalar": np.array(5)})
    with tidemark.open(tmp_path / "store") as step:
        part = step.get_slice("w")
        for _ in range(300):
            key = drawn_key(chance, whole.shape)
            np.testing.assert_array_equal(part[key], whole[key], err_msg=f"seed {seed}, key {key}")
        assert step.get_slice("empty")[1:, :, 0].shape == (2, 0) and step.get_slice("scalar")[...] == 5
        for key in ((0, 5), (0, 0, 0, 0, 0), (Ellipsis, 0, 0, 0, 0, 0), (slice(None), -6)):
            with pytest.raises(IndexError, match="'w'"):
                part[key]


def test_a_slice_of_columns_reads_no_other_chunks(tmp_path):
    whole = np.random.default_rng(1).random((8, 65536))  # each row is 512 KiB, in eight chunks
    with tidemark.Checkpointer(tmp_path / "store", compression="none",
                               tuning=tidemark.Tuning(chunk_bytes=64 << 10)) as checkpointer:
        checkpointer.save(1, {"w": whole})
    shard = max((path for path in (tmp_path / "store" / "steps").rglob("*") if path.is_file()),
                key=lambda path: path.stat().st_size)
    content = bytearray(shard.read_bytes())
    at = content.index(whole[3, -1].tobytes())  # in the last chunk of a row
    content[at] ^= 1
    shard.write_bytes(content)
    with tidemark.open(tmp_path / "store") as step:
        part = step.get_slice("w")
        np.testing.assert_array_equal(part[:, 100:8192:7], whole[:, 100:8192:7])
        np.testing.assert_array_equal(part[2:5, 0], whole[2:5, 0])
        for key in ((slice(None), -1), 3):
            with pytest.raises(tidemark.DataLossError, match="entry 'w'.*checksum"):
                part[key]


def test_tensors_of_pytorch(store):
    torch = pytest.importorskip("torch")
    with tidemark.open(store, 0, framework="pt") as step:
        assert torch.equal(step.get_tensor("half"), torch.ones(4, dtype=torch.bfloat16))
        assert torch.equal(step.get_slice("w")[3:5], (torch.arange(60.0, dtype=torch.float64).reshape(10, 6))[3:5])
        with pytest.raises(tidemark.errors.InvalidArgumentError, match="negative step"):
            step.get_slice("w")[::-1]


def test_what_is_not_there_or_closed_is_refused(store):
    step = tidemark.open(store)
    with pytest.raises(tidemark.NotFoundError, match="no entry 'x'"):
        step.get_tensor("x")
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="get_value"):
        step.get_tensor("epoch")
    with pytest.raises(IndexError):
        step.get_slice("w")[10]
    step.close()
    with pytest.raises(tidemark.errors.FailedPreconditionError, match="closed"):
        step.get_tensor("w")
    with pytest.raises(tidemark.NotFoundError):
        tidemark.open(store, 99)
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="selector|latest"):
        tidemark.open(store, "newest")


def test_a_store_is_read_beside_its_trainer(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.save(1, {"w": np.ones(2)}).committed.result()
        with tidemark.open(tmp_path / "store") as step:
            assert step.get_tensor("w").tolist() == [1, 1]


def test_steps_are_listed_beside_a_trainer(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, {"w": np.ones(10)}, metrics={"loss": float(step)}).committed.result()
        assert [(info.step, info.state, info.metrics) for info in tidemark.steps(tmp_path / "store")] == [
            (1, "committed", {"loss": 1.0}), (2, "committed", {"loss": 2.0})]
    with pytest.raises(tidemark.NotFoundError):
        tidemark.steps(tmp_path)


def test_a_step_is_verified_and_damage_is_named(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store", compression="none") as checkpointer:
        checkpointer.save(3, {"w": np.arange(100_000.0)})
    report = tidemark.verify(tmp_path / "store")
    assert (report.step, report.damage) == (3, []) and report.chunks > 0 and report.bytes_read > 800_000
    shard = max((path for path in (tmp_path / "store" / "steps").rglob("*") if path.is_file()),
                key=lambda path: path.stat().st_size)
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    damage = tidemark.verify(tmp_path / "store", 3).damage
    assert [place.entries for place in damage] == [["w"]] and damage[0].path.endswith(shard.name) and damage[0].what
    with pytest.raises(tidemark.NotFoundError):
        tidemark.verify(tmp_path / "store", 4)
    with pytest.raises(tidemark.errors.InvalidArgumentError):
        tidemark.verify(tmp_path / "store", "newest")


def test_a_sample_of_a_step_is_verified(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store", compression="none",
                               tuning=tidemark.Tuning(chunk_bytes=4096)) as checkpointer:
        checkpointer.save(3, {"w": np.random.default_rng(1).normal(size=100_000)})
    store = tmp_path / "store"
    whole, part = tidemark.verify(store), tidemark.verify(store, share=0.1, seed=5)
    assert whole.chunks == whole.chunks_total == part.chunks_total >= 195
    assert part.chunks == pytest.approx(0.1 * whole.chunks, abs=2) and part.bytes_read < whole.bytes_read
    assert part == tidemark.verify(store, share=0.1, seed=5)
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(tidemark.errors.InvalidArgumentError, match="share"):
            tidemark.verify(store, share=share)


def test_the_phases_of_a_save_and_the_attempts_that_it_refers_to_are_read(tmp_path):
    store, state = tmp_path / "store", {"w": np.random.default_rng(1).normal(size=100_000)}
    with tidemark.Checkpointer(store) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, state).committed.result(60)
    phases = tidemark.phases(store, 1)
    assert {"write", "commit"} <= {phase.name for phase in phases} and "persister" in {phase.lane for phase in phases}
    assert all(0 <= phase.busy <= phase.duration and phase.begin >= 0 for phase in phases)
    assert any(phase.bytes >= 800_000 for phase in phases)
    assert tidemark.references(store, 1) == []
    assert tidemark.references(store) == [tidemark.steps(store)[0].attempt]
    for function in (tidemark.phases, tidemark.references):
        with pytest.raises(tidemark.NotFoundError):
            function(store, 3)


def test_a_store_from_a_stranger_is_read_by_its_journal_or_by_its_steps(tmp_path):
    store = tmp_path / "store"
    with tidemark.Checkpointer(store) as checkpointer:
        for step in (1, 2, 3):
            checkpointer.save(step, {"w": np.full(10, step)}, metrics={"loss": 1.0}).committed.result(60)
        checkpointer.delete(1)
    assert [info.state for info in tidemark.steps(store)] == ["deleted", "committed", "committed"]
    # Nothing is read of the index, and what is wrong with it is not seen.
    for path in [path for path in (store / "index").rglob("*") if path.is_file()]:
        path.write_bytes(b"harm")
    for untrusted in (False, True):
        found = tidemark.steps(store, untrusted=untrusted)
        assert [info.state for info in found] == ["deleted", "committed", "committed"]
    # Every file of the journal is damaged, so nothing can be read from it.
    for path in [path for path in (store / "journal").rglob("*") if path.is_file()]:
        path.write_bytes(b"harm")
    found = tidemark.steps(store, untrusted=True)
    assert [(info.step, info.state, info.metrics) for info in found] == [(2, "committed", {"loss": 1.0}),
                                                                         (3, "committed", {"loss": 1.0})]
    with tidemark.open(store, untrusted=True) as step:
        assert step.info.step == 3 and (step.get_tensor("w") == 3).all()
    assert tidemark.verify(store, 2, untrusted=True).damage == []
    with pytest.raises(tidemark.NotFoundError):
        tidemark.open(store, 1, untrusted=True)
    with pytest.raises(tidemark.NotFoundError):
        tidemark.open(tmp_path, untrusted=True)


def test_records_are_shown_in_one_short_line(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.add_health_monitor(tidemark.HealthMonitor(per_entry=["*"]))
        checkpointer.save(0, {f"w{i}": np.ones(2) for i in range(40)}, metrics={"a": 0.5, "b": float("nan")}).committed.result(60)
        checkpointer.wait_until_evaluated(60)
        checkpointer.save(1, {"w": np.ones(2)}, metrics={"a": 0.25}).committed.result(60)
        report = checkpointer.restore({"w": np.zeros(2)})
        statistics = checkpointer.statistics()
    first, second = tidemark.steps(tmp_path / "store")
    size = first.stored_bytes
    assert re.fullmatch(rf"StepInfo\(step=0, state='committed', metrics={{'a': 0.5, 'b': nan, ('[^']+': [^,]+, ){{6}}\.\.\.}}, "
                        rf"stored_bytes={size}\)", repr(first))
    assert "info=StepInfo(step=1, state='committed', metrics={'a': 0.25" in repr(report) and "attempt" not in repr(report)
    assert "saves_committed=2" in repr(statistics) and len(repr(statistics)) < 500
    assert second == dataclasses.replace(second) and second != first and second != dataclasses.replace(second, pin_note="x")
