"""The example is killed at random moments, and its losses are those of a run that was not killed."""

import pathlib
import random
import subprocess
import sys
import time

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "python" / "regression.py"
STEPS = 400


def start(folder, name):
    return subprocess.Popen([sys.executable, str(EXAMPLE), "--store", str(folder / name), "--steps", str(STEPS), "--save-every",
                             "7", "--loss-log", str(folder / f"{name}.losses")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)


def losses(folder, name):
    path = folder / f"{name}.losses"
    # The last line of a killed run may be cut.
    lines = [line.split() for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")] if path.exists() else []
    return [(int(step), loss) for step, loss in lines]


def test_a_killed_run_continues_bit_for_bit(tmp_path):
    reference = start(tmp_path, "whole")
    output, _ = reference.communicate()
    assert reference.returncode == 0, output
    expected = dict(losses(tmp_path, "whole"))
    assert sorted(expected) == list(range(STEPS))

    seed = time.time_ns() % 2**31
    print(f"seed {seed}")
    moments = random.Random(seed)
    # A machine may do all steps before anyone looks, so that no run is left to be resumed.
    for run in range(5):
        name = f"killed{run}"
        resumed = kill_now_and_then(tmp_path, name, moments)
        last = start(tmp_path, name)
        output, _ = last.communicate()
        assert last.returncode == 0, output
        logged = losses(tmp_path, name)
        assert {step for step, _ in logged} == set(range(STEPS))
        assert [entry for entry in logged if expected[entry[0]] != entry[1]] == []
        assert output.splitlines()[-1] == reference_line(expected)
        if resumed > 0:
            return
    raise AssertionError("no run was killed before its last step")


def kill_now_and_then(folder, name, moments):
    """Starts the run and kills it, eight times. How many of them went on from a saved step."""
    resumed = 0
    for _ in range(8):
        before = len(losses(folder, name))
        process = start(folder, name)
        # A number of steps, not a time: every run gets somewhere, however slow the machine is.
        steps = moments.randrange(1, 60)
        while process.poll() is None and len(losses(folder, name)) < before + steps:
            time.sleep(0.002)
        process.kill()
        process.communicate()
        logged = losses(folder, name)
        resumed += before > 0 and len(logged) > before and logged[before][0] > 0
    return resumed


def reference_line(expected):
    return f"best loss {min(float(loss) for loss in expected.values()):.6f}"
