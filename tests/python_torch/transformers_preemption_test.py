"""tidemark.transformers: SIGTERM in a training becomes one last save, and the next training goes on there."""

import functools
import gc
import os
import pathlib
import re
import signal
import threading
import time
import weakref

import pytest
import tidemark
import torch
import transformers
from preempted import exit_code, handled, sender, terminate_in_a_save_that_waits, terminated_at_drawn_moments
from tidemark.transformers import ModuleEvaluation
from transformers_test import committed, losses, make, weights

pytestmark = pytest.mark.filterwarnings("ignore")  # Transformers' advice
Send = functools.partial(sender, transformers.TrainerCallback)
EPOCHS = {"max_steps": -1, "num_train_epochs": 2, "eval_strategy": "epoch", "save_strategy": "epoch"}


@pytest.fixture(autouse=True)
def default_handler():
    yield
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Trained(transformers.TrainerCallback):
    """Notes the steps that were trained, and the evaluations that came to their end."""

    def __init__(self):
        self.steps, self.evaluations = [], {}

    def on_optimizer_step(self, args, state, control, **_):
        self.steps.append(state.global_step + 1)

    def on_evaluate(self, args, state, control, metrics, **_):
        self.evaluations[state.global_step] = metrics["eval_loss"]


class Runs:
    """Trainings of one store after another, and one without a stop."""

    def __init__(self, folder, **options):
        self.folder, self.options = folder, options
        self.evaluated = Trained()
        self.whole = make(folder / "whole", callbacks=[self.evaluated], **options)
        self.whole.train()
        self.trained = []

    def trainer(self, *callbacks, name="parts", **options):
        self.trained.append(Trained())
        options = {"preemption": True, **self.options, **options}
        return make(self.folder / name, callbacks=[self.trained[-1], *callbacks], **options)

    def stopped(self, *callbacks, code=0, **options):
        """Trains until a signal ends it. The trainer."""
        trainer = self.trainer(*callbacks, **options)
        assert exit_code(trainer.train, resume_from_checkpoint=True) == code
        return trainer

    def goes_on(self, name="parts", saved=True):
        """Trains again, to the end: as if the training before had not stopped. `saved`: and no step is trained twice."""
        resumed = self.trainer(name=name)
        resumed.train(resume_from_checkpoint=True)
        found, last = losses(resumed), self.whole.state.global_step
        found.pop(last + 1, None)  # Transformers trains a step, with a learning rate of 0, if all were trained before
        assert torch.equal(weights(resumed), weights(self.whole)) and found == losses(self.whole)
        first, second = self.trained[-2:]
        assert not saved or not set(first.steps) & set(second.steps)
        found = {**first.evaluations, **second.evaluations}
        found.pop(last + 1, None)
        assert all(self.evaluated.evaluations[step] == loss for step, loss in found.items())
        assert len(found) >= len(self.evaluated.evaluations) - 1  # that which was cut short


OPTIONS = [{}, {"gradient_accumulation_steps": 2, "eval_strategy": "steps", "eval_steps": 4, "max_steps": 12},
           {**EPOCHS, "load_best_model_at_end": True}]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_training_goes_on_after_a_signal_at_any_moment(tmp_path, options):
    runs = Runs(tmp_path, **options)
    last = runs.whole.state.global_step

    def train(moment):
        runs.trainer(name=f"run{moment}").train(resume_from_checkpoint=True)

    def after(moment, code):
        assert code in (None, 0)
        tidemark.Checkpointer(tmp_path / f"run{moment}" / "tidemark").close()  # it is free
        runs.goes_on(f"run{moment}", saved=code is not None and last not in runs.trained[-1].steps)

    terminated_at_drawn_moments(train, after, 3, transformers)


def test_an_evaluation_of_the_last_step_of_an_epoch_is_cut_short_once(tmp_path):
    """Each evaluation that begins draws a random number."""
    runs = Runs(tmp_path, **OPTIONS[1])
    assert runs.stopped(Send("on_optimizer_step", 8)).state.epoch == 1
    runs.goes_on()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("runs"), eval_strategy="steps", eval_steps=7, max_steps=16)


@pytest.fixture
def runs(shared, tmp_path):
    """The training that nothing stops is that of all tests."""
    shared.folder, shared.trained = tmp_path, []
    return shared


@pytest.mark.parametrize(("hook", "n", "step"), [
    ("on_step_begin", 7, 7), ("on_pre_optimizer_step", 7, 7), ("on_step_end", 7, 7), ("on_prediction_step", 1, 7),
    ("on_prediction_step", 2, 7), ("on_evaluate", 1, 8), ("on_log", 7, 7), ("on_save", 1, 6), ("on_epoch_end", 1, 16),
    ("on_train_end", 1, None)])
