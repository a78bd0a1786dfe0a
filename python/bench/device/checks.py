"""Saves whose tensors the device changes as soon as it may. What is restored must be what they were when the save began."""

import itertools
import os

import tidemark
import torch

STAGINGS = ("blocking", "overlapped", "on_device")
# Those that need no wait between a save and a kernel that changes the tensors.
FREE_AT_ONCE = ("blocking", "on_device")
BUSY_SECONDS = 0.03
RESTORE_BUSY_SECONDS = 0.12  # longer than a restore reads before it writes to the device
NEVER_SAVED = 251
LATER = 252


class Tensors:
    """Of several dtypes and shapes, with one that does not lie in order, so many bytes in all."""

    def __init__(self, accelerator, size):
        self._accelerator = accelerator
        self._bases = {f"layers.{i}": accelerator.empty(max(size // 4 // 16, 1)) for i in range(16)}
        self._bases.update(half=accelerator.empty(1001, dtype=torch.bfloat16), one=accelerator.empty(1, dtype=torch.int64),
                           turned=accelerator.empty(37, 53))
        self.state = {name: base.t() if name == "turned" else base for name, base in self._bases.items()}

    def fill(self, value):
        for base in self._bases.values():
            self._accelerator.fill(base, value)

    def differing(self, value):
        return [name for name, base in self._bases.items() if not self._accelerator.is_filled(base, value)]


class Checks:
    def __init__(self, accelerator, folder, size, saves):
        self.accelerator, self.folder, self.size, self.saves = accelerator, folder, size, saves
        self.side = accelerator.new_stream()
        self._values = itertools.cycle(range(1, NEVER_SAVED))

    def tensors(self):
        return Tensors(self.accelerator, self.size)

    def value(self):
        return next(self._values)

    def wrong_in(self, checkpointer, expected):
        """What differs in the steps {step: value}. The restore comes behind a busy stream and what it had to write."""
        wrong = []
        tensors = self.tensors()
        for step, value in expected.items():
            checkpointer.committed(step).result(120)
            self.accelerator.busy(RESTORE_BUSY_SECONDS)
            tensors.fill(NEVER_SAVED)
            checkpointer.restore(tensors.state, step)
            wrong += [f"step {step}: {name}" for name in tensors.differing(value)]
        return wrong

    def write_behind_save(self, checkpointer, staging):
        """A kernel on the stream of the save changes the tensors right behind it; on the default stream, and on another."""
        expected, tensors = {}, self.tensors()
        for step, stream in enumerate((None, self.side)):
            with self.accelerator.on(stream):
                expected[step] = self.value()
                self.accelerator.busy(BUSY_SECONDS)
                tensors.fill(expected[step])
                checkpointer.save(step, tensors.state)
                if staging not in FREE_AT_ONCE:
                    checkpointer.wait_until_staged()
                tensors.fill(LATER)
                self.accelerator.synchronize()
        return self.wrong_in(checkpointer, expected)

    def write_on_another_stream(self, checkpointer, staging):
        """Another stream changes the tensors, behind an event that the trainer's stream has got after the save."""
        value, tensors = self.value(), self.tensors()
        trainer = self.accelerator.current_stream()
        self.accelerator.busy(BUSY_SECONDS)
        tensors.fill(value)
        checkpointer.save(0, tensors.state)
        if staging not in FREE_AT_ONCE:
            checkpointer.wait_until_staged()
        self.accelerator.order(self.side, trainer)
        with self.accelerator.on(self.side):
            tensors.fill(LATER)
            self.accelerator.synchronize()
        return self.wrong_in(checkpointer, {0: value})

    def written_by_another_stream(self, checkpointer, staging):
        """Another stream has written the tensors, and the trainer's stream waits for its event when the save begins."""
        value, tensors = self.value(), self.tensors()
        self.accelerator.order(self.side, self.accelerator.current_stream())
        with self.accelerator.on(self.side):
            self.accelerator.busy(BUSY_SECONDS)
            tensors.fill(value)
        self.accelerator.order(self.accelerator.current_stream(), self.side)
        checkpointer.save(0, tensors.state)
        if staging not in FREE_AT_ONCE:
            checkpointer.wait_until_staged()
        tensors.fill(LATER)
        return self.wrong_in(checkpointer, {0: value})

    def dropped_behind_save(self, checkpointer, staging):
        """The trainer drops its tensors right behind the save, and others that take as much memory are written."""
        expected, others = {}, None
        for step in range(3):
            expected[step] = self.value()
            tensors = self.tensors()
            self.accelerator.busy(BUSY_SECONDS)
            tensors.fill(expected[step])
            checkpointer.save(step, tensors.state)
            del tensors
            others = self.tensors()
            others.fill(LATER)
        del others
        return self.wrong_in(checkpointer, expected)

    def many_saves(self, checkpointer, staging):
        """One save behind the other, each behind work of the stream and before a kernel that changes the tensors."""
        expected, tensors = {}, self.tensors()
        for step in range(self.saves):
            expected[step] = self.value()
            self.accelerator.busy(BUSY_SECONDS / 10)
            tensors.fill(expected[step])
            checkpointer.save(step, tensors.state)
            if staging not in FREE_AT_ONCE:
                checkpointer.wait_until_staged()
            tensors.fill(LATER)
        return self.wrong_in(checkpointer, expected)

    ALL = (write_behind_save, write_on_another_stream, written_by_another_stream, dropped_behind_save, many_saves)

    def run(self, tell):
        """One result for each check and staging."""
        results = []
        for check, staging in itertools.product(self.ALL, STAGINGS):
            name = check.__name__
            store = os.path.join(self.folder, f"{name}-{staging}")
            result = {"check": name, "staging": staging, "wrong": [], "error": None, "stagings": []}
            try:
                with tidemark.Checkpointer(store, staging=staging) as checkpointer:
                    save, had = checkpointer.save, result["stagings"]

                    def noting(step, state, save=save, had=had):
                        handle = save(step, state)
                        had.append(handle.staging)
                        return handle

                    checkpointer.save = noting
                    result["wrong"] = check(self, checkpointer, staging)
            except Exception as error:
                result["error"] = f"{type(error).__name__}: {error}"
            result["saves"] = len(result["stagings"])
            result["passed"] = not result["wrong"] and result["error"] is None
            tell(result)
            results.append(result)
        return results
