"""A user's program for tidemark.orbax that mypy --strict accepts; types_test.py has it checked, and runs it."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Mapping

import jax.numpy as jnp
import tidemark.orbax as ocp


def score(metrics: Mapping[str, float]) -> float:
    return metrics["loss"]


def train(store: str) -> int:
    state = {"w": jnp.ones(3)}
    options = ocp.CheckpointManagerOptions(max_to_keep=2, best_fn=score, best_mode="min", save_on_steps=[1, 2],
                                           keep_time_interval=datetime.timedelta(hours=1),
                                           should_save_fn=lambda step, latest: latest is None or step > latest)
    with ocp.CheckpointManager(store, options=options) as manager:
        for step in range(3):
            saved: bool = manager.save(step, args=ocp.args.StandardSave(state), metrics={"loss": 1.0 / (step + 1)})
            print(saved)
        manager.wait_until_finished()
        best: int | None = manager.best_step()
        restored = manager.restore(best, args=ocp.args.StandardRestore(state))
        steps: list[int] = manager.all_steps()
        metadata: ocp.StepMetadata = manager.metadata(steps[-1])
        print(restored["w"], metadata.custom_metadata, manager.directory.name)
    with ocp.CheckpointManager(store + ".named", item_names=("state", "config")) as named:
        named.save(0, args=ocp.args.Composite(state=ocp.args.PyTreeSave(state), config=ocp.args.JsonSave({"layers": 2})))
        composite = named.restore(0, args=ocp.args.Composite(config=ocp.args.JsonRestore()))
        print(composite["config"])
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(store + ".one", state)
        print(checkpointer.restore(store + ".one", state))
    pytree = ocp.PyTreeCheckpointer()
    pytree.save(store + ".tree", state, force=True)
    print(pytree.restore(store + ".tree", item=state, progress=True))
    wanted = {"w": ocp.ArrayRestoreArgs(dtype=jnp.bfloat16, global_shape=(3,))}
    print(pytree.restore(store + ".tree", args=ocp.args.PyTreeRestore(restore_args=wanted)))
    try:
        pytree.save(store + ".tree", state)
    except ocp.StepAlreadyExistsError as error:
        print(error.code)
    return len(steps)


if __name__ == "__main__":
    sys.exit(0 if train(sys.argv[1]) > 0 else 1)
