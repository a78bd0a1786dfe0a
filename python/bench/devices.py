#!/usr/bin/env python3
"""Checks and measures the Python package with tensors on a GPU: whether saves have what their tensors were, how long they
block, and how long they take, beside bare copies, torch.save and PyTorch's DCP.

  devices.py [--device cuda|pretend|cpu] [--check] [--bytes N] [--rounds N] [--budget SECONDS] [--dir FOLDER] [--json FILE]

It takes an installed package and a PyTorch. `make bench-gpu` runs it; docs/performance.md has the method. Exit codes: 0 all
checks passed, or all rows were measured or skipped for a reason, whether or not their goals are met; 1 a check or a row failed,
or something else came back than was saved; 2 a wrong command line, no such device, or too little disk.
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import signal
import statistics
import sys
import tempfile
import time

import tidemark
import torch
from device.accelerators import KINDS, UnavailableError
from device.checks import Checks
from device.sides import COLUMNS, STAGINGS, Sides, SkippedError
from measure import Measurement, Row, quantity, table

DEVICE_STATES = 4  # the state, what it is restored to, what it is compared with, and the copies of on_device
DISK_STATES = 4
# By the names of the columns that a row compares.
ROWS = {
    Row("blocked_blocking", "blocked time of save, blocking ÷ copies to page-locked host tensors", 1.05):
        ("blocked_blocking", "copy_pinned"),
    Row("staged_overlapped", "time until a save is staged, overlapped ÷ the same copies", 1.05):
        ("staged_overlapped", "copy_pinned"),
    Row("blocked_overlapped", "blocked time of save, overlapped ÷ the same copies", 0.05): ("blocked_overlapped", "copy_pinned"),
    Row("blocked_on_device", "blocked time of save, on_device ÷ the same copies", 0.05): ("blocked_on_device", "copy_pinned"),
    Row("pinned_vs_pageable", "copies to page-locked ÷ to pageable host tensors", 1): ("copy_pinned", "copy_pageable"),
    Row("blocked_vs_torch_save", "blocked time of save, blocking ÷ torch.save without fsync", 1):
        ("blocked_blocking", "blocked_torch_save"),
    Row("durable_vs_torch_save", "save until committed ÷ torch.save and fsync", 1): ("durable_blocking", "durable_torch_save"),
    Row("restore_vs_torch_load", "restore to the device, cold ÷ torch.load there and copies", 1):
        ("restore_blocking", "restore_torch_load"),
    Row("blocked_vs_dcp", "blocked time of save, blocking ÷ DCP's async_save", 1): ("blocked_blocking", "blocked_dcp"),
    Row("durable_vs_dcp", "save until committed ÷ DCP's async_save until its result", 1): ("durable_blocking", "durable_dcp"),
    Row("restore_vs_dcp", "restore to the device, cold ÷ DCP's load", 1): ("restore_blocking", "restore_dcp"),
    **{Row(f"training_slowdown_{staging}", f"20 steps with a save, {staging} ÷ without", 1.02):
       (f"training_{staging}", "training_alone") for staging in STAGINGS},
}


def said(text):
    print(text, file=sys.stderr, flush=True)


def conditions(accelerator, options):
    cpu = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), cpu)
    return {"date": time.strftime("%Y-%m-%d"), "device_kind": options.device, "device": accelerator.described(),
            "hardware": options.device == "cuda", "compared_on": accelerator.compares_on, "torch": torch.__version__,
            "tidemark": os.path.dirname(tidemark.__file__), "python": platform.python_version(), "cpu": cpu,
            "cores": os.cpu_count(), "kernel": platform.release(), "load": round(os.getloadavg()[0], 2)}


def check(accelerator, options, folder):
    def tell(result):
        outcome = "ok" if result["passed"] else "WRONG: " + (result["error"] or ", ".join(result["wrong"][:5]))
        said(f"{result['check']}, {result['staging']}: {result['saves']} saves: {outcome}")

    results = Checks(accelerator, folder, options.check_bytes, options.saves).run(tell)
    failed = [result for result in results if not result["passed"]]
    print(f"{len(results)} checks of {sum(result['saves'] for result in results)} saves, {len(failed)} failed")
    return {"checks": results, "passed": not failed}, bool(failed)


def measure(accelerator, options, folder):
    """The columns of every round. The first one warms up, and counts only where there is no time for another."""
    begin = time.perf_counter()
    rounds, columns, skipped, failed = [], {}, {}, {}
    sides = Sides(accelerator, options, folder)
    try:
        functions = {name: function for name, function in sides.all().items() if not options.only or name in options.only}
        names = list(functions)
        for number in range(options.rounds + 1):
            took = time.perf_counter() - begin
            if number and took * (number + 1) / number > options.budget:
                break
            columns = {}
            turn = number * len(names) // (options.rounds + 1)
            for name in names[turn:] + names[:turn]:
                if name in skipped or name in failed:
                    continue
                try:
                    columns.update(functions[name]())
                except SkippedError as reason:
                    skipped[name] = str(reason)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # DCP's errors are no Exception, and no library ends the others' measurements
                    failed[name] = f"{type(error).__name__}: {error}"
                    said(f"{name}: failed: {failed[name]}")
            rounds.append(columns)
            said(f"round {number}: {time.perf_counter() - begin:.1f} s so far")
    except KeyboardInterrupt:
        said("stopped; the medians are those of the rounds so far")
        rounds = rounds or [columns]
    finally:
        found = {"state_bytes": sides.state.bytes, "notes": sides.notes}
        sides.close()
    warmed = len(rounds) > 1
    rounds = rounds[1:] if warmed else rounds
    columns = {}
    for measured in rounds:
        for name, value in measured.items():
            columns.setdefault(name, []).append(value)
    return {**found, "rounds": len(rounds), "warmed_up": warmed, "columns": columns, "skipped": skipped, "failed": failed}


def in_rows(found):
    """[(row, measurement or why there is none)] of the columns."""
    outcomes = []
    for row, names in ROWS.items():
        columns = [found["columns"].get(name, []) for name in names]
        pairs = min(map(len, columns))
        if pairs:
            outcomes.append((row, Measurement(*(column[:pairs] for column in columns))))
            continue
        missing = [side for side, has in COLUMNS.items() if set(has) & set(names)]
        failed = [RuntimeError(f"{side} failed") for side in missing if side in found["failed"]]
        reasons = [f"{side}: {found['skipped'][side]}" for side in missing if side in found["skipped"]]
        outcomes.append((row, failed[0] if failed else "; ".join(reasons) or "not asked for"))
    return outcomes


def bench(accelerator, options, folder):
    found = measure(accelerator, options, folder)
    outcomes = in_rows(found)
    gb = found["state_bytes"] / 1e9
    print(f"{gb:.3f} GB of a model with Adam, medians of {found['rounds']} rounds"
          f"{'' if found['warmed_up'] else ', which had no time to warm up'}\n")
    for name, values in sorted(found["columns"].items()):
        median = statistics.median(values)
        rate = "" if name.startswith("training") else f"{gb / median:8.2f} GB/s"
        print(f"{name:24} {quantity(median, 's'):>10} {rate}")
    for what in ("notes", "skipped", "failed"):
        print("".join(f"{what}: {name}: {text}\n" for name, text in found[what].items()), end="")
    print("\n" + table(outcomes))
    rows = [{"name": row.name, "compared": row.compared, "goal": row.goal,
             **({"ratio": outcome.ratio, "met": outcome.ratio <= row.goal, "ratios": outcome.ratios}
                if isinstance(outcome, Measurement)
                else {"failed" if isinstance(outcome, Exception) else "skipped": str(outcome)})}
            for row, outcome in outcomes]
    return {**found, "rows": rows}, bool(found["failed"])


def arguments():
    parser = argparse.ArgumentParser(description="Checks and measures the Python package with tensors on a GPU.")
    parser.add_argument("--device", choices=KINDS, default="cuda", help="pretend and cpu are for dry runs")
    parser.add_argument("--check", action="store_true", help="check what saves have, and measure nothing")
    parser.add_argument("--check-bytes", type=int, help="of the state of each check; default: 64 MiB, in dry runs 1 MiB")
    parser.add_argument("--saves", type=int, default=20, help="of the check with many saves")
    parser.add_argument("--bytes", type=int, help="of the state that is measured; default: 4 GiB, in dry runs 16 MiB")
    parser.add_argument("--rounds", type=int, default=4, help="behind one that warms up")
    parser.add_argument("--budget", type=float, default=300, help="seconds after which no round begins that would end later")
    parser.add_argument("--loop-seconds", type=float, default=3, help="length of the training")
    parser.add_argument("--only", action="append", choices=COLUMNS, help="measure this side of rows; may be given several times")
    parser.add_argument("--dir", default=".", help="where files are written, in a folder that is removed at the end")
    parser.add_argument("--json", help="write all figures to this file as well")
    options = parser.parse_args()
    dry = options.device != "cuda"
    options.bytes = options.bytes or (16 << 20 if dry else 4 << 30)
    options.check_bytes = options.check_bytes or (1 << 20 if dry else 64 << 20)
    if min(options.bytes, options.check_bytes, options.rounds, options.saves) < 1:
        parser.error("--bytes, --check-bytes, --rounds and --saves are at least 1")
    needed = (options.check_bytes * (options.saves + 7) * 3 if options.check else options.bytes * DISK_STATES) + (64 << 20)
    free = shutil.disk_usage(options.dir).free
    if free < needed:
        parser.error(f"--dir {options.dir}: {needed / 1e9:.1f} GB are needed, and {free / 1e9:.1f} GB are free")
    try:
        accelerator = KINDS[options.device]()
    except UnavailableError as missing:
        parser.error(f"--device {options.device}: {missing}")
    free, needed = accelerator.free_bytes(), options.bytes * DEVICE_STATES
    if not options.check and free is not None and free < needed:
        parser.error(f"--bytes {options.bytes}: the device has {free / 1e9:.1f} GB free, and {needed / 1e9:.1f} GB are needed")
    return options, accelerator


def main():
    options, accelerator = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    described = conditions(accelerator, options)
    print("".join(f"{name:12} {value}\n" for name, value in described.items()))
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-", dir=os.path.abspath(options.dir)) as folder, torch.no_grad():
        found, failed = (check if options.check else bench)(accelerator, options, folder)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"conditions": described, **found}, indent=2) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
