#!/usr/bin/env python3
"""Learns to read handwritten digits with JAX and Optax, and continues bit for bit after it was killed at any moment.

  digits_jax.py --store FOLDER [--steps N] [--save-every N] [--loss-log FILE]

Start it, kill it, start it again with the same command line: the losses are those of a run that was not killed. Needs
jax, optax and scikit-learn, which ships the data. The checkpoint holds the parameters, the optimizer's state, the key that
draws the batches, and the best loss.
"""

import argparse

import jax
import jax.numpy as jnp
import optax
import tidemark
import tidemark.jax
from sklearn.datasets import load_digits

OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(3e-3, 2000)))


def make_state(seed=0, hidden=64):
    first, second, batches = jax.random.split(jax.random.key(seed), 3)
    params = {"hidden": {"kernel": jax.random.normal(first, (64, hidden)) * 0.1, "bias": jnp.zeros(hidden)},
              "head": {"kernel": jax.random.normal(second, (hidden, 10)) * 0.1, "bias": jnp.zeros(10)}}
    return {"params": params, "optimizer": OPTIMIZER.init(params), "batches": batches, "best": float("inf")}


def logits(params, x):
    hidden = jax.nn.relu(x @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    return hidden @ params["head"]["kernel"] + params["head"]["bias"]


@jax.jit
def train_step(params, optimizer, batches, x, y):
    batches, key = jax.random.split(batches)
    chosen = jax.random.choice(key, len(x), (64,), replace=False)

    def loss_of(params):
        return optax.softmax_cross_entropy_with_integer_labels(logits(params, x[chosen]), y[chosen]).mean()

    loss, gradients = jax.value_and_grad(loss_of)(params)
    updates, optimizer = OPTIMIZER.update(gradients, optimizer, params)
    return optax.apply_updates(params, updates), optimizer, batches, loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--loss-log")
    arguments = parser.parse_args()

    digits = load_digits()
    x, y = jnp.asarray(digits.data / 16, jnp.float32), jnp.asarray(digits.target)
    with tidemark.Checkpointer(arguments.store, save_interval_steps=arguments.save_every,
                               retention=tidemark.Retention(max_to_keep=2, keep_best=["loss"])) as checkpointer:
        first, state = tidemark.jax.resume(checkpointer, make_state())
        for step in range(first, arguments.steps):
            state["params"], state["optimizer"], state["batches"], loss = train_step(
                state["params"], state["optimizer"], state["batches"], x, y)
            loss = float(loss)
            state["best"] = min(state["best"], loss)
            if arguments.loss_log:
                with open(arguments.loss_log, "a", encoding="utf-8") as log:
                    log.write(f"{step} {loss!r}\n")
            if checkpointer.should_save(step):
                tidemark.jax.save(checkpointer, step, state, metrics={"loss": loss})
    right = (jnp.argmax(logits(state["params"], x), axis=1) == y).mean()
    print(f"best loss {state['best']:.6f}, {100 * float(right):.1f} % of the digits read")


if __name__ == "__main__":
    main()
