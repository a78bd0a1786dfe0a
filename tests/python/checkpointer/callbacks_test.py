"""Functions of the trainer that the core calls: which steps to save, to keep and to restore."""

import gc
import math
import threading
import weakref

import numpy as np
import pytest
import tidemark
from tidemark import errors


def save(checkpointer, step, **options):
    checkpointer.save(step, {"w": np.full(10, step)}, **options).committed.result(60)


def committed(checkpointer):
    checkpointer.tidy()
    return [info.step for info in checkpointer.steps() if info.state == "committed"]


def test_a_rule_decides_what_is_saved(tmp_path):
    questions = []

    def rule(question):
        questions.append(question)
        return np.bool_(question.last_saved is None or question.step >= 2 * question.last_saved)

    with tidemark.Checkpointer(tmp_path / "store", save_when=rule) as checkpointer:
        for step in range(1, 20):
            if checkpointer.should_save(step):
                save(checkpointer, step)
        assert [info.step for info in checkpointer.steps()] == [1, 2, 4, 8, 16]
    assert (questions[0].step, questions[0].last_saved, questions[0].in_flight) == (1, None, False)
    assert (questions[-1].step, questions[-1].last_saved) == (19, 16) and 0 <= questions[-1].since_last < 600
    with tidemark.Checkpointer(tmp_path / "store", save_when=rule) as checkpointer:
        assert not checkpointer.should_save(31) and checkpointer.should_save(32)


def test_a_rule_that_raises_saves_and_warns(tmp_path, caplog):
    def rule(question):
        raise KeyError("no such plan")

    with tidemark.Checkpointer(tmp_path / "store", save_when=rule) as checkpointer:
        assert checkpointer.should_save(1)
    assert "step 1 is to be saved" in caplog.text and "KeyError: 'no such plan'" in caplog.text


def raising(error):
    def function(_):
        raise error

    return function


class Unprintable(Exception):
    def __str__(self):
        raise KeyError("no text")


@pytest.mark.parametrize("error,text", [
    (ValueError("one\ntwo"), r"ValueError: one\ntwo"), (ValueError("one\n"), r"ValueError: one\n"),
    (ValueError(), "ValueError"), (Unprintable(), "Unprintable"), (ValueError("\udc80"), r"ValueError: \udc80")])
def test_a_warning_has_the_type_and_the_whole_text(tmp_path, caplog, error, text):
    with tidemark.Checkpointer(tmp_path / "store", save_when=raising(error)) as checkpointer:
        assert checkpointer.should_save(1)
    assert f"step 1 is to be saved, though that is not known: save_when raised: {text}\n" in caplog.text


@pytest.mark.parametrize("interruption", [KeyboardInterrupt("now"), SystemExit(3)])
def test_an_interruption_in_a_rule_comes_out_once(tmp_path, interruption):
    asked = []

    def rule(question):
        asked.append(question.step)
        if question.step == 1:
            raise interruption
        return False

    with tidemark.Checkpointer(tmp_path / "store", save_when=rule) as checkpointer:
        with pytest.raises(type(interruption)) as caught:
            checkpointer.should_save(1)
        assert caught.value is interruption and not checkpointer.should_save(2) and asked == [1, 2]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt("now"), SystemExit(3)])
def test_an_interruption_in_accept_comes_out_of_the_restore(tmp_path, interruption):
    state = {"w": np.zeros(10, np.int64)}
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        save(checkpointer, 1)
        for restore in (checkpointer.restore, checkpointer.resume):
            with pytest.raises(type(interruption)) as caught:
                restore(state, accept=raising(interruption))
            assert caught.value is interruption and state["w"][0] == 0
        assert checkpointer.resume(state) == 2 and state["w"][0] == 1


def test_a_function_keeps_steps(tmp_path):
    threads = set()

    def keep(info):
        threads.add(threading.get_ident())
        return np.bool_(info.metrics["loss"] > 5)

    with tidemark.Checkpointer(tmp_path / "store", retention=tidemark.Retention(max_to_keep=1, keep=keep)) as checkpointer:
        for step, loss in enumerate((9.0, 1.0, 7.0, 2.0)):
            save(checkpointer, step, metrics={"loss": loss})
        assert committed(checkpointer) == [0, 2, 3]
    assert threading.get_ident() not in threads


def test_a_step_stays_if_the_function_raises(tmp_path, caplog):
    def keep(info):
        raise RuntimeError("undecided")

    with tidemark.Checkpointer(tmp_path / "store", retention=tidemark.Retention(max_to_keep=1, keep=keep)) as checkpointer:
        for step in range(3):
            save(checkpointer, step)
        assert committed(checkpointer) == [0, 1, 2]
    assert "undecided" in caplog.text


def test_a_score_ranks_steps_by_all_their_metrics(tmp_path):
    best = tidemark.KeepBest(score=lambda metrics: metrics["a"] + metrics["b"] if "a" in metrics else math.nan, count=2)
    with tidemark.Checkpointer(tmp_path / "store", retention=tidemark.Retention(keep_best=[best])) as checkpointer:
        for step, (a, b) in enumerate(((3, 3), (1, 1), (0, 9), (2, 1), (9, 9))):
            save(checkpointer, step, metrics={"a": a, "b": b})
        save(checkpointer, 5)
        assert committed(checkpointer) == [1, 3, 5]  # and the latest
        decisions = {decision.step: decision for decision in checkpointer.retention_plan()}
        assert decisions[1].keep and "best" in decisions[1].reason


def test_a_score_that_raises_deletes_nothing(tmp_path, caplog):
    best = tidemark.KeepBest(score=lambda metrics: metrics["a"])
    with tidemark.Checkpointer(tmp_path / "store", retention=tidemark.Retention(keep_best=[best])) as checkpointer:
        for step in range(3):
            save(checkpointer, step)
        assert committed(checkpointer) == [0, 1, 2]
    assert "KeyError" in caplog.text


def test_a_restore_takes_only_accepted_steps(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        for step in range(4):
            save(checkpointer, step, metrics={"loss": float(step)})
        state = {"w": np.zeros(10, np.int64)}
        report = checkpointer.restore(state, accept=lambda info: info.metrics["loss"] < 2)
        assert report.step == 1 and state["w"][0] == 1
        assert [step for step, _ in report.passed_over] == [3, 2]
        assert checkpointer.resume(state, accept=lambda info: info.step < 1) == 1 and state["w"][0] == 0
        with pytest.raises(errors.NotFoundError):
            checkpointer.restore(state, accept=lambda info: False)
        with pytest.raises(errors.InternalError, match="no opinion"):
            checkpointer.restore(state, accept=lambda info: exec("raise ValueError('no opinion')"))
        assert state["w"][0] == 0


def test_functions_that_refer_to_their_checkpointer_are_released_by_its_end(tmp_path):
    checkpointers = []

    class Rule:
        def __call__(self, _):
            return len(checkpointers) == 1

    rules = [Rule(), Rule(), Rule()]
    gone = [weakref.ref(rule) for rule in rules]
    best = tidemark.KeepBest(score=rules[2])
    checkpointers.append(tidemark.Checkpointer(tmp_path / "store", save_when=rules[0],
                                               retention=tidemark.Retention(keep=rules[1], keep_best=[best])))
    assert checkpointers[0].should_save(1)
    save(checkpointers[0], 1)
    checkpointers[0].close()
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        checkpointers[0].should_save(2)
    del rules, best
    gc.collect()
    assert [reference() for reference in gone] == [None, None, None]
