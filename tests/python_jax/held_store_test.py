"""A store that another checkpointer holds: each integration says who holds it and how to read it meanwhile, and works once the
store is free."""

import jax.numpy as jnp
import keras
import keras_test
import pytest
import tidemark
import tidemark.jax
import tidemark.keras
import tidemark.orbax

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
MESSAGE = r"this process \(pid .*\) holds it since .*tidemark\.open.*tidemark\.follow"


def train_with_keras(store):
    keras_test.fit(keras_test.make_model(), [tidemark.keras.TidemarkCheckpoint(store)], epochs=1)


def save_with_orbax(store):
    with tidemark.orbax.CheckpointManager(store) as manager:
        manager.save(5, args=tidemark.orbax.args.StandardSave({"a": jnp.ones(3)}))


def save_with_jax(store):
    with tidemark.Checkpointer(store) as checkpointer:
        tidemark.jax.save(checkpointer, 5, {"a": jnp.ones(3)})


@pytest.mark.parametrize("save", [train_with_keras, save_with_orbax, save_with_jax])
def test_a_held_store_is_an_error_that_says_how_to_read_it(tmp_path, save):
    store = tmp_path / "store"
    with tidemark.Checkpointer(store) as holder:
        tidemark.jax.save(holder, 1, {"a": jnp.ones(3)}).committed.result(60)
        with pytest.raises(tidemark.AlreadyHeldError, match=MESSAGE):
            save(store)
        assert tidemark.jax.load(store, 1)["a"].sum() == 3  # a way that needs no lock
        assert [info.step for info in holder.steps()] == [1]
    save(store)
    tidemark.Checkpointer(store).close()
    assert len(tidemark.steps(store)) == 2


def test_a_fit_within_a_fit_takes_its_store_with_a_warning(tmp_path, caplog):
    class Inner(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            train_with_keras(tmp_path / "store")

    with pytest.raises(tidemark.errors.FailedPreconditionError, match="closed"):
        keras_test.fit(keras_test.make_model(), [tidemark.keras.TidemarkCheckpoint(tmp_path / "store"), Inner()], epochs=2)
    assert "give each training a store of its own" in caplog.text


def test_the_failure_of_an_earlier_fit_does_not_end_the_next_one(tmp_path, caplog):
    callback = tidemark.keras.TidemarkCheckpoint(tmp_path / "store", save_timeout=1e-9, max_to_keep=None)
    with pytest.raises(KeyboardInterrupt):
        keras_test.fit(keras_test.make_model(), [callback, keras_test.Stop(1)])
    keras_test.fit(keras_test.make_model(), [tidemark.keras.TidemarkCheckpoint(tmp_path / "store")], epochs=1)
    assert "closing after 'an earlier training'" in caplog.text and len(keras_test.steps(tmp_path / "store")) == 1
