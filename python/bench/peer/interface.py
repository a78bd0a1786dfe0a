"""What a library has to do here: save a dict of arrays, say when it has, and give the arrays back."""

import abc
import os
import pathlib


class Peer(abc.ABC):
    """Checkpoints in one folder, each in a folder of its own. A class attribute `arrays` is the module of the arrays that the
    library is given: peer.torch_arrays, peer.numpy_arrays or peer.jax_arrays.

    `fills`: a restore writes into arrays that are there already, and so is given some.
    """

    arrays = None
    fills = False

    def __init__(self, folder, reading=False):
        """`reading`: only `restore` will be called."""
        self.folder = folder
        self.reading = reading
        os.makedirs(folder, exist_ok=True)

    def path(self, step):
        return os.path.join(self.folder, f"step-{step}")

    @classmethod
    def plain(cls, folder):
        """A peer that writes the same files with less effort to begin with, for saves whose time does not matter."""
        return cls(folder)

    def begin(self, state):
        """The training begins, and will save `state`; before its first step."""

    @abc.abstractmethod
    def save(self, step, state):
        """Returns when the training may go on, with a function that waits until the library says that it is done."""

    def before_update(self):
        """Called before the training changes its arrays."""

    @abc.abstractmethod
    def restore(self, step, destination):
        """{name: array} of the checkpoint: `destination` itself, if the class `fills`; otherwise that is None."""

    def data_files(self, step):
        """The files that hold the bytes of arrays."""
        path = pathlib.Path(self.path(step))
        return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]

    def close(self):
        pass


def nothing():
    """What a save returns that is done when it returns."""
