"""A job of ranks that saves and restores pytrees: the error of one process is one of all, at once."""

import jax
import jax.numpy as jnp
import pytest
import tidemark
import tidemark.jax
from rank_jobs import DEADLINE, Job, all_ok
from tidemark import errors


def deleted():
    array = jnp.ones(3)
    array.delete()
    return array


def of(rank, value=None):
    return {f"w{rank}": jnp.ones(3) if value is None else value}


def check(results, failing, error, text, others=errors.AbortedError):
    for rank, result in enumerate(results):
        assert isinstance(result, error if rank == failing else others), result
        assert rank == failing or (f"rank {failing}" in str(result) and text in str(result)), result


@pytest.fixture
def job(tmp_path):
    with Job(tmp_path / "store", 2) as opened:
        yield opened


def save(job, step, bad=None):
    """`bad`: (rank, its leaf)."""
    def one(rank, checkpointer):
        leaf = bad[1] if bad is not None and bad[0] == rank else None
        return tidemark.jax.save(checkpointer, step, of(rank, leaf)).committed.result(DEADLINE)

    return job.each(one)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_rank_that_cannot_save_its_tree_aborts_all(job, failing):
    check(save(job, 1, (failing, deleted())), failing, errors.InvalidArgumentError, "has been deleted")
    assert all_ok(save(job, 2)) == [2, 2]


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("call", [tidemark.jax.restore, tidemark.jax.resume], ids=["restore", "resume"])
def test_a_rank_that_cannot_restore_its_tree_aborts_all(job, call, failing):
    assert all_ok(save(job, 2)) == [2, 2]
    twice = {"a.b": jnp.ones(1), "a": {"b": jnp.ones(1)}}
    check(job.each(lambda rank, checkpointer: call(checkpointer, twice if rank == failing else of(rank))), failing,
          errors.InvalidArgumentError, "two leaves of the tree have the name 'a.b'", others=errors.InvalidArgumentError)
    all_ok(job.each(lambda rank, checkpointer: call(checkpointer, of(rank))))


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("call", [tidemark.jax.restore, tidemark.jax.resume], ids=["restore", "resume"])
def test_a_rank_whose_arrays_cannot_be_made_aborts_all(job, call, failing):
    def key(rank, impl):
        return {f"key{rank}": jax.random.key(1, impl=impl)}

    def save_key(rank, checkpointer):
        return tidemark.jax.save(checkpointer, 1, key(rank, "rbg")).committed.result(DEADLINE)

    assert all_ok(job.each(save_key)) == [1, 1]
    check(job.each(lambda rank, checkpointer: call(checkpointer, key(rank, "unsafe_rbg" if rank == failing else "rbg"))), failing,
          tidemark.MismatchError, "keys of jax.random have another algorithm")
