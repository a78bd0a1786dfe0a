"""Evaluators beside the training: what they are given, what becomes of their results, and of those that misbehave."""

import gc
import subprocess
import sys
import threading
import time
import weakref

import ml_dtypes
import numpy as np
import pytest
import tidemark
from tidemark import errors
from tidemark._state import codec


def evaluation(checkpointer, step, name="e"):
    info = next(info for info in checkpointer.steps() if info.step == step)
    return next(evaluation for evaluation in info.evaluations if evaluation.evaluator == name)


def save(checkpointer, step, state, **options):
    checkpointer.save(step, state, **options).committed.result(60)
    checkpointer.wait_until_evaluated(60)


def test_a_decorated_function_gives_metrics(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        threads = []

        @checkpointer.evaluator("validation")
        def validate(snapshot):
            threads.append(threading.get_ident())
            return {"loss": snapshot["w"].sum(), "step": snapshot.step, "given": snapshot.metrics["train"]}

        assert validate.__name__ == "validate"
        save(checkpointer, 7, {"w": np.arange(4.0)}, metrics={"train": 0.5})
        assert checkpointer.latest_step().metrics == {
            "train": 0.5, "validation/loss": 6.0, "validation/step": 7.0, "validation/given": 0.5}
        assert threads != [threading.get_ident()]
        record = evaluation(checkpointer, 7, "validation")
        assert (record.outcome, record.worker, record.reason, record.unhealthy) == ("done", "trainer", "", "")
        assert abs(record.reported - time.time()) < 600 and 0 <= record.took < 600


@pytest.mark.parametrize("result,metrics", [(0.25, {"value": 0.25}), (np.float32(2), {"value": 2.0}), (None, {}), ({}, {}),
                                            (tidemark.Verdict({"a": 1}), {"a": 1.0})])
def test_every_kind_of_result_is_taken(tmp_path, result, metrics):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.evaluator("e", lambda snapshot: result)
        save(checkpointer, 1, {"w": 1})
        assert evaluation(checkpointer, 1).outcome == "done"
        assert evaluation(checkpointer, 1).metrics == metrics


@pytest.mark.parametrize("result", ["0.5", {"loss": "low"}, object(), {"loss": None}])
def test_a_result_that_is_none_is_a_failed_evaluation(tmp_path, result):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.evaluator("e", lambda snapshot: result)
        save(checkpointer, 1, {"w": 1})
        assert evaluation(checkpointer, 1).outcome == "failed"
        assert "Error" in evaluation(checkpointer, 1).reason


def test_the_names_and_values_are_those_of_the_state(tmp_path):
    values = {"int": 3, "float": 0.5, "text": "x", "bytes": b"ab", "none": None, "tuple": (1, 2), "flag": True}
    found = {}
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        def look(snapshot):
            found.update(snapshot)
            found["len"] = len(snapshot)
            assert "w" in snapshot and "x" not in snapshot
            with pytest.raises(KeyError):
                snapshot["x"]

        checkpointer.evaluator("e", look)
        save(checkpointer, 1, {**values, "w": np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3).T,
                               "empty": np.zeros((0, 3)), "scalar": np.array(4)})
        assert evaluation(checkpointer, 1).outcome == "done", evaluation(checkpointer, 1).reason
    assert found["len"] == len(values) + 3
    assert {name: found[name] for name in values} == values
    assert found["w"].dtype == ml_dtypes.bfloat16 and found["w"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert found["empty"].shape == (0, 3) and not found["empty"].flags.writeable
    assert found["scalar"].shape == () and found["scalar"] == 4


def test_the_state_of_an_object_comes_as_it_gave_it(tmp_path):
    class Counter:
        def state_dict(self):
            return {"count": 3, "sums": np.arange(3)}

        def load_state_dict(self, state):
            pass

    found = []
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.evaluator("e", lambda snapshot: found.append(snapshot["counter"]))
        save(checkpointer, 1, {"counter": Counter()})
        assert evaluation(checkpointer, 1).outcome == "done", evaluation(checkpointer, 1).reason
    assert found[0]["count"] == 3 and found[0]["sums"].tolist() == [0, 1, 2]
    with tidemark.open(tmp_path / "store") as step:
        assert step.get_value("counter")["count"] == 3


def test_a_hostile_value_cannot_name_another_value(monkeypatch):
    texts = {f"v{i}": codec.to_text([{"$array": f"v{j}"} for j in range(i + 1, 40)]) for i in range(40)}
    real = codec.to_entry
    monkeypatch.setattr(codec, "to_entry", lambda value, path: ("string", texts[path]) if path in texts else real(value, path))
    snapshot = tidemark.capture(dict.fromkeys(texts, [0]))
    for name in ("v0", "v38"):
        with pytest.raises(tidemark.DataLossError):
            snapshot[name]


def test_arrays_are_read_only(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        def write(snapshot):
            array = snapshot["w"]
            with pytest.raises(ValueError):
                array[0] = 1
            with pytest.raises(ValueError):
                array.flags.writeable = True
            return 1

        checkpointer.evaluator("e", write)
        save(checkpointer, 1, {"w": np.zeros(10)})
        assert evaluation(checkpointer, 1).outcome == "done", evaluation(checkpointer, 1).reason


def test_arrays_are_not_copied_and_keep_the_memory_alive(tmp_path):
    kept = []
    with tidemark.Checkpointer(tmp_path / "store", tuning=tidemark.Tuning(scrub_bytes_per_second_max=0)) as checkpointer:
        def keep(snapshot):
            kept.append(snapshot["w"][10:])

        checkpointer.evaluator("e", keep)
        save(checkpointer, 1, {"w": np.full(1 << 18, 1.0)})
        held = checkpointer.statistics().staging_bytes_in_use
        assert held >= 8 << 18  # the memory of the snapshot, and no other
        for step in (2, 3):
            save(checkpointer, step, {"w": np.full(1 << 18, float(step))})
        del kept[1:]
        gc.collect()
        assert checkpointer.statistics().staging_bytes_in_use == held
    assert len(kept[0]) == (1 << 18) - 10 and (kept[0] == 1.0).all()
    assert checkpointer.statistics().staging_bytes_in_use == held
    kept.clear()
    assert checkpointer.statistics().staging_bytes_in_use == 0


def test_a_save_without_memory_because_of_kept_arrays_is_skipped_as_asked(tmp_path):
    kept = []
    with tidemark.Checkpointer(tmp_path / "store", staging_bytes_max=3 << 20, when_full="skip") as checkpointer:
        checkpointer.evaluator("e", lambda snapshot: kept.append(snapshot["w"]))
        save(checkpointer, 1, {"w": np.zeros(1 << 18)})
        assert checkpointer.save(2, {"w": np.zeros(1 << 18)}).skipped
        kept.clear()
        save(checkpointer, 3, {"w": np.zeros(1 << 18)})


def test_an_evaluation_that_raises_is_a_record_and_training_goes_on(tmp_path, caplog):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        @checkpointer.evaluator("e")
        def fail(snapshot):
            if snapshot.step == 1:
                raise ValueError("no data")
            if snapshot.step == 2:
                raise SystemExit("enough")
            if snapshot.step == 3:
                raise KeyboardInterrupt
            return 1

        for step in (1, 2, 3, 4):
            save(checkpointer, step, {"w": step})
        records = [evaluation(checkpointer, step) for step in (1, 2, 3, 4)]
        assert [record.outcome for record in records] == ["failed", "failed", "failed", "done"]
        assert [record.reason for record in records] == ["ValueError: no data", "SystemExit: enough", "KeyboardInterrupt: ", ""]
        assert [info.state for info in checkpointer.steps()] == ["committed"] * 4
    warnings = [record.message for record in caplog.records if "'e' failed at step 1" in record.message]
    assert all(line.startswith("evaluator 'e' failed at step 1: ValueError: no data") for line in warnings)
    assert sum("in fail" in line for line in warnings) == 1


def test_a_step_that_is_called_unhealthy_is_never_best(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.evaluator("e", lambda snapshot: tidemark.Verdict(
            {"loss": snapshot["x"]}, "it is 0" if snapshot["x"] == 0 else ""))
        for step, x in enumerate((2, 0, 1)):
            save(checkpointer, step, {"x": x})
        assert checkpointer.best_step("e/loss").step == 2
        assert checkpointer.steps()[1].unhealthy == "e: it is 0"


def test_the_options_select_entries_steps_and_the_best_value(tmp_path):
    seen = []
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        @checkpointer.evaluator("e", entries=["model.*"], every_steps=2, best="highest", when_lagging="block")
        def look(snapshot):
            seen.append((snapshot.step, list(snapshot)))
            return float(snapshot["model.w"][0])

        for step in range(4):
            save(checkpointer, step, {"model": {"w": np.array([-step])}, "other": 1})
        assert seen == [(0, ["model.w"]), (2, ["model.w"])]
        assert checkpointer.best_step("e/value").step == 0


def test_half_precision_converts(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.evaluator("e", lambda snapshot: snapshot["w"].dtype == ml_dtypes.bfloat16, half_precision="bfloat16")
        save(checkpointer, 1, {"w": np.ones(8, np.float32)})
        assert evaluation(checkpointer, 1).metrics == {"value": 1.0}


@pytest.mark.parametrize("when_lagging,skipped", [("skip", {2, 3}), ("latest", {2}), ("queue", set())])
def test_a_slow_evaluator_is_treated_as_asked(tmp_path, when_lagging, skipped):
    go, begun = threading.Event(), threading.Event()

    def slow(snapshot):
        begun.set()
        assert go.wait(60)
        return {"step": snapshot["w"][0]}

    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.evaluator("e", slow, when_lagging=when_lagging)
        for step in (1, 2, 3):
            checkpointer.save(step, {"w": np.array([step])}).committed.result(60)
            assert begun.wait(60)
        with pytest.raises(errors.DeadlineExceededError, match="evaluator 'e' at step 1"):
            checkpointer.wait_until_evaluated(0.05)
        go.set()
        checkpointer.wait_until_evaluated(60)
        outcomes = {step: evaluation(checkpointer, step).outcome for step in (1, 2, 3)}
        assert {step for step, outcome in outcomes.items() if outcome == "skipped"} == skipped
        assert all(evaluation(checkpointer, step).metrics == {"step": step} for step in {1, 2, 3} - skipped)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_evaluator_that_waits_for_the_evaluators_is_refused_at_once(tmp_path, threads):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer, tidemark.Checkpointer(tmp_path / "other") as other:
        @checkpointer.evaluator("e", threads=threads)
        def wait(snapshot):
            other.wait_until_evaluated(60)  # which waits for others
            checkpointer.wait_until_evaluated(60)

        save(checkpointer, 1, {"w": 1})
        assert "FailedPreconditionError: wait until evaluated: called by a callback or an evaluator, which it would wait for" in (
            evaluation(checkpointer, 1).reason)


@pytest.mark.parametrize("options", [{"when_lagging": "never"}, {"every_steps": 0}, {"max_pending": 0}, {"threads": 65},
                                     {"half_precision": "float8"}, {"best": "largest"}, {"best": {"loss": "largest"}}])
def test_an_option_out_of_its_range_is_refused(tmp_path, options):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        with pytest.raises(errors.InvalidArgumentError):
            checkpointer.evaluator("e", lambda snapshot: 1, **options)


def test_names_are_unique_and_functions_are_functions(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.evaluator("e", lambda snapshot: 1)
        with pytest.raises(errors.AlreadyExistsError, match="'e'"):
            checkpointer.evaluator("e", lambda snapshot: 1)
        with pytest.raises(errors.InvalidArgumentError, match="not a function"):
            checkpointer.evaluator("f", 3)
        with pytest.raises(errors.InvalidArgumentError, match="name"):
            checkpointer.evaluator("a/b", lambda snapshot: 1)
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        checkpointer.evaluator("f", lambda snapshot: 1)


def test_a_state_is_filled_from_the_snapshot(tmp_path):
    torch = pytest.importorskip("torch")
    model, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    filled = []
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        @checkpointer.evaluator("e")
        def look(snapshot):
            snapshot.restore({"model": other})
            small = {"epoch": 0, "extra": {"a": np.zeros(2)}}
            with pytest.raises(tidemark.MismatchError, match="extra.a") as caught:
                snapshot.restore(small)
            assert caught.value.missing == ["extra.a"] and small["epoch"] == 0
            snapshot.restore(small, allow_missing=True)
            with pytest.raises(tidemark.MismatchError) as caught:
                snapshot.restore({"model": {"weight": np.zeros((3, 2), np.float32), "bias": np.zeros(2)}})
            assert (caught.value.reshaped, caught.value.retyped) == (["model.weight"], ["model.bias"])
            filled.append(small["epoch"])

        save(checkpointer, 1, {"model": model, "epoch": 5})
        assert evaluation(checkpointer, 1).outcome == "done", evaluation(checkpointer, 1).reason
    assert filled == [5]
    assert torch.equal(model.weight, other.weight) and torch.equal(model.bias, other.bias)


def test_evaluate_saves_nothing(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        kept = []
        checkpointer.evaluator("e", lambda snapshot: kept.append(snapshot["w"]) or {"sum": snapshot["w"].sum()})
        handle = checkpointer.evaluate(5, {"w": np.arange(4)}, metrics={"train": 1.0})
        assert handle.staged.result(60) == 5 and handle.committed.result(60) == 5  # though an array is kept
        assert kept[0].tolist() == [0, 1, 2, 3]
        checkpointer.wait_until_evaluated()
        info = checkpointer.steps()[0]
        assert (info.step, info.state, info.metrics) == (5, "unsaved", {"train": 1.0, "e/sum": 6.0})
        with pytest.raises(tidemark.NotFoundError):
            checkpointer.latest_step()
        save(checkpointer, 6, {"w": np.arange(4)})
        with pytest.raises(errors.AlreadyExistsError):
            checkpointer.evaluate(6, {"w": np.arange(4)})


def test_an_evaluator_that_hangs_does_not_hold_up_close_beyond_its_deadline(tmp_path):
    go, begun = threading.Event(), threading.Event()
    checkpointer = tidemark.Checkpointer(tmp_path / "store")

    def hang(snapshot):
        begun.set()
        go.wait(600)

    checkpointer.evaluator("e", hang)
    checkpointer.save(1, {"w": 1}).committed.result(60)
    assert begun.wait(60)
    with pytest.raises(errors.DeadlineExceededError, match="evaluator 'e' at step 1"):
        checkpointer.close(0.2)
    go.set()
    checkpointer.close()
    with tidemark.open(tmp_path / "store") as step:
        assert step.info.step == 1


def test_an_evaluator_that_closes_is_refused_and_the_trainer_closes_as_ever(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        for name, options in (("e", {}), ("drain", {"drain": 0})):
            checkpointer.evaluator(name, lambda snapshot, options=options: checkpointer.close(60, **options))
        save(checkpointer, 1, {"w": 1})
        for name in ("e", "drain"):
            record = evaluation(checkpointer, 1, name)
            assert record.outcome == "failed" and "called by a callback or an evaluator" in record.reason
        save(checkpointer, 2, {"w": 2})
        with pytest.raises(errors.AlreadyHeldError):
            tidemark.Checkpointer(tmp_path / "store")
    tidemark.Checkpointer(tmp_path / "store").close()  # the store is free


def test_a_close_without_a_thread_can_be_repeated(tmp_path):
    result = run("import resource\n"
                 "checkpointer.save(1, {'w': numpy.ones(1000)}).committed.result()\n"
                 "soft, hard = resource.getrlimit(resource.RLIMIT_AS)\n"
                 "with open('/proc/self/status') as file: status = file.read()\n"
                 "in_use = int(status.partition('VmSize:')[2].split()[0]) << 10\n"
                 "resource.setrlimit(resource.RLIMIT_AS, (in_use + (4 << 20), hard))\n"  # less than a thread's stack
                 "go = threading.Event()\n"
                 "try:\n"  # so that no stack of an earlier thread is left
                 "  while True: threading.Thread(target=go.wait).start()\n"
                 "except RuntimeError: pass\n"
                 "try: checkpointer.close()\n"
                 "except tidemark.errors.ResourceExhaustedError as error: print('start a thread' in str(error), flush=True)\n"
                 "resource.setrlimit(resource.RLIMIT_AS, (soft, hard))\n"
                 "go.set()\n"
                 "checkpointer.close()\n"
                 "tidemark.Checkpointer(sys.argv[1]).close()\n", tmp_path / "store", 60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "True\n", "")


def test_the_function_is_released_by_close(tmp_path):
    class Function:
        def __call__(self, snapshot):
            return 1

    function = Function()
    gone = weakref.ref(function)
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.evaluator("e", function)
        save(checkpointer, 1, {"w": 1})
        del function
        assert gone() is not None
    gc.collect()
    assert gone() is None


def test_several_threads_evaluate_at_once(tmp_path):
    together = threading.Barrier(2, timeout=60)
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.evaluator("e", lambda snapshot: together.wait() >= 0, threads=2, max_pending=2, when_lagging="block")
        for step in (1, 2):
            checkpointer.save(step, {"w": 1})
        checkpointer.wait_until_evaluated(60)
        assert [evaluation(checkpointer, step).outcome for step in (1, 2)] == ["done", "done"]


PROGRAM = """
import signal, sys, threading, time, numpy, tidemark
signal.signal(signal.SIGINT, signal.default_int_handler)
checkpointer = tidemark.Checkpointer(sys.argv[1], close_timeout=float(sys.argv[2]))
begun = threading.Event()
"""


def run(program, *arguments):
    return subprocess.run([sys.executable, "-W", "error", "-X", "faulthandler", "-c", PROGRAM + program,
                           *map(str, arguments)], capture_output=True, text=True, timeout=300)


def test_the_end_of_the_interpreter_waits_for_evaluations_in_flight(tmp_path):
    result = run("def slow(snapshot):\n"
                 "  begun.set()\n"
                 "  threading.main_thread().join()\n"  # which ends when the interpreter begins to
                 "  return {'sum': snapshot['w'].sum()}\n"
                 "checkpointer.evaluator('e', slow)\n"
                 "checkpointer.save(1, {'w': numpy.ones(1000)})\n"
                 "begun.wait()\n", tmp_path / "store", 600)
    assert (result.returncode, result.stderr) == (0, "")
    with tidemark.open(tmp_path / "store") as step:
        assert step.info.metrics == {"e/sum": 1000}


# A thread that still runs Python when the interpreter has ended waits for its lock again and again: by itself, and in the
# native module, whose frames must not be unwound.
@pytest.mark.parametrize("work", ["time.sleep(0.001)", "tidemark.open(sys.argv[1])", "checkpointer.statistics()",
                                  "sum(range(1000))"])
def test_an_evaluator_that_never_returns_neither_crashes_nor_holds_up_the_end(tmp_path, work):
    began = time.monotonic()
    result = run("committed = threading.Event()\n"
                 "def never(snapshot):\n"
                 "  committed.wait()\n"
                 "  begun.set()\n"
                 "  while True:\n"
                 f"    {work}\n"
                 "checkpointer.evaluator('e', never)\n"
                 "checkpointer.save(1, {'w': numpy.ones(1000)}).committed.result()\n"
                 "committed.set()\n"
                 "begun.wait()\n"
                 "print('end', flush=True)\n", tmp_path / "store", 0.2)
    assert (result.returncode, result.stdout) == (0, "end\n"), result.stderr
    assert "evaluator 'e' at step 1" in result.stderr
    assert "Fatal" not in result.stderr and "terminate" not in result.stderr and "leaked" not in result.stderr
    assert time.monotonic() - began < 120


def test_ctrl_c_at_the_end_of_the_interpreter_ends_the_wait_for_one_checkpointer(tmp_path):
    result = run("import os\n"
                 "close, closing = tidemark.Checkpointer.close, {}\n"
                 "def noted(self, *arguments, **options):\n"
                 "  closing[self.path].set()\n"
                 "  return close(self, *arguments, **options)\n"
                 "tidemark.Checkpointer.close = noted\n"
                 "def hang(path):\n"
                 "  closing[path].wait()\n"
                 "  os.kill(os.getpid(), signal.SIGINT)\n"
                 "  threading.Event().wait()\n"
                 "opened = [checkpointer, tidemark.Checkpointer(sys.argv[1] + '2', close_timeout=600)]\n"
                 "for each in opened:\n"
                 "  closing[each.path] = threading.Event()\n"
                 "  each.evaluator('e', lambda snapshot, path=each.path: hang(path))\n"
                 "  each.save(1, {'w': numpy.ones(1000)}).committed.result()\n", tmp_path / "store", 600)
    for name in ("store", "store2"):
        assert f"{name}: still running: evaluator 'e' at step 1" in result.stderr, result.stderr
    assert "KeyboardInterrupt" in result.stderr and "Fatal" not in result.stderr and "leaked" not in result.stderr


def test_snapshots_that_wait_at_the_end_of_the_interpreter_are_left_out(tmp_path):
    result = run("def never(snapshot):\n"
                 "  begun.set()\n"
                 "  threading.Event().wait()\n"
                 "checkpointer.evaluator('e', never, max_pending=3, when_lagging='block')\n"
                 "for step in (1, 2, 3): checkpointer.save(step, {'w': numpy.ones(1000)}).committed.result()\n"
                 "begun.wait()\n", tmp_path / "store", 0.2)
    assert result.returncode == 0, result.stderr
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        assert [info.state for info in checkpointer.steps()] == ["committed"] * 3


def test_ctrl_c_ends_a_wait_for_evaluators(tmp_path):
    result = run("import os\n"
                 "def never(snapshot):\n"
                 "  begun.wait()\n"
                 "  os.kill(os.getpid(), signal.SIGINT)\n"
                 "  threading.Event().wait()\n"
                 "checkpointer.evaluator('e', never)\n"
                 "checkpointer.save(1, {'w': numpy.ones(1000)}).committed.result()\n"
                 "try:\n"
                 "  begun.set()\n"
                 "  checkpointer.wait_until_evaluated()\n"
                 "except KeyboardInterrupt: print('interrupted', flush=True)\n", tmp_path / "store", 0.2)
    assert (result.returncode, result.stdout) == (0, "interrupted\n"), result.stderr
