"""Examples are killed at random moments, and end as a run that was not killed: the same losses, the same last step.

TIDEMARK_KILLS: how many kills of each, instead of 8 of the first alone; `make kill-python` has 50. TIDEMARK_SEED: a seed
that a run has printed; the kills are real, so timing decides how far it repeats.
"""

import os
import random
import signal
import time

import example_runs
import pytest
import tidemark
from example_runs import losses

# With all flags but those of the number of steps. A start with PyTorch takes seconds.
EXAMPLES = {"regression.py": ["--save-every", "7"],
            "char_lm.py": ["--save-every", "3", "--layers", "1", "--heads", "2", "--width", "16", "--context", "16",
                           "--batch", "2"]}
STEPS = 400
KILLS = int(os.environ.get("TIDEMARK_KILLS", "8"))
KILLS_OF_A_RUN = 8


def start(example, folder, name):
    return example_runs.start(example, folder, name, "--steps", str(STEPS), *EXAMPLES[example])


def ending(output):
    """What the last line says of the whole training: all but where the run went on."""
    return output.splitlines()[-1].split("; ")[-1]


def last_step(folder, name):
    """The number, the arrays and the values of the last step of a store, each to the bit."""
    with tidemark.open(folder / name, framework="np") as step:
        arrays = {key: step.get_tensor(key) for key in step.keys()}
        return (step.info.step, {key: (str(array.dtype), array.shape, array.tobytes()) for key, array in arrays.items()},
                {key: repr(step.get_value(key)) for key in step.value_keys()})


@pytest.mark.parametrize("example", EXAMPLES if "TIDEMARK_KILLS" in os.environ else ["regression.py"])
def test_a_killed_run_continues_bit_for_bit(tmp_path, example):
    reference = start(example, tmp_path, "whole")
    whole, _ = reference.communicate()
    assert reference.returncode == 0, whole
    expected = dict(losses(tmp_path, "whole"))
    assert sorted(expected) == list(range(STEPS))

    seed = int(os.environ.get("TIDEMARK_SEED", time.time_ns() % 2**31))
    print(f"{example}: seed {seed}")
    moments = random.Random(seed)
    kills, resumed, run = 0, 0, 0
    # A machine may do all steps before anyone looks, so that fewer of a run's kills meet it alive.
    while kills < KILLS or resumed == 0:
        run += 1
        assert run <= 5 + 5 * KILLS // KILLS_OF_A_RUN, f"only {kills} kills met a run alive, and {resumed} runs went on"
        name = f"killed{run}"
        for _ in range(min(KILLS_OF_A_RUN, max(KILLS - kills, 1))):
            killed, went_on = kill_once(example, tmp_path, name, moments)
            kills += killed
            resumed += went_on
        last = start(example, tmp_path, name)
        output, _ = last.communicate()
        assert last.returncode == 0, output
        logged = losses(tmp_path, name)
        assert {step for step, _ in logged} == set(range(STEPS))
        assert [entry for entry in logged if expected[entry[0]] != entry[1]] == []
        assert ending(output) == ending(whole)
        assert last_step(tmp_path, name) == last_step(tmp_path, "whole")
    print(f"{example}: {kills} kills in {run} runs, {resumed} went on from a saved step")


def kill_once(example, folder, name, moments):
    """Starts the run and kills it. Whether that met it alive, and whether it had gone on from a saved step."""
    before = len(losses(folder, name))
    process = start(example, folder, name)
    # A number of steps first, not a time: every run gets somewhere, however slow the machine is.
    steps = moments.randrange(1, 60)
    while process.poll() is None and len(losses(folder, name)) < before + steps:
        time.sleep(0.002)
    time.sleep(moments.uniform(0, 0.005))  # to a moment within a step or a save
    process.kill()
    process.communicate()
    logged = losses(folder, name)
    return process.returncode == -signal.SIGKILL, before > 0 and len(logged) > before and logged[before][0] > 0
