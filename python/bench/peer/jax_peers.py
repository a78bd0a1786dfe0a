"""Orbax, and TensorStore, on which it stands."""

import os

from . import numpy_arrays
from .interface import Peer


class Orbax(Peer):
    def __init__(self, folder, reading=False):
        super().__init__(folder, reading)
        import orbax.checkpoint as ocp

        from . import jax_arrays

        self.arrays = jax_arrays
        self.checkpointer = ocp.StandardCheckpointer()

    fills = True  # it asks for arrays that have the shapes and dtypes, and makes new ones

    def save(self, step, state):
        self.checkpointer.save(self.path(step), dict(state))
        return self.checkpointer.wait_until_finished

    def restore(self, step, destination):
        import jax

        restored = self.checkpointer.restore(self.path(step), destination)
        return jax.block_until_ready(restored)

    def close(self):
        self.checkpointer.close()


class Zarr(Peer):
    """An array of zarr3 for each, with default chunks and codecs."""

    arrays = numpy_arrays

    def __init__(self, folder, reading=False):
        super().__init__(folder, reading)
        import tensorstore

        self.tensorstore = tensorstore
        self.context = tensorstore.Context()  # of all arrays: each would have caches of its own, and OCDBT would take minutes

    def kvstore(self, step, name):
        return {"driver": "file", "path": f"{self.path(step)}/{name}/"}

    def array(self, step, name):
        return {"driver": "zarr3", "kvstore": self.kvstore(step, name)}

    def save(self, step, state):
        os.mkdir(self.path(step))
        return self.write(step, state, None)

    def write(self, step, state, transaction):
        opened = [self.tensorstore.open(self.array(step, name), create=True, shape=array.shape, dtype=array.dtype,
                                        transaction=transaction, context=self.context) for name, array in state.items()]
        written = [store.result().write(array) for store, array in zip(opened, state.values())]
        for future in written:
            future.copy.result()
        return lambda: [future.commit.result() for future in written]

    def restore(self, step, destination):
        names = self.names(step)
        opened = [self.tensorstore.open(self.array(step, name), open=True, context=self.context) for name in names]
        read = [store.result().read() for store in opened]
        return {name: future.result() for name, future in zip(names, read)}

    def names(self, step):
        return sorted(os.listdir(self.path(step)))


class Ocdbt(Zarr):
    """The same in one database of OCDBT, written by one transaction."""

    def database(self, step):
        return {"driver": "ocdbt", "base": {"driver": "file", "path": self.path(step) + "/"}}

    def kvstore(self, step, name):
        return {**self.database(step), "path": name + "/"}

    def save(self, step, state):
        os.mkdir(self.path(step))
        transaction = self.tensorstore.Transaction()
        self.write(step, state, transaction)
        return transaction.commit_async().result

    def names(self, step):
        keys = self.tensorstore.KvStore.open(self.database(step), context=self.context).result().list().result()
        return sorted({key.decode().split("/")[0] for key in keys})
