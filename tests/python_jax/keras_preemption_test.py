"""SIGTERM in `fit` becomes one last save, and the next `fit` goes on there."""

import concurrent.futures
import functools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import types

import keras
import keras_test
import pytest
import tidemark
import tidemark.keras
from preempted import exit_code, handled, sender, terminated_at_drawn_moments

# Keras itself calls numpy.array of PyTorch's tensors.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
Send = functools.partial(sender, keras.callbacks.Callback)
EPOCHS, BATCHES = 3, 4
ROOM_FOR_ONE = 20480  # bytes: enough for one save of the model on every backend, and not for two
# TensorFlow shuffles by a generator that cannot be restored.
SHUFFLED = {"shuffle": keras.backend.backend() != "tensorflow"}
VALIDATED = {"validation_data": keras_test.make_data(), "validation_batch_size": 16}


@pytest.fixture(autouse=True)
def _scopes():
    yield
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    keras.utils.clear_session()  # what ends `fit` leaves scopes open


class Losses(keras.callbacks.Callback):
    """Of the batches of each epoch."""

    def __init__(self):
        super().__init__()
        self.found, self.ended = {}, []

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        self.found[epoch] = []

    def on_train_batch_end(self, batch, logs=None):
        self.found[self.epoch].append(float(logs["loss"]))

    def on_epoch_end(self, epoch, logs=None):
        self.ended.append(epoch)


def fit(store, *others, **options):
    """The model, and the losses of this `fit`."""
    keras.utils.set_random_seed(7)
    losses = Losses()
    callback = tidemark.keras.TidemarkCheckpoint(store, **{"restore": True, "preemption": True, "max_to_keep": None, **options})
    made.append((callback, losses))
    model = keras_test.make_model()
    keras_test.fit(model, [losses, *others, callback], epochs=EPOCHS, **SHUFFLED, **VALIDATED)
    return model, losses.found


made = []


@functools.cache
def whole():
    """The values at the end, and the losses, of a training that nothing stops."""
    keras.utils.set_random_seed(7)
    losses, model = Losses(), keras_test.make_model()
    keras_test.fit(model, [losses], epochs=EPOCHS, **SHUFFLED, **VALIDATED)
    return keras_test.values(model), losses.found


def goes_on(store, first, epoch):
    """Fits again, from the begin of that epoch on."""
    # On torch, the end of a validation draws a number by which the next epoch is shuffled.
    is_exact = keras.backend.backend() != "torch" or epoch == 0 or epoch - 1 in made[-1][1].ended
    model, second = fit(store)
    assert sorted(second) == list(range(epoch, EPOCHS))
    if len(first.get(epoch, [])) in (0, BATCHES) and is_exact:  # no part of an epoch was trained twice
        values, losses = whole()
        keras_test.assert_same(keras_test.values(model), values)
        assert {**first, **second} == losses
    assert keras_test.steps(store) == [0, 1, 2]
    return second


def test_a_fit_goes_on_after_a_signal_at_any_moment(tmp_path):
    """Of whole epochs bit for bit, and in the middle of one from the batch that was the last."""
    whole()

    def train(moment):
        fit(tmp_path / f"store{moment}")

    def after(moment, code):
        assert code in (None, 0)
        callback, losses = made[-1]
        if code is None:
            assert sorted(losses.found) == [0, 1, 2]
            return
        last = max((epoch for epoch, found in losses.found.items() if found), default=-1)
        trained = len(losses.found.get(last, []))
        if callback.preempted is not None:
            assert callback.preempted.step == last
        if last < EPOCHS - 1 or trained < BATCHES:
            goes_on(tmp_path / f"store{moment}", losses.found, max(0, last + (trained == BATCHES)))

    terminated_at_drawn_moments(train, after, 4, keras)


@pytest.mark.parametrize(("hook", "n", "step", "epoch"), [
    ("on_train_batch_begin", 6, 1, 1), ("on_train_batch_end", 6, 1, 1), ("on_train_batch_end", 8, 1, 2),
    ("on_test_begin", 2, 1, 2), ("on_test_batch_end", 6, 1, 2), ("on_epoch_end", 2, 1, 2),
    ("on_epoch_begin", 2, 0, 1), ("on_train_end", 1, None, None)])
