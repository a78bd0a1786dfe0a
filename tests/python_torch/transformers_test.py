"""tidemark.transformers: the mixin, the callback and the export, with a small model on the text of the GPL."""

import os
import pathlib
import random
import subprocess
import sys
import threading
import time

import pytest
import tidemark
import tokenizers
import torch
import transformers
from tidemark.transformers import ModuleEvaluation, TidemarkCallback, TidemarkTrainerMixin, _steps, export

pytestmark = pytest.mark.filterwarnings("ignore")  # Transformers' advice
TEXT = pathlib.Path("/usr/share/common-licenses/GPL-3")
WINDOW = 16


class Trainer(TidemarkTrainerMixin, transformers.Trainer):
    pass


def windows(count):
    content = TEXT.read_bytes()
    numbers = {character: number for number, character in enumerate(sorted(set(content)))}
    pieces = [torch.tensor([numbers[c] for c in content[i * WINDOW:(i + 1) * WINDOW]]) for i in range(count)]
    return [{"input_ids": piece, "labels": piece} for piece in pieces], len(numbers)


DATA, VOCABULARY = windows(80)
TRAINING, HELD_OUT = DATA[:64], DATA[64:]


def model():
    torch.manual_seed(3)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=WINDOW, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0))


def arguments(folder, **options):
    return transformers.TrainingArguments(**{
        "output_dir": os.fspath(folder), "per_device_train_batch_size": 4, "max_steps": 24, "save_steps": 5,
        "logging_steps": 1, "report_to": [], "use_cpu": True, "disable_tqdm": True, "learning_rate": 0.01, "warmup_steps": 3,
        "eval_strategy": "no", "seed": 11, **options})


def make(folder, *, kind=Trainer, evaluation=None, callbacks=None, store=None, checkpointer_options=None, ranks=None,
         preemption=False, progress=None, **options):
    extra = {"store": store, "evaluation": evaluation, "checkpointer_options": checkpointer_options, "ranks": ranks,
             "preemption": preemption, "progress": progress} if kind is Trainer else {}
    return kind(model(), arguments(folder, **options), train_dataset=TRAINING, eval_dataset=HELD_OUT,
                callbacks=callbacks, **extra)


def weights(trainer):
    return torch.cat([tensor.flatten() for tensor in trainer.model.state_dict().values()])


def losses(trainer):
    return {line["step"]: line["loss"] for line in trainer.state.log_history if "loss" in line}


def committed(store):
    with tidemark.Checkpointer(store) as checkpointer:
        return {info.step: info for info in checkpointer.steps() if info.state == "committed"}


def test_a_resumed_training_is_that_which_was_not_stopped(tmp_path, caplog):
    whole = make(tmp_path / "whole")
    whole.train()
    plain = make(tmp_path / "plain", kind=transformers.Trainer, save_strategy="no")
    plain.train()
    assert torch.equal(weights(whole), weights(plain))  # saving changes nothing
    assert sorted(committed(whole.store)) == [5, 10, 15, 20, 24]
    assert [path.name for path in (tmp_path / "whole").iterdir()] == ["tidemark"]

    class Stopped(Exception):
        pass

    class Stop(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == 13:
                raise Stopped

    with pytest.raises(Stopped):
        make(tmp_path / "parts", callbacks=[Stop()]).train(resume_from_checkpoint=True)  # begins afresh
    resumed = make(tmp_path / "parts")
    resumed.train(resume_from_checkpoint=True)
    assert torch.equal(weights(resumed), weights(whole)) and losses(resumed) == losses(whole)
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="has step 24, and this training begins at step 0"):
        make(tmp_path / "parts").train()
    again = make(tmp_path / "parts")
    again.train(resume_from_checkpoint="tidemark:5")
    assert "has step 24, and this training begins at step 5" in caplog.text
    assert torch.equal(weights(again), weights(whole)) and losses(again) == losses(whole)


def test_a_training_killed_in_saves_resumes_bit_for_bit(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(f"""
import sys
sys.path.insert(0, {os.fspath(pathlib.Path(__file__).parent)!r})
from transformers_test import make, weights
trainer = make({os.fspath(tmp_path / "killed")!r}, save_steps=1)
trainer.train(resume_from_checkpoint=True)
""")
    seed = time.time_ns() % 2**31
    print(f"seed {seed}")
    moments = random.Random(seed)
    steps = tmp_path / "killed" / "tidemark" / "steps"
    found = []
    for _ in range(3):
        begun = set(os.listdir(steps)) if steps.exists() else set()
        process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        saves = moments.randrange(2, 6)
        while process.poll() is None and (not steps.exists() or len(set(os.listdir(steps)) - begun) < saves):
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.01))
        process.kill()
        output, _ = process.communicate()
        assert process.returncode in (0, -9), output.decode()
        found.append(max(committed(tmp_path / "killed" / "tidemark"), default=0))
    assert found == sorted(found) and found[0] > 0
    last = make(tmp_path / "killed", save_steps=1)
    last.train(resume_from_checkpoint=True)
    whole = make(tmp_path / "whole", save_strategy="no")
    whole.train()
    assert torch.equal(weights(last), weights(whole)) and losses(last) == losses(whole)


