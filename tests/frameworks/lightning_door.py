"""Lightning's tests of checkpoints, with TidemarkCheckpointIO wherever a strategy would make a TorchCheckpointIO."""

import os
import tempfile

import pytest

FOLDERS = ["tests"]
FILES = [
    "tests_pytorch/callbacks/test_model_checkpoint_additional_cases.py",
    "tests_pytorch/callbacks/test_model_checkpoint_edge_cases.py",
    "tests_pytorch/callbacks/test_model_checkpoint_manual_opt.py",
    "tests_pytorch/callbacks/test_model_checkpoint_step_interval_val_metric.py",
    "tests_pytorch/checkpointing/test_checkpoint_callback_frequency.py",
    "tests_pytorch/checkpointing/test_model_checkpoint.py",
    "tests_pytorch/checkpointing/test_torch_saving.py",
    "tests_pytorch/checkpointing/test_trainer_checkpoint.py",
    "tests_pytorch/plugins/test_async_checkpoint.py",
    "tests_pytorch/plugins/test_checkpoint_io_plugin.py",
    "tests_pytorch/trainer/connectors/test_checkpoint_connector.py",
]


def prepare():
    pass


class Always:
    def pytest_configure(self, config):
        config.addinivalue_line("markers", "flaky: of a plugin that these tests do without")


class Ours:
    """Each test has one TidemarkCheckpointIO, which all of its trainers take, as a program has."""

    def pytest_sessionstart(self, session):
        import lightning.pytorch.strategies.strategy as strategy
        import torch
        from tidemark.lightning import TidemarkCheckpointIO

        self._io = None
        strategy.TorchCheckpointIO = lambda: self._io
        load = torch.load

        def load_followed(file, *arguments, **options):
            """Follows a file that TidemarkCheckpointIO has written to the step that it names."""
            path = file if isinstance(file, (str, os.PathLike)) else getattr(file, "name", None)
            if isinstance(path, (str, os.PathLike)) and os.path.isfile(path):
                with open(path, "rb") as opened:
                    if opened.read(12) == b'{"tidemark":':
                        return TidemarkCheckpointIO(os.path.dirname(path)).load_checkpoint(path)
            return load(file, *arguments, **options)

        torch.load = load_followed

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        from tidemark.lightning import TidemarkCheckpointIO

        # Outside of the folder of the test, which may list what is in it.
        with tempfile.TemporaryDirectory(prefix="tidemark-store-") as store:
            self._io = TidemarkCheckpointIO(store)
            try:
                return (yield)
            finally:
                self._io.teardown()
