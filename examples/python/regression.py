#!/usr/bin/env python3
"""Fits a small network with NumPy, and continues bit for bit after it was killed at any moment.

  regression.py --store FOLDER [--steps N] [--save-every N] [--loss-log FILE]

Start it, kill it, start it again with the same command line: the losses are those of a run that was not killed. The
checkpoint holds weights, momentum, the generator that draws the batches, and the epoch.
"""

import argparse

import numpy as np
import tidemark


class Network:
    """Two layers, trained by gradient descent with momentum."""

    def __init__(self, generator, width=64):
        self.weights = {"hidden": generator.normal(0, 0.5, (2, width)), "bias": np.zeros(width),
                        "output": generator.normal(0, 0.1, (width, 1))}
        self.momentum = {name: np.zeros_like(array) for name, array in self.weights.items()}

    def train(self, x, y, rate=0.05):
        hidden = np.tanh(x @ self.weights["hidden"] + self.weights["bias"])
        error = hidden @ self.weights["output"] - y
        back = (error @ self.weights["output"].T) * (1 - hidden**2)
        gradients = {"hidden": x.T @ back, "bias": back.sum(axis=0), "output": hidden.T @ error}
        for name, gradient in gradients.items():
            self.momentum[name] *= 0.9
            self.momentum[name] -= rate / len(x) * gradient
            self.weights[name] += self.momentum[name]
        return float((error**2).mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--loss-log")
    arguments = parser.parse_args()

    generator = np.random.default_rng(1)
    network = Network(generator)
    state = {"model": network.weights, "momentum": network.momentum, "batches": generator, "best": float("inf")}
    with tidemark.Checkpointer(arguments.store, save_interval_steps=arguments.save_every,
                               retention=tidemark.Retention(max_to_keep=2, keep_best=["loss"])) as checkpointer:
        for step in range(checkpointer.resume(state), arguments.steps):
            x = generator.uniform(-2, 2, (32, 2))
            loss = network.train(x, np.sin(x[:, :1]) * x[:, 1:])
            state["best"] = min(state["best"], loss)
            if arguments.loss_log:
                with open(arguments.loss_log, "a", encoding="utf-8") as log:
                    log.write(f"{step} {loss!r}\n")
            if checkpointer.should_save(step):
                checkpointer.save(step, state, metrics={"loss": loss})
    print(f"best loss {state['best']:.6f}")


if __name__ == "__main__":
    main()