def test_retention_follows_the_arguments_and_the_best_model_is_loaded(tmp_path):
    options = {"eval_strategy": "steps", "eval_steps": 5, "load_best_model_at_end": True, "save_total_limit": 1,
               "metric_for_best_model": "loss", "greater_is_better": True}  # so that the last step is not the best
    trainer = make(tmp_path, **options)
    trainer.train()
    best = trainer.state.best_global_step
    assert best in (5, 10, 15, 20) and set(committed(trainer.store)) == {best, 24}
    assert committed(trainer.store)[best].metrics["eval_loss"] == trainer.state.best_metric
    with tidemark.open(trainer.store, "best:eval_loss:highest", framework="pt") as step:
        assert step.info.step == best
        assert torch.equal(step.get_tensor("model.transformer.wte.weight"), trainer.model.transformer.wte.weight)
    # A resumed run, which finds no better one, still has it.
    resumed = make(tmp_path, **{**options, "max_steps": 26})
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.best_global_step == best
    assert torch.equal(weights(resumed), weights(trainer))


def held_out_loss(module):
    assert not module.training
    batch = torch.stack([item["input_ids"] for item in HELD_OUT])
    with torch.no_grad():
        return {"loss": module(input_ids=batch, labels=batch).loss}


@pytest.mark.parametrize("half", ["", "bfloat16"])
def test_saved_steps_are_evaluated_beside_the_training(tmp_path, half):
    whole = make(tmp_path / "plain", save_strategy="no")
    whole.train()
    trainer = make(tmp_path, evaluation=ModuleEvaluation(held_out_loss, max_pending=9, half=half))
    trainer.train()
    assert torch.equal(weights(trainer), weights(whole)) and trainer.skipped_evaluations == []
    steps = committed(trainer.store)
    assert sorted(steps) == [5, 10, 15, 20, 24]
    assert steps[24].metrics["validation/loss"] == pytest.approx(held_out_loss(trainer.model.eval())["loss"].item(), rel=0.02)
    if not half:
        assert steps[24].metrics["validation/loss"] < steps[5].metrics["validation/loss"]


def test_the_training_waits_for_evaluations_if_told_to(tmp_path):
    trainer = make(tmp_path, evaluation=ModuleEvaluation(held_out_loss, on_backpressure="block"), save_steps=2)
    trainer.train()
    assert trainer.skipped_evaluations == []
    assert all("validation/loss" in info.metrics for info in committed(trainer.store).values())


@pytest.mark.parametrize(("policy", "evaluated"), [("queue", [5, 10, 15, 20, 24]), ("oldest", [5, 24])])
def test_steps_saved_during_an_evaluation_wait_for_it_or_replace_one_another(tmp_path, policy, evaluated):
    begun, gate, modules, sums = threading.Event(), threading.Event(), [], []

    def evaluate(module):
        modules.append(module)
        sums.append(sum(tensor.double().sum().item() for tensor in module.state_dict().values()))
        begun.set()
        assert gate.wait(60)
        return held_out_loss(module)

    class Meanwhile(transformers.TrainerCallback):
        """The evaluation of step 5 takes until the training has ended."""

        def on_step_end(self, args, state, control, **_):
            assert state.global_step <= 6 or begun.wait(60)

        def on_train_end(self, args, state, control, **_):
            gate.set()

    trainer = make(tmp_path, evaluation=ModuleEvaluation(evaluate, on_backpressure=policy), callbacks=[Meanwhile()])
    trainer.train()
    steps = committed(trainer.store)
    assert sorted(steps) == [5, 10, 15, 20, 24]
    assert [step for step, info in steps.items() if "validation/loss" in info.metrics] == evaluated
    assert [step for step, _ in trainer.skipped_evaluations] == sorted(set(steps) - set(evaluated))
    # One module serves every evaluation, each with the weights of its step.
    assert len(modules) == len(evaluated) and all(module is modules[0] for module in modules)
    assert modules[0] is not trainer.model and len(set(sums)) == len(evaluated)
    assert torch.equal(weights(trainer), torch.cat([tensor.flatten() for tensor in modules[0].state_dict().values()]))
    assert steps[24].metrics["validation/loss"] < steps[5].metrics["validation/loss"]


def test_the_callback_saves_beside_a_trainer_that_is_as_it_was(tmp_path):
    callback = TidemarkCallback(tmp_path / "store", every_steps=8, evaluation=ModuleEvaluation(held_out_loss, max_pending=9))
    trainer = make(tmp_path / "plain", kind=transformers.Trainer, callbacks=[callback], save_strategy="no")
    trainer.train()
    steps = committed(tmp_path / "store")
    assert sorted(steps) == [8, 16, 24] and all("validation/loss" in info.metrics for info in steps.values())
    other = make(tmp_path / "other")
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.restore({"model": other.model}, only=["model.*"])
    assert torch.equal(weights(other), weights(trainer))
    on_save = TidemarkCallback(tmp_path / "on_save")
    make(tmp_path / "saving", kind=transformers.Trainer, callbacks=[on_save], save_steps=10).train()
    assert sorted(committed(tmp_path / "on_save")) == [10, 20, 24]


