"""A process of a job of JAX, for processes_test.py: jax_process.py MEETING RANK WORLD_SIZE STORE save|restore PORT

Each process has two devices of the CPU.
"""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax  # noqa: E402
import numpy as np  # noqa: E402
import rank_jobs  # noqa: E402
import tidemark  # noqa: E402
import tidemark.jax  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402
from tidemark import errors  # noqa: E402

WHOLE = np.random.default_rng(11).standard_normal((60, 8)).astype(np.float32)
SPECS = {"rows": PartitionSpec("all"), "columns": PartitionSpec(None, "pair"), "both": PartitionSpec("rank", "pair"),
         "some": PartitionSpec("rank"), "replicated": PartitionSpec()}


def shardings():
    devices = np.array(jax.devices())
    one = jax.sharding.Mesh(devices, ("all",))
    two = jax.sharding.Mesh(devices.reshape(-1, 2), ("rank", "pair"))
    first = jax.sharding.Mesh(devices[:2], ("pair",))  # of process 0 alone
    return {**{name: NamedSharding(one if name == "rows" else two, spec) for name, spec in SPECS.items()},
            "first": NamedSharding(first, PartitionSpec("pair"))}


def tree(fill):
    whole = WHOLE if fill else np.zeros_like(WHOLE)
    arrays = {name: jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index], dtype=whole.dtype)
              for name, sharding in shardings().items()}
    if fill:  # keys can be saved so, and not restored
        made = jax.jit(lambda: jax.random.split(jax.random.key(3), 12), out_shardings=shardings()["rows"])
        arrays["keys"] = made()
    return {"arrays": arrays, "epoch": 7 if fill else 0, "host": np.arange(4) if fill else np.zeros(4, int)}


def main(meeting, rank, world_size, store, what, port):
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", int(world_size), int(rank))
    ranks = tidemark.Ranks.of_jax()
    assert (ranks.rank, ranks.world_size) == (int(rank), int(world_size))
    assert ranks.all_gather(bytes(range(ranks.rank))) == [bytes(range(other)) for other in range(ranks.world_size)]
    assert ranks.all_gather(b"") == [b""] * ranks.world_size
    with tidemark.Checkpointer(store, ranks=ranks) as checkpointer:
        if what == "save":
            print("saved", tidemark.jax.save(checkpointer, 1, tree(True)).committed.result(rank_jobs.DEADLINE))
        else:
            step, found = tidemark.jax.resume(checkpointer, tree(False))
            wanted = tree(True)
            keys = wanted["arrays"].pop("keys")
            try:
                tidemark.jax.restore(checkpointer, {"arrays": {"keys": keys}})
                raise AssertionError("keys were restored")
            except errors.UnimplementedError as error:
                assert "'arrays.keys' is an array of keys" in str(error)
            for name, array in wanted["arrays"].items():
                assert found["arrays"][name].sharding == array.sharding
                for own, there in zip(array.addressable_shards, found["arrays"][name].addressable_shards):
                    assert own.index == there.index and np.asarray(own.data).tobytes() == np.asarray(there.data).tobytes()
            assert found["epoch"] == 7 and found["host"].tolist() == [0, 1, 2, 3]
            print("resumed", step)
    if ranks.world_size > 1:
        # Of "replicated", process 0 saves all, and the others nothing.
        for names in (("rows",), ("replicated",)) if ranks.rank else (("rows",),):
            with tidemark.Checkpointer(f"{store}.{ranks.rank}") as alone:
                try:
                    tidemark.jax.save(alone, 1, {name: tree(True)["arrays"][name] for name in names})
                    raise AssertionError("a part was saved without ranks")
                except errors.InvalidArgumentError as error:
                    assert f"'{names[0]}' is a part of a tensor" in str(error)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
