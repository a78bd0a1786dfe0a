"""Options of the manager, by Orbax's names."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Container
from typing import Any

from ..errors import InvalidArgumentError, UnimplementedError

# What has no counterpart, with the way out.
_WITHOUT_COUNTERPART = {
    "step_prefix": "a store has no folder for each step", "step_format_fixed_length": "a store has no folder for each step",
    "step_name_format": "a store has no folder for each step",
    "single_host_load_and_broadcast": "one process reads the store",
    "todelete_subdir": "deleted steps are not kept", "todelete_full_path": "deleted steps are not kept",
    "read_only": "use tidemark.jax.load or tidemark.open, which read beside a trainer",
    "async_options": "use the options of tidemark.Checkpointer", "multiprocessing_options": "one process saves",
    "file_options": "the store sets the modes of its files", "atomicity_options": "a commit is always atomic",
    "temporary_path_class": "a commit is always atomic",
    "save_decision_policy": "use save_interval_steps, save_on_steps or should_save_fn",
    "preservation_policy": "use max_to_keep, keep_period, keep_time_interval or best_fn",
    "prevent_write_metrics": "metrics belong to a step", "enable_per_process_directory_creation": "one process saves"}


@dataclasses.dataclass
class CheckpointManagerOptions:
    """The fields, defaults and meanings of Orbax's class of this name.

    UnimplementedError: a field is set that has no counterpart. These are without effect, since a store does what they
    ask for: cleanup_tmp_directories, enable_background_delete, num_deletion_threads, save_root_metadata,
    enable_should_save_is_saving_in_progress_check, lightweight_initialize.
    """

    save_interval_steps: int = 1
    max_to_keep: int | None = None
    keep_time_interval: datetime.timedelta | None = None
    keep_period: int | None = None
    best_fn: Callable[[Any], float] | None = None
    best_mode: str = "max"
    keep_checkpoints_without_metrics: bool = True
    step_prefix: str | None = None
    step_format_fixed_length: int | None = None
    step_name_format: Any = None
    create: bool = True
    cleanup_tmp_directories: bool = False
    save_on_steps: Container[int] | None = None
    single_host_load_and_broadcast: bool = False
    todelete_subdir: str | None = None
    todelete_full_path: str | None = None
    enable_background_delete: bool = False
    num_deletion_threads: int | None = None
    read_only: bool = False
    enable_async_checkpointing: bool = True
    async_options: Any = None
    multiprocessing_options: Any = None
    should_save_fn: Callable[[int, int | None], bool] | None = None
    file_options: Any = None
    atomicity_options: Any = None
    save_root_metadata: bool = True
    temporary_path_class: Any = None
    save_decision_policy: Any = None
    preservation_policy: Any = None
    prevent_write_metrics: bool = False
    enable_should_save_is_saving_in_progress_check: bool = True
    enable_per_process_directory_creation: bool = False
    lightweight_initialize: bool = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.name in _WITHOUT_COUNTERPART and getattr(self, field.name) is not field.default:
                raise UnimplementedError(f"CheckpointManagerOptions.{field.name} has no counterpart in Tidemark: "
                                         f"{_WITHOUT_COUNTERPART[field.name]}")
        if self.best_mode not in ("min", "max"):
            raise InvalidArgumentError(f"best_mode is {self.best_mode!r}, not 'min' or 'max'")
        if self.max_to_keep is not None and self.max_to_keep < 1:
            raise InvalidArgumentError(f"max_to_keep is {self.max_to_keep}: a store keeps at least its newest step")
        if self.save_interval_steps < 1:
            raise InvalidArgumentError(f"save_interval_steps is {self.save_interval_steps}, less than 1")
