"""Calls of every public method and property of the package's handles, for tests of handles that cannot be used any more.

As a program: `handle_calls.py STORE` makes the calls in a forked child, and prints what each one did.
"""

import asyncio
import concurrent.futures
import os
import signal
import sys
import threading

import numpy as np
import tidemark

STATE = {"w": np.arange(6.0).reshape(2, 3), "empty": np.zeros((0, 3)), "n": 1}


def enter(handle):
    with handle:
        pass


CHECKPOINTER = {
    "__enter__": enter,
    "add_average": lambda it: it.add_average("average", entries=["w"]),
    "add_health_monitor": lambda it: it.add_health_monitor(tidemark.HealthMonitor()),
    "best_step": lambda it: it.best_step("loss"),
    "check_for_errors": lambda it: it.check_for_errors(),
    "close": lambda it: it.close(),
    "committed": lambda it: it.committed(1),
    "compare_replicas": lambda it: it.compare_replicas(STATE),
    "delete": lambda it: it.delete(1),
    "discard_after": lambda it: it.discard_after(1),
    "evaluate": lambda it: it.evaluate(9, STATE),
    "evaluator": lambda it: it.evaluator("another"),
    "latest_step": lambda it: it.latest_step(),
    "load": lambda it: it.load(like=STATE),
    "pin": lambda it: it.pin(1),
    "prepare": lambda it: it.prepare(STATE),
    "report_metrics": lambda it: it.report_metrics(1, "by hand", {"loss": 1.0}),
    "restore": lambda it: it.restore(STATE),
    "resume": lambda it: it.resume(STATE),
    "retention_plan": lambda it: it.retention_plan(),
    "save": lambda it: it.save(9, STATE),
    "set_save_interval": lambda it: it.set_save_interval(3),
    "should_save": lambda it: it.should_save(9),
    "staged": lambda it: enter(it.staged()),
    "statistics": lambda it: it.statistics(),
    "steps": lambda it: it.steps(),
    "tag": lambda it: it.tag(1, "name"),
    "tidy": lambda it: it.tidy(),
    "unpin": lambda it: it.unpin(1),
    "untag": lambda it: it.untag("name"),
    "wait_until_committed": lambda it: it.wait_until_committed(),
    "wait_until_evaluated": lambda it: it.wait_until_evaluated(),
    "wait_until_staged": lambda it: it.wait_until_staged(),
}
STEP = {
    "__enter__": enter,
    "close": lambda it: it.close(),
    "get_slice": lambda it: it.get_slice("w"),
    "get_tensor": lambda it: it.get_tensor("w"),
    "get_value": lambda it: it.get_value("n"),
    "keys": lambda it: it.keys(),
    "value_keys": lambda it: it.value_keys(),
}
SLICE = {
    "__getitem__": lambda it: it[:1],
    "get_dtype": lambda it: it.get_dtype(),
    "get_shape": lambda it: it.get_shape(),
}
SNAPSHOT = {
    "__contains__": lambda it: "w" in it,
    "__getitem__": lambda it: it["w"],
    "__iter__": list,
    "__len__": len,
    "dtype_of": lambda it: it.dtype_of("w"),
    "export_safetensors": lambda it: it.export_safetensors("exported.safetensors", replace=True),
    "get": lambda it: it.get("w"),
    "items": lambda it: dict(it.items()),
    "keys": lambda it: it.keys(),
    "restore": lambda it: it.restore({"w": np.zeros((2, 3))}),
    "values": lambda it: list(it.values()),
}
BEST_FILE = {
    "__enter__": enter,
    "close": lambda it: it.close(),
    "update": lambda it: it.update(),
}
SAVE_HANDLE = {
    "__await__": lambda it: asyncio.run(awaited(it)),
}
FUTURE = {
    "__await__": lambda it: asyncio.run(awaited(it)),
    "add_done_callback": lambda it: it.add_done_callback(print),
    "cancel": lambda it: it.cancel(),
    "cancelled": lambda it: it.cancelled(),
    "done": lambda it: it.done(),
    "exception": lambda it: it.exception(),
    "result": lambda it: it.result(),
    "running": lambda it: it.running(),
}
TABLES = {tidemark.Checkpointer: CHECKPOINTER, tidemark.Step: STEP, tidemark.Slice: SLICE, tidemark.Snapshot: SNAPSHOT,
          tidemark.BestFile: BEST_FILE, tidemark.SaveHandle: SAVE_HANDLE, tidemark.Future: FUTURE}


# Of a future: for the thread that resolves it.
NOT_FOR_USERS = {"fail_in_child", "give_up", "resolve_if_ready", "set_exception", "set_result", "set_running_or_notify_cancel"}


async def awaited(handle):
    return await handle


def public(kind):
    """The names that users call: public ones, and the operations that the class has."""
    operations = {"__await__", "__contains__", "__enter__", "__getitem__", "__iter__", "__len__"}
    return {name for name in dir(kind) if not name.startswith("_") or name in operations} - NOT_FOR_USERS


def outcome(call, handle):
    """What the call did, as text."""
    try:
        call(handle)
    except tidemark.errors.FailedPreconditionError as error:
        return f"refused: {error}"
    except Exception as error:  # noqa: BLE001: it is shown
        return f"{type(error).__name__}: {error}"
    return "done"


def call_in_child(store):
    """Every call of every handle in a child that is forked while a save and an evaluation are in flight."""
    gate, begun, seen = threading.Event(), threading.Event(), []
    checkpointer = tidemark.Checkpointer(store)
    checkpointer.save(1, STATE, metrics={"loss": 1.0}).committed.result(60)

    @checkpointer.evaluator("hangs")
    def hang(snapshot):
        seen.append(snapshot)
        begun.set()
        gate.wait(600)

    pending = checkpointer.evaluate(2, STATE)
    begun.wait(60)
    step, best = tidemark.open(store), tidemark.BestFile(store, "loss", f"{store}.safetensors")
    handles = [checkpointer, step.get_slice("w"), step, seen[0], tidemark.capture(STATE), best, pending, pending.committed]
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for handle in handles:
            for name, call in sorted(TABLES[type(handle)].items(), key=lambda item: item[0] in ("__enter__", "close")):
                signal.alarm(60)  # ends a child that hangs
                print(type(handle).__name__, name, outcome(call, handle), sep=" | ", flush=True)
        print("concurrent.futures", "wait", len(concurrent.futures.wait([pending.committed], 60).done), sep=" | ")
        # It may open stores for itself: this one to read, others to write.
        print("open", "sum", tidemark.open(store).get_tensor("w").sum(), len(tidemark.steps(store)),
              tidemark.verify(store).damage, tidemark.capture(STATE)["w"].sum(), sep=" | ")
        report = tidemark.follow(store, lambda snapshot: float(snapshot["w"].sum()), evaluator="of child", idle_timeout=0)
        with tidemark.Checkpointer(f"{store} of child") as own:
            own.evaluator("e", lambda snapshot: float(snapshot["w"].sum()))
            own.save(1, STATE).committed.result(60)
        print("open", "own", report.evaluated, own.statistics().saves_committed, sep=" | ")
        sys.exit(7)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    # Nothing of the parent's is the worse for it.
    gate.set()
    assert pending.committed.result(60) == 2 and checkpointer.save(3, STATE).committed.result(60) == 3
    assert seen[0]["w"].sum() == 15
    best.close()
    checkpointer.close()
    print("parent", "child's status", status, sep=" | ")


if __name__ == "__main__":
    call_in_child(sys.argv[1])
