"""tidemark.lightning: SIGTERM in a fit becomes one last save, and the next fit goes on there."""

import functools
import os
import shutil
import signal
import threading
import time

import lightning
import pytest
import tidemark
import torch
from lightning.pytorch.demos.boring_classes import RandomDataset
from lightning.pytorch.plugins.environments import SLURMEnvironment
from lightning.pytorch.tuner import Tuner
from lightning.pytorch.utilities.exceptions import SIGTERMException
from lightning_test import same_weights
from preempted import exit_code, handled, sender, terminate_in_a_save_that_waits, terminated_at_drawn_moments
from tidemark.lightning import ModuleEvaluation, TidemarkCheckpoint

Send = functools.partial(sender, lightning.Callback)
pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice
BATCHES = 5  # of an epoch


class Loader:
    """Resumes within an epoch."""

    def __init__(self):
        generator = torch.Generator().manual_seed(5)
        self._batches = [torch.randn(4, 8, generator=generator) for _ in range(BATCHES)]
        self._done = 0

    def __len__(self):
        return BATCHES

    def __iter__(self):
        first = self._done % BATCHES
        for i in range(first, BATCHES):
            self._done = i + 1
            yield self._batches[i]

    def state_dict(self):
        return {"done": self._done}

    def load_state_dict(self, state):
        self._done = state["done"]


