"""A user's program that mypy --strict accepts; typing_test.py has it checked, and runs it."""

from __future__ import annotations

import sys

import numpy as np
import tidemark


def train(store: str) -> int:
    weights = np.zeros(8, np.float32)
    state = {"weights": weights, "rng": tidemark.rng()}
    score = tidemark.KeepBest(score=lambda metrics: metrics.get("loss", 0.0), mode="highest")
    retention = tidemark.Retention(max_to_keep=2, keep_best=["validation/loss", tidemark.KeepBest("loss", "lowest"), score],
                                   keep=lambda info: info.step == 0)
    ranks = tidemark.Ranks(0, 1, lambda given: [given], vote_timeout=60.0)  # mpi4py: comm.allgather
    part: dict[str, object] = {"w": tidemark.Box(weights[:4], shape=weights.shape, offset=(0,))}
    print(ranks.world_size, part)
    with tidemark.Checkpointer(store, retention=retention, save_interval_steps=2, ranks=ranks,
                               save_when=lambda question: not question.in_flight and question.step == 5) as checkpointer:

        @checkpointer.evaluator("validation", entries=["weights"], best={"loss": "lowest"})
        def validate(snapshot: tidemark.Snapshot) -> dict[str, float]:
            return {"loss": float(snapshot["weights"].sum())}

        for step in range(checkpointer.resume(state), 6):
            weights += 1
            if checkpointer.should_save(step):
                save: tidemark.SaveHandle = checkpointer.save(step, state, metrics={"loss": float(step)})
                save.staged.result()
        checkpointer.wait_until_committed()
        checkpointer.wait_until_evaluated(60.0)
        best: tidemark.StepInfo = checkpointer.best_step("validation/loss")
        statistics: tidemark.Statistics = checkpointer.statistics()
        print(best.step, best.metrics, statistics.saves_committed, validate.__name__)
        before: tidemark.Snapshot = tidemark.capture(state)
        before.restore(state, only=["weights"])
        loaded: dict[str, object] = checkpointer.load("latest", like={"weights": weights}, allow_unexpected=True)
        print(loaded["weights"])
        discarded: list[int] = checkpointer.discard_after(4)
        print(discarded, checkpointer.committed(4).result())
    with tidemark.open(store, "best:validation/loss") as opened:
        print(opened.get_tensor("weights"), opened.get_slice("weights").get_shape())
    with tidemark.BestFile(store, "loss", store + ".safetensors", mode="lowest", replace=True) as file:
        file.update()
    exported: int = tidemark.export_safetensors(store, store + ".copy", dtype="float16")
    print(exported)
    trainer = tidemark.AsyncTrainer(store + ".trainer", state, lambda step: {"loss": 1.0 / (step + 1)}, preemption=False)

    @trainer.evaluator("sum")
    def total(snapshot: tidemark.Snapshot) -> float:
        return float(snapshot["weights"].sum())

    trained: tidemark.TrainingReport = trainer.run(3)
    print(trained.next, trained.preempted, total.__name__)
    report = tidemark.follow(store, lambda snapshot: len(snapshot), evaluator="size", idle_timeout=0.0)
    try:
        tidemark.open(store, 1000)
    except tidemark.NotFoundError as error:
        print(error.code)
    return report.evaluated


if __name__ == "__main__":
    sys.exit(0 if train(sys.argv[1]) > 0 else 1)