def test_the_batch_that_a_signal_comes_in_is_saved_and_the_next_fit_goes_on(tmp_path, hook, n, step, epoch):
    with handled() as came:
        assert exit_code(fit, tmp_path / "store", Send(hook, n)) == 0
        assert came == [signal.SIGTERM]
    callback, losses = made[-1]
    if step is None:
        assert callback.preempted is None and keras_test.steps(tmp_path / "store") == [0, 1, 2]
        return
    assert (callback.preempted.step, callback.preempted.save, callback.preempted.close) == (step, None, None)
    assert keras_test.steps(tmp_path / "store") == list(range(step + 1))
    goes_on(tmp_path / "store", losses.found, epoch)


def test_an_epoch_that_begins_anew_has_the_weights_of_the_last_batch(tmp_path):
    assert exit_code(fit, tmp_path / "store", Send("on_train_batch_begin", 6)) == 0
    model = keras_test.make_model()
    tidemark.keras.load(model, tmp_path / "store")
    assert int(model.optimizer.iterations) == 6
    assert exit_code(fit, tmp_path / "store", Send("on_train_batch_begin", 2)) == 0  # the second time in this epoch
    tidemark.keras.load(model, tmp_path / "store")
    assert int(model.optimizer.iterations) == 8 and keras_test.steps(tmp_path / "store") == [0, 1]
    goes_on(tmp_path / "store", {1: [0.0]}, 1)


@pytest.mark.parametrize(("hook", "n", "step", "epoch"), [
    ("on_train_batch_begin", 6, 6, 1), ("on_train_batch_end", 8, 8, 2), ("on_test_batch_end", 6, 8, 2),
    ("on_epoch_begin", 2, 4, 1)])
def test_steps_of_batches(tmp_path, hook, n, step, epoch):
    assert exit_code(fit, tmp_path / "store", Send(hook, n), save_freq=4) == 0
    assert made[-1][0].preempted.step == step and max(keras_test.steps(tmp_path / "store")) == step
    model, losses = fit(tmp_path / "store", save_freq=4)
    assert sorted(losses) == list(range(epoch, EPOCHS))
    assert keras_test.steps(tmp_path / "store")[-1] == step + 4 * (EPOCHS - epoch)
    if step % BATCHES == 0 and (keras.backend.backend() != "torch" or hook == "on_epoch_begin"):
        keras_test.assert_same(keras_test.values(model), whole()[0])


def test_a_signal_before_the_first_batch_saves_nothing(tmp_path):
    with handled() as came:
        assert exit_code(fit, tmp_path / "store", Send("on_epoch_begin")) == 0
        assert came == [signal.SIGTERM]
    assert made[-1][0].preempted is None and keras_test.steps(tmp_path / "store") == [] and made[-1][1].found == {0: []}


def test_more_signals_change_nothing(tmp_path):
    with handled() as came:
        assert exit_code(fit, tmp_path / "store", Send("on_train_batch_begin", 6, times=3)) == 0
        assert came == [signal.SIGTERM] and made[-1][0].preempted.step == 1


