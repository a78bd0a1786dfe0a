"""One KeyboardInterrupt at a chosen moment of a call, for tests in all folders.

Python raises a KeyboardInterrupt on the main thread when a function begins, when a call returns (of the native module, too),
and when a loop goes round. TIDEMARK_ALL_CASES=1 tries every such moment; otherwise some, which a printed seed draws
(TIDEMARK_SEED).
"""

import ctypes
import dis
import os
import pathlib
import random
import sys
import time

import tidemark

PACKAGE = str(pathlib.Path(tidemark.__file__).parent)
ALL_CASES = bool(os.environ.get("TIDEMARK_ALL_CASES"))
# Python 3.13 traces fewer instructions, by which the moments are found, so all that are left are tried.
STRIDE = 1 if ALL_CASES or sys.version_info >= (3, 13) else 5
SEED = int(os.environ.get("TIDEMARK_SEED", time.time_ns() % 2**31))

# The interpreter looks for signals after these, by the names of Python 3.10 to 3.13, and where a function begins.
ENDS = ("CALL", "CALL_FUNCTION", "CALL_FUNCTION_EX", "CALL_FUNCTION_KW", "CALL_KW", "CALL_METHOD", "JUMP_ABSOLUTE",
        "JUMP_BACKWARD")
# And after these of Python 3.11 if they jump: they close a `while` with a condition.
JUMPS = ("POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_TRUE")


class Interrupt:
    """Raises a KeyboardInterrupt at the n-th moment of the package's Python on this thread, counted from 1; None: never.
    `framework`: a module whose package counts too, but only where a function begins."""

    def __init__(self, moment, framework=None):
        self._moment = moment
        self._framework = str(pathlib.Path(framework.__file__).parent) if framework else PACKAGE
        self.passed = 0
        self._last = {}  # by frame: the instruction that has just ended, and where it is
        self._names = {}  # by code: of its instructions
        self.raised = False

    def __enter__(self):
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(None)
        self._last.clear()

    def _trace(self, frame, event, _):
        code = frame.f_code
        if self.raised or not code.co_filename.startswith((PACKAGE, self._framework)) or code.co_name == "__del__":
            return None
        if not code.co_filename.startswith(PACKAGE):
            self._pass()
            return None
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            # One that `all` or `any` has left early is called once more, to be closed where Python ignores exceptions.
            if code.co_name != "<genexpr>":
                self._pass()
        elif event == "opcode":
            last, place = self._last.get(frame, ("", 0))
            self._last[frame] = self._instructions(code)[frame.f_lasti], frame.f_lasti
            if last in ENDS or (last in JUMPS and frame.f_lasti < place):
                self._pass()
        elif event == "return":
            self._last.pop(frame, None)
        return self._trace

    def _instructions(self, code):
        if code not in self._names:
            self._names[code] = {instruction.offset: instruction.opname for instruction in dis.get_instructions(code)}
        return self._names[code]

    def _pass(self):
        self.passed += 1
        if self.passed == self._moment:
            self.raised = True
            self._act()

    def _act(self):
        raise KeyboardInterrupt


def forget_the_handled_exception():
    """To be called outside `except`. A trace function that raises right before the last instruction of an `except` makes
    Python leave the block without an end, so that the thread goes on handling its exception: it would be the context of every
    later one, also in other tests."""
    if sys.exc_info()[1] is not None:
        ctypes.pythonapi.PyErr_SetExcInfo(None, None, None)


def interrupted(call, after, stride=STRIDE):
    """Tries the moments of `call(n)` in turn; after each, `after(n, result)`, where None is the result of a call that was
    interrupted. `stride`: every how many-th moment is tried. How many moments were tried."""
    print(f"seed {SEED}")
    moment, tried = random.Random(SEED).randrange(1, stride + 1), 0
    while True:
        result = None
        with Interrupt(moment) as interrupt:
            try:
                result = call(moment)
            except KeyboardInterrupt:
                pass
        forget_the_handled_exception()
        after(moment, result)
        if not interrupt.raised:
            return tried
        moment += stride
        tried += 1


def drawn(moments, count):
    """`count` of the moments, or ten times as many with TIDEMARK_ALL_CASES, each once, ascending."""
    return sorted(random.Random(SEED).sample(range(1, moments + 1), min(moments, count * 10 if ALL_CASES else count)))


def interrupted_at_drawn_moments(call, after, count, framework=None):
    """For long calls: `call(n)` and `after(n)` for `count` moments that the seed draws, or ten times as many with
    TIDEMARK_ALL_CASES. What else than a KeyboardInterrupt a framework makes of it is left to `call`."""
    print(f"seed {SEED}")
    with Interrupt(None, framework) as whole:
        call(0)
    after(0)
    for moment in drawn(whole.passed, count):
        print(f"moment {moment} of {whole.passed}")
        try:
            with Interrupt(moment, framework):
                call(moment)
        except KeyboardInterrupt:
            pass
        forget_the_handled_exception()
        after(moment)
