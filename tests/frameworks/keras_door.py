"""Keras' tests of OrbaxCheckpoint and BackupAndRestore, with TidemarkCheckpoint in their place.

Those of ModelCheckpoint are not run: each looks for files by a template of names, and TidemarkCheckpoint writes a store.
"""

import os

FOLDERS = ["."]
FILES = ["keras/src/callbacks/orbax_checkpoint_test.py", "keras/src/callbacks/backup_and_restore_test.py"]


def prepare():
    pass


class Always:
    pass


class Ours:
    def pytest_collection_finish(self, session):
        import keras
        import tidemark.keras

        class BackupAndRestore(tidemark.keras.TidemarkCheckpoint):
            """By its names, also those that the tests read. The store stays where Keras deletes the backup."""

            def __init__(self, backup_dir, save_freq="epoch", double_checkpoint=False, delete_checkpoint=True):
                super().__init__(backup_dir, save_freq=save_freq, restore=True)

            def on_epoch_end(self, epoch, logs=None):
                super().on_epoch_end(epoch, logs)
                self._current_epoch = epoch + 1

            _current_epoch = 0
            _last_batch_seen = property(lambda self: self._fit.last_batch)

        load_weights = keras.Model.load_weights

        def load_weights_of_store(model, path, **options):
            if os.path.isdir(path):
                return tidemark.keras.load(model, path, weights_only=True)
            return load_weights(model, path, **options)

        keras.Model.load_weights = load_weights_of_store
        keras.src.callbacks.BackupAndRestore = BackupAndRestore
        for item in session.items:
            if hasattr(item.module, "OrbaxCheckpoint"):
                item.module.OrbaxCheckpoint = tidemark.keras.TidemarkCheckpoint
