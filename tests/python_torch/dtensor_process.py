"""A rank that is a process, for dtensor_test.py: dtensor_process.py MEETING RANK WORLD_SIZE STORE WHAT [ARGUMENTS]"""

import dataclasses
import datetime
import hashlib
import itertools
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))

import rank_jobs  # noqa: E402
import tidemark  # noqa: E402
import torch  # noqa: E402
from tidemark import errors  # noqa: E402
from tidemark._state import dtensors  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor  # noqa: E402
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset  # noqa: E402
from torch.distributed.tensor.placement_types import _StridedShard  # noqa: E402

DEADLINE = rank_jobs.DEADLINE
SHAPES = [(1,), (2,), (3,), (5,), (6,), (7,), (16,), (1, 1), (3, 2), (5, 9), (4, 4), (7, 3), (2, 3, 5), (6, 1, 4)]


def placements(mesh, dimensions):
    """Every way to place a tensor of so many dimensions on the mesh."""
    each = [Replicate(), *(Shard(d) for d in range(-dimensions, dimensions))]
    return list(itertools.product(each, repeat=mesh.ndim))


def check_placements(ranks, store, mesh):
    """That box_of says what PyTorch says, and what the local part is."""
    tried = 0
    for shape in SHAPES:
        whole = torch.arange(float(torch.Size(shape).numel())).view(shape)
        for placed in placements(mesh, len(shape)):
            tensor = distribute_tensor(whole, mesh, placed)
            offset, extent = dtensors.box_of(shape, tuple(mesh.mesh.shape), mesh.get_coordinate(), tensor.placements, "w")
            held, first = compute_local_shape_and_global_offset(shape, mesh, tensor.placements)
            assert tuple(extent) == tuple(held), (shape, placed)
            if torch.Size(held).numel():  # of an empty part the offset says nothing
                assert tuple(offset) == tuple(first), (shape, placed)
            part = whole[tuple(slice(o, o + e) for o, e in zip(offset, extent))]
            assert torch.equal(tensor.to_local(), part), (shape, placed)
            tried += 1
    print("tried", tried > 50)


def tensors(mesh, fill):
    """A state with a DTensor for each placement on the mesh: {"N": DTensor}."""
    state = {}
    for i, placed in enumerate(placements(mesh, 2)):
        whole = torch.randn(7, 3, generator=torch.Generator().manual_seed(i))
        state[str(i)] = distribute_tensor(whole if fill else torch.zeros_like(whole), mesh, placed)
    return state


def save(ranks, store, mesh):
    with tidemark.Checkpointer(store, ranks=ranks) as checkpointer:
        print("saved", checkpointer.save(1, {"t": tensors(mesh, True)}).committed.result(DEADLINE))


def restore(ranks, store, mesh):
    """With another mesh, so of each tensor another part. The DTensors stay the objects that they are."""
    wanted, state = tensors(mesh, True), {"t": tensors(mesh, False)}
    before = dict(state["t"])
    with tidemark.Checkpointer(store, ranks=ranks) as checkpointer:
        print("restored", checkpointer.restore(state, allow_unexpected=True).step)
    for name, tensor in state["t"].items():
        assert tensor is before[name] and type(tensor) is DTensor
        # The same number names another placement on a mesh of other dimensions; what it has is the same.
        assert tensor.to_local().numpy().tobytes() == wanted[name].to_local().numpy().tobytes(), name


def trained(mesh, optimizer, steps):
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3, bias=False))
    if mesh is not None:
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1)
    train(model, optimizer, steps)
    return model, optimizer


def train(model, optimizer, steps):
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.full((2, 6), 0.1 * step - 0.3)).square().sum().backward()
        optimizer.step()


def digest(model, optimizer):
    """Of all that the two have, whole."""
    found = hashlib.sha256()

    def add(name, value):
        value = value.full_tensor() if isinstance(value, DTensor) else value
        found.update(f"{name} {value if not isinstance(value, torch.Tensor) else value.numpy().tobytes()}\n".encode())

    for name, value in sorted(model.state_dict().items()):
        add(name, value)
    state = optimizer.state_dict()
    for parameter, fields in sorted(state["state"].items()):
        for field, value in sorted(fields.items()):
            add(f"{parameter} {field}", value)
    found.update(json.dumps(state["param_groups"], sort_keys=True).encode())
    return found.hexdigest()


def save_training(ranks, store, mesh, optimizer):
    model, optimizer = trained(mesh, optimizer, 3)
    with torch.no_grad():
        model(torch.ones(2, 6))  # after which FSDP has other parameters in the module than the optimizer has
    with tidemark.Checkpointer(store, ranks=ranks) as checkpointer:
        checkpointer.save(3, {"model": model, "optimizer": optimizer}).committed.result(DEADLINE)
    print(digest(model, optimizer))


def resume_training(ranks, store, mesh, optimizer, train_before):
    model, optimizer = trained(mesh, optimizer, int(train_before))
    with tidemark.Checkpointer(store, ranks=ranks) as checkpointer:
        assert checkpointer.resume({"model": model, "optimizer": optimizer}) == 4
    if mesh is not None:
        moments = [value for fields in optimizer.state.values() for value in fields.values() if value.ndim]
        assert moments and all(type(value) is DTensor for value in moments)
    print(digest(model, optimizer))
    train(model, optimizer, 1)  # it goes on


