"""Ranks: a job of several processes that save common steps."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import inspect
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .._arguments import function_of, integer, patterns, seconds, wrong
from ..errors import AbortedError, FailedPreconditionError, InternalError, InvalidArgumentError, UnimplementedError
from .options import TrainerFunction

AllGather = Callable[[bytes], Sequence[bytes]]


@dataclasses.dataclass(frozen=True)
class Ranks:
    """One process of a job whose processes open the same store and save common steps: `Checkpointer(..., ranks=...)`.

    `rank`: this process, from 0; rank 0 holds the store. `world_size`: how many there are; with 1 it is as if no ranks were
    given. `all_gather(given)` gives the bytes to all ranks, and returns a sequence of what each rank gave, in the order of the
    ranks, as bytes. The ranks' bytes have different lengths. With mpi4py it is `comm.allgather`.

    It is called on the trainer's thread, by calls that all ranks make: opening, `restore`, `load`, `resume`,
    `discard_after`, `compare_replicas`, `PreemptionGuard.preempted_on_any_rank`, `should_save` if a rule depends on the time
    or on a function, each step of AsyncTrainer, and the loads of the integrations of frameworks. It blocks until all ranks have
    called it, and should raise if one does not come for so long that the job is to end. What it raises ends the call with an
    InternalError, what it returns instead with an InvalidArgumentError. Of `should_save` and `preempted_on_any_rank` it is a
    warning, after which each rank goes by its own rules and signals. A KeyboardInterrupt comes out of the call as soon as the
    function raises it. After an error it is not called again. It must not call the checkpointer, which forgets it in `close`.

    `vote_timeout`: how many seconds rank 0 waits, from the start of its writing on, until all ranks have written.
    `outcome_margin`: how many seconds longer the others wait for what it decides.

    `replicated`: patterns of names, with "*" and "?", of entries that are the same on all ranks, such as "model.*" and
    "optimizer.*" of data-parallel training. Each of them is written by one rank: arrays are spread by their bytes, values
    and buffers are rank 0's. A rank then copies only what it writes, unless it has evaluators. A save is an AbortedError
    if the ranks differ in the names, dtypes or shapes of these entries. Their contents are not compared, so what is one
    rank's own needs a name that no pattern matches. These three are the same on all ranks.
    """

    rank: int
    world_size: int
    all_gather: AllGather
    vote_timeout: float = 600.0
    outcome_margin: float = 60.0
    replicated: Sequence[str] = ()

    @classmethod
    def of_torch(cls, group: Any = None, *, vote_timeout: float = 600.0, outcome_margin: float = 60.0,
                 replicated: Sequence[str] = ()) -> Ranks:
        """The ranks of a process group of torch.distributed; None: the default group. All of them call this alike.

        The all-gather uses tensors in host memory. If the group's backend has none of those (NCCL), this makes a Gloo group
        of the same ranks. How long it waits for a rank is the group's timeout, or PyTorch's default for one that this makes.
        FailedPreconditionError: PyTorch has no process group yet. InvalidArgumentError: this process is not in the group.
        UnimplementedError: PyTorch has no Gloo, or cannot make one of a part of the job.
        """
        import torch.distributed as distributed

        if not (distributed.is_available() and distributed.is_initialized()):
            raise FailedPreconditionError("torch.distributed has no process group: call init_process_group before")
        rank, world_size = distributed.get_rank(group), distributed.get_world_size(group)
        if rank < 0:
            raise InvalidArgumentError("this process is not in the process group")
        return cls(rank, world_size, _TorchGather(_group_of_host(group), world_size), vote_timeout, outcome_margin, replicated)

    @classmethod
    def of_jax(cls, *, vote_timeout: float = 600.0, outcome_margin: float = 60.0, replicated: Sequence[str] = ()) -> Ranks:
        """The processes of a job of JAX, after jax.distributed.initialize. The all-gather is a computation on its devices.

        Arrays that JAX spreads over the processes are written once in any case: no pattern of `replicated` may match them.
        """
        import jax

        return cls(jax.process_index(), jax.process_count(), _jax_gather, vote_timeout, outcome_margin, replicated)


def ranks_or_none(ranks: Ranks | None) -> Ranks | None:
    """None for a job of one process. InvalidArgumentError: they are no ranks, or one of their fields is wrong."""
    if ranks is None:
        return None
    if not isinstance(ranks, Ranks):
        raise wrong(ranks, "ranks", "a tidemark.Ranks")
    world_size = integer(ranks.world_size, "ranks.world_size")
    if world_size < 1:
        raise InvalidArgumentError(f"ranks.world_size is {world_size}: 1 or more")
    if not 0 <= integer(ranks.rank, "ranks.rank") < world_size:
        raise InvalidArgumentError(f"ranks.rank is {ranks.rank}: 0 to {world_size - 1}, for ranks.world_size is {world_size}")
    function_of(ranks.all_gather, "ranks.all_gather")
    options_of_ranks(ranks)
    return None if world_size == 1 else ranks


def options_of_ranks(ranks: Ranks | None) -> dict[str, Any] | None:
    """As the native module takes them."""
    if ranks is None:
        return None
    return {
        "rank": integer(ranks.rank, "ranks.rank"),
        "world_size": integer(ranks.world_size, "ranks.world_size"),
        "all_gather": TrainerFunction(ranks.all_gather, bytes, lambda gathered: gathered),
        "vote_timeout": seconds(ranks.vote_timeout, "ranks.vote_timeout"),
        "outcome_margin": seconds(ranks.outcome_margin, "ranks.outcome_margin"),
        "replicated": patterns(ranks.replicated, "ranks.replicated"),
    }


def described(error: BaseException) -> str:
    """Type and text of an exception, for another rank."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = type(error).__name__
    return text.encode(errors="replace").decode()


