"""The examples of the integrations are killed at a random step, and their losses are those of runs that were not killed.

TIDEMARK_SEED: a seed that a run has printed; the kills are real, so timing decides how far it repeats.
"""

import os
import random
import signal
import time

import pytest
from example_runs import losses, start

COUNT = 400


@pytest.mark.parametrize("program", ["text_lightning.py", "text_transformers.py"])
def test_a_killed_run_continues_bit_for_bit(tmp_path, program):
    options = ["--steps", str(COUNT), "--save-every", "7"]
    whole = start(program, tmp_path, "whole", *options)
    output, _ = whole.communicate()
    assert whole.returncode == 0, output
    expected = dict(losses(tmp_path, "whole"))
    assert sorted(expected) == list(range(COUNT))
    last_line = output.splitlines()[-1]
    assert last_line.startswith("held-out loss ") and float(last_line.split()[-1]) < 4

    seed = int(os.environ.get("TIDEMARK_SEED", time.time_ns() % 2**31))
    print(f"seed {seed}")
    moments = random.Random(seed)
    # A machine may do all steps before this process looks, so that no run is left to be resumed.
    for attempt in range(5):
        name = f"killed{attempt}"
        process = start(program, tmp_path, name, *options)
        steps = moments.randrange(COUNT // 4, COUNT // 2)
        while process.poll() is None and len(losses(tmp_path, name)) < steps:
            time.sleep(0.002)
        process.kill()
        output, _ = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), output
        before = len(losses(tmp_path, name))
        process = start(program, tmp_path, name, *options)
        output, _ = process.communicate()
        assert process.returncode == 0, output
        logged = losses(tmp_path, name)
        assert {step for step, _ in logged} == set(range(COUNT))
        assert [entry for entry in logged if expected[entry[0]] != entry[1]] == []
        assert output.splitlines()[-1] == last_line
        if before < len(logged) and logged[before][0] > 0:
            return
    raise AssertionError("no run went on from a saved step")
