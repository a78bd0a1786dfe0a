"""An argument of a wrong type is an error of the package that names it and the type that it needs."""

import json
import os
import pathlib

import numpy as np
import pytest
import tidemark
from tidemark import errors

STATE = {"w": np.zeros(2)}
NAN = float("nan")
ENDLESS: list = []
ENDLESS.append(ENDLESS)


@pytest.fixture(scope="module")
def checkpointer(tmp_path_factory):
    with tidemark.Checkpointer(tmp_path_factory.mktemp("arguments") / "store") as opened:
        opened.save(1, STATE, metrics={"loss": 1.0}).committed.result(60)
        yield opened


OPTIONS = [
    ({"create": 1}, "create is 1, an int: it must be a bool"),
    ({"save_interval_steps": 2.5}, "save_interval_steps is 2.5, a float: it must be an int"),
    ({"save_interval_steps": True}, "save_interval_steps is True, a bool: it must be an int"),
    ({"save_on_steps": "12"}, "save_on_steps is one string, not a sequence of ints: ('12',)"),
    ({"save_on_steps": [1, 2.0]}, "save_on_steps[1] is 2.0, a float: it must be an int"),
    ({"save_interval_seconds": "x"}, "save_interval_seconds is 'x', a str: it must be a number"),
    ({"save_when": 3}, "save_when is 3, an int: it must be a function"),
    ({"staging_bytes_max": "1G"}, "staging_bytes_max is '1G', a str: it must be an int from 0"),
    ({"when_full": None}, "when_full is None, a NoneType: it must be a str"),
    ({"saved_dtypes": [("w", "float16")]}, "saved_dtypes is [('w', 'float16')], a list: it must be a dict"),
    ({"close_timeout": "x"}, "close_timeout is 'x', a str: it must be a number"),
    ({"close_timeout": NAN}, "close_timeout is nan, a float: it must be a number of seconds"),
    ({"save_timeout": NAN}, "save_timeout is nan, a float: it must be a number of seconds"),
    ({"tuning": tidemark.Tuning(poll_interval=NAN)}, "tuning.poll_interval is nan, a float: it must be a number of seconds"),
    ({"retention": tidemark.Retention(keep_for=NAN)}, "retention.keep_for is nan, a float: it must be a number of seconds"),
    ({"observer": tidemark.CheckpointObserver}, "a type: it must be an object of a class derived from tidemark.Checkpoint"),
    ({"observer": print}, "observer is <built-in function print>, a builtin_function_or_method: it must be an object of a class"),
    ({"ranks": tidemark.Ranks(3, 2, list)}, "ranks.rank is 3: 0 to 1, for ranks.world_size is 2"),
    ({"ranks": tidemark.Ranks(0, 0, list)}, "ranks.world_size is 0: 1 or more"),
    ({"ranks": tidemark.Ranks(0, 1, 3)}, "ranks.all_gather is 3, an int: it must be a function"),
    ({"ranks": tidemark.Ranks(0, 2, list, NAN)}, "ranks.vote_timeout is nan, a float: it must be a number of seconds"),
    ({"metrics_file": 3}, "metrics_file is 3, an int: it must be a str or an os.PathLike"),
    ({"retention": {"max_to_keep": 3}}, "retention is {'max_to_keep': 3}, a dict: it must be a tidemark.Retention"),
    ({"tuning": 3}, "tuning is 3, an int: it must be a tidemark.Tuning"),
    ({"ranks": 3}, "ranks is 3, an int: it must be a tidemark.Ranks"),
    ({"ranks": tidemark.Ranks("0", 2, lambda given: [given])}, "ranks.rank is '0', a str: it must be an int"),
    ({"ranks": tidemark.Ranks(0, 2, lambda given: [given], replicated="model.*")},
     "ranks.replicated is one string, not a sequence of patterns: ('model.*',)"),
    ({"retention": tidemark.Retention(max_to_keep="3")}, "retention.max_to_keep is '3', a str: it must be an int"),
    ({"retention": tidemark.Retention(keep_for="1h")}, "retention.keep_for is '1h', a str: it must be a number"),
    ({"retention": tidemark.Retention(keep_best="loss")}, "retention.keep_best is one string, not a sequence of"),
    ({"retention": tidemark.Retention(keep_best=[3])}, "retention.keep_best[0] is 3, an int: it must be the name of a metric"),
    ({"retention": tidemark.Retention(keep_best=[tidemark.KeepBest("loss", count="2")])}, "retention.keep_best[0].count is '2'"),
    ({"retention": tidemark.Retention(keep_unevaluated_until="v")}, "retention.keep_unevaluated_until is one string"),
    ({"retention": tidemark.Retention(keep="always")}, "retention.keep is 'always', a str: it must be a function"),
    ({"staging_bytes_max": -1}, "staging_bytes_max is -1, an int: it must be an int from 0 to 2^64 - 1"),
    ({"save_interval_steps": 2**63}, "save_interval_steps is 9223372036854775808, an int: it must be an int from -2^63"),
    # What only the module finds.
    ({"metrics_file": "\udc80"}, "metrics_file is '\\udc80': it must be a str without surrogates"),
    ({"tuning": tidemark.Tuning(codec_threads=2**31)}, "codec_threads is 2147483648: it must be an int from -2^31 to 2^31 - 1"),
    ({"tuning": tidemark.Tuning(io_depth=1.5)}, "tuning.io_depth is 1.5, a float: it must be an int"),
]


