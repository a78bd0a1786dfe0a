#!/usr/bin/env python3
"""Kills the example trainer at random moments, starts it again, and holds every loss and the final state against those
of a run that nobody killed. The moments reach from the start of the process, over restoring, into training and saving.

  kill_resume_test.py --trainer PROGRAM --compare PROGRAM [--kills N] [--seed N]

A run is reproduced as far as the machine's timing allows by the seed that it prints.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "char_lm"))
import loss_log  # of the example

# Steps of a millisecond and a save at every third, so that most kills hit a save at work.
MODEL = ["--layers", "1", "--width", "32", "--heads", "2", "--context", "16", "--batch", "2", "--threads", "1"]
SAVE_EVERY = 3
STEPS = 900
# Host memory holds two snapshots, so of the saves begun at most this many steps' worth are not yet committed.
LAG_MAX = 3 * SAVE_EVERY


class Trainer:
    """A store, its loss log, and the command line that works on it."""

    def __init__(self, flags, folder, name):
        self.store = os.path.join(folder, name)
        self.losses_path = self.store + ".losses"
        self.errors_path = self.store + ".errors"
        self.command = [flags.trainer, "--store", self.store, "--loss-log", self.losses_path, "--quiet",
                        "--steps", str(STEPS), "--save-every", str(SAVE_EVERY), *MODEL]

    def losses(self, from_line=0):
        return loss_log.read(self.losses_path, from_line)

    def run(self, kill_after=None):
        """Trains to the end, or is killed after so many seconds. True if it was killed. AssertionError if it failed."""
        with open(self.errors_path, "w+", encoding="utf-8", errors="replace") as errors:
            process = subprocess.Popen(self.command, stderr=errors)
            try:
                process.wait(timeout=kill_after)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            errors.seek(0)
            assert process.returncode in (0, -signal.SIGKILL), (
                f"the trainer ended with exit status {process.returncode}:\n{errors.read()}")
        return process.returncode != 0


def check_resumed(losses, logged_before):
    """A restart goes on behind a saved step, leaves nothing out, and does not fall back behind a committed step."""
    steps = [step for step, _ in losses]
    assert steps == list(range(steps[0], steps[0] + len(steps))), f"a run skipped steps: {steps}"
    logged_max = max((step for step, _ in logged_before), default=-1)
    begins_max = logged_max + 1
    assert steps[0] >= begins_max - LAG_MAX, f"step {logged_max} was logged, and yet it resumed at step {steps[0]}"
    assert steps[0] <= begins_max, f"step {begins_max} was never computed: resumed at step {steps[0]}"
    assert steps[0] == 0 or (steps[0] - 1) % SAVE_EVERY == 0 or steps[0] == STEPS, f"resumed at {steps[0]}: no save there"


def kill_until_done(flags, trainer, reference, kills_left, seconds, random_numbers):
    """Trains in a fresh store with up to `kills_left` kills. Returns how many there were."""
    kills = 0
    while True:
        before = trainer.losses()
        moment = random_numbers.uniform(0, seconds) if kills < kills_left else None
        killed = trainer.run(kill_after=moment)
        losses = trainer.losses(from_line=len(before))
        loss_log.check_against(reference, losses)
        if losses:
            check_resumed(losses, before)
        if not killed:
            break
        kills += 1
    assert {step for step, _ in trainer.losses()} == set(range(STEPS)), "a step was never computed"
    return kills


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainer", required=True)
    parser.add_argument("--compare", required=True)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("TIDEMARK_SEED", time.time_ns() % 2**31)))
    flags = parser.parse_args()
    print(f"seed {flags.seed}", flush=True)
    random_numbers = random.Random(flags.seed)

    with tempfile.TemporaryDirectory(prefix="tidemark-kill-") as folder:
        uninterrupted = Trainer(flags, folder, "uninterrupted")
        began = time.monotonic()
        uninterrupted.run()
        whole = time.monotonic() - began
        reference = uninterrupted.losses()
        assert [step for step, _ in reference] == list(range(STEPS)), "the uninterrupted run did not log each step once"
        print(f"uninterrupted: {STEPS} steps in {whole:.1f} s", flush=True)

        kills = 0
        rounds = 0
        while kills < flags.kills:
            rounds += 1
            trainer = Trainer(flags, folder, f"killed-{rounds}")
            more = kill_until_done(flags, trainer, reference, flags.kills - kills, whole / 3, random_numbers)
            kills += more
            compared = subprocess.run([flags.compare, uninterrupted.store, trainer.store], stdout=subprocess.PIPE, text=True)
            assert compared.returncode == 0, f"store {rounds}: {compared.stdout}"
            print(f"store {rounds}: {more} kills, {len(trainer.losses())} losses bit-identical; {compared.stdout.strip()}",
                  flush=True)
    print(f"{kills} kills at random moments, every one resumed exactly")


if __name__ == "__main__":
    main()
