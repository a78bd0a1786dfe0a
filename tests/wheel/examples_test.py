#!/usr/bin/env python3
"""Every example of examples/python, in environments with nothing but the wheel and the frameworks that it is for.

  examples_test.py ENVIRONMENTS [FRAMEWORK_PYTHON] [-- unittest arguments]

ENVIRONMENTS is a folder of virtual environments with the wheel and NumPy, and nothing else. FRAMEWORK_PYTHON is the
interpreter of one with the wheel and all frameworks; without it the examples that need one are skipped.
"""

import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
import example_runs  # noqa: E402
from example_runs import losses  # noqa: E402

# Of each: what it imports beside the wheel and NumPy, the options of a short run, and how many steps that has.
EXAMPLES = {
    "regression.py": ([], ["--steps", "1000", "--save-every", "20"], 1000),
    "async_trainer.py": ([], ["--steps", "400", "--save-every", "7"], 400),
    "char_lm.py": (["torch"], ["--steps", "120", "--save-every", "3", "--layers", "1", "--heads", "2", "--width", "16",
                               "--context", "16", "--batch", "2"], 120),
    "digits_jax.py": (["jax", "optax", "sklearn"], ["--steps", "400", "--save-every", "7"], 400),
    "text_lightning.py": (["lightning", "torch"], ["--steps", "400", "--save-every", "7"], 400),
    "text_transformers.py": (["transformers", "accelerate", "torch"], ["--steps", "400", "--save-every", "7"], 400),
    "digits_keras.py": (["keras", "sklearn"], ["--epochs", "9"], 9),
}


def start(python, example, folder, name):
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
    env.pop("PYTHONPATH", None)
    return example_runs.start(example, folder, name, *EXAMPLES[example][1], python=python, stderr=subprocess.PIPE, env=env)


class Examples(unittest.TestCase):
    environments = []
    framework_python = None

    def finish(self, process):
        output, errors = process.communicate()
        self.assertEqual(process.returncode, 0, output + errors)
        return output.splitlines()[-1]

    def kill_in_the_middle(self, python, example, folder, name, steps):
        """Starts the run, and kills it after so many steps. Whether it had more to do."""
        process = start(python, example, folder, name)
        while process.poll() is None and len(losses(folder, name)) < steps:
            time.sleep(0.001)
        process.kill()
        output, errors = process.communicate()
        self.assertIn(process.returncode, (0, -9), output + errors)
        return process.returncode != 0

    def assert_resumes(self, python, example):
        needs, _, count = EXAMPLES[example]
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        folder = pathlib.Path(holder.name)
        whole = self.finish(start(python, example, folder, "whole"))
        expected = dict(losses(folder, "whole"))
        self.assertEqual(sorted(expected), list(range(count)))
        seed = time.time_ns() % 2**31
        moments = random.Random(seed)
        # A machine may do all steps before this process looks, so that no run is left to be resumed.
        for attempt in range(5):
            name = f"killed{attempt}"
            if not self.kill_in_the_middle(python, example, folder, name, moments.randrange(count // 2, count * 3 // 4)):
                continue
            before = len(losses(folder, name))
            last = self.finish(start(python, example, folder, name))
            logged = losses(folder, name)
            self.assertEqual([(step, loss) for step, loss in logged if expected[step] != loss], [], f"seed {seed}")
            self.assertEqual({step for step, _ in logged}, set(range(count)), f"seed {seed}")
            # The line of char_lm.py begins with the step that it resumed at.
            self.assertEqual(last.split("; ")[-1], whole.split("; ")[-1])
            inspect = pathlib.Path(python).parent / "checkpoint-inspect"
            verified = subprocess.run([inspect, "--store", folder / name, "verify"], capture_output=True, text=True)
            self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)
            if before < len(logged) and logged[before][0] > 0:
                print(f"{example} resumed at step {logged[before][0]} of {count} ({python}; {', '.join(needs) or 'NumPy'})")
                return
        self.fail(f"no run was resumed; seed {seed}")

    def test_examples_of_numpy_continue_after_a_kill_in_every_python(self):
        for environment in self.environments:
            for example, (needs, _, _) in EXAMPLES.items():
                if not needs:
                    with self.subTest(environment.name, example=example):
                        self.assert_resumes(environment / "bin" / "python", example)

    def test_examples_of_frameworks_continue_after_a_kill(self):
        if self.framework_python is None:
            self.skipTest("there is no interpreter with frameworks")
        for example, (needs, _, _) in EXAMPLES.items():
            if needs:
                with self.subTest(example):
                    self.assert_resumes(self.framework_python, example)

    def test_no_example_is_left_out(self):
        self.assertEqual(set(EXAMPLES), {path.name for path in example_runs.EXAMPLES.glob("*.py")})


if __name__ == "__main__":
    arguments = sys.argv[1:]
    split = arguments.index("--") if "--" in arguments else len(arguments)
    folder, *pythons = arguments[:split]
    Examples.environments = sorted(path for path in pathlib.Path(folder).iterdir() if path.is_dir())
    assert Examples.environments, f"{folder} has no virtual environment"
    if pythons:
        [Examples.framework_python] = pythons
    unittest.main(argv=[sys.argv[0], *arguments[split + 1:]])
