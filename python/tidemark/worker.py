"""Evaluates the steps of a store in a process of its own: `python -m tidemark.worker STORE module:function`."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ._checkpointer.observer import logger
from ._checkpointer.step_info import Evaluation
from ._store.follow import follow
from .errors import Error

_DESCRIPTION = """\
Calls a function with each committed step of a store, beside the trainer or after it, and reports the results to it as
metrics of the step. Any number of workers may share the steps: give them the same name."""

_EPILOG = """\
The function takes a tidemark.Snapshot and returns a dict of numbers, for example in my_eval.py:

  def validate(snapshot):
      return {"loss": loss(snapshot["model.weight"])}

  python -m tidemark.worker run/ckpt my_eval:validate --name validation --entries 'model.*'

The metric is then "validation/loss". Without --name it is "validate/loss", after the function. SIGTERM and Ctrl-C end the
worker after the current step. Exit status: 0: it has ended as asked; 1: an error, or with --strict a failed evaluation; 2: an
argument is wrong."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tidemark.worker", description=_DESCRIPTION, epilog=_EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", metavar="STORE", help="the store's directory; if it is not there yet, the worker waits for it")
    parser.add_argument("function", metavar="MODULE:FUNCTION", help="the evaluator; the module may be in this directory")
    parser.add_argument("--name", metavar="NAME", help="the evaluator's name, before its metrics; default: the function's")
    parser.add_argument("--entries", metavar="PATTERN", action="append", default=[],
                        help="read only entries of such names, with * and ?; may be repeated; default: all")
    parser.add_argument("--every-steps", metavar="N", type=int, default=1, help="only steps divisible by N")
    parser.add_argument("--begin-step", metavar="STEP", type=int, default=0, help="no step before this one")
    parser.add_argument("--until-step", metavar="STEP", type=int, help="end when every step up to this one is done")
    parser.add_argument("--idle-timeout", metavar="SECONDS", type=float, default=float("inf"),
                        help="end when there was nothing to do for so long; 0: evaluate the steps that are there now")
    parser.add_argument("--when-lagging", choices=("queue", "latest"), default="queue",
                        help="queue: every step; latest: only the newest one, the others are skipped; default: queue")
    parser.add_argument("--staleness-max", metavar="STEPS", type=int, default=0,
                        help="skip steps that are further behind the newest one; 0: none")
    parser.add_argument("--half-precision", choices=("bfloat16", "float16"), default="",
                        help="convert tensors of float32 and float64")
    parser.add_argument("--again-if-failed", action="store_true", help="also steps whose evaluation failed")
    parser.add_argument("--no-report", action="store_true", help="write nothing to the store")
    parser.add_argument("--worker", metavar="NAME", default="", help="for the history; default: process and host")
    parser.add_argument("--poll-interval", metavar="SECONDS", type=float, default=1.0, help="between looks for new steps")
    parser.add_argument("--lease-expiry", metavar="SECONDS", type=float, default=60.0,
                        help="how long the step of a dead worker on another machine is waited for; default: 60")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if an evaluation has failed")
    return parser


def _load(name: str) -> Callable[[Any], Any]:
    """The function `module:function`. ValueError: there is none."""
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise ValueError(f"'{name}' is not MODULE:FUNCTION")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise  # the module is there, and lacks another one
        raise ValueError(f"there is no module '{module_name}'") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise ValueError(f"the module '{module_name}' has no '{path}'")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"'{name}' is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def _line_of(step: int, evaluation: Evaluation) -> str:
    metrics = " ".join(f"{name}={value:g}" for name, value in evaluation.metrics.items())
    why = evaluation.reason or evaluation.unhealthy
    return " ".join(part for part in (f"step {step} {evaluation.outcome}", metrics, why) if part)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program with these arguments; None: those of the command line. The exit status: 0, or 1 if the store cannot be
    followed, or, with --strict, if an evaluation failed. SystemExit with the status 2: the arguments are wrong; 0: --help.
    """
    parser = _parser()
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    logger.setLevel(logging.INFO)  # it says that it waits for the store
    sys.path.insert(0, os.getcwd())
    try:
        function = _load(given.function)
    except ValueError as error:
        parser.error(str(error))
    try:
        report = follow(
            given.store, function, evaluator=given.name or given.function.rpartition(":")[2].rpartition(".")[2],
            entries=given.entries, every_steps=given.every_steps, begin_step=given.begin_step, until_step=given.until_step,
            idle_timeout=given.idle_timeout, when_lagging=given.when_lagging, staleness_max=given.staleness_max,
            half_precision=given.half_precision, again_if_failed=given.again_if_failed, report=not given.no_report,
            worker=given.worker, poll_interval=given.poll_interval, lease_expiry=given.lease_expiry,
            on_evaluated=lambda step, evaluation: print(_line_of(step, evaluation), flush=True))
    except Error as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    print(f"ended ({report.end.replace('_', ' ')}): {report.evaluated} evaluated, {report.failed} failed, "
          f"{report.skipped} skipped")
    return 1 if given.strict and report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
