"""The examples are killed at random moments, and their losses are those of runs that were not killed.

TIDEMARK_SEED: a seed that a run has printed; the kills are real, so timing decides how far it repeats.
"""

import os
import random
import signal
import time

import pytest
from example_runs import losses, start

@pytest.mark.parametrize("program,options,count", [
    ("digits_jax.py", ["--steps", "400", "--save-every", "7"], 400), ("digits_keras.py", ["--epochs", "9"], 9)])
def test_a_killed_run_continues_bit_for_bit(tmp_path, program, options, count):
    whole = start(program, tmp_path, "whole", *options)
    output, _ = whole.communicate()
    assert whole.returncode == 0, output
    expected = dict(losses(tmp_path, "whole"))
    assert sorted(expected) == list(range(count))
    last_line = output.splitlines()[-1]
    assert float(last_line.split(", ")[1].split()[0]) > 70  # of the digits

    seed = int(os.environ.get("TIDEMARK_SEED", time.time_ns() % 2**31))
    print(f"seed {seed}")
    moments = random.Random(seed)
    resumed = 0
    # A machine may do all steps before this process looks, so that no run is left to be resumed.
    for attempt in range(10):
        name = f"killed{attempt}"
        for last in (False, False, True):
            before = len(losses(tmp_path, name))
            process = start(program, tmp_path, name, *options)
            # A number of steps, not a time: every run gets somewhere, however slow the machine is.
            steps = moments.randrange(2, max(4, count // 5))
            while not last and process.poll() is None and len(losses(tmp_path, name)) < before + steps:
                time.sleep(0.002)
            if not last:
                time.sleep(moments.uniform(0, 0.02))
                process.kill()
            output, _ = process.communicate()
            assert process.returncode in ((0,) if last else (0, -signal.SIGKILL)), output
            logged = losses(tmp_path, name)
            resumed += 0 < before < len(logged) and logged[before][0] > 0
        assert {step for step, _ in logged} == set(range(count))
        assert [entry for entry in logged if expected[entry[0]] != entry[1]] == []
        assert output.splitlines()[-1] == last_line
        if resumed > 0:
            return
    raise AssertionError("no run went on from a saved step")
