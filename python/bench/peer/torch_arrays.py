"""The state as tensors of PyTorch, each with memory of its own."""

import os

import torch


def empty(array):
    return torch.empty(array.shape, dtype=getattr(torch, array.dtype))


def raw(tensor):
    """uint8 of NumPy over the same memory."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy()


def read(folder, arrays):
    state = {array.name: empty(array) for array in arrays}
    with open(os.path.join(folder, "arrays"), "rb") as file:
        for array in arrays:
            file.seek(array.offset)
            if file.readinto(raw(state[array.name])) != array.nbytes:
                raise OSError(f"{folder}: the file 'arrays' ends in {array.name}")
    return state


def destination(arrays):
    """Like those of a model that was just made: their pages are there."""
    return {array.name: empty(array).zero_() for array in arrays}


def change(state):
    """One step of training: inverts the lowest bit of every element, in place."""
    for tensor in state.values():
        tensor.view({2: torch.int16, 4: torch.int32}[tensor.element_size()]).bitwise_xor_(1)
