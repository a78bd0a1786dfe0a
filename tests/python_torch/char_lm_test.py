"""examples/python/char_lm.py: killed at random moments, and side by side with the trainer in C++."""

import os
import random
import subprocess
import sys
import time

import example_runs
import pytest
import tidemark
import torch
from example_runs import losses

TWIN = os.environ["TIDEMARK_CHAR_LM"]
SMALL = ["--layers", "1", "--heads", "2", "--width", "16", "--context", "16", "--batch", "2"]
STEPS = 120


def start(folder, name, *flags):
    return example_runs.start("char_lm.py", folder, name, "--steps", str(STEPS), "--save-every", "3", *SMALL, *flags)


def finish(process):
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return output


def attempts(folder, name):
    steps = folder / name / "steps"
    return set(os.listdir(steps)) if steps.exists() else set()


def test_a_run_killed_in_the_middle_of_saves_continues_bit_for_bit(tmp_path):
    whole = finish(start(tmp_path, "whole"))
    expected = dict(losses(tmp_path, "whole"))
    assert sorted(expected) == list(range(STEPS))

    seed = time.time_ns() % 2**31
    print(f"seed {seed}")
    moments = random.Random(seed)
    resumed = 0
    for _ in range(5):
        before, begun = len(losses(tmp_path, "killed")), attempts(tmp_path, "killed")
        process = start(tmp_path, "killed")
        # Some new folders of saves, not a time: every run gets somewhere, and the last of the saves has just begun.
        saves = moments.randrange(1, 6)
        while process.poll() is None and len(attempts(tmp_path, "killed") - begun) < saves:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.01))
        process.kill()
        process.communicate()
        logged = losses(tmp_path, "killed")
        resumed += before > 0 and len(logged) > before and logged[before][0] > 0
    last = finish(start(tmp_path, "killed"))
    logged = losses(tmp_path, "killed")
    assert {step for step, _ in logged} == set(range(STEPS))
    assert [entry for entry in logged if expected[entry[0]] != entry[1]] == []
    assert resumed > 0
    assert last.split("; ")[1] == whole.split("; ")[1]


def contents(store):
    with tidemark.open(store, framework="pt") as step:
        values = {name: step.get_value(name) for name in step.value_keys()}
        return step.info.step, {name: step.get_tensor(name) for name in step.keys()}, values


def test_the_twin_in_cpp_and_this_example_resume_what_the_other_has_saved(tmp_path):
    def twin(*flags):
        subprocess.run([TWIN, "--store", tmp_path / "store", *SMALL, "--save-every", "100", "--quiet", *flags], check=True)

    def here(*flags):
        return finish(start(tmp_path, "store", "--save-every", "100", *flags))

    twin("--steps", "3")
    step, tensors, values = contents(tmp_path / "store")
    assert step == 2 and values["optimizer.head.weight.step"] == 3
    assert here("--steps", "5").startswith("resumed at step 3; ")
    step, later_tensors, later_values = contents(tmp_path / "store")
    assert step == 4 and later_values["optimizer.head.weight.step"] == 5
    # The same names, kinds, shapes and dtypes, both ways; what training does not change is the same bytes.
    assert sorted(later_values) == sorted(values)
    assert {name: (t.shape, t.dtype) for name, t in later_tensors.items()} == {
        name: (t.shape, t.dtype) for name, t in tensors.items()}
    assert later_values["optimizer.param_groups.0.params"] == values["optimizer.param_groups.0.params"]
    assert later_values["vocabulary"] == values["vocabulary"] and later_values["characters_seen"] == 5 * 2 * 16
    assert torch.equal(later_tensors["model.blocks.0.attention.future"], tensors["model.blocks.0.attention.future"])
    twin("--steps", "7")
    step, last_tensors, last_values = contents(tmp_path / "store")
    assert step == 6 and last_values["optimizer.head.weight.step"] == 7 and last_values["characters_seen"] == 7 * 2 * 16
    assert sorted(last_values) == sorted(values) and sorted(last_tensors) == sorted(tensors)


def test_what_the_twin_saved_arrives_in_modules_optimizers_and_generators_byte_for_byte(tmp_path):
    sys.path.insert(0, str(example_runs.EXAMPLES))
    try:
        import char_lm
    finally:
        sys.path.pop(0)
    subprocess.run([TWIN, "--store", tmp_path / "store", *SMALL, "--steps", "3", "--quiet"], check=True)
    _, tensors, values = contents(tmp_path / "store")
    model = char_lm.CharTransformer(len(values["vocabulary"]), 16, 16, 2, 1, 0.1)
    optimizer = torch.optim.AdamW(model.parameters())
    generator = torch.Generator()
    state = {"model": model, "optimizer": optimizer, "rng": generator, "vocabulary": "", "characters_seen": 0}
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        assert checkpointer.resume(state) == 3
        # Saved once more by Python: every entry is what it was.
        checkpointer.save(3, state)
    assert all(torch.equal(tensor, tensors["model." + name]) for name, tensor in model.state_dict().items())
    assert all(torch.equal(optimizer.state[parameter]["exp_avg"], tensors[f"optimizer.{name}.exp_avg"])
               for name, parameter in model.named_parameters())
    assert bytes(generator.get_state().tolist()) == values["rng"] and state["characters_seen"] == 3 * 2 * 16
    step, again, values_again = contents(tmp_path / "store")
    assert step == 3 and values_again == values and list(again) == list(tensors)
    assert all(torch.equal(again[name], tensor) for name, tensor in tensors.items())


def test_a_text_of_other_characters_is_refused(tmp_path):
    (tmp_path / "text").write_text("ab" * 300)
    finish(start(tmp_path, "store", "--steps", "2", "--text", str(tmp_path / "text")))
    (tmp_path / "text").write_text("xy" * 300)
    process = start(tmp_path, "store", "--steps", "4", "--text", str(tmp_path / "text"))
    output, _ = process.communicate()
    assert process.returncode == 1 and "was trained on a text of other characters" in output


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