class Model(lightning.LightningModule):
    """With dropout, so that a run depends on the generators. Notes the loss of each batch, and that of each whole validation."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))
        self.losses, self.validations = {}, {}
        self._sum = 0.0

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).square().mean()
        place = self.current_epoch, batch_idx
        assert place not in self.losses
        self.losses[place] = loss.item()
        return loss

    def on_validation_epoch_start(self):
        self._sum = 0.0

    def validation_step(self, batch, batch_idx):
        loss = self.layer(batch).square().mean()
        self._sum += loss.item()
        self.log("val_loss", loss)

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            self.validations[self.trainer.fit_loop.epoch_loop.batch_progress.total.ready] = self._sum

    def train_dataloader(self):
        return Loader()

    def val_dataloader(self):
        return torch.utils.data.DataLoader(RandomDataset(8, 3), generator=None)  # which draws a number each time

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2)]


def fit(callback, *others, epochs=3, **options):
    """Resumes if there is a step."""
    torch.manual_seed(7)
    model = Model()
    trainer = lightning.Trainer(accelerator="cpu", max_epochs=epochs, logger=False, enable_progress_bar=False,
                                num_sanity_val_steps=1, enable_model_summary=False, callbacks=[*others, callback], **options)
    trainer.fit(model, ckpt_path=callback.resume_path)
    return model


class Runs:
    """Two fits of one store, and one without a stop. Keeps the models, also those of fits that end by an exception."""

    def __init__(self, folder, monkeypatch, **options):
        self.folder, self.options, self.made = folder, options, []
        self.whole = fit(TidemarkCheckpoint(folder / "whole"), **options)
        monkeypatch.setattr(Model, "__init__", self._noted(Model.__init__))

    def _noted(self, init):
        def noted(model):
            init(model)
            self.made.append(model)

        return noted

    def callback(self, name="parts", **options):
        return TidemarkCheckpoint(self.folder / name, **{"preemption": True, **options})

    def goes_on(self, name="parts", saved=True):
        """Fits again, to the end: as if the fit before had not stopped. `saved`: and no batch is trained twice, unless the fit
        before was at its end, where nothing more is saved."""
        before = self.made[-1]
        resumed = fit(self.callback(name), **self.options)
        assert same_weights(resumed, self.whole)
        assert not saved or before.losses.keys() == self.whole.losses.keys() or not before.losses.keys() & resumed.losses.keys()
        assert before.losses | resumed.losses == self.whole.losses
        validations = before.validations | resumed.validations
        if not resumed.losses and "max_steps" in self.options:  # Lightning does not begin if so many steps are trained
            last = self.options["max_steps"]
            validations.setdefault(last, self.whole.validations.get(last))
        assert validations == self.whole.validations


OPTIONS = [{}, {"accumulate_grad_batches": 2, "val_check_interval": 3}, {"max_steps": 12, "val_check_interval": 2, "epochs": -1},
           {"limit_val_batches": 0}]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_fit_goes_on_after_a_signal_at_any_moment(tmp_path, monkeypatch, options):
    runs = Runs(tmp_path, monkeypatch, **options)

    def train(moment):
        fit(runs.callback(f"store{moment}", every_n_train_steps=4), **options)

    def after(moment, code):
        assert code in (None, 0)
        tidemark.Checkpointer(tmp_path / f"store{moment}").close()  # it is free
        runs.goes_on(f"store{moment}", saved=code is not None)

    terminated_at_drawn_moments(train, after, 4, lightning)


@pytest.fixture(autouse=True)
def default_handler():
    yield
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.fixture
def runs(tmp_path, monkeypatch):
    return Runs(tmp_path, monkeypatch, val_check_interval=2)


def stopped(runs, *others, code=0, **options):
    """Fits until a signal ends it. The callback."""
    callback = runs.callback(**options)
    assert exit_code(fit, callback, *others, **runs.options) == code
    return callback


def latest(runs):
    return max(info.step for info in tidemark.steps(runs.folder / "parts"))


@pytest.mark.parametrize(("hook", "n", "step"), [
    ("on_train_batch_start", 7, 7), ("on_before_optimizer_step", 7, 7), ("on_train_batch_end", 7, 7),
    ("on_validation_start", 4, 7), ("on_validation_batch_start", 8, 7), ("on_validation_batch_end", 10, 7),
    ("on_validation_end", 4, 7), ("on_train_epoch_end", 1, 5), ("on_train_epoch_start", 2, 6), ("on_save_checkpoint", 2, 10),
    ("on_train_end", 1, None), ("on_fit_end", 1, None)])
def test_the_step_that_a_signal_comes_in_is_saved_and_the_next_fit_goes_on(runs, hook, n, step):
    with handled() as came:
        callback = stopped(runs, Send(hook, n), save_on_train_epoch_end=True)
        assert came == [signal.SIGTERM]
    if step is None:  # nothing was to be saved any more
        assert callback.preempted is None
    else:
        assert (callback.preempted.step, callback.preempted.save, callback.preempted.close) == (step, None, None)
    assert latest(runs) == (step or 15)
    runs.goes_on()


@pytest.mark.parametrize("hook", ["on_fit_start", "on_sanity_check_start", "on_validation_batch_end", "on_train_start"])
def test_a_signal_before_the_first_step_ends_the_fit_and_nothing_is_saved(runs, hook):
    with handled() as came:
        callback = runs.callback()
        assert exit_code(fit, callback, Send(hook), **runs.options) == 0
        assert came == [signal.SIGTERM]
    assert callback.preempted is None and callback.resume_path is None and not runs.made[-1].losses
    runs.goes_on()


def test_a_signal_before_the_first_step_of_a_resumed_fit_saves_nothing_either(runs, caplog):
    stopped(runs, Send("on_train_batch_start", 7))
    before = tidemark.steps(runs.folder / "parts")
    first = runs.made[-1]
    assert exit_code(fit, runs.callback(), Send("on_train_start"), **runs.options) == 0
    assert [info.step for info in tidemark.steps(runs.folder / "parts")] == [info.step for info in before]
    assert "preempted at step 7, before the fit has trained a step" in caplog.text
    assert not runs.made[-1].losses
    runs.made.append(first)
    runs.goes_on()


def test_more_signals_change_nothing(runs):
    """torchrun passes on those that its processes may have got by themselves."""
    with handled() as came:
        callback = stopped(runs, Send("on_train_batch_start", 7, times=3), Send("on_save_checkpoint", 3), Send("on_exception"))
        assert came == [signal.SIGTERM] and callback.preempted.step == 7
    runs.goes_on()


def test_a_callback_serves_two_fits(runs):
    callback = runs.callback()
    fit(callback, epochs=1, **runs.options)
    assert callback.preempted is None and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert exit_code(fit, callback, Send("on_train_batch_start", 2), **runs.options) == 0
    assert callback.preempted.step == 6 and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    fit(callback, **runs.options)
    assert callback.preempted is None and same_weights(runs.made[-1], runs.whole)


def test_lightnings_tuner_leaves_no_guard_that_keeps_signals(runs):
    model, callback = Model(), runs.callback()
    model.lr = 0.01
    trainer = lightning.Trainer(accelerator="cpu", max_epochs=1, logger=False, enable_progress_bar=False, callbacks=[callback],
                                enable_model_summary=False, default_root_dir=runs.folder)
    with handled() as came:
        Tuner(trainer).lr_find(model, num_training=3, update_attr=False)
        os.kill(os.getpid(), signal.SIGTERM)
        assert came == [signal.SIGTERM]
    assert callback.resume_path is None


def test_a_fit_ends_the_guard_of_one_that_told_of_no_end(runs):
    callback = runs.callback()
    with handled() as came:
        callback.setup(lightning.Trainer(accelerator="cpu", logger=False), Model(), "fit")
        fit(callback, **runs.options)
        os.kill(os.getpid(), signal.SIGTERM)
        assert came == [signal.SIGTERM]


def test_two_callbacks_both_save(runs):
    first = TidemarkCheckpoint(runs.folder / "first", preemption=True)
    with handled() as came:
        second = stopped(runs, first, Send("on_train_batch_start", 7))
        assert came == [signal.SIGTERM]
    assert first.preempted.step == second.preempted.step == 7
    runs.goes_on()


@pytest.mark.parametrize("chains", [False, True])
@pytest.mark.parametrize("hook", ["on_fit_start", "on_train_start", "on_train_batch_start"])
def test_a_handler_that_is_installed_later_is_called_and_the_fit_ends_if_that_calls_the_one_before(runs, hook, chains):
    """One from before Lightning's own is called by it, which ends the fit in any case."""
    came = []

    class Install(lightning.Callback):
        pass

    def install(self, *_):
        if came:
            return
        former = signal.getsignal(signal.SIGTERM)

        def handler(number, frame):
            came.append(number)
            if chains:
                former(number, frame)

        signal.signal(signal.SIGTERM, handler)

    setattr(Install, hook, install)
    if chains or hook == "on_fit_start":
        assert stopped(runs, Install(), Send("on_train_batch_start", 7)).preempted.step == 7
        runs.goes_on()
    else:
        fit(runs.callback(), Install(), Send("on_train_batch_start", 7), **runs.options)
    assert came[:1] == [signal.SIGTERM]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_slurms_signals_end_a_fit_and_lightning_saves_no_file_of_its_own(runs, monkeypatch, number):
    for name, value in {"JOB_ID": "7", "NTASKS": "1", "PROCID": "0", "LOCALID": "0", "NODEID": "0", "JOB_NAME": "a"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.chdir(runs.folder)
    runs.options["plugins"] = [SLURMEnvironment(auto_requeue=True)]
    with tidemark.PreemptionGuard(signals=(signal.SIGTERM, signal.SIGUSR1)) as guard:
        assert stopped(runs, Send("on_train_batch_start", 7, number), preemption=guard).preempted.step == 7
    assert not list(runs.folder.glob("**/*.ckpt"))
    runs.goes_on()


def test_a_guard_of_the_user_stays_after_the_fit(runs):
    with tidemark.PreemptionGuard(signals=(signal.SIGUSR1,), grace=60) as guard:
        callback = stopped(runs, Send("on_train_batch_start", 7, signal.SIGUSR1), preemption=guard)
        assert callback.preempted.step == 7 and guard.preempted and signal.getsignal(signal.SIGUSR1) == guard._signals.note
        assert exit_code(fit, callback, **runs.options) == 0  # the process is still to go
        assert not runs.made.pop().losses
    with pytest.raises(tidemark.errors.FailedPreconditionError, match="uninstalled"):
        fit(callback, **runs.options)
    runs.made.pop()
    runs.goes_on()


def test_the_end_of_the_allotted_time_ends_a_fit(runs):
    guard = tidemark.PreemptionGuard(signals=(), grace=60, end=time.time() + 50)
    assert exit_code(fit, runs.callback(preemption=guard), **runs.options) == 0
    assert not runs.made[-1].losses
    runs.goes_on()


def in_thread(call):
    found = []

    def run():
        try:
            call()
        except BaseException as error:  # noqa: BLE001
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def test_a_fit_in_another_thread_needs_a_guard_of_the_main_one(runs):
    error = in_thread(lambda: fit(runs.callback(), **runs.options))
    assert isinstance(error, tidemark.errors.FailedPreconditionError) and "main thread" in str(error)
    with tidemark.PreemptionGuard() as guard:
        callback = runs.callback(preemption=guard)
        error = in_thread(lambda: fit(callback, Send("on_train_batch_start", 7), **runs.options))
        assert isinstance(error, SIGTERMException) and callback.preempted.committed
    runs.goes_on(saved=False)  # the main thread notes the signal when it next runs


def test_a_save_that_is_not_committed_in_time_is_the_exit_code(runs, caplog):
    with tidemark.PreemptionGuard(grace=0.0) as guard:
        callback = stopped(runs, Send("on_train_batch_start", 7), code=1, preemption=guard)
    assert not callback.preempted.committed and "step 7 is not committed" in caplog.text


@pytest.mark.parametrize("hook", ["on_train_batch_start", "on_fit_end"])
def test_an_evaluation_that_hangs_does_not_hold_up_the_end(runs, hook):
    ended = threading.Event()
    begun = time.monotonic()
    try:
        with tidemark.PreemptionGuard(grace=5.0) as guard:
            stopped(runs, Send(hook, 1 if hook == "on_fit_end" else 7), preemption=guard,
                               evaluation=ModuleEvaluation(lambda module: ended.wait()))
    finally:
        ended.set()
    assert time.monotonic() - begun < 60
    assert latest(runs) == (14 if hook == "on_fit_end" else 7)


@pytest.mark.parametrize("options", [{}, {"every_n_train_steps": 1}, {"save_on_train_epoch_end": True}])
def test_a_signal_ends_the_wait_of_a_save_for_an_evaluation_and_the_last_save_has_that_step(runs, monkeypatch, options):
    ended, asked = threading.Event(), terminate_in_a_save_that_waits(monkeypatch)
    try:
        with tidemark.PreemptionGuard(grace=5.0) as guard:
            evaluation = ModuleEvaluation(lambda module: ended.wait(30), on_backpressure="block")
            callback = stopped(runs, preemption=guard, evaluation=evaluation, **options)
        shutil.copytree(callback.store, runs.folder / "copy")  # the evaluation goes on, and the store is held
    finally:
        ended.set()
    step = {"{}": 4, "every_n_train_steps": 2}.get(next(iter(options), "{}"), 10)
    assert callback.preempted.step == asked[-1] == step and callback.preempted.committed
    assert [info.state for info in tidemark.steps(callback.store) if info.step == step] == ["committed"]
    runs.goes_on("copy")


def test_a_signal_while_the_end_of_the_fit_waits_for_evaluations_ends_the_wait(runs):
    ends, ended = threading.Event(), threading.Event()

    class Ends(lightning.Callback):
        def on_fit_end(self, *_):
            ends.set()

    def evaluate(module):
        ends.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        ended.wait()

    try:
        stopped(runs, Ends(), evaluation=ModuleEvaluation(evaluate))
    finally:
        ended.set()
    assert latest(runs) == 14


def test_a_fit_that_saves_nothing_leaves_signals_to_lightning(runs):
    with handled() as came:
        callback = runs.callback()
        with pytest.raises(SIGTERMException):
            fit(callback, Send("on_train_batch_end"), fast_dev_run=2)
        assert came == [signal.SIGTERM] and callback.preempted is None and callback.resume_path is None


@pytest.mark.parametrize("accumulated", [1, 2])
def test_the_step_is_saved_if_the_next_batch_does_not_come_after_a_signal(runs, monkeypatch, caplog, accumulated):
    """The workers of a DataLoader may get the signal too. Between two batches of one step nothing can be saved."""
    batches = Loader.__iter__

    def killed(self):
        for batch in batches(self):
            yield batch
            if self._done == 3:
                os.kill(os.getpid(), signal.SIGTERM)
                raise RuntimeError("DataLoader worker (pid 7) exited unexpectedly")

    callback = runs.callback(every_n_train_steps=100)
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="exited unexpectedly"):
        patch.setattr(Loader, "__iter__", killed)
        fit(callback, accumulate_grad_batches=accumulated, **runs.options)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if accumulated == 1:
        assert callback.preempted.step == 3 and callback.preempted.committed
        runs.goes_on()
    else:
        assert callback.preempted is None and callback.resume_path is None
    assert ("SIGTERM came during a training that an error has ended" in caplog.text) is (accumulated == 2)


