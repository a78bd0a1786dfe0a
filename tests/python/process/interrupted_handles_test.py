"""Ctrl-C at every moment of every public call: a KeyboardInterrupt comes out, and the call and the store work afterwards.

The calls are those of handle_calls.py, which handles_test.py compares with `dir`, so that no new method is left out.
What each call promises besides is in interrupts_test.py and interrupted_calls_test.py."""

import inspect

import handles_test
import numpy as np
import pytest
import tidemark
from handle_calls import STATE, TABLES, outcome
from interruption import interrupted

# Python ignores an interrupt in a generator that it closes.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


class Registered:
    pass


CLOSING = ("__enter__", "close")
FUNCTIONS = {
    "capture": lambda store: tidemark.capture(STATE),
    "export_safetensors": lambda store: tidemark.export_safetensors(store, f"{store}.safetensors", replace=True),
    "follow": lambda store: tidemark.follow(store, lambda snapshot: 1.0, evaluator="e", idle_timeout=0),
    "open": lambda store: tidemark.open(store).close(),
    "phases": lambda store: tidemark.phases(store),
    "references": lambda store: tidemark.references(store),
    "register": lambda store: tidemark.register(Registered, lambda value: 1, lambda found: Registered()),
    "steps": lambda store: tidemark.steps(store),
    "verify": lambda store: tidemark.verify(store),
}


def is_in_the_package(kind, name):
    return next(owner for owner in kind.__mro__ if name in vars(owner)).__module__.startswith("tidemark")


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
def test_every_call_of_a_handle_can_be_interrupted_and_repeated(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)

    def open_handles(folder):
        folder.mkdir(exist_ok=True)
        handles = handles_test.open_handles(folder)
        return handles, next(handle for handle in handles if type(handle) is kind)

    def close(handles):
        for handle in reversed(handles):
            if "close" in TABLES[type(handle)]:
                handle.close()

    for name, call in TABLES[kind].items():
        handles, handle = open_handles(tmp_path / name)

        def after(moment, found):
            nonlocal handles, handle
            again = outcome(call, handle)
            if name in CLOSING:
                assert again == "done" or "is closed" in again, (name, moment, again)
                close(handles)
                handles, handle = open_handles(tmp_path / f"{name}{moment}")
            else:
                assert "is closed" not in again, (name, moment, again)

        tried = interrupted(lambda _: outcome(call, handle), after, stride=1)
        assert tried > 0 or not is_in_the_package(kind, name), name
        close(handles)
        with tidemark.Checkpointer(tmp_path / name / "store") as again:  # the store is free
            again.save(10**6, STATE).committed.result(60)


def test_every_function_can_be_interrupted_and_repeated(tmp_path):
    assert FUNCTIONS.keys() == {name for name in tidemark.__all__ if inspect.isfunction(getattr(tidemark, name))}
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.save(1, STATE).committed.result(60)
        for name, call in FUNCTIONS.items():
            def after(moment, _):
                again = outcome(call, checkpointer.path)
                assert again == "done" or (name == "register" and "AlreadyExists" in again), (name, moment, again)

            assert interrupted(lambda _: outcome(call, checkpointer.path), after, stride=1) > 0, name
        np.testing.assert_array_equal(checkpointer.load(like=STATE)["w"], STATE["w"])
