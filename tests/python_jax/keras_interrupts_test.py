"""Ctrl-C in the middle of `fit`: what was saved stays, the store can be closed, and the next `fit` goes on where it was."""

import keras
import keras_test
import pytest
import tidemark
import tidemark.keras
from interruption import interrupted_at_drawn_moments

pytestmark = [pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
              # If the interrupt comes before the callback has stored its new checkpointer, that closes with this warning.
              pytest.mark.filterwarnings("ignore:a tidemark.Checkpointer was not closed:ResourceWarning")]


def test_a_fit_that_is_interrupted_goes_on(tmp_path):
    def fit(moment):
        keras.utils.set_random_seed(7)
        callback = tidemark.keras.TidemarkCheckpoint(tmp_path / f"store{moment}", max_to_keep=None, restore=True)
        model = keras_test.make_model()
        callbacks.append(callback)
        keras_test.fit(model, [callback], epochs=3)
        return model

    def after(moment):
        keras.utils.clear_session()  # an interrupt within Keras leaves scopes open, in which later models lack variables
        for callback in callbacks:
            callback.close()
        callbacks.clear()
        before = set(keras_test.steps(tmp_path / f"store{moment}")) if (tmp_path / f"store{moment}").exists() else set()
        assert before <= {0, 1, 2}
        keras_test.assert_same(keras_test.values(fit(moment)), expected)
        assert keras_test.steps(tmp_path / f"store{moment}") == [0, 1, 2]

    callbacks = []
    expected = keras_test.values(fit("whole"))
    interrupted_at_drawn_moments(fit, after, 8, keras)
