"""How a checkpointer fills states from the steps of its store."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeVar

from .. import _native
from .._arguments import selector
from .._messages import in_python
from .._state.containers import copy_of_containers
from .._state.tree import Tree
from ..errors import Error, InvalidArgumentError, MismatchError
from .evaluator import is_in
from .futures import in_slices
from .mismatches import Look, mismatch
from .observer import logger
from .options import left_out_by, raise_interruption, restore_options
from .progress import Progress, progress_function
from .rank_calls import RankCalls
from .ranks import together
from .step_info import RestoreReport, StepInfo, step_info

T = TypeVar("T")


class Restores(RankCalls):
    """The methods of Checkpointer that restore."""

    _averages: set[str]  # names of those that were added
    _averages_passed: set[str]  # of those that the last restored step has and that had not been added
    _evaluations: object  # tells the calls of its evaluators from those of others

    def resume(self, state: Any, *, healthy_only: bool = False, only: Sequence[str] = (),
               renames: Sequence[tuple[str, str]] = (), allow_missing: bool = False, allow_unexpected: bool = False,
               convert_dtypes: bool = False, accept: Callable[[StepInfo], bool] | None = None,
               evaluations_timeout: float = 300.0, device: Any = None, progress: Progress = False) -> int:
        """Fills the state from the highest committed step, and returns the step to train next: that step + 1. With `ranks` it is
        the same step on all of them.

        Returns 0, with the state untouched, in a fresh run. Stop the training on any exception. The options are those of
        `restore`. MismatchError: the checkpoint does not fit.
        """
        native = self._require()
        with self._filling(resumes=True):
            options = restore_options(healthy_only, only, renames, allow_missing, allow_unexpected, accept,
                                      evaluations_timeout, progress_function(progress))
            self._await_verdicts(native, "latest", options)
            next_step = int(self._fill(partial(Tree, state, device=device), options, convert_dtypes, native.resume))
        for name in sorted(self._averages_passed):
            logger.warning("step %d has the average '%s', which was not restored and will not be saved: call add_average('%s') "
                           "before resume", next_step - 1, name, name)
        return next_step

    def restore(self, state: Any, step: int | str = "latest", *, healthy_only: bool = False, only: Sequence[str] = (),
                renames: Sequence[tuple[str, str]] = (), allow_missing: bool = False,
                allow_unexpected: bool = False, convert_dtypes: bool = False,
                accept: Callable[[StepInfo], bool] | None = None, evaluations_timeout: float = 300.0,
                device: Any = None, progress: Progress = False) -> RestoreReport:
        """Fills the state from a step: a number, "latest", "latest-healthy", "best:METRIC" or "tag:NAME".

        `only` are patterns of names with "*" and "?"; `renames` are (name in the checkpoint, name in the state). Arrays
        are written in place, and values are replaced. `accept` chooses among the steps: only those for which it returns
        true. `healthy_only` first waits for evaluations, at most `evaluations_timeout` seconds; Ctrl-C ends that.
        `convert_dtypes`: an array may have another floating-point dtype than in the checkpoint; that takes memory for those
        that have.

        A tensor on the meta device, also a parameter or buffer of a module, is replaced by one in memory: on `device`, as
        PyTorch names it, by default the CPU. Tied ones stay tied, and an optimizer of the state gets the new parameters.
        If the restore fails, they stay as they were. So do buffers that are not persistent, with a warning: no
        checkpoint has them.

        `progress`: a function that is given a `RestoreProgress` when the first arrays have been read, then every 100 ms,
        and when all are; True: a line on stderr, if that is a terminal. What it raises ends the restore, and so does a
        KeyboardInterrupt, also without `progress`: arrays may then hold parts of the step, and values have not changed.

        NotFoundError: there is no such step. MismatchError: it does not fit, and nothing was written. InvalidArgumentError: an
        object of the state refuses what the step has, and arrays have been written. DataLossError: it is damaged.
        InternalError: `accept` or `progress` raised.

        With `ranks` all ranks call this alike, and all get the same step, or each gets an error. AbortedError: another rank could
        not set its values. After an error of another rank this one's arrays and values may hold the step, or another one. What
        chooses the step is rank 0's: `step`, `accept` and `healthy_only`. Entries that this rank's state lacks are left out. A
        tensor is read from whatever ranks have its elements, and any other value from the lowest rank that saved it, so the
        names of values that differ between ranks have the rank in them. The number of ranks may be another than in the save.
        If it is the same, a rank whose state has just the entries that it saved reads its own part of the step alone.
        """
        native = self._require()
        with self._filling(resumes=False):
            options = restore_options(healthy_only, only, renames, allow_missing, allow_unexpected, accept,
                                      evaluations_timeout, progress_function(progress))
            self._await_verdicts(native, selector(step), options)
            report = self._fill(partial(Tree, state, device=device), options, convert_dtypes,
                                restore_of(native, step))
        report["info"] = step_info(report["info"])
        report["passed_over"] = [(passed, in_python(why)) for passed, why in report["passed_over"]]
        return RestoreReport(**report)

    def load(self, step: int | str = "latest", *, like: T, healthy_only: bool = False, only: Sequence[str] = (),
             renames: Sequence[tuple[str, str]] = (), allow_missing: bool = False, allow_unexpected: bool = False,
             convert_dtypes: bool = False, accept: Callable[[StepInfo], bool] | None = None,
             evaluations_timeout: float = 300.0, device: Any = None, progress: Progress = False) -> T:
        """A new state with the structure of `like`, filled from a step. Options and errors are those of `restore`.

        Containers, arrays and values are new, and those of `like` do not change. An array has the shape, the dtype and the
        device of the one in `like`; of a tensor on the meta device only shape and dtype count, and `device` says where the new
        one lies. What the options leave out is the same object as in `like`. Modules, optimizers, generators and other
        objects with state cannot be made anew: they are in both states, and are restored in place.
        """
        native = self._require()
        with self._filling(resumes=False):
            options = restore_options(healthy_only, only, renames, allow_missing, allow_unexpected, accept,
                                      evaluations_timeout, progress_function(progress))
            self._await_verdicts(native, selector(step), options)
            made = copy_of_containers(like)
            self._fill(partial(Tree, made, device=device, of_all=True), options, convert_dtypes,
                       restore_of(native, step))
        return made  # type: ignore[no-any-return]

    def _await_verdicts(self, native: _native.Checkpointer, step: str, options: dict[str, Any]) -> None:
        """Waits as the library does for `healthy_only`, but so that Ctrl-C ends it."""
        holds_store = self._of_ranks is None or self._of_ranks["rank"] == 0
        if not options["healthy_only"] or step.isdigit() or not holds_store or is_in(self._evaluations):
            return
        with contextlib.suppress(Error):  # the time is up, or a report could not be recorded: the library warns of both
            in_slices(native.wait_until_evaluated, options["evaluations_timeout"])
        options["evaluations_timeout"] = 0.0

    def _fill(self, tree_of: Callable[..., Tree], options: dict[str, Any], convert_dtypes: bool, restore: Any) -> Any:
        """`tree_of` is Tree with the state that is to be filled."""
        tree_of = partial(tree_of, writable=True, renames=options["renames"])
        tree = tree_of()
        try:
            return self._fill_tree(tree, options, convert_dtypes, restore)
        except MismatchError as error:
            if self._of_ranks is not None or not tree.has_older_names:
                raise
            with contextlib.suppress(MismatchError):
                return self._fill_tree(tree_of(older_names=True), options, convert_dtypes, restore)
            raise error

    def _fill_tree(self, tree: Tree, options: dict[str, Any], convert_dtypes: bool, restore: Any) -> Any:
        tree.refuse_frozen(options["only"])
        self._state.await_staging()
        # By the native state a later `_save_and_close` knows that the training went back. Another one is there for comparison.
        destination = self._state if self._state.may_be_in(tree.arrays) else _native.TreeState()
        # Entries of the package itself may be there, whatever the state is.
        on_devices = tree.on_devices(None)
        # Of a job of several ranks, one alone would refuse the step.
        look = Look(tree, options["only"]) if self._of_ranks is None and tree.can_misfit() else None
        destination.set_destinations(tree.arrays, [*tree.values, *tree.objects], [*tree.objects, "$tidemark"],
                                     convert_dtypes, on_devices, tree.boxes_of_optimizers(), look.function if look else None)
        if self._of_ranks is not None:
            options["allow_unexpected"] = True  # other ranks have those
        try:
            result = restore(destination, options)
        except Error as error:
            raise_interruption(look.function if look else None)
            raise_interruption(options["accept"])
            raise_interruption(options["progress"])
            self._raise_interruptions()
            if look is not None and look.misfits:
                raise look.error() from None
            if isinstance(error, InvalidArgumentError):
                raise mismatch(error, tree, destination, options) from None
            raise
        finally:
            if look is not None:
                look.function.forget()
            options["progress"].end()
            if on_devices is not None:
                on_devices.release()
        if result:  # not of a fresh run
            with together(self._of_ranks):
                tree.assign(destination.take_received(), destination.take_converted(),
                            left_out_by(destination, options["only"]))
            self._averages_passed = set() if options["only"] else averages_in(destination.differences()[1]) - self._averages
        return result


def restore_of(native: _native.Checkpointer, step: int | str) -> Callable[[_native.TreeState, dict[str, Any]], dict[str, Any]]:
    return lambda destination, options: native.restore(destination, selector(step), options)


def averages_in(names: Collection[str]) -> set[str]:
    """The averages that have entries of these names: each has the number of its snapshots, and other entries."""
    found = (name.removesuffix(".snapshots") for name in names if name.endswith(".snapshots"))
    return {average for average in found if any(name.startswith(f"{average}.") for name in names
                                                if name != f"{average}.snapshots")}
