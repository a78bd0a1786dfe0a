"""A user's program for tidemark.jax that mypy --strict accepts; types_test.py has it checked, and runs it."""

from __future__ import annotations

import sys
from typing import TypedDict

import jax
import jax.numpy as jnp
import tidemark
import tidemark.jax


class State(TypedDict):
    w: jax.Array
    key: jax.Array


def make_state() -> State:
    return {"w": jnp.ones((3, 2)), "key": jax.random.key(0)}


def train(store: str) -> int:
    state = make_state()
    with tidemark.Checkpointer(store) as checkpointer:
        first, state = tidemark.jax.resume(checkpointer, state, progress=True)
        for step in range(first, 3):
            state = {"w": state["w"] * 0.5, "key": jax.random.fold_in(state["key"], step)}
            save: tidemark.SaveHandle = tidemark.jax.save(checkpointer, step, state, metrics={"loss": 1.0 / (step + 1)})
        save.committed.result()
        restored = tidemark.jax.restore(checkpointer, state, "best:loss")
        shape: tuple[int, ...] = restored["w"].shape
        again, report = tidemark.jax.restore_with_report(checkpointer, state, only=["w"])
        step_of: int = report.info.step
        print(shape, step_of, again["key"])
    loaded: State = tidemark.jax.load(store, like=jax.eval_shape(make_state))
    print(loaded["w"].sum(), tidemark.jax.load(store)["w"])
    return first


if __name__ == "__main__":
    sys.exit(train(sys.argv[1]))
