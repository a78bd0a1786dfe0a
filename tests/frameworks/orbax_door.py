"""Orbax' tests of CheckpointManager, with the classes of tidemark.orbax in its place, in a job of one process."""

import os
import socket
import tempfile

FOLDERS = ["checkpoint"]
FILES = ["orbax/checkpoint/checkpoint_manager_test.py", "orbax/checkpoint/checkpoint_manager_options_test.py"]


def prepare():
    os.environ["TEST_TMPDIR"] = tempfile.mkdtemp(prefix="tidemark-orbax-")  # absl's own keeps what the run before has left
    import jax

    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    jax.distributed.initialize(f"localhost:{port}", num_processes=1, process_id=0)


class Always:
    pass


class Ours:
    def pytest_collection_finish(self, session):
        import tidemark.orbax
        from orbax.checkpoint import checkpoint_manager

        checkpoint_manager.StepAlreadyExistsError = tidemark.orbax.StepAlreadyExistsError
        for module in {item.module for item in session.items}:
            for name in ("CheckpointManager", "CheckpointManagerOptions", "args"):
                if hasattr(module, name):
                    setattr(module, name, getattr(tidemark.orbax, name))