def refuse(ranks, store, mesh):
    local = torch.ones(2, 3)

    class Scheduler:
        def state_dict(self):
            return {"average": DTensor.from_local(local, mesh, [Shard(0)])}

        def load_state_dict(self, state):
            raise AssertionError

    class OfLocalParts(torch.optim.Optimizer):
        def step(self):
            for parameter in self.param_groups[0]["params"]:
                self.state[parameter]["average"] = parameter.to_local().clone()

    model = torch.nn.Linear(6, 4)
    fully_shard(model, mesh=mesh)
    optimizer = OfLocalParts(model.parameters(), {})
    optimizer.step()
    strided = DTensor.from_local(local, mesh, [Shard(0)])
    strided._spec = type(strided._spec)(mesh, (_StridedShard(0, split_factor=2),), strided._spec.tensor_meta)
    uneven = DTensor.from_local(local, mesh, [Shard(0)], shape=torch.Size((7, 3)), stride=(3, 1))
    with tidemark.Checkpointer(store, ranks=ranks) as checkpointer:
        for step, (leaf, error, text) in enumerate((
                (DTensor.from_local(local, mesh, [Partial()]), errors.UnimplementedError,
                 "'w' is a DTensor with the placement Partial"),
                (strided, errors.UnimplementedError, "'w' is a DTensor with the placement _StridedShard"),
                (uneven, errors.InvalidArgumentError, "its placements"),
                (Scheduler(), errors.UnsupportedTypeError, "is a DTensor in the state of a Scheduler"),
                ({"model": model, "optimizer": optimizer}, errors.UnsupportedTypeError, "belongs to a sharded DTensor"))):
            try:
                checkpointer.save(step, leaf if isinstance(leaf, dict) else {"w": leaf})
                raise AssertionError(f"{leaf} was saved")
            except error as raised:
                assert text in str(raised), raised
        try:
            checkpointer.load(like={"w": DTensor.from_local(local, mesh, [Shard(0)])})
            raise AssertionError("it was made anew")
        except errors.UnimplementedError as raised:
            assert "makes no new ones" in str(raised)
    print("refused")


def assert_refused_without_ranks(store, tensor):
    """Nobody would save the rest of it."""
    with tidemark.Checkpointer(store + ".none") as checkpointer:
        try:
            checkpointer.save(1, {"w": tensor})
            raise AssertionError("it was taken for the whole tensor")
        except errors.InvalidArgumentError as raised:
            assert "'w' is a part of a tensor" in str(raised)


def outside(ranks, store, mesh):
    """A tensor on a mesh of rank 0 alone: the other ranks have no part."""
    alone = DeviceMesh("cpu", [0])
    tensor = DTensor.from_local(torch.full((2, 3), 1.0 + ranks.rank), alone, [Shard(0)])
    with tidemark.Checkpointer(store, ranks=ranks) as checkpointer:
        checkpointer.save(1, {"w": tensor, f"n.{ranks.rank}": 1}).committed.result(DEADLINE)
    if ranks.rank == 1:
        assert tidemark.open(store).get_tensor("w").tolist() == [[1.0] * 3] * 2
        assert_refused_without_ranks(store, tensor)
    print("saved")


def short(ranks, store, mesh):
    """One row on two ranks: rank 0 has all of it, and the others must not take it for a tensor that each has whole."""
    tensor = distribute_tensor(torch.full((1, 3), 5.0), mesh, [Shard(0)])
    with tidemark.Checkpointer(store, ranks=dataclasses.replace(ranks, replicated=("*",))) as checkpointer:
        checkpointer.save(1, {"w": tensor, "n": 1}).committed.result(DEADLINE)
        empty = distribute_tensor(torch.zeros(1, 3), mesh, [Shard(0)])
        checkpointer.restore({"w": empty, "n": 0})
        assert empty.full_tensor().tolist() == [[5.0] * 3]
    if ranks.rank == 0:
        assert_refused_without_ranks(store, tensor)
    print("saved")


def gather(ranks, store, mesh):
    """Groups that are no Gloo groups, as far as their name tells, and groups of some of the processes."""
    distributed = torch.distributed
    half = [rank for rank in range(ranks.world_size) if rank % 2 == ranks.rank % 2]
    halves = [distributed.new_group([rank for rank in range(ranks.world_size) if rank % 2 == odd]) for odd in (0, 1)]
    of_half = tidemark.Ranks.of_torch(halves[ranks.rank % 2])
    given = bytes([ranks.rank]) * (1000 * ranks.rank)
    wanted = [bytes([rank]) * (1000 * rank) for rank in range(ranks.world_size)]
    assert (of_half.rank, of_half.world_size) == (half.index(ranks.rank), len(half))
    assert of_half.all_gather(given) == [wanted[rank] for rank in half]
    try:
        tidemark.Ranks.of_torch(halves[1 - ranks.rank % 2])
        raise AssertionError("it is in the other group")
    except errors.InvalidArgumentError as raised:
        assert "not in the process group" in str(raised)
    get_backend, get_config = distributed.get_backend, distributed.get_backend_config
    distributed.get_backend, distributed.get_backend_config = lambda group: "nccl", lambda group: "cuda:nccl"
    made = [tidemark.Ranks.of_torch(group) for group in (None, halves[ranks.rank % 2])]
    distributed.get_backend, distributed.get_backend_config = get_backend, get_config
    assert made[0].all_gather._group not in (None, distributed.group.WORLD) and made[1].all_gather._group not in halves
    assert all(distributed.get_backend(ranks.all_gather._group) == "gloo" for ranks in made)
    assert made[0].all_gather(given) == wanted and made[1].all_gather(given) == [wanted[rank] for rank in half]
    print("gathered")


def main(meeting, rank, world_size, store, what, mesh, *arguments):
    rank, world_size = int(rank), int(world_size)
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world_size,
                                         timeout=datetime.timedelta(seconds=DEADLINE))
    shape = tuple(map(int, mesh.split("x"))) if mesh != "none" else None
    made = init_device_mesh("cpu", shape, mesh_dim_names=("a", "b")[:len(shape)]) if shape else None
    globals()[what](tidemark.Ranks.of_torch(), store, made, *arguments)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