_ENDED, _FAILED = b"tidemark: the values are set", b"tidemark: the values are not set: "


@contextlib.contextmanager
def together(ranks: Ranks | dict[str, Any] | None, what: str = "take the step") -> Iterator[None]:
    """For what each rank does by itself, such as behind the library's part of a restore: an error of one rank is AbortedError
    on the others. `ranks`: also what `options_of_ranks` returned. `what` the ranks do, for the message."""
    if ranks is None:
        yield
        return
    given = vars(ranks) if isinstance(ranks, Ranks) else ranks
    own: BaseException | None = None
    try:
        yield
    except BaseException as error:
        own = error
    told = _told(given["all_gather"], given["world_size"], _ENDED if own is None else _FAILED + described(own).encode(), own)
    for rank, text in enumerate(told):
        if text.startswith(_FAILED):
            raise AbortedError(f"rank {rank} could not {what}: {text[len(_FAILED):].decode(errors='replace')}")
        if text != _ENDED:
            raise FailedPreconditionError(f"rank {rank} is in another call than this one, in which all ranks {what}")


def _told(all_gather: AllGather, world_size: int, message: bytes, own: BaseException | None) -> list[bytes]:
    """Gives the other ranks `message`, and returns the messages of all. Then raises `own`, if that is an exception."""
    try:
        told = all_gather(message)
    except BaseException as error:
        if own is None and isinstance(error, Exception):
            raise InternalError(f"all_gather raised {described(error)}") from error
        raise (own or error) from error
    if own is not None:
        raise own
    if not isinstance(told, Sequence) or len(told) != world_size:
        raise InvalidArgumentError(f"all_gather returned {told!r}, not a sequence of {world_size} byte strings")
    return [bytes(text) if isinstance(text, (bytes, bytearray, memoryview)) else b"" for text in told]


# Of the integrations of frameworks, and of AsyncTrainer.

_of_groups: weakref.WeakKeyDictionary[Any, Ranks] = weakref.WeakKeyDictionary()  # by the default process group


def ranks_of_job(given: Ranks | Callable[[], Ranks] | None, rank: int, world_size: int) -> Ranks | None:
    """`given`, or what it returns; without it the default process group of torch.distributed. None: the job has one process.
    `rank` and `world_size`: what the framework's Trainer says. InvalidArgumentError: they differ from it, or it is no Ranks."""
    if given is None and world_size == 1:
        return None
    import torch.distributed as distributed

    ranks = given() if callable(given) else given
    if ranks is None and given is None and distributed.is_available() and distributed.is_initialized():
        # Once for a process group: beside NCCL it makes a Gloo group, which nothing destroys before that one.
        ranks = _of_groups.get(distributed.group.WORLD)
        if ranks is None:
            ranks = _of_groups[distributed.group.WORLD] = Ranks.of_torch()
    if ranks is not None and not isinstance(ranks, Ranks):
        raise InvalidArgumentError(f"ranks is a {type(ranks).__name__}, not a tidemark.Ranks")
    ranks = ranks_or_none(ranks)
    found = (0, 1) if ranks is None else (ranks.rank, ranks.world_size)
    if found != (rank, world_size):
        raise InvalidArgumentError(f"ranks say that this is rank {found[0]} of {found[1]}, and for the Trainer it is rank {rank} "
                                   f"of {world_size}")
    return ranks


_DONE, _LISTENING = b"tidemark: of rank 0: ", b"tidemark: what does rank 0 say?"
_TIME_LEFT = b"tidemark: seconds left: "


