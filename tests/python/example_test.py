"""The example is killed at random moments, and ends as a run that was not killed: the same losses, the same last step.

TIDEMARK_KILLS: how many kills, instead of 8; `make kill-python` has 50. TIDEMARK_SEED: a seed that a run has printed; the
kills are real, so timing decides how far it repeats.
"""

import os
import random
import signal
import time

import example_runs
import tidemark
from example_runs import losses

STEPS = 400
KILLS = int(os.environ.get("TIDEMARK_KILLS", "8"))
KILLS_OF_A_RUN = 8


def start(folder, name):
    return example_runs.start("regression.py", folder, name, "--steps", str(STEPS), "--save-every", "7")


def last_step(folder, name):
    """The number, the arrays and the values of the last step of a store, each to the bit."""
    with tidemark.open(folder / name) as step:
        arrays = {key: step.get_tensor(key) for key in step.keys()}
        return (step.info.step, {key: (str(array.dtype), array.shape, array.tobytes()) for key, array in arrays.items()},
                {key: repr(step.get_value(key)) for key in step.value_keys()})


def test_a_killed_run_continues_bit_for_bit(tmp_path):
    reference = start(tmp_path, "whole")
    output, _ = reference.communicate()
    assert reference.returncode == 0, output
    expected = dict(losses(tmp_path, "whole"))
    assert sorted(expected) == list(range(STEPS))

    seed = int(os.environ.get("TIDEMARK_SEED", time.time_ns() % 2**31))
    print(f"seed {seed}")
    moments = random.Random(seed)
    kills, resumed, run = 0, 0, 0
    # A machine may do all steps before anyone looks, so that fewer of a run's kills meet it alive.
    while kills < KILLS or resumed == 0:
        run += 1
        assert run <= 5 + 5 * KILLS // KILLS_OF_A_RUN, f"only {kills} kills met a run alive, and {resumed} runs went on"
        name = f"killed{run}"
        for _ in range(min(KILLS_OF_A_RUN, max(KILLS - kills, 1))):
            killed, went_on = kill_once(tmp_path, name, moments)
            kills += killed
            resumed += went_on
        last = start(tmp_path, name)
        output, _ = last.communicate()
        assert last.returncode == 0, output
        logged = losses(tmp_path, name)
        assert {step for step, _ in logged} == set(range(STEPS))
        assert [entry for entry in logged if expected[entry[0]] != entry[1]] == []
        assert output.splitlines()[-1] == reference_line(expected)
        assert last_step(tmp_path, name) == last_step(tmp_path, "whole")
    print(f"{kills} kills in {run} runs, {resumed} went on from a saved step")


def kill_once(folder, name, moments):
    """Starts the run and kills it. Whether that met it alive, and whether it had gone on from a saved step."""
    before = len(losses(folder, name))
    process = start(folder, name)
    # A number of steps first, not a time: every run gets somewhere, however slow the machine is.
    steps = moments.randrange(1, 60)
    while process.poll() is None and len(losses(folder, name)) < before + steps:
        time.sleep(0.002)
    time.sleep(moments.uniform(0, 0.005))  # to a moment within a step or a save
    process.kill()
    process.communicate()
    logged = losses(folder, name)
    return process.returncode == -signal.SIGKILL, before > 0 and len(logged) > before and logged[before][0] > 0


def reference_line(expected):
    return f"best loss {min(float(loss) for loss in expected.values()):.6f}"
