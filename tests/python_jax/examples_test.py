"""The examples are killed at random moments, and their losses are those of runs that were not killed."""

import random
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

    seed = time.time_ns() % 2**31
    print(f"seed {seed}")
    moments = random.Random(seed)
    started_at = []
    for last in (False, False, True):
        before = len(losses(tmp_path, "killed"))
        process = start(program, tmp_path, "killed", *options)
        # A number of steps, not a time: every run gets somewhere, however slow the machine is.
        steps = moments.randrange(2, max(4, count // 5))
        while not last and process.poll() is None and len(losses(tmp_path, "killed")) < before + steps:
            time.sleep(0.002)
        if not last:
            time.sleep(moments.random() * 0.1)
            process.kill()
        output, _ = process.communicate()
        assert last == (process.returncode == 0), output
        started_at.append(losses(tmp_path, "killed")[before][0])
    logged = losses(tmp_path, "killed")
    assert {step for step, _ in logged} == set(range(count))
    assert [entry for entry in logged if expected[entry[0]] != entry[1]] == []
    assert started_at[0] == 0 and started_at[-1] > 0
    assert output.splitlines()[-1] == last_line
