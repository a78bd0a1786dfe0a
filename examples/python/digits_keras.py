#!/usr/bin/env python3
"""Learns to read handwritten digits with Keras, and continues bit for bit after it was killed at any moment.

  digits_keras.py --store FOLDER [--epochs N] [--loss-log FILE]

Start it, kill it, start it again with the same command line: the losses are those of a run that was not killed. Needs
keras with one of its backends, and scikit-learn, which ships the data. In the end it loads the best epoch.
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras  # noqa: E402
import tidemark.keras  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402


def make_model():
    model = keras.Sequential([keras.Input((64,), name="pixels"), keras.layers.Dense(64, activation="relu", name="hidden"),
                              keras.layers.Dropout(0.2, seed=1, name="dropout"), keras.layers.Dense(10, name="digits")],
                             name="reader")
    model.compile(keras.optimizers.AdamW(3e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  metrics=["accuracy"])
    return model


class LossLog(keras.callbacks.Callback):
    """Appends the losses of each epoch to a file."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_epoch_end(self, epoch, logs=None):
        with open(self.path, "a", encoding="utf-8") as log:
            log.write(f"{epoch} {logs['loss']!r},{logs['val_loss']!r}\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--loss-log")
    arguments = parser.parse_args()

    digits = load_digits()
    x, y = (digits.data / 16).astype("float32"), digits.target
    keras.utils.set_random_seed(0)
    model = make_model()
    callbacks = [tidemark.keras.TidemarkCheckpoint(arguments.store, restore=True, keep_best=1)]
    if arguments.loss_log:
        # Before the checkpoint: an epoch that is saved has been logged.
        callbacks.insert(0, LossLog(arguments.loss_log))
    model.fit(x[:1400], y[:1400], validation_data=(x[1400:], y[1400:]), epochs=arguments.epochs, batch_size=100, verbose=0,
              callbacks=callbacks)
    best = tidemark.keras.load(model, arguments.store, "best:val_loss")
    _, accuracy = model.evaluate(x[1400:], y[1400:], verbose=0)
    print(f"best epoch {best.step}: validation loss {best.metrics['val_loss']:.6f}, {100 * accuracy:.1f} % of the digits read")


if __name__ == "__main__":
    main()