def test_the_step_that_a_signal_comes_in_is_saved_and_the_next_training_goes_on(runs, hook, n, step):
    with handled() as came:
        trainer = runs.stopped(Send(hook, n))
        assert came == [signal.SIGTERM]
    if step is None:  # nothing was to be saved any more
        assert trainer.preempted is None
    else:
        assert (trainer.preempted.step, trainer.preempted.save, trainer.preempted.close) == (step, None, None)
    assert max(committed(trainer.store)) == (step or 16)
    runs.goes_on()


@pytest.mark.parametrize(("hook", "n", "step"), [
    ("on_step_begin", 16, 16), ("on_step_end", 16, 16), ("on_prediction_step", 1, 16), ("on_epoch_begin", 2, 17)])
def test_a_signal_at_the_end_of_an_epoch_cuts_its_evaluation_short(tmp_path, hook, n, step):
    runs = Runs(tmp_path, **EPOCHS)
    assert runs.stopped(Send(hook, n)).preempted.step == step
    runs.goes_on()


@pytest.mark.parametrize("hook", ["on_train_begin", "on_init_end"])
def test_a_signal_before_the_first_step_saves_at_most_that(runs, hook):
    """Whatever the user's handler makes of a signal before train()."""
    with handled() as came:
        trainer = runs.trainer(Send(hook))
        if hook == "on_train_begin":
            assert exit_code(trainer.train) == 0
            assert trainer.preempted.step == 1
        assert came == [signal.SIGTERM]
    runs.goes_on()


def test_more_signals_change_nothing(runs):
    """torchrun passes on those that its processes may have got by themselves."""
    with handled() as came:
        trainer = runs.stopped(Send("on_step_begin", 7, times=3), Send("on_step_end", 7), Send("on_epoch_end"))
        assert came == [signal.SIGTERM] and trainer.preempted.step == 7
    runs.goes_on()


def test_a_trainer_trains_again_after_a_signal(runs):
    trainer = runs.trainer(Send("on_step_begin", 7))
    assert exit_code(trainer.train) == 0 and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    trainer.train(resume_from_checkpoint=True)
    assert trainer.preempted is None and torch.equal(weights(trainer), weights(runs.whole))


@pytest.mark.parametrize("chains", [False, True])
def test_a_handler_that_is_installed_later_decides(runs, chains):
    came = []

    class Install(transformers.TrainerCallback):
        def on_train_begin(self, *_, **__):
            former = signal.getsignal(signal.SIGTERM)

            def handler(number, frame):
                came.append(number)
                if chains:
                    former(number, frame)

            self.handler = handler
            signal.signal(signal.SIGTERM, handler)

    install = Install()
    if chains:
        assert runs.stopped(install, Send("on_step_begin", 7)).preempted.step == 7
    else:
        runs.trainer(install, Send("on_step_begin", 7)).train()
    assert came == [signal.SIGTERM] and signal.getsignal(signal.SIGTERM) is install.handler


def test_transformers_own_handler_is_refused_beside_it(tmp_path):
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="enable_jit_checkpoint and preemption"):
        make(tmp_path, preemption=True, enable_jit_checkpoint=True)


