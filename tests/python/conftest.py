"""What tests of several rooms take as arguments."""

import signal

import pytest
import tidemark


@pytest.fixture
def checkpointer(tmp_path):
    """An open one of a new store. The test may close it. A room's file that needs more overrides it by the same name."""
    with tidemark.Checkpointer(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def python_handles_ctrl_c():
    """A shell lets its background jobs ignore Ctrl-C."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)
