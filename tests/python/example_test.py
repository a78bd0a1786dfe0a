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
    resumed = 0
    for _ in range(8):
        before = len(losses(tmp_path, "killed"))
        process = start(tmp_path, "killed")
        # A number of steps, not a time: every run gets somewhere, however slow the machine is.
        steps = moments.randrange(1, 60)
        while process.poll() is None and len(losses(tmp_path, "killed")) < before + steps:
            time.sleep(0.002)
        process.kill()
        process.communicate()
        logged = losses(tmp_path, "killed")
        resumed += before > 0 and len(logged) > before and logged[before][0] > 0
    last = start(tmp_path, "killed")
    output, _ = last.communicate()
    assert last.returncode == 0, output
    logged = losses(tmp_path, "killed")
    assert {step for step, _ in logged} == set(range(STEPS))
    assert [entry for entry in logged if expected[entry[0]] != entry[1]] == []
    assert resumed > 0
    assert output.splitlines()[-1] == reference_line(expected)


def reference_line(expected):
    return f"best loss {min(float(loss) for loss in expected.values()):.6f}"
