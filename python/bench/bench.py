#!/usr/bin/env python3
"""Measures the Python package against the C++ library on the same arrays, row by row, and says which goals are met.

  bench.py --core LIBRARY [--dir FOLDER] [--only ROW]... [--size MIB] [--pairs N] [--json FILE]

`make bench-python` runs it; docs/performance.md has the method. Exit codes: 0 all rows were measured or skipped for a
reason, whether or not their goals are met; 1 a row failed; 2 a wrong command line.
"""

import argparse
import ctypes
import importlib.util
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import tidemark
from measure import Measurement, Row, in_pairs, table

CHAR_LM = pathlib.Path(__file__).parents[2] / "examples" / "python" / "char_lm.py"
STEPS_PER_SAVE = 20


class Core:
    """The C++ library on arrays of this process: core_saves.cc."""

    def __init__(self, library, store, arrays):
        self._functions = ctypes.CDLL(library)
        for name, result, arguments in (
                ("error", ctypes.c_char_p, []), ("open", ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_bool]),
                ("close", None, [ctypes.c_void_p]),
                ("add", None, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_void_p]),
                ("save", ctypes.c_double, [ctypes.c_void_p, ctypes.c_int64]), ("restore", ctypes.c_double, [ctypes.c_void_p])):
            function = getattr(self._functions, f"core_{name}")
            function.restype, function.argtypes = result, arguments
        self._core = self._functions.core_open(os.fsencode(store), False)
        if not self._core:
            self._fail()
        for name, array in arrays.items():
            self._functions.core_add(self._core, name.encode(), array.size, array.ctypes.data)

    def _fail(self):
        raise RuntimeError(self._functions.core_error().decode())

    def _checked(self, seconds):
        if seconds < 0:
            self._fail()
        return seconds

    def save(self, step):
        """Seconds that Save takes; returns when the step is committed."""
        return self._checked(self._functions.core_save(self._core, step))

    def restore(self):
        return self._checked(self._functions.core_restore(self._core))

    def close(self):
        self._functions.core_close(self._core)