def test_a_guard_of_the_user_stays_after_the_training(runs):
    with tidemark.PreemptionGuard(signals=(signal.SIGUSR1,), grace=60) as guard:
        trainer = runs.stopped(Send("on_step_begin", 7, signal.SIGUSR1), preemption=guard)
        assert trainer.preempted.step == 7 and guard.preempted and signal.getsignal(signal.SIGUSR1) == guard._signals.note
        assert exit_code(trainer.train, resume_from_checkpoint=True) == 0  # the process is still to go
        assert trainer.preempted is None and runs.trained[-1].steps == [1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(tidemark.errors.FailedPreconditionError, match="uninstalled"):
        trainer.train(resume_from_checkpoint=True)
    runs.goes_on()


def test_a_training_in_another_thread_needs_a_guard_of_the_main_one(runs):
    found = []

    def train(trainer):
        try:
            trainer.train()
        except BaseException as error:  # noqa: BLE001
            found.append(error)

    with tidemark.PreemptionGuard(signals=(), grace=60, end=time.time() + 50) as guard:
        for trainer in (runs.trainer(), runs.trainer(preemption=guard)):
            thread = threading.Thread(target=train, args=(trainer,))
            thread.start()
            thread.join()
    assert isinstance(found[0], tidemark.errors.FailedPreconditionError) and "main thread" in str(found[0])
    assert isinstance(found[1], SystemExit) and found[1].code == 0 and not runs.trained[-1].steps


def test_a_save_that_is_not_committed_in_time_is_the_exit_code(runs, caplog):
    with tidemark.PreemptionGuard(grace=0.0) as guard:
        trainer = runs.stopped(Send("on_step_begin", 7), code=1, preemption=guard)
    assert not trainer.preempted.committed and "step 7 is not committed" in caplog.text


@pytest.mark.parametrize(("hook", "n"), [("on_step_begin", 7), ("on_train_end", 1)])
def test_an_evaluation_that_hangs_does_not_hold_up_the_end(runs, hook, n):
    ended = threading.Event()
    begun = time.monotonic()
    try:
        with tidemark.PreemptionGuard(grace=5.0) as guard:
            runs.stopped(Send(hook, n), preemption=guard, evaluation=ModuleEvaluation(lambda module: ended.wait()))
    finally:
        ended.set()
    assert time.monotonic() - begun < 60


def test_the_best_model_is_not_loaded_after_a_signal(tmp_path, monkeypatch):
    runs = Runs(tmp_path, **EPOCHS, load_best_model_at_end=True)
    trainer = runs.trainer(Send("on_step_begin", 20))
    monkeypatch.setattr(tidemark.Checkpointer, "restore", lambda *_, **__: pytest.fail("a model was loaded"))
    assert exit_code(trainer.train) == 0
    monkeypatch.undo()
    runs.goes_on()


@pytest.mark.parametrize("between", [True, False])
def test_the_step_is_saved_if_the_next_batch_does_not_come_after_a_signal(runs, caplog, between):
    """The workers of a DataLoader may get the signal too. In the middle of a step nothing can be saved."""
    trainer = runs.trainer()
    names = ("get_batch_samples", "training_step")
    original = getattr(trainer, names[not between])

    def killed(*arguments, **options):
        if trainer.state.global_step == 7:
            os.kill(os.getpid(), signal.SIGTERM)
            raise RuntimeError("DataLoader worker (pid 7) exited unexpectedly")
        return original(*arguments, **options)

    setattr(trainer, names[not between], killed)
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        trainer.train()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert trainer.preempted.step == 7 if between else trainer.preempted is None
    assert ("SIGTERM came during a training that an error has ended" in caplog.text) is not between
    runs.goes_on(saved=between)


@pytest.mark.parametrize("options", [{"save_steps": 1}, EPOCHS])
def test_a_signal_ends_a_save_that_waits_for_an_evaluation(tmp_path, monkeypatch, options):
    ended, asked = threading.Event(), terminate_in_a_save_that_waits(monkeypatch)
    begin = time.monotonic()
    try:
        with tidemark.PreemptionGuard(grace=5.0) as guard:  # which the close then waits for the evaluation
            evaluation = ModuleEvaluation(lambda module: ended.wait(60) and {}, on_backpressure="block")
            trainer = make(tmp_path, preemption=guard, evaluation=evaluation, **options)
            assert exit_code(trainer.train) == 0
    finally:
        ended.set()
    assert time.monotonic() - begin < 50  # the evaluation takes a minute
    latest = max(info.step for info in tidemark.steps(trainer.store) if info.state == "committed")
    assert trainer.preempted.step == trainer.state.global_step == asked[-1] == latest


@pytest.mark.parametrize("preemption", [False, True])
def test_a_close_that_runs_out_of_time_is_made_once_and_again_by_the_next_training(tmp_path, monkeypatch, preemption):
    ended, closes = threading.Event(), []
    close = tidemark.Checkpointer._close
    monkeypatch.setattr(tidemark.Checkpointer, "_close", lambda self, *limits: (closes.append(limits), close(self, *limits)))
    options = {"preemption": preemption, "checkpointer_options": {"close_timeout": 1.0}, "max_steps": 6}
    try:
        with pytest.raises(tidemark.errors.DeadlineExceededError):
            make(tmp_path, evaluation=ModuleEvaluation(lambda module: ended.wait()), **options).train()
        assert len(closes) == 1 and closes[0][0] <= 1.0
    finally:
        ended.set()
    make(tmp_path, **options).train(resume_from_checkpoint=True)


def test_the_callback_of_preemption_keeps_no_trainer_alive(tmp_path):
    gc.collect()
    gc.disable()
    try:
        trainer = make(tmp_path, preemption=True)
        assert [one for one in trainer.callback_handler.callbacks if type(one).__name__ == "TellTraining"]
        alive = weakref.ref(trainer)
        del trainer
        assert alive() is None
    finally:
        gc.enable()


def test_the_sample_of_the_documents_runs(tmp_path, monkeypatch):
    text = (pathlib.Path(__file__).parents[2] / "docs" / "python.md").read_text()
    samples = [sample for sample in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S) if "import transformers" in sample]
    monkeypatch.chdir(tmp_path)
    assert len(samples) == 1
    exec(compile(samples[0], "docs/python.md", "exec"), {})
    assert set(committed("run/tidemark")) == {4, 8}


@pytest.mark.parametrize("value", [None, 1, "SIGTERM"])
def test_another_preemption_is_refused(tmp_path, value):
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="preemption is .*: it must be a bool or a PreemptionGuard"):
        make(tmp_path, preemption=value)
