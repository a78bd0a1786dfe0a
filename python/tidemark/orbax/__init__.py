"""The names of orbax.checkpoint's CheckpointManager and StandardCheckpointer on stores of Tidemark.

    import tidemark.orbax as ocp  # was: import orbax.checkpoint as ocp

    with ocp.CheckpointManager("run/ckpt", options=ocp.CheckpointManagerOptions(max_to_keep=3)) as manager:
        manager.save(step, args=ocp.args.StandardSave(state))
        state = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(state))

It does not read checkpoints of Orbax, nor does Orbax read these. What has no counterpart here is UnimplementedError as
soon as it is asked for. Importing this module imports jax, but not Orbax.
"""

from . import args
from ._checkpointers import PyTreeCheckpointer, StandardCheckpointer
from ._manager import CheckpointManager, StepAlreadyExistsError, StepMetadata
from ._options import CheckpointManagerOptions
from ._restore_args import ArrayRestoreArgs, RestoreArgs

__all__ = ["ArrayRestoreArgs", "CheckpointManager", "CheckpointManagerOptions", "PyTreeCheckpointer", "RestoreArgs",
           "StandardCheckpointer", "StepAlreadyExistsError", "StepMetadata", "args"]
