"""Options of tidemark.Checkpointer that the integrations of PyTorch refuse: the message says what to use instead."""

import pytest
import tidemark.lightning
import tidemark.transformers
import transformers_test
from tidemark.errors import InvalidArgumentError
from tidemark.lightning import TidemarkCheckpoint, TidemarkCheckpointIO
from tidemark.transformers import ModuleEvaluation, TidemarkCallback


def mixin(folder, **options):
    return transformers_test.make(folder, checkpointer_options=options)


@pytest.mark.parametrize("integration", [tidemark.lightning, tidemark.transformers])
def test_no_name_of_an_integration_is_another_thing_of_the_package(integration):
    assert not set(integration.__all__) & set(tidemark.__all__)


@pytest.mark.parametrize("make", [mixin, TidemarkCallback, TidemarkCheckpoint, TidemarkCheckpointIO])
@pytest.mark.parametrize("options", [
    {"staging": "overlapped"}, {"save_when": bool}, {"save_interval_steps": 5}, {"save_on_steps": [1]},
    {"save_interval_seconds": 5.0}])
def test_what_the_framework_decides_is_refused(tmp_path, make, options):
    name = next(iter(options))
    with pytest.raises(InvalidArgumentError, match=rf"takes no {name}.*: .*(use|decides)"):
        make(tmp_path, **options)
    make(tmp_path, staging="blocking")


@pytest.mark.parametrize(("make", "options", "words"), [
    (mixin, {"ranks": None}, "give ranks= to the Trainer itself"),
    (TidemarkCheckpointIO, {"ranks": None}, "rank 0 alone saves"),
    (TidemarkCheckpointIO, {"retention": None}, "removing a file deletes its step"),
    (TidemarkCheckpointIO, {"when_full": "skip"}, "no when_full='skip': Lightning counts on each save")])
def test_what_would_fail_later_is_refused(tmp_path, make, options, words):
    with pytest.raises(InvalidArgumentError, match=words):
        make(tmp_path, **options)


def trainer(store, **arguments):
    return transformers_test.make("unused", store=store, **arguments)


@pytest.mark.parametrize(("make", "arguments", "words"), [
    *[(make, {"evaluation": print}, "evaluation is .*: it must be a ModuleEvaluation")
      for make in (trainer, TidemarkCallback, TidemarkCheckpoint)],
    (TidemarkCallback, {"every_steps": "5"}, "every_steps is '5', a str: it must be an int"),
    (TidemarkCallback, {"every_steps": -1}, "every_steps is -1"),
    (TidemarkCheckpoint, {"monitor": 5}, "monitor is 5, an? int: it must be a str"),
    (TidemarkCheckpoint, {"save_on_train_epoch_end": "no"}, "save_on_train_epoch_end is 'no', a str: it must be a bool")])
def test_an_argument_of_a_wrong_type_is_named(tmp_path, make, arguments, words):
    with pytest.raises(InvalidArgumentError, match=words):
        make(tmp_path, **arguments)


@pytest.mark.parametrize("make", [trainer, TidemarkCallback, TidemarkCheckpoint, TidemarkCheckpointIO])
def test_a_store_that_is_no_path_is_named(make):
    with pytest.raises(InvalidArgumentError, match="store is 5, an? int: it must be a str or an os.PathLike"):
        make(5)


@pytest.mark.parametrize(("arguments", "words"), [
    ({"function": 5}, "function is 5"), ({"name": 5}, "name is 5"), ({"max_pending": "2"}, "max_pending is '2'"),
    ({"max_pending": 0}, "max_pending is 0"), ({"drain": -1}, "drain is -1: 0 or more"), ({"drain": "x"}, "drain is 'x'"),
    ({"half": "float8"}, "half is 'float8'"), ({"on_backpressure": "drop"}, "on_backpressure is 'drop'")])
def test_an_evaluation_names_its_wrong_argument(arguments, words):
    with pytest.raises(InvalidArgumentError, match=words):
        ModuleEvaluation(**{"function": print, **arguments})


@pytest.mark.parametrize(("make", "wrong", "meant"), [
    (TidemarkCheckpoint, "save_topk", "save_top_k"), (TidemarkCheckpointIO, "progres", "progress"),
    (TidemarkCallback, "every_step", "every_steps")])
def test_a_slip_in_an_argument_of_the_class_itself_is_named(tmp_path, make, wrong, meant):
    with pytest.raises(InvalidArgumentError, match=f"{make.__name__} has no option '{wrong}': did you mean '{meant}'"):
        make(tmp_path, **{wrong: 3})
    with pytest.raises(InvalidArgumentError, match=f"no option 'colour': its own are store, .*{meant}") as caught:
        make(tmp_path, colour=3)
    assert "save_on_steps" not in str(caught.value)  # which it refuses
