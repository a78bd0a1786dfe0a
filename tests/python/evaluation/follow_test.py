"""Workers: follow() and python -m tidemark.worker."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import tidemark
from tidemark import errors
from tidemark._checkpointer.evaluator import is_in


@pytest.fixture
def store(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        for step in (10, 20, 30):
            checkpointer.save(step, {"model": {"w": np.full(5, step)}, "epoch": step // 10}, metrics={"train": step / 10})
    return tmp_path / "store"


def evaluations(store):
    with tidemark.Checkpointer(store) as checkpointer:
        checkpointer.tidy()
        return {info.step: {evaluation.evaluator: evaluation for evaluation in info.evaluations}
                for info in checkpointer.steps()}


def test_every_committed_step_is_evaluated_and_reported(store):
    told = []
    report = tidemark.follow(store, lambda snapshot: {"sum": snapshot["model.w"].sum(), "epoch": snapshot["epoch"]},
                             evaluator="v", idle_timeout=0, worker="me",
                             on_evaluated=lambda step, evaluation: told.append((step, evaluation.metrics["sum"])))
    assert report == tidemark.WorkerReport(end="idle", evaluated=3, failed=0, skipped=0, last_step=30)
    assert told == [(10, 50.0), (20, 100.0), (30, 150.0)]
    with tidemark.Checkpointer(store) as checkpointer:
        checkpointer.tidy()
        assert checkpointer.best_step("v/sum", "highest").metrics == {"train": 3.0, "v/sum": 150.0, "v/epoch": 3.0}
        assert checkpointer.latest_step().evaluations[0].worker == "me"
    assert tidemark.follow(store, lambda snapshot: 1, evaluator="v", idle_timeout=0).evaluated == 0


def test_it_is_a_decorator_that_runs(store):
    @tidemark.follow(store, evaluator="v", idle_timeout=0, entries=["model.*"], every_steps=20)
    def report(snapshot):
        assert list(snapshot) == ["model.w"]
        return 1

    assert (report.evaluated, report.failed) == (1, 0)


def test_arrays_outlive_the_call(store):
    kept = []
    tidemark.follow(store, lambda snapshot: kept.append(snapshot["model.w"]), evaluator="v", idle_timeout=0)
    assert [array.tolist() for array in kept] == [[10] * 5, [20] * 5, [30] * 5]
    assert not kept[0].flags.writeable


def test_it_follows_a_trainer(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store", tuning=tidemark.Tuning(poll_interval=0.02)) as checkpointer:
        reports = []
        worker = threading.Thread(target=lambda: reports.append(tidemark.follow(
            tmp_path / "store", lambda snapshot: float(snapshot["w"][0]), evaluator="v", until_step=5, poll_interval=0.02,
            stop_on_signal=False)))
        worker.start()
        for step in range(6):
            checkpointer.save(step, {"w": np.array([step])})
        worker.join(120)
        assert [(report.end, report.evaluated) for report in reports] == [("until_step", 6)]
        checkpointer.tidy()
        assert [info.metrics for info in checkpointer.steps()] == [{"v/value": float(step)} for step in range(6)]


def test_a_function_that_raises_is_a_record_and_can_be_asked_again(store):
    def fail(snapshot):
        if snapshot.step == 20:
            raise ValueError("no data")
        return 1

    assert tidemark.follow(store, fail, evaluator="v", idle_timeout=0).failed == 1
    record = evaluations(store)[20]["v"]
    assert record.outcome == "failed" and "ValueError: no data" in record.reason
    assert tidemark.follow(store, lambda _: 1, evaluator="v", idle_timeout=0).evaluated == 0
    assert tidemark.follow(store, lambda _: 1, evaluator="v", idle_timeout=0, again_if_failed=True).evaluated == 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_ends_the_call_and_the_step_is_done_by_the_next(store, kind):
    def interrupt(snapshot):
        if snapshot.step == 20:
            raise kind
        return 1

    with pytest.raises(kind):
        tidemark.follow(store, interrupt, evaluator="v", idle_timeout=0)
    assert "v" not in evaluations(store)[20]
    assert tidemark.follow(store, lambda snapshot: 1, evaluator="v", idle_timeout=0).evaluated == 2


def test_callbacks_that_raise_end_the_call(store):
    def raise_it(*_):
        raise RuntimeError("from the callback")

    with pytest.raises(RuntimeError, match="from the callback"):
        tidemark.follow(store, lambda snapshot: 1, evaluator="v", idle_timeout=0, on_evaluated=raise_it)
    with pytest.raises(RuntimeError, match="from the callback"):
        tidemark.follow(store, lambda snapshot: 1, evaluator="w", stop=raise_it)
    assert set(evaluations(store)[10]) == {"v"}


def test_stop_ends_the_call(store):
    seen = []
    report = tidemark.follow(store, lambda snapshot: seen.append(1), evaluator="v", stop=lambda: len(seen) == 2)
    assert (report.end, report.evaluated, report.last_step) == ("stopped", 2, 20)


def test_without_reports_nothing_is_written(store):
    assert tidemark.follow(store, lambda snapshot: 1, evaluator="", idle_timeout=0, report=False).evaluated == 3
    assert all(not records for records in evaluations(store).values())


def test_the_latest_step_only(store):
    report = tidemark.follow(store, lambda snapshot: 1, evaluator="v", idle_timeout=0, when_lagging="latest")
    assert (report.evaluated, report.skipped, report.last_step) == (1, 2, 30)
    assert "lagging" in evaluations(store)[10]["v"].reason


@pytest.mark.parametrize("options", [{"evaluator": "a/b"}, {"when_lagging": "block"}, {"when_lagging": "never"},
                                     {"every_steps": 0}, {"half_precision": "int8"}, {"lease_expiry": 0.0},
                                     {"poll_interval": 0.0}])
def test_an_option_out_of_its_range_is_refused(store, options):
    with pytest.raises(errors.InvalidArgumentError):
        tidemark.follow(store, lambda snapshot: 1, **{"evaluator": "v", "idle_timeout": 0, **options})


def test_a_store_that_is_none_and_a_function_that_is_none_are_refused(store, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.FailedPreconditionError):
        tidemark.follow(tmp_path / "file", lambda snapshot: 1, evaluator="v", idle_timeout=0)
    with pytest.raises(errors.InvalidArgumentError, match="not a function"):
        tidemark.follow(store, 3, evaluator="v", idle_timeout=0)


def test_a_pattern_that_matches_nothing_is_a_failed_evaluation(store):
    assert tidemark.follow(store, lambda snapshot: 1, evaluator="v", idle_timeout=0, entries=["none.*"]).failed == 3
    assert "none.*" in evaluations(store)[10]["v"].reason


@pytest.fixture
def module(tmp_path):
    (tmp_path / "my_eval.py").write_text(
        "import os, signal\n"
        "def validate(snapshot):\n"
        "  return {'sum': snapshot['model.w'].sum()}\n"
        "def fail(snapshot):\n"
        "  raise ValueError('no data')\n"
        "def terminate(snapshot):\n"
        "  os.kill(os.getpid(), signal.SIGTERM)\n"
        "  return 1\n"
        "class Judge:\n"
        "  @staticmethod\n"
        "  def score(snapshot): return 1\n"
        "constant = 3\n")
    (tmp_path / "broken.py").write_text("import module_that_is_not_there\n")
    return tmp_path


def worker(folder, *arguments, **options):
    return subprocess.run([sys.executable, "-m", "tidemark.worker", *map(str, arguments)], cwd=folder, capture_output=True,
                          text=True, timeout=300, **options)


def test_the_worker_evaluates_a_function_of_a_module(store, module):
    result = worker(module, store, "my_eval:validate", "--entries", "model.*", "--idle-timeout", 0)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == ["step 10 done sum=50", "step 20 done sum=100", "step 30 done sum=150",
                                          "ended (idle): 3 evaluated, 0 failed, 0 skipped"]
    assert evaluations(store)[20]["validate"].metrics == {"sum": 100.0}
    result = worker(module, store, "my_eval:Judge.score", "--name", "judge", "--until-step", 30, "--begin-step", 20)
    assert (result.returncode, result.stderr) == (0, "")
    assert set(evaluations(store)[20]) == {"judge", "validate"} and "judge" not in evaluations(store)[10]


def test_the_worker_ends_after_the_step_in_which_sigterm_comes(store, module):
    result = worker(module, store, "my_eval:terminate")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "ended (signal): 1 evaluated, 0 failed, 0 skipped"


def test_a_waiting_worker_ends_with_ctrl_c(store, module):
    process = subprocess.Popen([sys.executable, "-m", "tidemark.worker", str(store), "my_eval:validate"], cwd=module,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(3):
        process.stdout.readline()
    os.kill(process.pid, signal.SIGINT)
    output, errors_output = process.communicate(timeout=120)
    assert (process.returncode, errors_output) == (0, "")
    assert "ended (signal)" in output


def test_a_failed_evaluation_is_an_exit_status_if_asked(store, module):
    assert worker(module, store, "my_eval:fail", "--idle-timeout", 0, "--no-report").returncode == 0
    result = worker(module, store, "my_eval:fail", "--idle-timeout", 0, "--strict")
    assert result.returncode == 1
    assert "step 10 failed ValueError: no data" in result.stdout and "in fail" in result.stderr


@pytest.mark.parametrize("function,message", [("my_eval", "is not MODULE:FUNCTION"), ("gone:f", "no module 'gone'"),
                                              ("my_eval:gone", "has no 'gone'"), ("my_eval:constant", "is a int")])
def test_a_function_that_is_not_there_is_a_wrong_argument(store, module, function, message):
    result = worker(module, store, function)
    assert result.returncode == 2 and message in result.stderr


def test_a_module_that_lacks_another_shows_its_traceback(store, module):
    result = worker(module, store, "broken:f")
    assert result.returncode == 1 and "module_that_is_not_there" in result.stderr


def test_an_error_of_the_store_is_an_exit_status(module):
    (module / "file").write_text("")
    result = worker(module, "file", "my_eval:validate")
    assert result.returncode == 1 and "python -m tidemark.worker: " in result.stderr and "Traceback" not in result.stderr


def test_help_names_every_option_and_shows_an_example(module):
    result = worker(module, "--help", env={**os.environ, "COLUMNS": "100"})
    assert result.returncode == 0
    for word in ("--entries", "--until-step", "--idle-timeout", "--name", "my_eval:validate", "Exit status", "SIGTERM"):
        assert word in result.stdout


def test_a_worker_says_that_it_waits_for_a_store(module):
    process = subprocess.Popen([sys.executable, "-m", "tidemark.worker", "typo/store", "my_eval:validate"], cwd=module,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline() == f"INFO: waiting for a store at {module / 'typo' / 'store'}\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)


def test_follow_logs_that_it_waits_for_a_store(tmp_path, store, caplog):
    caplog.set_level("INFO", "tidemark")
    tidemark.follow(store, lambda snapshot: 1, evaluator="v", idle_timeout=0)
    assert "waiting for" not in caplog.text
    tidemark.follow(tmp_path / "typo", lambda snapshot: 1, evaluator="v", idle_timeout=0)
    assert caplog.messages[-1] == f"waiting for a store at {tmp_path / 'typo'}"


def test_an_evaluator_that_follows_a_store_is_still_in_its_own_call(tmp_path):
    with tidemark.Checkpointer(tmp_path / "other") as other:
        other.save(1, {"w": 1})
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        found = []

        @checkpointer.evaluator("e")
        def follow(snapshot):
            tidemark.follow(tmp_path / "other", lambda inner: 1, evaluator="inner", idle_timeout=0, report=False,
                            stop_on_signal=False)
            found.append(is_in(checkpointer._evaluations))

        checkpointer.save(1, {"w": 1})
        checkpointer.wait_until_evaluated(60)
        assert found == [True]
