"""Jobs of several processes of JAX, over Gloo: `make test-python-jax`."""

import pathlib
import socket
import sys

import jax
import numpy as np
import tidemark
import tidemark.jax

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))

from rank_jobs import run_processes  # noqa: E402

PROCESS = pathlib.Path(__file__).parent / "jax_process.py"


def run(folder, world_size, what):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    # Gloo's own lines come before.
    return [text.splitlines()[-1] for text in run_processes(PROCESS, folder, world_size, what, port)]


def test_arrays_that_processes_hold_together_are_restored_by_another_number_of_them(tmp_path):
    whole = np.random.default_rng(11).standard_normal((60, 8)).astype(np.float32)
    assert run(tmp_path, 3, "save") == ["saved 1"] * 3
    with tidemark.open(tmp_path / "store") as step:
        names = [name for name in step.keys() if name.startswith("arrays.")]
        assert len(names) == 7
        assert all(step.get_tensor(name).tobytes() == whole.tobytes() for name in names if name != "arrays.keys")
    assert run(tmp_path, 2, "restore") == ["resumed 2"] * 2
    loaded = tidemark.jax.load(tmp_path / "store")["arrays"]
    assert loaded["both"].tobytes() == whole.tobytes()
    assert (jax.random.key_data(loaded["keys"]) == jax.random.key_data(jax.random.split(jax.random.key(3), 12))).all()