class Unstorable(lightning.Callback):
    """Of the checkpoint that is made after a signal."""

    def on_save_checkpoint(self, trainer, pl_module, checkpoint):
        if trainer.received_sigterm:
            checkpoint["mine"] = object()


def test_a_last_save_that_cannot_be_made_leaves_the_store_free(runs):
    callback = runs.callback()
    with handled() as came, pytest.raises(tidemark.errors.UnsupportedTypeError) as raised:
        fit(callback, Unstorable(), Send("on_train_batch_start", 7), **runs.options)
    assert came == [signal.SIGTERM] and callback.preempted is None
    tidemark.Checkpointer(runs.folder / "parts").close()
    assert "mine" in str(raised.value)


@pytest.mark.parametrize("preemption", [False, True])
def test_a_close_that_runs_out_of_time_is_made_once_and_again_by_the_next_fit(runs, monkeypatch, preemption):
    ended, closes = threading.Event(), []
    close = tidemark.Checkpointer._close
    monkeypatch.setattr(tidemark.Checkpointer, "_close", lambda self, *limits: (closes.append(limits), close(self, *limits)))
    callback = runs.callback(preemption=preemption, evaluation=ModuleEvaluation(lambda module: ended.wait()), close_timeout=1.0)
    try:
        with pytest.raises(tidemark.errors.DeadlineExceededError):
            fit(callback, epochs=1, **runs.options)
        assert len(closes) == 1 and closes[0][0] <= 1.0
    finally:
        ended.set()
    runs.made.clear()
    fit(callback, **runs.options)
    assert same_weights(runs.made[-1], runs.whole)


@pytest.mark.parametrize("signalled", [False, True])
def test_an_error_of_the_model_puts_the_handler_back_and_nothing_is_saved(runs, monkeypatch, signalled):
    def fail(*_):
        if signalled:
            os.kill(os.getpid(), signal.SIGTERM)
        return 1 / 0

    monkeypatch.setattr(Model, "training_step", fail)
    with handled() as came, pytest.raises(ZeroDivisionError):
        callback = runs.callback()
        fit(callback, **runs.options)
    assert came == [signal.SIGTERM] * signalled and callback.preempted is None and callback.resume_path is None


@pytest.mark.parametrize("value", [None, 1, signal.SIGTERM, "SIGTERM"])
def test_another_preemption_is_refused(tmp_path, value):
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="preemption is .*: it must be a bool or a PreemptionGuard"):
        TidemarkCheckpoint(tmp_path / "store", preemption=value)