def test_an_error_in_fit_leaves_no_guard_that_keeps_signals(tmp_path):
    """Keras tells no callback of it. A signal within `fit` is noted, and one after it has its former effect."""
    class Fail(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            os.kill(os.getpid(), signal.SIGTERM)
            assert came == []
            raise ValueError

    for fails in (Fail(), keras_test.Stop(1)):
        with handled() as came:
            with pytest.raises((ValueError, KeyboardInterrupt)):
                fit(tmp_path / "store", fails)
            os.kill(os.getpid(), signal.SIGTERM)
            assert signal.SIGTERM in came
        made[-1][0].close()
    with handled() as came, pytest.raises(KeyboardInterrupt):
        try:
            fit(tmp_path / "store", keras_test.Stop(2))
        finally:
            made[-1][0].close()  # puts it back


@pytest.mark.parametrize("guarded", [False, True])
def test_a_signal_in_the_fit_after_one_that_failed_is_that_of_the_later_fit(tmp_path, guarded):
    with handled() as came:
        with pytest.raises(KeyboardInterrupt):
            fit(tmp_path / "first", keras_test.Stop(1))
        first = made[-1][0]
        if guarded:
            assert exit_code(fit, tmp_path / "second", Send("on_train_batch_end", 6)) == 0
            assert made[-1][0].preempted.step == 1
        else:
            fit(tmp_path / "second", Send("on_train_batch_end", 6), preemption=False)
        assert came == [signal.SIGTERM] and first.preempted is None
        first.close()


def test_a_loop_that_is_no_fit_is_refused(tmp_path):
    callback = tidemark.keras.TidemarkCheckpoint(tmp_path / "store", preemption=True)
    with handled(), pytest.raises(tidemark.errors.FailedPreconditionError, match="only for `fit` of Keras"):
        keras.callbacks.CallbackList([callback], model=keras_test.make_model()).on_train_begin()
    assert not (tmp_path / "store").exists()


def test_two_callbacks_with_preemption_are_refused_before_one_begins(tmp_path):
    other = tidemark.keras.TidemarkCheckpoint(tmp_path / "other", preemption=True)
    with handled(), pytest.raises(tidemark.errors.InvalidArgumentError, match="two callbacks of this `fit` have preemption"):
        fit(tmp_path / "store", other)
    assert not (tmp_path / "store").exists() and not (tmp_path / "other").exists()
    other = tidemark.keras.TidemarkCheckpoint(tmp_path / "other")
    assert exit_code(fit, tmp_path / "store", other, Send("on_train_batch_begin", 6)) == 0
    other.close()


def test_a_guard_of_the_user_stays_after_fit(tmp_path):
    with tidemark.PreemptionGuard(signals=(signal.SIGUSR1,), grace=60) as guard:
        send = Send("on_train_batch_begin", 6, signal.SIGUSR1)
        assert exit_code(fit, tmp_path / "store", send, preemption=guard) == 0
        assert made[-1][0].preempted.step == 1 and signal.getsignal(signal.SIGUSR1) == guard._signals.note
        assert exit_code(fit, tmp_path / "store", preemption=guard) == 0  # the process is still to go
        assert not any(made[-1][1].found.values())


def test_a_fit_in_another_thread_needs_a_guard_of_the_main_one(tmp_path):
    found = []

    def train(guard):
        try:
            fit(tmp_path / "store", preemption=guard)
        except BaseException as error:  # noqa: BLE001
            found.append(error)

    with tidemark.PreemptionGuard(signals=(), grace=60, end=time.time() + 50) as guard:
        for one in (True, guard):
            thread = threading.Thread(target=train, args=(one,))
            thread.start()
            thread.join()
    assert isinstance(found[0], tidemark.errors.FailedPreconditionError) and "main thread" in str(found[0])
    assert isinstance(found[1], SystemExit) and found[1].code == 0


def test_a_save_that_is_not_committed_in_time_is_the_exit_code(tmp_path, caplog):
    with tidemark.PreemptionGuard(grace=0.0) as guard:
        assert exit_code(fit, tmp_path / "store", Send("on_train_batch_begin", 6), preemption=guard) == 1
    assert not made[-1][0].preempted.committed and "step 1 is not committed" in caplog.text


@pytest.mark.parametrize(("preemption", "hook"), [(False, None), (True, None), (True, "on_epoch_begin")])
def test_a_close_that_runs_out_of_time_is_made_once_and_again_by_the_next_fit(tmp_path, monkeypatch, preemption, hook):
    closes = []

    def close(self, timeout, drain):
        closes.append(timeout)
        raise tidemark.errors.DeadlineExceededError("a save hangs")

    with handled() as came:
        with monkeypatch.context() as patch, pytest.raises(tidemark.errors.DeadlineExceededError, match="a save hangs"):
            patch.setattr(tidemark.Checkpointer, "_close", close)
            fit(tmp_path / "store", *([Send(hook)] if hook else []), preemption=preemption, close_timeout=3.0)
        assert len(closes) == 1 and closes[0] <= 3.0
        os.kill(os.getpid(), signal.SIGTERM)
        assert came[-1:] == [signal.SIGTERM]  # there is no guard any more
    fit(tmp_path / "store")
    assert keras_test.steps(tmp_path / "store") == [0, 1, 2]


@pytest.mark.parametrize("options", [{"save_best_only": True}, {"save_weights_only": True}])
def test_what_cannot_be_resumed_is_refused(tmp_path, options):
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="preemption saves the whole training"):
        tidemark.keras.TidemarkCheckpoint(tmp_path / "store", preemption=True, **options)