def test_a_step_is_exported_for_from_pretrained(tmp_path):
    trainer = make(tmp_path / "run")
    trainer.train()
    export(trainer.store, tmp_path / "exported")
    loaded = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "exported")
    assert all(torch.equal(a, b) for a, b in zip(loaded.state_dict().values(), trainer.model.state_dict().values(), strict=True))
    with pytest.raises(FileExistsError):
        export(trainer.store, tmp_path / "exported")
    with pytest.raises(tidemark.NotFoundError):
        export(trainer.store, tmp_path / "none", step=7)


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "deep/../../evil", "deep/..", ".", "", "deep//evil"])
def test_a_file_outside_of_the_folder_is_not_exported(tmp_path, name):
    with tidemark.Checkpointer(tmp_path / "bad") as checkpointer:
        checkpointer.save(1, {f"files.{name}": b"x"})
    with pytest.raises(tidemark.errors.InvalidArgumentError, match=f"step 1 has a file .* the name '{name}' is not allowed"):
        export(tmp_path / "bad", tmp_path / "outside")
    assert not (tmp_path / "evil").exists() and not (tmp_path / "outside").exists()


def test_files_in_subfolders_are_exported_and_one_that_is_left_out_is_named(tmp_path, monkeypatch, caplog):
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")))
    tokenizer.chat_template = {"default": "{{x}}", "tool_use": "{{y}}"}
    files = _steps.files_of(tokenizer)
    assert "files.additional_chat_templates/tool_use.jinja" in files and caplog.text == ""
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.save(1, files)
    export(tmp_path / "store", tmp_path / "exported")
    loaded = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "exported")
    assert loaded.chat_template == tokenizer.chat_template
    monkeypatch.setattr(_steps, "_FILE_BYTES_MAX", 100)
    assert "files.tokenizer.json" not in _steps.files_of(tokenizer)
    assert "tokenizer.json is in no step" in caplog.text and "jinja" not in caplog.text


def test_a_resumed_training_reads_each_part_once(tmp_path, monkeypatch):
    make(tmp_path, max_steps=2, save_steps=2).train()
    restore, read = tidemark.Checkpointer.restore, []

    def noted(self, *arguments, **options):
        report = restore(self, *arguments, **options)
        read.append(report.bytes)
        return report

    monkeypatch.setattr(tidemark.Checkpointer, "restore", noted)
    trainer = make(tmp_path, max_steps=4, save_steps=2)
    trainer.train(resume_from_checkpoint=True)
    of_model = sum(parameter.nbytes for parameter in trainer.model.parameters())
    assert len(read) == 3 and sum(read) < 4 * of_model  # Adam's state is as large as two models


def test_a_mixin_after_the_trainer_is_refused():
    with pytest.raises(tidemark.errors.InvalidArgumentError, match=r"write class Wrong\(TidemarkTrainerMixin, Trainer\)"):
        class Wrong(transformers.Trainer, TidemarkTrainerMixin):
            pass

    class Derived(Trainer):
        pass

    class Beside(TidemarkTrainerMixin, transformers.Seq2SeqTrainer):
        pass


@pytest.mark.parametrize(("options", "trainer", "warns"), [
    ({}, {"save_strategy": "no"}, True), ({"every_steps": 5}, {"save_strategy": "no"}, False), ({}, {}, False)])
def test_a_callback_that_would_save_nothing_warns(tmp_path, caplog, options, trainer, warns):
    """It is no error, because another callback may set `control.should_save`."""
    callback = TidemarkCallback(tmp_path / "store", **options)
    make(tmp_path, kind=transformers.Trainer, callbacks=[callback], max_steps=1, **trainer).train()
    assert ("Give every_steps=, or another save_strategy" in caplog.text) is warns


def test_what_cannot_be_resumed_is_refused(tmp_path):
    with tidemark.Checkpointer(tmp_path / "tidemark") as checkpointer:
        checkpointer.save(1, {"a": 1})
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="step 1 of .* was not saved by tidemark.transformers"):
        make(tmp_path).train(resume_from_checkpoint=True)
    with pytest.raises(tidemark.NotFoundError):
        make(tmp_path).train(resume_from_checkpoint="tidemark:7")
    trainer = make(tmp_path / "hub")
    trainer.args.push_to_hub = True
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="push_to_hub"):
        trainer.train()


def test_a_store_of_a_wrong_type_is_named(tmp_path):
    for give in (lambda: TidemarkCallback(3), lambda: make(tmp_path, store=3)):
        with pytest.raises(tidemark.errors.InvalidArgumentError, match="store is 3, .*: it must be a str or an os.PathLike"):
            give()


def test_an_option_that_is_none_is_an_error_before_the_training(tmp_path):
    for give in (lambda: TidemarkCallback(tmp_path / "store", save_intervall_steps=1),
                 lambda: make(tmp_path, checkpointer_options={"save_intervall_steps": 1})):
        with pytest.raises(tidemark.errors.InvalidArgumentError,
                           match="no option 'save_intervall_steps': did you mean 'save_interval_steps'"):
            give()
