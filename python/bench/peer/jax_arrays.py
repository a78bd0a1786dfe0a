"""The state as arrays of JAX, which never change: a step of training puts new ones in their places."""

import jax.numpy as jnp
import numpy as np

from . import numpy_arrays
from .state import LOWEST_BIT


def raw(array):
    return numpy_arrays.raw(np.asarray(array))


def read(folder, arrays):
    state = {}
    for array in arrays:
        state.update((name, jnp.array(value, copy=True)) for name, value in numpy_arrays.read(folder, [array]).items())
    return state


def destination(arrays):
    return {array.name: jnp.zeros(array.shape, numpy_arrays.DTYPES[array.dtype]) for array in arrays}


def change(state):
    for name, array in state.items():
        bit = LOWEST_BIT[array.dtype.name]
        state[name] = jnp.array((np.asarray(array).view(bit.dtype) ^ bit).view(array.dtype), copy=True)
