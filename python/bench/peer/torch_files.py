"""Libraries that write the tensors of a dict to files, and have when they return."""

import json
import os

import torch

from . import torch_arrays
from .interface import Peer, nothing


class TorchSave(Peer):
    arrays = torch_arrays

    def save(self, step, state):
        torch.save(state, self.path(step))
        return nothing

    def restore(self, step, destination):
        return torch.load(self.path(step), weights_only=True)


class Safetensors(Peer):
    arrays = torch_arrays

    def __init__(self, folder, reading=False):
        super().__init__(folder, reading)
        from safetensors import torch as safetensors

        self.safetensors = safetensors

    def save(self, step, state):
        self.safetensors.save_file(state, self.path(step))
        return nothing

    def restore(self, step, destination):
        return self.safetensors.load_file(self.path(step))


class Fastsafetensors(Peer):
    """Without the GPU's direct storage, which a CPU lacks. The tensors lie in one buffer."""

    arrays = torch_arrays

    def __init__(self, folder, reading=False):
        super().__init__(folder, reading)
        import fastsafetensors

        self.saver = fastsafetensors.ParallelSaver()
        self.open = fastsafetensors.fastsafe_open

    def save(self, step, state):
        os.mkdir(self.path(step))
        self.saver.save(state, os.path.join(self.path(step), "state"))
        return nothing

    def restore(self, step, destination):
        files = sorted(str(file) for file in self.data_files(step))
        with self.open(files, device="cpu", nogds=True) as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}


class Zipnn(Peer):
    """It compresses tensors, and leaves files to the caller: here one, with a list of names and sizes at its end.

    `compress` moves the sign bits in the memory that it is given, and leaves them there, so each tensor is copied before.
    """

    arrays = torch_arrays

    def __init__(self, folder, reading=False):
        super().__init__(folder, reading)
        import zipnn

        self.codec = zipnn.ZipNN(input_format="torch", threads=2)

    def save(self, step, state):
        sizes = []
        with open(self.path(step), "wb") as file:
            for name, tensor in state.items():
                compressed = self.codec.compress(tensor.clone())
                sizes.append((name, len(compressed)))
                file.write(compressed)
            listed = json.dumps(sizes).encode()
            file.write(listed + len(listed).to_bytes(8, "little"))
        return nothing

    def restore(self, step, destination):
        restored = {}
        with open(self.path(step), "rb") as file:
            file.seek(-8, os.SEEK_END)
            size = int.from_bytes(file.read(8), "little")
            file.seek(-8 - size, os.SEEK_END)
            sizes = json.loads(file.read(size))
            file.seek(0)
            for name, size in sizes:
                restored[name] = self.codec.decompress(file.read(size))
        return restored