def of_rank_0(ranks: Ranks | None, function: Callable[[], str], what: str = "choose the step") -> str:
    """What `function` returns on rank 0, on all ranks, which call this alike. It runs on rank 0 alone; what it raises is
    an AbortedError on the others. `what` it does, for the message."""
    if ranks is None:
        return function()
    own: BaseException | None = None
    message = _LISTENING
    if ranks.rank == 0:
        try:
            message = _DONE + function().encode()
        except BaseException as error:
            own, message = error, _FAILED + described(error).encode()
    told, *others = _told(ranks.all_gather, ranks.world_size, message, own)
    if told.startswith(_FAILED):
        raise AbortedError(f"rank 0 could not {what}: {told[len(_FAILED):].decode(errors='replace')}")
    for rank, text in enumerate([told, *others]):
        if not text.startswith(_LISTENING if rank else _DONE):
            raise FailedPreconditionError(f"rank {rank} is in another call than this one, in which rank 0 is to {what}")
    return told[len(_DONE):].decode()


def least_time_left(ranks: Ranks, seconds: float) -> float:
    """Of what the ranks give, which call this alike. InternalError: `all_gather` raised. FailedPreconditionError: a rank is
    in another call."""
    told = _told(ranks.all_gather, ranks.world_size, _TIME_LEFT + repr(seconds).encode(), None)
    for rank, text in enumerate(told):
        if not text.startswith(_TIME_LEFT):
            raise FailedPreconditionError(f"rank {rank} is in another call than this one, in which the ranks ask whether to end")
    return min(float(text[len(_TIME_LEFT):]) for text in told)


# PyTorch.

_HOST_BACKENDS = ("gloo", "mpi")


def _group_of_host(group: Any) -> Any:
    """The group itself if it has tensors in host memory, else a Gloo group of the same ranks."""
    import torch.distributed as distributed

    backend = str(distributed.get_backend(group)).lower()
    # Of torch 2.x: "cpu:gloo,cuda:nccl".
    config = str(distributed.get_backend_config(group)).lower() if hasattr(distributed, "get_backend_config") else ""
    of_host = [entry.partition(":")[2] for entry in config.split(",") if entry.startswith("cpu:")]
    if backend in _HOST_BACKENDS or (backend != "nccl" and any(name in _HOST_BACKENDS for name in of_host)):
        return group
    if not distributed.is_gloo_available():
        raise UnimplementedError(f"the process group has the backend {backend}, which has no tensors in host memory, and this "
                                 f"PyTorch has no Gloo: give Ranks an all_gather of another kind")
    if group is None:
        return distributed.new_group(backend="gloo")
    members = [distributed.distributed_c10d.get_global_rank(group, i) for i in range(distributed.get_world_size(group))]
    if "use_local_synchronization" not in inspect.signature(distributed.new_group).parameters:
        raise UnimplementedError(f"the group has the backend {backend}, which has no tensors in host memory, and in this version "
                                 f"of PyTorch only all ranks of the job together can make a group: give a Gloo group")
    return distributed.new_group(members, backend="gloo", use_local_synchronization=True)


_HEAD_BYTES = 256  # with most messages of the library in it; two all-gathers take nearly twice as long as one


class _TorchGather:
    """An all-gather over tensors in host memory: of the lengths with the first bytes, and of the rest if there is one, all as
    long as the longest."""

    def __init__(self, group: Any, world_size: int) -> None:
        self._group = group
        self._world_size = world_size

    def __call__(self, given: bytes) -> list[bytes]:
        head = len(given).to_bytes(8, "little") + given[:_HEAD_BYTES].ljust(_HEAD_BYTES, b"\0")
        heads = self._gathered(head)
        lengths = [int.from_bytes(found[:8], "little") for found in heads]
        longest = max(lengths)
        rests = [b""] * len(heads)
        if longest > _HEAD_BYTES:
            rests = self._gathered(given[_HEAD_BYTES:].ljust(longest - _HEAD_BYTES, b"\0"))
        return [(found[8:] + rest)[:length] for found, rest, length in zip(heads, rests, lengths)]

    def _gathered(self, given: bytes) -> list[bytes]:
        import torch

        tensor = torch.frombuffer(bytearray(given), dtype=torch.uint8)
        found = [torch.empty_like(tensor) for _ in range(self._world_size)]
        torch.distributed.all_gather(found, tensor, group=self._group)
        return [ctypes.string_at(one.data_ptr(), len(given)) for one in found]


# JAX.


def _jax_gather(given: bytes) -> list[bytes]:
    """The same over the devices of JAX. Lengths have 32 bits, for JAX has no wider integers by default."""
    import numpy
    from jax.experimental import multihost_utils

    lengths = numpy.asarray(multihost_utils.process_allgather(numpy.array([len(given)], numpy.int32))).reshape(-1)
    longest = int(lengths.max())
    if longest == 0:
        return [b""] * len(lengths)
    padded = numpy.frombuffer(given.ljust(longest, b"\0"), numpy.uint8)
    found = numpy.asarray(multihost_utils.process_allgather(padded)).reshape(len(lengths), longest)
    return [found[rank, :length].tobytes() for rank, length in enumerate(lengths)]
