"""PyTorch's distributed checkpoints, in one process, and the library that is to follow them."""

import os
import tempfile
import warnings

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from . import torch_arrays
from .interface import Peer, nothing

THREADS = 2
warnings.filterwarnings("ignore", module="torch.distributed")  # advice of DCP


class Dcp(Peer):
    arrays = torch_arrays
    fills = True

    def writer(self, step):
        return dcp.FileSystemWriter(self.path(step), thread_count=THREADS)

    def save(self, step, state):
        dcp.save(state, storage_writer=self.writer(step), no_dist=True)
        return nothing

    def restore(self, step, destination):
        dcp.load(destination, storage_reader=dcp.FileSystemReader(self.path(step)), no_dist=True)
        return destination


class DcpThread(Dcp):
    """With a stager that keeps its memory from save to save, which is faster than the default."""

    mode = AsyncCheckpointerType.THREAD

    def __init__(self, folder, reading=False):
        super().__init__(folder, reading)
        self.stager = None
        if not reading:
            self.meeting = tempfile.mkdtemp()
            dist.init_process_group("gloo", init_method=f"file://{self.meeting}/meeting", rank=0, world_size=1)
            self.stager = DefaultStager(StagingOptions(
                use_pinned_memory=False, use_shared_memory=self.mode is AsyncCheckpointerType.PROCESS,
                use_async_staging=False, use_non_blocking_copy=False))

    @classmethod
    def plain(cls, folder):
        return Dcp(folder)

    def save(self, step, state):
        saved = dcp.async_save(state, storage_writer=self.writer(step), async_checkpointer_type=self.mode,
                               async_stager=self.stager)
        return saved.result

    def close(self):
        if self.stager is not None:
            self.stager.close()
            dist.destroy_process_group()


class DcpProcess(DcpThread):
    mode = AsyncCheckpointerType.PROCESS

    def __init__(self, folder, reading=False):
        os.environ.setdefault("MASTER_ADDR", "localhost")  # where its process finds the trainer
        super().__init__(folder, reading)


class TorchCheckpointing(Peer):
    """As its documentation configures it without CUDA. Direct I/O is off, for it writes at offsets that no disk takes."""

    arrays = torch_arrays
    fills = True

    def __init__(self, folder, reading=False):
        super().__init__(folder, reading)
        import torch_checkpointing as tc
        from torch_checkpointing.config import AsyncCheckpointSaverConfig, SyncCheckpointSaverConfig
        from torch_checkpointing.staging import CheckpointStagerConfig
        from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig

        save = SyncCheckpointSaverConfig() if reading else AsyncCheckpointSaverConfig(
            staging_config=CheckpointStagerConfig(use_pinned_memory=False, use_non_blocking_copy=False))
        self.manager = tc.CheckpointManager(tc.CheckpointManager.Config(
            save=save, storage_config=LocalFileSystemStorageConfig(use_direct_io=False)))

    @classmethod
    def plain(cls, folder):
        return cls(folder, reading=True)  # saves too, but before it returns

    def save(self, step, state):
        saved = self.manager.save(self.path(step), {"state": state})
        return saved.result if saved is not None else nothing

    def before_update(self):
        with self.manager.lock():  # waits for the copy
            pass

    def restore(self, step, destination):
        return self.manager.load(self.path(step), into={"state": destination}, strict=True)["state"]

    def close(self):
        self.manager.close()
