"""Reads the trainer's --loss-log, and holds it against that of an uninterrupted run."""

import os


class LossesDiffer(Exception):
    pass


def read(path, from_line=0):
    """[(step, loss as its exact hexadecimal text)] of the whole lines from `from_line` on; [] if there is no file."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="ascii") as file:
        lines = [line for line in file.read().splitlines(keepends=True) if line.endswith("\n")]
    pairs = [line.split() for line in lines[from_line:]]
    return [(int(step), loss) for step, loss in pairs]


def check_against(reference, losses):
    """Raises LossesDiffer unless each loss is, bit for bit, the reference's of the same step.

    `losses` may name a step more than once: a trainer that was killed computes the steps since its last committed one
    again.
    """
    expected = dict(reference)
    for step, loss in losses:
        if expected.get(step) != loss:
            raise LossesDiffer(f"step {step}: expected the loss {expected.get(step)}, found {loss}")
