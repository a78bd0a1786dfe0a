#!/usr/bin/env python3
"""Separates two spirals with NumPy and tidemark.AsyncTrainer, and continues bit for bit after it was killed at any moment.

  async_trainer.py --store FOLDER [--steps N] [--save-every N] [--loss-log FILE]

Each saved step is evaluated on held-out points beside the training, and the best one is kept. SIGTERM ends the run with one
last save. Start it again with the same command line: the losses are those of a run that was not stopped.
"""

import argparse
import sys

import numpy as np
import tidemark


def spirals(generator, count):
    """Points float64 [count, 2] of two spirals, and which of them each belongs to: 0 or 1, int64 [count]."""
    which = generator.integers(2, size=count)
    turn = generator.uniform(0.2, 1, count)
    angle = 2 * np.pi * turn + np.pi * which
    return turn[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1) + generator.normal(0, 0.02, (count, 2)), which


def loss_and_gradients(weights, points, which):
    """The mean cross entropy of a network of two layers, and its gradients by the names of `weights`."""
    hidden = np.tanh(points @ weights["hidden"] + weights["bias"])
    logits = hidden @ weights["output"]
    logits -= logits.max(axis=1, keepdims=True)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    rows = np.arange(len(which))
    loss = -np.log(chances[rows, which]).mean()
    chances[rows, which] -= 1
    back = chances @ weights["output"].T * (1 - hidden**2)
    return float(loss), {"hidden": points.T @ back / len(which), "bias": back.mean(axis=0),
                         "output": hidden.T @ chances / len(which)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--loss-log")
    arguments = parser.parse_args()

    generator = np.random.default_rng(2)
    held_out = spirals(np.random.default_rng(3), 256)
    weights = {"hidden": generator.normal(0, 2, (2, 32)), "bias": np.zeros(32), "output": generator.normal(0, 0.1, (32, 2))}
    state = {"model": weights, "momentum": {name: np.zeros_like(array) for name, array in weights.items()},
             "batches": generator}

    def train(step):
        loss, gradients = loss_and_gradients(weights, *spirals(generator, 32))
        for name, gradient in gradients.items():
            state["momentum"][name] *= 0.9
            state["momentum"][name] -= 0.2 * gradient
            weights[name] += state["momentum"][name]
        if arguments.loss_log:
            with open(arguments.loss_log, "a", encoding="utf-8") as log:
                log.write(f"{step} {loss!r}\n")
        return {"loss": loss}

    trainer = tidemark.AsyncTrainer(
        arguments.store, state, train, save_interval_steps=arguments.save_every,
        retention=tidemark.Retention(max_to_keep=2, keep_best=["validation/loss"]))

    @trainer.evaluator("validation", entries=["model.*"], when_lagging="block")
    def validate(snapshot):
        return {"loss": loss_and_gradients({name: snapshot[f"model.{name}"] for name in weights}, *held_out)[0]}

    report = trainer.run(arguments.steps)
    if report.preempted:
        print(report.preempted)
        return 0 if report.preempted.committed else 1
    with tidemark.open(arguments.store, "best:validation/loss") as best:
        trained = f"trained steps {report.first} to {report.next - 1}" if report.next > report.first else "no step is left"
        print(f"{trained}; best loss {best.info.metrics['validation/loss']:.6f} at step {best.info.step}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
