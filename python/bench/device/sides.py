"""What is measured: Tidemark, torch.save, DCP and bare copies on one state of a device, and a training beside saves."""

import contextlib
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import warnings

import tidemark
import torch

from .state import TrainingState

STEPS = 20
STAGINGS = ("blocking", "overlapped", "on_device")
TIMEOUT = 300
# What each side measures.
COLUMNS = {
    **{f"tidemark {staging}": tuple(f"{what}_{staging}" for what in ("blocked", "staged", "durable", "restore"))
       for staging in STAGINGS},
    "pinned": ("copy_pinned",), "pageable": ("copy_pageable",),
    "torch.save": ("blocked_torch_save", "durable_torch_save", "restore_torch_load"),
    "DCP": ("blocked_dcp", "durable_dcp", "restore_dcp"), "training": ("training_alone",),
    **{f"training {staging}": (f"training_{staging}",) for staging in STAGINGS},
}
warnings.filterwarnings("ignore", module="torch.distributed")  # advice of DCP


class SkippedError(Exception):
    """What this device or this PyTorch has not."""


class WrongBytesError(RuntimeError):
    """What came back is not what was saved."""


def files_of(path):
    return [found for found in pathlib.Path(path).rglob("*") if found.is_file()]


def forget(path):
    """Has the kernel drop what it holds of the files, once they are on the disk."""
    os.sync()
    for file in files_of(path):
        # Retention deletes the step before meanwhile.
        with contextlib.suppress(FileNotFoundError), open(file, "rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Sides:
    """Each method measures once, and returns {column: seconds}. What it saved has been restored and compared by then."""

    def __init__(self, accelerator, options, folder):
        self.accelerator, self.folder = accelerator, folder
        self.state = TrainingState(accelerator, options.bytes)
        self._restored = TrainingState(accelerator, options.bytes)
        self._expected = self.state.copies()
        self._number = 0
        self._hosts = {}
        self.notes = {}
        self._units = max(int(options.loop_seconds / STEPS / accelerator.seconds_of_a_unit()), 1)
        self._store = os.path.join(folder, "store")
        self._checkpointer = tidemark.Checkpointer(self._store, reuse=False, retention=tidemark.Retention(max_to_keep=1))
        self._checkpointer.prepare(self.state.tree)
        self._stager = None

    def close(self):
        self._checkpointer.close()
        if self._stager is not None:
            self._stager.close()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    def _begin(self):
        """Another content, which is kept for the comparison; the device has nothing to do afterwards."""
        self._number += 1
        self.state.change(self._number)
        self.state.keep(self._expected)
        self.accelerator.synchronize()
        return self._number

    def _compare(self, what):
        wrong = self._restored.differing(self._expected)
        if wrong:
            raise WrongBytesError(f"{what}: {wrong} of {len(self._expected)} tensors are not what was saved")

    def _restore(self, what, restore):
        """Seconds of a cold restore into tensors of the device."""
        self._restored.clear()
        self.accelerator.synchronize()
        begin = time.perf_counter()
        restore()
        self.accelerator.synchronize()
        took = time.perf_counter() - begin
        self._compare(what)
        return took

    def _restore_step(self, step, staging):
        forget(self._store)
        return self._restore(f"a save of Tidemark, {staging}", lambda: self._checkpointer.restore(self._restored.tree, step))

    def tidemark(self, staging):
        step = self._begin()
        begin = time.perf_counter()
        save = self._checkpointer.save(step, self.state.tree, staging=staging)
        blocked = time.perf_counter() - begin
        self._checkpointer.wait_until_staged()
        staged = time.perf_counter() - begin
        save.committed.result(TIMEOUT)
        durable = time.perf_counter() - begin
        self.notes["staging_memory"] = self._staging_memory(step)
        restored = self._restore_step(step, staging)
        self._check_staging(save, staging)
        return {f"blocked_{staging}": blocked, f"staged_{staging}": staged, f"durable_{staging}": durable,
                f"restore_{staging}": restored}

    def _check_staging(self, save, staging):
        if save.staging != staging:
            raise SkippedError(f"the save became {save.staging}")

    def _staging_memory(self, step):
        """What the saved step says of the memory that its tensors were copied into."""
        tool = shutil.which("checkpoint-inspect", path=os.path.dirname(sys.executable)) or shutil.which("checkpoint-inspect")
        if tool is None:
            return "unknown: there is no checkpoint-inspect"
        done = subprocess.run([tool, "--store", self._store, "--json", "show", str(step)], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            return f"unknown: {done.stderr.strip()}"
        return json.loads(done.stdout)["properties"]["staging_memory"]

    def copies(self, pinned):
        """Of all tensors of the device to host tensors that are there already."""
        if pinned and not self.accelerator.pins:
            raise SkippedError("no page-locked memory without an accelerator")
        if pinned not in self._hosts:
            self._hosts[pinned] = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned).zero_()
                                   for tensor in self.state.on_device]
        self._begin()
        begin = time.perf_counter()
        for host, tensor in zip(self._hosts[pinned], self.state.on_device):
            host.copy_(tensor, non_blocking=pinned)
        self.accelerator.synchronize()
        return {"copy_pinned" if pinned else "copy_pageable": time.perf_counter() - begin}

    def _needs_peers(self):
        if not self.accelerator.has_peers:
            raise SkippedError("other libraries ask more of a device than the pretend accelerator has")

    def torch_save(self):
        self._needs_peers()
        path = os.path.join(self.folder, "torch.pt")
        self._begin()
        begin = time.perf_counter()
        with open(path, "wb") as file:
            torch.save(self.state.dicts(), file)
            file.flush()
            saved = time.perf_counter() - begin
            os.fsync(file.fileno())
        durable = time.perf_counter() - begin
        forget(self.folder)
        restored = self._restore("torch.save", lambda: self._restored.fill_from(
            torch.load(path, map_location=self.accelerator.device, weights_only=True)))
        os.remove(path)
        return {"blocked_torch_save": saved, "durable_torch_save": durable, "restore_torch_load": restored}

    def dcp(self):
        """async_save on a thread, with a stager that keeps its memory, page-locked where there is a device."""
        self._needs_peers()
        import torch.distributed as dist

        if not dist.is_available() or importlib.util.find_spec("torch.distributed.checkpoint") is None:
            raise SkippedError(f"PyTorch {torch.__version__} has no DCP")
        if importlib.util.find_spec("numpy") is None:
            raise SkippedError("DCP needs NumPy")
        import torch.distributed.checkpoint as dcp

        if not hasattr(dcp, "async_save"):
            raise SkippedError(f"PyTorch {torch.__version__} has no async_save")
        if not dist.is_initialized():
            dist.init_process_group("gloo", init_method=f"file://{self.folder}/meeting", rank=0, world_size=1)
        arguments = self._stager_arguments()
        path = os.path.join(self.folder, "dcp")
        self._begin()
        begin = time.perf_counter()
        saved = dcp.async_save(self.state.dicts(), storage_writer=dcp.FileSystemWriter(path, thread_count=8), **arguments)
        blocked = time.perf_counter() - begin
        getattr(saved, "upload_completion", saved).result(TIMEOUT)
        durable = time.perf_counter() - begin
        forget(path)
        restored = self._restore("DCP", lambda: dcp.load(self._restored.dicts(), storage_reader=dcp.FileSystemReader(path),
                                                        no_dist=True))
        shutil.rmtree(path)
        return {"blocked_dcp": blocked, "durable_dcp": durable, "restore_dcp": restored}

    def _stager_arguments(self):
        if self._stager is None:
            try:
                from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
            except ImportError:
                self.notes["dcp"] = "this PyTorch has no DefaultStager: async_save as it is, with pageable memory"
                return {}
            on_cuda = self.accelerator.device.type == "cuda"
            self._stager = DefaultStager(StagingOptions(use_pinned_memory=on_cuda, use_shared_memory=False,
                                                        use_async_staging=False, use_non_blocking_copy=on_cuda))
            self.notes["dcp"] = f"DefaultStager, pinned memory {on_cuda}, staged before async_save returns"
        return {"async_stager": self._stager}

    def training(self, staging):
        """Runs steps that multiply matrices and then change the whole state. If staging is not None, it saves before them.
        A save that is not committed when they end is waited for, but not measured."""
        step, save, number = self._begin(), None, self._number
        begin = time.perf_counter()
        if staging is not None:
            save = self._checkpointer.save(step, self.state.tree, staging=staging)
        for _ in range(STEPS):
            self.accelerator.work(self._units)
            number += 1
            with self._checkpointer.staged():
                self.state.change(number)
            self.accelerator.synchronize()
        took = time.perf_counter() - begin
        self._number = number
        if save is not None:
            save.committed.result(TIMEOUT)
            self._restore_step(step, f"{staging}, beside a training")
            self._check_staging(save, staging)
        return {f"training_{staging or 'alone'}": took}

    def all(self):
        """{name: function} of what a round measures; COLUMNS has the same names."""
        sides = {f"tidemark {staging}": lambda staging=staging: self.tidemark(staging) for staging in STAGINGS}
        sides.update({"pinned": lambda: self.copies(True), "pageable": lambda: self.copies(False),
                      "torch.save": self.torch_save, "DCP": self.dcp, "training": lambda: self.training(None)})
        sides.update({f"training {staging}": lambda staging=staging: self.training(staging) for staging in STAGINGS})
        return sides
