"""Tidemark, with default options, and with everything compressed. A store has all steps."""

import pathlib

import tidemark

from . import torch_arrays
from .interface import Peer


class Default(Peer):
    arrays = torch_arrays
    fills = True
    compression = "auto"

    def __init__(self, folder, reading=False):
        super().__init__(folder, reading)
        self.checkpointer = None if reading else tidemark.Checkpointer(folder, compression=self.compression)

    def path(self, step):
        return self.folder

    def begin(self, state):
        self.checkpointer.resume(state)

    def save(self, step, state):
        return self.checkpointer.save(step, state).committed.result

    def restore(self, step, destination):
        self.checkpointer = tidemark.Checkpointer(self.folder, create=False)
        self.checkpointer.restore(destination, step)
        return destination

    def data_files(self, step):
        return [file for file in pathlib.Path(self.folder, "steps").rglob("*") if file.is_file()]

    def close(self):
        if self.checkpointer is not None:
            self.checkpointer.close()


class Space(Default):
    compression = "space"
