"""The callback of Keras: what it saves, which steps it keeps, and that a killed run goes on bit for bit."""

import os
import pathlib
import subprocess
import sys
import types
import warnings

import keras
import numpy as np
import pytest
import tidemark
import tidemark.keras
from tidemark.errors import FailedPreconditionError, InvalidArgumentError

# Keras itself calls numpy.array of PyTorch's tensors.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def make_model(width=8, name="net", use_ema=False, optimizer=None):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(width, activation="relu", name="hidden"),
                              keras.layers.BatchNormalization(name="norm"), keras.layers.Dropout(0.5, seed=3, name="dropout"),
                              keras.layers.Dense(1, name="head")], name=name)
    model.compile(optimizer or keras.optimizers.Adam(0.01, use_ema=use_ema), loss="mse", metrics=["mae"])
    return model


def make_data(count=64):
    generator = np.random.default_rng(1)
    x = generator.normal(size=(count, 4)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


def fit(model, callbacks, epochs=3, **options):
    x, y = make_data()
    return model.fit(x, y, epochs=epochs, batch_size=16, verbose=0, callbacks=callbacks, **options)


def values(model):
    return arrays([*model.variables, *model.optimizer.variables])


def arrays(variables):
    return [keras.ops.convert_to_numpy(variable.value).copy() for variable in variables]


def assert_same(first, second):
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def steps(store):
    with tidemark.Checkpointer(store, create=False) as checkpointer:
        return [info.step for info in checkpointer.steps() if info.state == "committed"]


class Stop(keras.callbacks.Callback):
    """Ends `fit` by an exception, as Ctrl-C does."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self.epoch:
            raise KeyboardInterrupt


def test_entries_are_named_by_paths_and_hold_the_state(tmp_path):
    model = make_model()
    fit(model, [tidemark.keras.TidemarkCheckpoint(tmp_path / "store")])
    with tidemark.open(tmp_path / "store") as step:
        assert step.info.step == 2
        assert {"model.net.hidden.kernel", "model.net.norm.moving_mean"} <= set(step.keys())
        assert any(name.startswith("model.seed_generator") for name in step.keys())
        assert any(name.startswith("optimizer.adam") and name.endswith(".iteration") for name in step.keys())
        assert sorted(step.info.metrics) == ["loss", "mae"]
        assert_same([step.get_tensor("model.net.hidden.kernel")], arrays([model.get_layer("hidden").kernel]))


@pytest.mark.parametrize("name", ["net", "other"])
def test_an_interrupted_fit_goes_on_bit_for_bit(tmp_path, name):
    # With TensorFlow, tf.data shuffles, whose generator nothing outside of it can read or set.
    options = {"epochs": 5, "shuffle": keras.backend.backend() != "tensorflow"}
    keras.utils.set_random_seed(7)
    whole = make_model()
    expected = fit(whole, [], **options)

    keras.utils.set_random_seed(7)
    with pytest.raises(KeyboardInterrupt):
        fit(make_model(), [tidemark.keras.TidemarkCheckpoint(tmp_path / "store", restore=True), Stop(3)], **options)
    keras.utils.set_random_seed(8)
    model = make_model(name=name)
    history = fit(model, [tidemark.keras.TidemarkCheckpoint(tmp_path / "store", restore=True)], **options)
    assert history.epoch == [3, 4]
    assert history.history["loss"] == expected.history["loss"][3:]
    assert_same(values(model), values(whole))
    assert steps(tmp_path / "store") == [4]


@pytest.mark.parametrize(("epochs", "trained"), [(3, [2]), (2, [])])
def test_a_later_fit_of_a_restored_model_begins_with_its_first_epoch(tmp_path, epochs, trained):
    fit(make_model(), [tidemark.keras.TidemarkCheckpoint(tmp_path / "store")], epochs=2)
    model = make_model()
    assert fit(model, [tidemark.keras.TidemarkCheckpoint(tmp_path / "store", restore=True)], epochs=epochs).epoch == trained
    assert fit(model, [], epochs=2).epoch == [0, 1]
    with pytest.raises(KeyboardInterrupt):
        fit(model, [tidemark.keras.TidemarkCheckpoint(tmp_path / "store", restore=True), Stop(epochs)], epochs=epochs + 1)
    assert fit(model, [], epochs=1).epoch == [0]


def test_batches_are_counted_across_epochs_and_runs(tmp_path):
    for first in (0, 1):
        model = make_model()
        fit(model, [tidemark.keras.TidemarkCheckpoint(tmp_path / "store", save_freq=3, max_to_keep=None, restore=True)],
            epochs=2 + first)
    # Four batches an epoch: 3, 6; the second run begins with the epoch that step 6 was in.
    assert steps(tmp_path / "store") == [3, 6, 9, 12]


def test_a_second_fit_in_the_same_store_numbers_on(tmp_path):
    model = make_model()
    for _ in range(2):
        fit(model, [tidemark.keras.TidemarkCheckpoint(tmp_path / "store", max_to_keep=None)], epochs=2)
    assert steps(tmp_path / "store") == [0, 1, 2, 3]


def test_only_improvements_are_saved(tmp_path):
    class Fake(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["score"] = [3.0, 5.0, 4.0, 6.0][epoch]

    for mode, expected in (("max", [0, 1, 3]), ("min", [0])):
        fit(make_model(), [Fake(), tidemark.keras.TidemarkCheckpoint(
            tmp_path / mode, monitor="score", mode=mode, save_best_only=True, max_to_keep=None)], epochs=4)
        assert steps(tmp_path / mode) == expected
    fit(make_model(), [Fake(), tidemark.keras.TidemarkCheckpoint(
        tmp_path / "threshold", monitor="score", mode="max", save_best_only=True, max_to_keep=None,
        initial_value_threshold=4.5)], epochs=4)
    assert steps(tmp_path / "threshold") == [1, 3]
    fit(make_model(), [Fake(), tidemark.keras.TidemarkCheckpoint(
        tmp_path / "both", monitor="score", mode="min", keep_best=1, max_to_keep=1)], epochs=4)
    assert steps(tmp_path / "both") == [0, 3]


def test_without_the_monitored_metric_nothing_is_saved_and_a_warning_given(tmp_path):
    with pytest.warns(UserWarning, match="Can save best model only with val_loss available"):
        fit(make_model(), [tidemark.keras.TidemarkCheckpoint(tmp_path / "store", save_best_only=True)], epochs=1)
    assert steps(tmp_path / "store") == []


@pytest.mark.parametrize(("monitor", "count"), [("val_los", 1), ("loss", 0), ("validation/loss", 0)])
def test_keep_best_warns_once_of_a_metric_that_the_epochs_lack(tmp_path, monitor, count):
    callback = tidemark.keras.TidemarkCheckpoint(tmp_path / "store", monitor=monitor, mode="min", keep_best=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(make_model(), [callback])
    found = [str(warning.message) for warning in caught if monitor in str(warning.message)]
    assert found == ["epoch 0 has no val_los, but ['loss', 'mae']: keep_best does not keep its step, nor others without "
                     "val_los"][:count]


def test_a_save_that_is_skipped_is_not_the_best(tmp_path, monkeypatch):
    callback = tidemark.keras.TidemarkCheckpoint(tmp_path / "store", monitor="loss", save_best_only=True)
    monkeypatch.setattr(tidemark.Checkpointer, "save", lambda *_, **__: types.SimpleNamespace(skipped=True))
    fit(make_model(), [callback])
    assert callback.best is None


def test_the_best_step_is_loaded_into_a_fresh_model(tmp_path):
    model = make_model()
    x, y = make_data()
    fit(model, [tidemark.keras.TidemarkCheckpoint(tmp_path / "store", keep_best=1)], validation_data=(x, y), epochs=4)
    fresh = make_model()
    info = tidemark.keras.load(fresh, tmp_path / "store", "best:val_loss")
    loss = fresh.evaluate(x, y, verbose=0)[0]
    assert loss == pytest.approx(info.metrics["val_loss"], rel=1e-6)
    assert int(fresh.optimizer.iterations) == 4 * (info.step + 1)


def test_weights_alone(tmp_path):
    model = make_model()
    fit(model, [tidemark.keras.TidemarkCheckpoint(tmp_path / "store", save_weights_only=True)])
    with tidemark.open(tmp_path / "store") as step:
        assert {name.partition(".")[0] for name in step.keys()} == {"model"}
    fresh = make_model()
    tidemark.keras.load(fresh, tmp_path / "store", weights_only=True)
    assert_same(arrays(fresh.variables), arrays(model.variables))
    with pytest.raises(tidemark.MismatchError) as caught:
        tidemark.keras.load(fresh, tmp_path / "store")
    assert any(name.endswith(".iteration") for name in caught.value.missing)
    assert str(caught.value).endswith("\nweights_only=True leaves the optimizer as it is")


def test_moving_averages_are_loaded_as_weights(tmp_path):
    model = make_model(use_ema=True)
    fit(model, [tidemark.keras.TidemarkCheckpoint(tmp_path / "store")])
    fresh = make_model()
    tidemark.keras.load(fresh, tmp_path / "store", ema=True)
    assert_same(arrays(fresh.trainable_variables), arrays(model.optimizer._model_variables_moving_average))
    # At its end, `fit` has put the averages into the model; the callback saved the weights before that.
    raw = make_model()
    tidemark.keras.load(raw, tmp_path / "store", weights_only=True)
    assert np.abs(arrays(raw.trainable_variables[:1])[0] - arrays(fresh.trainable_variables[:1])[0]).max() > 0
    fit(make_model(), [tidemark.keras.TidemarkCheckpoint(tmp_path / "plain")], epochs=1)
    with pytest.raises(InvalidArgumentError, match="step 0 has no moving averages"):
        tidemark.keras.load(fresh, tmp_path / "plain", ema=True)


def test_a_directory_of_a_wrong_type_is_named():
    with pytest.raises(InvalidArgumentError, match="directory is 3, .*: it must be a str or an os.PathLike"):
        tidemark.keras.TidemarkCheckpoint(3)


def test_another_model_is_a_mismatch_and_stays_as_it_was(tmp_path):
    fit(make_model(), [tidemark.keras.TidemarkCheckpoint(tmp_path / "store")], epochs=1)
    other = make_model(width=9)
    other.optimizer.build(other.trainable_variables)
    before = values(other)
    with pytest.raises(tidemark.MismatchError) as caught:
        tidemark.keras.load(other, tmp_path / "store")
    assert any(name.endswith("hidden.kernel") for name in caught.value.reshaped)
    assert "hidden.kernel': shape: checkpoint has [" in str(caught.value)
    assert str(caught.value).endswith("\nIts layers must be those of the model that was saved")
    with pytest.raises(tidemark.MismatchError):
        fit(other, [tidemark.keras.TidemarkCheckpoint(tmp_path / "store", restore=True)], epochs=2)
    assert_same(values(other), before)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16"])
def test_half_precision_comes_back(tmp_path, policy):
    keras.config.set_dtype_policy(policy)
    try:
        model = make_model()
        fit(model, [tidemark.keras.TidemarkCheckpoint(tmp_path / "store")], epochs=1)
        fresh = make_model()
        tidemark.keras.load(fresh, tmp_path / "store")
        assert [v.dtype for v in fresh.variables] == [v.dtype for v in model.variables]
        assert_same([v.astype("float32") for v in values(fresh)], [v.astype("float32") for v in values(model)])
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize("background", [False, True])
def test_saves_are_waited_for_and_failures_are_raised(tmp_path, background):
    class Break(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                callback.close()

    callback = tidemark.keras.TidemarkCheckpoint(tmp_path / "store", save_on_background=background)
    with pytest.raises(FailedPreconditionError, match="only while `fit` runs"):
        fit(make_model(), [callback, Break()])
    assert steps(tmp_path / "store") == [0]
    callback.wait_until_finished()  # does nothing
    with pytest.raises(FailedPreconditionError, match="only while `fit` runs"):
        tidemark.keras.TidemarkCheckpoint(tmp_path / "store").on_epoch_end(0)


def test_arguments_that_mean_nothing_are_refused(tmp_path):
    for arguments, text in (({"save_freq": "batch"}, "save_freq"), ({"save_freq": 0}, "save_freq"),
                            ({"keep_best": 1, "max_to_keep": None}, "keep_best"), ({"staging": "overlapped"}, "staging"),
                            ({"retention": None}, "max_to_keep and keep_best"), ({"save_when": bool}, "use save_freq"),
                            ({"ranks": None}, "one process"),
                            ({"monitor": 5}, "monitor is 5"), ({"max_to_keep": -1}, "max_to_keep is -1"),
                            ({"keep_best": "1"}, "keep_best is '1'"), ({"restore": "yes"}, "restore is 'yes'"),
                            ({"save_freq": True}, "save_freq is True"), ({"directory": 5}, "directory is 5")):
        with pytest.raises(ValueError, match=text):
            tidemark.keras.TidemarkCheckpoint(**{"directory": tmp_path / "store", **arguments})
    with pytest.raises(ValueError, match="score"):
        fit(make_model(), [tidemark.keras.TidemarkCheckpoint(tmp_path / "store", monitor="score", save_best_only=True)])


def test_two_variables_of_one_path_are_refused(tmp_path):
    class Twice(keras.layers.Layer):
        def build(self, _):
            self.first = self.add_weight(shape=(1,), name="w")
            self.second = self.add_weight(shape=(1,), name="w")

        def call(self, x):
            return x * self.first + self.second

    model = keras.Sequential([keras.Input((4,)), Twice(name="twice"), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(InvalidArgumentError, match="twice/w"):
        fit(model, [tidemark.keras.TidemarkCheckpoint(tmp_path / "store")])


def test_the_numpy_backend_loads_what_another_has_saved(tmp_path):
    pytest.importorskip("jax", reason="the backend numpy needs SciPy and JAX")
    model = make_model()
    fit(model, [tidemark.keras.TidemarkCheckpoint(tmp_path / "store")], epochs=1)
    x, _ = make_data(4)
    expected = model.predict(x, verbose=0)
    program = ("import sys, numpy, keras, tidemark.keras, keras_test\n"
               "model = keras_test.make_model()\n"
               "tidemark.keras.load(model, sys.argv[1], weights_only=True)\n"
               "x, _ = keras_test.make_data(4)\n"
               "numpy.save(sys.argv[2], model.predict(x, verbose=0))\n")
    environment = {**os.environ, "KERAS_BACKEND": "numpy",
                   "PYTHONPATH": os.pathsep.join([str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    result = subprocess.run([sys.executable, "-c", program, str(tmp_path / "store"), str(tmp_path / "predicted.npy")],
                            env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    np.testing.assert_allclose(np.load(tmp_path / "predicted.npy"), expected, rtol=1e-5, atol=1e-6)


def test_integers_of_another_size_are_taken_if_every_value_fits(tmp_path):
    class Counter(keras.layers.Layer):
        def __init__(self, dtype, value):
            super().__init__(name="counter")
            self.count = self.add_weight(shape=(2,), dtype=dtype, initializer=keras.initializers.Constant(value),
                                         trainable=False, name="count")

        def call(self, x):
            return x

    def model_of(dtype, value):
        model = keras.Sequential([keras.Input((4,)), Counter(dtype, value), keras.layers.Dense(1, name="head")], name="net")
        model.compile("sgd", loss="mse")
        return model

    fit(model_of("int32", 300), [tidemark.keras.TidemarkCheckpoint(tmp_path / "store")], epochs=1)
    wide = model_of("int16", 0)
    tidemark.keras.load(wide, tmp_path / "store")
    np.testing.assert_array_equal(arrays(wide.non_trainable_variables), [[300, 300]])
    narrow = model_of("uint8", 7)
    with pytest.raises(tidemark.errors.MismatchError) as caught:
        tidemark.keras.load(narrow, tmp_path / "store")
    assert caught.value.retyped == ["model.counter.count"]
    np.testing.assert_array_equal(arrays(narrow.non_trainable_variables), [[7, 7]])
    with pytest.raises(tidemark.errors.MismatchError):
        tidemark.keras.load(model_of("float32", 0.0), tmp_path / "store")


def test_a_model_that_cannot_be_filled_is_named(tmp_path):
    fit(make_model(), [tidemark.keras.TidemarkCheckpoint(tmp_path / "store")])

    def refused(model, words, **options):
        with pytest.raises(InvalidArgumentError, match=words):
            tidemark.keras.load(model, tmp_path / "store", **options)

    layers = make_model().layers
    refused(keras.Sequential([keras.Input((4,)), *layers]), "is not compiled, .*: compile it before, or give weights_only=True")
    for options in ({}, {"weights_only": True}):
        refused(keras.Sequential([keras.layers.Dense(1)]), "is not built, so it has no weights to fill", **options)
    refused(tmp_path, "model is .*: it must be a keras.Model")


def test_a_slip_in_an_argument_of_the_callback_itself_is_named(tmp_path):
    with pytest.raises(InvalidArgumentError, match="has no option 'keepbest': did you mean 'keep_best'"):
        tidemark.keras.TidemarkCheckpoint(tmp_path / "store", keepbest=1)
