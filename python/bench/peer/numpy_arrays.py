"""The state as arrays of NumPy; bfloat16 is that of ml_dtypes."""

import os

import ml_dtypes
import numpy as np

from .state import LOWEST_BIT

DTYPES = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float32": np.dtype(np.float32)}


def raw(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def read(folder, arrays):
    state = {array.name: np.empty(array.shape, DTYPES[array.dtype]) for array in arrays}
    with open(os.path.join(folder, "arrays"), "rb") as file:
        for array in arrays:
            file.seek(array.offset)
            if file.readinto(raw(state[array.name])) != array.nbytes:
                raise OSError(f"{folder}: the file 'arrays' ends in {array.name}")
    return state


def destination(arrays):
    return {array.name: np.zeros(array.shape, DTYPES[array.dtype]) for array in arrays}


def change(state):
    for array in state.values():
        bit = LOWEST_BIT[array.dtype.name]
        array.view(bit.dtype)[...] ^= bit
