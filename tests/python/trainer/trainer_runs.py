"""A training by AsyncTrainer, for tests: weights that depend on every draw, and what was trained."""

import numpy as np
import tidemark


class Run:
    """A state whose every step depends on the one before, and the trainer of it."""

    def __init__(self, store, **options):
        self.state = {"w": np.zeros(100), "draws": np.random.default_rng(1), "epoch": 0}
        self.trained = []
        self.before = lambda step: None
        self.trainer = tidemark.AsyncTrainer(store, self.state, self.train, **options)

    def train(self, step):
        self.before(step)
        self.state["w"] += self.state["draws"].normal(size=100) + step
        self.state["epoch"] = step // 10
        self.trained.append(step)
        return {"loss": np.float32(100 - step)}


def states(store):
    return {info.step: info.state for info in tidemark.steps(store)}
