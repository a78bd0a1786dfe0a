"""A user's program for tidemark.keras that mypy --strict accepts; types_test.py has it checked, and runs it."""

from __future__ import annotations

import sys

import keras
import numpy as np
import tidemark
import tidemark.keras


def train(store: str) -> int:
    x, y = np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    callback = tidemark.keras.TidemarkCheckpoint(store, monitor="val_loss", restore=True, keep_best=1, compression="none")
    model.fit(x, y, validation_data=(x, y), epochs=2, callbacks=[callback], verbose=0)
    callback.wait_until_finished()
    best: float | None = callback.best
    info: tidemark.StepInfo = tidemark.keras.load(model, store, "best:val_loss", weights_only=True)
    print(best, info.step, info.metrics)
    return len(tidemark.steps(store))


if __name__ == "__main__":
    sys.exit(0 if train(sys.argv[1]) > 0 else 1)