@pytest.mark.parametrize("value", [None, 1, "SIGTERM"])
def test_another_preemption_is_refused(tmp_path, value):
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="preemption is .*: it must be a bool or a PreemptionGuard"):
        tidemark.keras.TidemarkCheckpoint(tmp_path / "store", preemption=value)


@pytest.fixture
def slow(monkeypatch):
    """slow(step, **options): a callback of Keras whose evaluator holds the first snapshot, until the save of the step has
    returned, or with slow.ends_early=False until the end of the test. SIGTERM comes when that save waits. slow.saves: what saves
    returned until then."""
    def make(step, **options):
        class Slow(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                if epoch == 0:
                    made[-1][0]._fit.checkpointer.evaluator("slow", hold, **options)
                else:
                    assert began.wait(60)

        def save_unless(checkpointer, is_cancelled, number, *arguments, **options):
            def asked():
                if number == step:
                    os.kill(os.getpid(), signal.SIGTERM)
                return is_cancelled()

            save = before(checkpointer, asked, number, *arguments, **options)
            make.saves.append(save)
            if number == step and make.ends_early:
                ends.set()
            return save

        before = tidemark.Checkpointer._save_unless
        monkeypatch.setattr(tidemark.Checkpointer, "_save_unless", save_unless)
        return Slow()

    def hold(snapshot):
        began.set()
        assert ends.wait(60)

    make.saves, make.ends_early = [], True
    ends, began = threading.Event(), threading.Event()
    yield make
    ends.set()


@pytest.mark.parametrize(("when_lagging", "options", "steps", "epoch"), [
    ("block", {}, [0, 1], 2), ("block", {"save_on_background": False}, [0, 1], 2), ("block", {"save_freq": 3}, [3, 6], 1),
    ("skip", {"staging_bytes_max": ROOM_FOR_ONE}, [0, 1], 2)], ids=["evaluator", "foreground", "batches", "memory"])
def test_a_signal_ends_a_save_that_waits(tmp_path, slow, when_lagging, options, steps, epoch):
    evaluator = slow(steps[1], when_lagging=when_lagging)
    with handled() as came:
        assert exit_code(fit, tmp_path / "store", evaluator, **options) == 0
        assert came == [signal.SIGTERM]
    assert [save and save.step for save in slow.saves] == [steps[0], None]
    callback, losses = made[-1]
    assert (callback.preempted.step, callback.preempted.save, callback.preempted.close) == (steps[1], None, None)
    assert keras_test.steps(tmp_path / "store") == steps
    if "save_freq" not in options:
        assert tidemark.steps(tmp_path / "store")[-1].metrics.keys() == {"loss", "mae", "val_loss", "val_mae"}
        goes_on(tmp_path / "store", losses.found, epoch)


def test_fit_ends_before_an_evaluator_that_a_save_has_waited_for(tmp_path, slow):
    slow.ends_early = False
    with tidemark.PreemptionGuard(grace=5) as guard:
        assert exit_code(fit, tmp_path / "store", slow(1, when_lagging="block"), preemption=guard) == 0
    report = made[-1][0].preempted
    assert report.step == 1 and report.committed and "still running: evaluator 'slow' at step 0" in str(report.close)
    assert [info.step for info in tidemark.steps(tmp_path / "store") if info.state == "committed"] == [0, 1]


def test_a_signal_ends_the_wait_for_a_commit(tmp_path, monkeypatch):
    class Commit(concurrent.futures.Future):
        def result(self, timeout=None):
            assert timeout <= 1
            os.kill(os.getpid(), signal.SIGTERM)
            raise concurrent.futures.TimeoutError

    def save(checkpointer, *arguments, **options):
        handle = save_unless(checkpointer, *arguments, **options)
        handle.committed = Commit()
        return handle

    save_unless = tidemark.Checkpointer._save_unless
    monkeypatch.setattr(tidemark.Checkpointer, "_save_unless", save)
    assert exit_code(fit, tmp_path / "store", save_on_background=False) == 0
    assert made[-1][0].preempted.committed and keras_test.steps(tmp_path / "store") == [0]


@pytest.mark.parametrize("save", [None, types.SimpleNamespace(skipped=True), types.SimpleNamespace(skipped=False)],
                         ids=["ended", "skipped", "failed"])
def test_the_part_of_an_epoch_is_replaced_after_a_save_that_committed_nothing(tmp_path, monkeypatch, save):
    assert exit_code(fit, tmp_path / "store", Send("on_train_batch_begin", 6)) == 0
    part = tidemark.steps(tmp_path / "store")[-1]
    assert part.step == 1 and part.user_metadata != "{}"
    with monkeypatch.context() as patch:
        patch.setattr(tidemark.Checkpointer, "_save_unless", lambda *_, **__: save)
        assert exit_code(fit, tmp_path / "store", Send("on_epoch_end")) == 0
    whole = tidemark.steps(tmp_path / "store")[-1]
    assert whole.step == 1 and whole.user_metadata == "{}"
    goes_on(tmp_path / "store", {2: [0.0]}, 2)


PROGRAM = """
import logging, os, signal, sys
import keras, keras_test, tidemark.keras
store, jax_is = sys.argv[1:3]

def start_jax(address):
    import jax
    jax.distributed.initialize(address, 1, 0)

class Signal(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        print(f"batch {batch}", flush=True)
        sys.stdin.readline()

if jax_is == "before":
    start_jax(sys.argv[3])
guard = True
if jax_is == "after":
    guard = tidemark.PreemptionGuard()
    start_jax(sys.argv[3])
callback = tidemark.keras.TidemarkCheckpoint(store, restore=True, preemption=guard)
keras_test.fit(keras_test.make_model(), [callback, Signal()], epochs=2)
print("trained to the end")
"""


def run(store, jax_is, signal_after):
    """A process that trains and gets SIGTERM after so many batches, while it waits for its input. (its exit code, output)"""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    path = os.pathsep.join([os.path.dirname(keras_test.__file__), os.environ["PYTHONPATH"]])
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, store, jax_is, address], text=True, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": path})
    seen, output = 0, ""
    with process:
        for line in process.stdout:
            output += line
            if line.startswith("batch "):
                seen += 1
                if seen == signal_after:
                    os.kill(process.pid, signal.SIGTERM)
                process.stdin.write("\n")
                process.stdin.flush()
    return process.returncode, output


def test_a_process_that_is_terminated_exits_with_0_and_goes_on(tmp_path):
    code, output = run(tmp_path / "store", "none", 2)
    assert code == 0 and "preempted: step 0 is committed" in output and "trained to the end" not in output, output
    code, output = run(tmp_path / "store", "none", 0)
    assert code == 0 and "trained to the end" in output and output.count("batch ") == 2 * BATCHES, output


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="the preemption service of JAX")
def test_jaxs_handler_gets_no_signal_if_it_was_installed_before(tmp_path):
    code, output = run(tmp_path / "store", "before", 2)
    assert code == 0 and "signal 15 had a handler that was not installed by Python" in output, output
    assert "preempted: step 0 is committed" in output


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="the preemption service of JAX")
def test_jaxs_handler_takes_the_signal_if_it_is_installed_later(tmp_path):
    code, output = run(tmp_path / "store", "after", 2)
    assert code == 0 and "trained to the end" in output, output