@pytest.mark.parametrize("options,message", OPTIONS, ids=[message.partition(" ")[0] for _, message in OPTIONS])
def test_an_option_of_a_wrong_type_is_named(tmp_path, options, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        tidemark.Checkpointer(tmp_path / "store", **options)
    assert message in str(caught.value)
    assert not (tmp_path / "store").exists()


CALLS = [
    (lambda c: c.save("2", STATE), "step is '2', a str: it must be an int"),
    (lambda c: c.save(2.0, STATE), "step is 2.0, a float: it must be an int"),
    (lambda c: c.save(2**63, STATE), "step is 9223372036854775808, an int: it must be an int from -2^63 to 2^63 - 1"),
    (lambda c: c.save(True, STATE), "step is True, a bool: it must be an int"),
    (lambda c: c.save(2, STATE, metrics={"loss": "x"}), "metrics['loss'] is 'x', a str: it must be a number"),
    (lambda c: c.save(2, STATE, metrics={"loss": "1.5"}), "metrics['loss'] is '1.5', a str: it must be a number"),
    (lambda c: c.save(2, STATE, metrics=[1.0]), "metrics is [1.0], a list: it must be a dict of numbers by name"),
    (lambda c: c.save(2, STATE, metrics={1: 1.0}), "a key of metrics is 1, an int: it must be a str"),
    (lambda c: c.save(2, STATE, user_metadata=3),
     "user_metadata is 3, an int: it must be a dict, or a str that is a JSON object"),
    (lambda c: c.save(2, STATE, user_metadata={"a": [1, {"b": np.float32(1)}]}),
     "user_metadata['a'][1]['b'] is np.float32(1.0), a float32: it must be what JSON can hold"),
    (lambda c: c.save(2, STATE, user_metadata={"a": float("nan")}),
     "user_metadata['a'] is nan, a float: it must be what JSON can hold"),
    (lambda c: c.save(2, STATE, user_metadata={"a": {1: 2}}),
     "a key of user_metadata['a'] is 1, an int: it must be a str"),
    (lambda c: c.save(2, STATE, user_metadata={"\udc80": 2}),
     "a key of user_metadata is '\\udc80', a str: it must be a str without"),
    (lambda c: c.save(2, STATE, user_metadata={"a": "\udc80"}),
     "user_metadata['a'] is '\\udc80', a str: it must be what JSON can hold"),
    (lambda c: c.save(2, STATE, user_metadata={"a": ENDLESS}),
     "user_metadata is nested deeper than Python can follow, or contains itself"),
    (lambda c: c.evaluate(2, STATE, user_metadata={"a": {1, 2}}),
     "user_metadata['a'] is {1, 2}, a set: it must be what JSON can hold"),
    (lambda c: c.save(2, STATE, user_metadata={"a": [10**5000]}),
     "user_metadata['a'][0] is a value without a repr(), an int: it must be an int with no more digits than Python prints"),
    (lambda c: c.save(10**5000, STATE), "step is a value without a repr(), an int: it must be an int from -2^63"),
    (lambda c: c.save(2, STATE, overwrite="no"), "overwrite is 'no', a str: it must be a bool"),
    (lambda c: c.save(2, STATE, staging=1), "staging is 1, an int: it must be a str"),
    (lambda c: c.evaluate("2", STATE), "step is '2', a str: it must be an int"),
    (lambda c: c.evaluate(2, STATE, metrics={"loss": None}), "metrics['loss'] is None, a NoneType: it must be a number"),
    (lambda c: c.should_save("1"), "step is '1', a str: it must be an int"),
    (lambda c: c.set_save_interval(None), "steps is None, a NoneType: it must be an int"),
    (lambda c: c.restore(STATE, renames=("a", "b")), "renames[0] is 'a', a str: it must be a pair"),
    (lambda c: c.restore(STATE, renames="ab"), "renames is one string, not a sequence of pairs"),
    (lambda c: c.restore(STATE, renames=[("a", 1)]), "renames[0][1] is 1, an int: it must be a str"),
    (lambda c: c.restore(STATE, only="model.*"), "only is one string, not a sequence of patterns: ('model.*',)"),
    (lambda c: c.restore(STATE, only=[1]), "only[0] is 1, an int: it must be a str"),
    (lambda c: c.restore(STATE, accept=1), "accept is 1, an int: it must be a function"),
    (lambda c: c.resume(STATE, healthy_only=1), "healthy_only is 1, an int: it must be a bool"),
    (lambda c: c.load(like=STATE, evaluations_timeout="1"), "evaluations_timeout is '1', a str: it must be a number"),
    (lambda c: c.load(like=STATE, evaluations_timeout=NAN), "evaluations_timeout is nan, a float: it must be a number"),
    (lambda c: c.close("5"), "timeout is '5', a str: it must be a number of seconds"),
    (lambda c: c.close(NAN), "timeout is nan, a float: it must be a number of seconds"),
    (lambda c: c.close(drain="5"), "drain is '5', a str: it must be a number of seconds"),
    (lambda c: c.wait_until_evaluated(NAN), "timeout is nan, a float: it must be a number of seconds"),
    (lambda c: c.committed(1).result(NAN), "timeout is nan, a float: it must be a number of seconds"),
    (lambda c: c.add_health_monitor(3), "monitor is 3, an int: it must be a tidemark.HealthMonitor"),
    (lambda c: c.pin("1"), "step is '1', a str: it must be an int"),
    (lambda c: c.unpin(1.0), "step is 1.0, a float: it must be an int"),
    (lambda c: c.tag(1, 2), "name is 2, an int: it must be a str"),
    (lambda c: c.untag(2), "name is 2, an int: it must be a str"),
    (lambda c: c.delete("1"), "step is '1', a str: it must be an int"),
    (lambda c: c.discard_after("1"), "step is '1', a str: it must be an int"),
    (lambda c: c.committed("1"), "step is '1', a str: it must be an int"),
    (lambda c: c.best_step(1), "metric is 1, an int: it must be a str"),
    (lambda c: c.report_metrics(1, "v", {"loss": "x"}), "metrics['loss'] is 'x', a str: it must be a number"),
    (lambda c: c.evaluator("v", len, entries="model.*"), "entries is one string, not a sequence of patterns: ('model.*',)"),
    (lambda c: c.evaluator("v", len, every_steps="2"), "every_steps is '2', a str: it must be an int"),
    (lambda c: c.add_average(entries="model.*"), "entries is one string, not a sequence of patterns: ('model.*',)"),
    (lambda c: c.add_average(adaptive=3), "adaptive is 3, an int: it must be a tidemark.AdaptivePeriod"),
    (lambda c: c.add_average(adaptive=tidemark.AdaptivePeriod(window="5")), "adaptive.window is '5', a str: it must be an int"),
    (lambda c: tidemark.HealthMonitor(entries="model.*"), "entries is one string, not a sequence of patterns: ('model.*',)"),
    (lambda c: tidemark.HealthMonitor(loss_window="5"), "loss_window is '5', a str: it must be an int"),
    (lambda c: tidemark.follow(c.path, len, evaluator="v", entries="model.*"),
     "entries is one string, not a sequence of patterns"),
    (lambda c: tidemark.follow(c.path, len, evaluator="v", until_step="5"), "until_step is '5', a str: it must be an int"),
    (lambda c: tidemark.follow(c.path, len, evaluator="v", idle_timeout=NAN), "idle_timeout is nan, a float: it must be a"),
    (lambda c: tidemark.follow(c.path, len, evaluator="v", stop=3), "stop is 3, an int: it must be a function"),
    (lambda c: tidemark.follow(c.path, len, evaluator="v", on_evaluated=3), "on_evaluated is 3, an int: it must be a function"),
    (lambda c: tidemark.HealthMonitor(on_divergence=3), "on_divergence is 3, an int: it must be a function"),
    (lambda c: tidemark.follow(3, len, evaluator="v"), "store is 3, an int: it must be a str or an os.PathLike"),
    (lambda c: tidemark.export_safetensors(c.path, "x", entries="w"),
     "entries is one string, not a sequence of patterns: ('w',)"),
    (lambda c: tidemark.export_safetensors(c.path, "x", renames=["ab"]), "renames[0] is 'ab', a str: it must be a pair"),
    (lambda c: tidemark.BestFile(c.path, "loss", "x", entries="w"), "entries is one string, not a sequence of patterns: ('w',)"),
    (lambda c: tidemark.BestFile(c.path, 3, "x"), "metric is 3, an int: it must be a str"),
    (lambda c: tidemark.capture(STATE).restore(STATE, only="w"), "only is one string, not a sequence of patterns: ('w',)"),
    (lambda c: tidemark.capture(STATE).export_safetensors("x", entries="w"), "entries is one string, not a sequence of patterns"),
    (lambda c: tidemark.PreemptionGuard(signals=15), "signals is 15, an int: it must be a sequence of ints"),
    (lambda c: tidemark.PreemptionGuard(grace="30"), "grace is '30', a str: it must be a number"),
    (lambda c: tidemark.AsyncTrainer(c.path, STATE, print, max_rollbacks="3"), "max_rollbacks is '3', a str: it must be an int"),
    (lambda c: tidemark.AsyncTrainer(c.path, STATE, print, setup=3), "setup is 3, an int: it must be a function"),
    (lambda c: tidemark.AsyncTrainer(c.path, STATE, print, on_divergence=3), "on_divergence is 3, an int: it must be a function"),
    (lambda c: tidemark.AsyncTrainer(c.path, STATE, print, health=3), "health is 3, an int: it must be a tidemark.HealthMonitor"),
    (lambda c: tidemark.AsyncTrainer(c.path, STATE, print, observer=print), "it must be an object of a class derived from"),
    (lambda c: tidemark.AsyncTrainer(f"{c.path}2", STATE, print).run("20"), "steps is '20', a str: it must be an int"),
    (lambda c: tidemark.AsyncTrainer(c.path, STATE, print, save_intervall_steps=1),
     "AsyncTrainer has no option 'save_intervall_steps': did you mean 'save_interval_steps'?"),
    (lambda c: tidemark.AsyncTrainer(c.path, STATE, print, colour=1),
     "AsyncTrainer has no option 'colour': its own are store, state,"),
    (lambda c: tidemark.AsyncTrainer(c.path, STATE, print, max_rolbacks=1),
     "AsyncTrainer has no option 'max_rolbacks': did you mean 'max_rollbacks'?"),
    (lambda c: tidemark.Checkpointer("s3://bucket/run"),
     "path is 's3://bucket/run', an address: it must be the path of a file or"),
    (lambda c: tidemark.Checkpointer(pathlib.Path("gs://bucket/run")), "path is 'gs:/bucket/run', an address"),
    (lambda c: tidemark.open("file:///run"), "store is 'file:///run', an address"),
    (lambda c: tidemark.Checkpointer(c.path + "2", metrics_file="s3://b/m"), "metrics_file is 's3://b/m', an address"),
    (lambda c: tidemark.Checkpointer(c.path + "2", retention=tidemark.Retention(
        keep_best=["loss", tidemark.KeepBest("x", "min")])),
     "retention.keep_best[1].mode is 'min', not 'lowest' or 'highest', of the metric 'x': did you mean 'lowest'?"),
    (lambda c: tidemark.Checkpointer(c.path + "2", retention=tidemark.Retention(keep_unevaluated_until=["val/loss"])),
     "retention.keep_unevaluated_until[0] is 'val/loss', which is a metric: it must be the name of the evaluator, 'val'"),
    (lambda c: c.best_step("loss", "max"), "mode is 'max', not 'lowest' or 'highest': did you mean 'highest'?"),
    (lambda c: c.best_step("loss", "up"), "mode is 'up', not 'lowest' or 'highest'"),
    (lambda c: c.evaluator("v", len, best={"loss": "min"}), "best['loss'] is 'min', not 'lowest' or 'highest': did you mean"),
    (lambda c: tidemark.BestFile(c.path, "loss", "x", mode="min"), "mode is 'min', not 'lowest' or 'highest': did you mean"),
    (lambda c: c.restore(STATE, "best:loss:min"), "step is 'best:loss:min': did you mean 'best:loss:lowest'?"),
    (lambda c: tidemark.open(c.path, "best:val/acc:max"), "step is 'best:val/acc:max': did you mean 'best:val/acc:highest'?"),
    (lambda c: tidemark.Checkpointer(""), "path is empty: it must be the path of a file or folder"),
    (lambda c: tidemark.AsyncTrainer("", STATE, print), "store is empty: it must be"),
    (lambda c: tidemark.open(""), "store is empty: it must be"),
    (lambda c: tidemark.export_safetensors(c.path, ""), "path is empty: it must be"),
    (lambda c: tidemark.open(3), "store is 3, an int: it must be a str or an os.PathLike"),
    (lambda c: tidemark.open(c.path, framework=3), "framework is 3, not 'np', 'pt' or 'jax'"),
    (lambda c: tidemark.open(c.path, untrusted=1), "untrusted is 1, an int: it must be a bool"),
    (lambda c: tidemark.steps(3), "store is 3, an int: it must be a str or an os.PathLike"),
    (lambda c: tidemark.steps(c.path, untrusted=1), "untrusted is 1, an int: it must be a bool"),
    (lambda c: tidemark.verify(3), "store is 3, an int: it must be a str or an os.PathLike"),
    (lambda c: tidemark.verify(c.path, share="x"), "share is 'x', a str: it must be a number"),
    (lambda c: tidemark.verify(c.path, seed=-1), "seed is -1, an int: it must be an int from 0 to 2^64 - 1"),
    (lambda c: tidemark.verify(c.path, untrusted=1), "untrusted is 1, an int: it must be a bool"),
    (lambda c: tidemark.phases(3), "store is 3, an int: it must be a str or an os.PathLike"),
    (lambda c: tidemark.references(3), "store is 3, an int: it must be a str or an os.PathLike"),
    (lambda c: tidemark.export_safetensors(3, "x"), "store is 3, an int: it must be a str or an os.PathLike"),
    (lambda c: tidemark.export_safetensors(c.path, 3), "path is 3, an int: it must be a str or an os.PathLike"),
    (lambda c: tidemark.capture(STATE).export_safetensors(3), "path is 3, an int: it must be a str or an os.PathLike"),
    (lambda c: tidemark.BestFile(c.path, "a", "b", observer=print), "it must be an object of a class derived from"),
    (lambda c: tidemark.BestFile(c.path, "a", "b", poll_interval=NAN), "poll_interval is nan, a float: it must be a number of"),
    (lambda c: tidemark.BestFile(3, "a", "b"), "store is 3, an int: it must be a str or an os.PathLike"),
    (lambda c: tidemark.BestFile(c.path, "a", 3), "path is 3, an int: it must be a str or an os.PathLike"),
    (lambda c: tidemark.AsyncTrainer(3, STATE, print), "store is 3, an int: it must be a str or an os.PathLike"),
    (lambda c: tidemark.register(3, len, len), "kind is 3, an int: it must be a class"),
    (lambda c: tidemark.register(bytes, 4, len), "encode is 4, an int: it must be a function"),
    (lambda c: tidemark.register(bytes, len, 5), "decode is 5, an int: it must be a function"),
    (lambda c: tidemark.register(bytes, len, len, name=5), "name is 5, an int: it must be a str"),
    (lambda c: tidemark.Checkpointer(3), "path is 3, an int: it must be a str or an os.PathLike"),
]


@pytest.mark.parametrize("call,message", CALLS, ids=[f"{i}-{message.partition(' ')[0]}" for i, (_, message) in enumerate(CALLS)])
def test_an_argument_of_a_wrong_type_is_named(checkpointer, call, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        call(checkpointer)
    assert message in str(caught.value)
    assert [info.step for info in checkpointer.steps()] == [1]


def test_numbers_of_numpy_are_numbers(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store", save_interval_steps=np.int64(3), close_timeout=np.float32(60),
                               save_on_steps=np.arange(2), reuse=np.bool_(True)) as checkpointer:
        metrics = {"loss": np.float32(1.5), "of one element": np.array(2)}
        checkpointer.save(np.int64(7), STATE, metrics=metrics).committed.result(60)
        assert checkpointer.latest_step().metrics == {"loss": 1.5, "of one element": 2.0}
        assert checkpointer.should_save(np.uint8(9))


def test_user_metadata_is_a_dict_or_a_text(tmp_path):
    given = {"run": "a", "git": {"dirty": False, "lines": [1, 2.5, None, ("x",)]}, "\u00e9": 2**70}
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.save(1, STATE, user_metadata=given).committed.result(60)
        checkpointer.save(2, STATE, user_metadata=json.dumps(given)).committed.result(60)
        checkpointer.save(3, STATE, user_metadata={}).committed.result(60)
        stored = [json.loads(info.user_metadata) for info in checkpointer.steps()]
    given["git"]["lines"][3] = ["x"]
    assert stored == [given, given, {}]


def test_a_path_may_begin_in_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with tidemark.Checkpointer("~/run", metrics_file="~/metrics") as checkpointer:
        checkpointer.save(1, STATE).committed.result(60)
    assert sorted(os.listdir(tmp_path)) == ["metrics", "run"]
    assert tidemark.steps(pathlib.Path("~/run"))[0].step == 1


def test_an_address_makes_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.InvalidArgumentError):
        tidemark.Checkpointer("s3://bucket/run")
    assert os.listdir(tmp_path) == []