def flat(tree, prefix=""):
    """{"a.b": array} of nested dicts."""
    found = {}
    for name, value in tree.items():
        found.update(flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return found


def large(options):
    """1 GiB in 300 arrays."""
    elements = (options.size << 20) // 4 // 300
    generator = np.random.default_rng(1)
    return {"layers": {str(i): {"weight": generator.standard_normal(elements, np.float32)} for i in range(300)}}


def small(options):
    """100,000 arrays of 1 KiB."""
    return {f"layers.{i}.bias": np.full(256, i, np.float32) for i in range(options.size * 100_000 // 1024)}


def forget(store):
    """Has the kernel drop what it holds of the files, once they are on the disk."""
    os.sync()
    for path in pathlib.Path(store).rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def remove_shards(store):
    for step in os.scandir(os.path.join(store, "steps")):
        shutil.rmtree(step.path)
    os.sync()


def against_core(options, folder, make, restoring):
    """Blocked time of saves, or time of restores, of the package ÷ those of the C++ library. Each side has a store, and has
    saved once before the first pair; every save is committed before the next thing is measured."""
    state = make(options)
    stores = [os.path.join(folder, side) for side in ("python", "core")]
    step = core_step = 0
    with tidemark.Checkpointer(stores[0], reuse=False) as checkpointer:
        core = Core(options.core, stores[1], flat(state))
        try:
            checkpointer.save(0, state).committed.result()
            core.save(0)

            def prepare(store):
                forget(store) if restoring else remove_shards(store)

            def python_side():
                nonlocal step
                step += 1
                prepare(stores[0])
                begin = time.perf_counter()
                if restoring:
                    checkpointer.restore(state)
                    return time.perf_counter() - begin
                save = checkpointer.save(step, state)
                blocked = time.perf_counter() - begin
                save.committed.result()
                return blocked

            def core_side():
                nonlocal core_step
                prepare(stores[1])
                if restoring:
                    return core.restore()
                core_step += 1
                return core.save(core_step)

            return in_pairs(2 * options.pairs, python_side, core_side)
        finally:
            core.close()


def training(options, folder):
    """20 steps of examples/python/char_lm.py, with a save in front and waiting for it at the end ÷ without."""
    spec = importlib.util.spec_from_file_location("char_lm", CHAR_LM)
    char_lm = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(char_lm)
    except ModuleNotFoundError as missing:
        return f"{missing.name} is not installed"
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    text = torch.randint(90, (30_000,))
    model = char_lm.CharTransformer(90, 64, 192, 6, 4, dropout=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
    state = {"model": model, "optimizer": optimizer, "rng": torch.default_generator}

    def train():
        for _ in range(STEPS_PER_SAVE):
            loss = char_lm.loss_of(model, text, torch.randint(len(text) - 64, (8,)), 64)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    with tidemark.Checkpointer(os.path.join(folder, "store")) as checkpointer:
        train()
        checkpointer.save(0, state).committed.result()
        step = 0

        def with_save():
            nonlocal step
            step += 1
            begin = time.perf_counter()
            save = checkpointer.save(step, state)
            train()
            save.committed.result()  # nothing is left for the steps without a save to pay for
            return time.perf_counter() - begin

        def without():
            begin = time.perf_counter()
            train()
            return time.perf_counter() - begin

        return in_pairs(3 * options.pairs, with_save, without)


def resident(name):
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(name + ":"))


def memory(options, folder):
    """The peak of resident memory in the first save above what was resident before ÷ the bytes of the state."""
    state = large(options)
    before = resident("VmRSS")
    with tidemark.Checkpointer(os.path.join(folder, "store")) as checkpointer:
        checkpointer.save(0, state).committed.result()
        return Measurement([resident("VmHWM") - before], [sum(array.nbytes for array in flat(state).values())])


def in_own_process(row, options, folder):
    """For rows that look at the whole process, or import a PyTorch that was built for an older NumPy and says so."""
    done = subprocess.run([sys.executable, __file__, "--core", options.core, "--dir", folder, "--size", str(options.size),
                           "--pairs", str(options.pairs), "--here", row], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    outcome = json.loads(done.stdout)
    return outcome if isinstance(outcome, str) else Measurement(*outcome)


IN_THIS_PROCESS = {"training_slowdown": training, "rss_vs_state": memory}


ROWS = {
    Row("save_large", "blocked time of save, 1 GiB in 300 arrays ÷ the C++ library's", 1.10):
        lambda options, folder: against_core(options, folder, large, restoring=False),
    Row("save_small", "the same for 100,000 arrays of 1 KiB", 2):
        lambda options, folder: against_core(options, folder, small, restoring=False),
    Row("restore_large", "restore, cold, 1 GiB in 300 arrays ÷ the C++ library's", 1.10):
        lambda options, folder: against_core(options, folder, large, restoring=True),
    Row("restore_small", "the same for 100,000 arrays of 1 KiB", 2):
        lambda options, folder: against_core(options, folder, small, restoring=True),
    Row("training_slowdown", "step time of char_lm.py with a save every 20 steps ÷ without", 1.02):
        lambda options, folder: in_own_process("training_slowdown", options, folder),
    Row("rss_vs_state", "peak extra resident memory of the first save of 1 GiB ÷ its bytes", 1.10, "B"):
        lambda options, folder: in_own_process("rss_vs_state", options, folder),
}


def conditions(options):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown")
    return {"cpu": cpu, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2), "kernel": platform.release(),
            "python": platform.python_version(), "numpy": np.__version__, "size_mib": options.size}


def main():
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(description="Measures the Python package against the C++ library.")
    parser.add_argument("--core", required=True, help="the library that core_saves.cc became")
    parser.add_argument("--dir", default=".", help="where files are written, in a folder that is removed at the end")
    parser.add_argument("--only", action="append", choices=names, help="measure this row; may be given several times")
    parser.add_argument("--size", type=int, default=1024, help="MiB that stand for a GiB: all sizes and counts shrink with it")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of measurements; most rows take a multiple")
    parser.add_argument("--json", help="write the results to this file as well")
    parser.add_argument("--here", choices=IN_THIS_PROCESS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        outcome = IN_THIS_PROCESS[options.here](options, options.dir)
        print(json.dumps(outcome if isinstance(outcome, str) else [outcome.numerators, outcome.denominators]))
        return 0

    outcomes, failed = [], False
    described = conditions(options)
    for row, measure in ROWS.items():
        if options.only and row.name not in options.only:
            continue
        with tempfile.TemporaryDirectory(prefix="tidemark-bench-", dir=options.dir) as folder:
            try:
                outcome = measure(options, folder)
            except (tidemark.Error, RuntimeError, OSError) as error:
                failed, outcome = True, error
        outcomes.append((row, outcome))
        print(f"{row.name}: {f'{outcome.ratio:.3f}' if isinstance(outcome, Measurement) else outcome}", file=sys.stderr)
    print("".join(f"{name:12} {value}\n" for name, value in described.items()))
    print(table(outcomes))
    if options.json:
        results = []
        for row, outcome in outcomes:
            found = {"skipped" if isinstance(outcome, str) else "error": str(outcome)}
            if isinstance(outcome, Measurement):
                found = {"ratio": outcome.ratio, "met": outcome.ratio <= row.goal, "ratios": outcome.ratios}
            results.append({"name": row.name, "compared": row.compared, "goal": row.goal, **found, "conditions": described})
        pathlib.Path(options.json).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
