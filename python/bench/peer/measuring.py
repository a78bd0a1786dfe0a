"""What the kernel knows of processes and files: processor time, memory, bytes on the disk, the page cache."""

import ctypes
import os
import pathlib
import resource
import threading
import time

import numpy as np

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
POLL_SECONDS = 0.02
libc = ctypes.CDLL(None, use_errno=True)


def sync_file_system(folder):
    """Returns when all that was written to the file system before is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if libc.syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), folder)
    finally:
        os.close(descriptor)


def descendants(pid):
    """Process ids of the children of all threads, and of theirs."""
    found = []
    try:
        tasks = list(os.scandir(f"/proc/{pid}/task"))
        for task in tasks:
            for child in pathlib.Path(task.path, "children").read_text(encoding="ascii").split():
                found += [int(child), *descendants(child)]
    except OSError:
        pass  # it has ended meanwhile
    return found


def cpu_seconds():
    """Processor time of this process and of all that it has started, user and kernel."""
    usages = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    total = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    for pid in descendants(os.getpid()):
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            total += sum(map(int, fields[11:15])) / TICK
        except OSError:
            pass
    return total


def resident_bytes(pid):
    """PSS of the process and its descendants: memory that they share counts once."""
    total = 0
    for process in (pid, *descendants(pid)):
        try:
            with open(f"/proc/{process}/smaps_rollup", encoding="ascii") as file:
                total += next(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))
        except (OSError, StopIteration):
            pass
    return total


class MemoryPoll(threading.Thread):
    """Looks at the memory of a process again and again until it is stopped."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.samples = []  # of time.time() and bytes
        self._pid = pid
        self._stopped = threading.Event()
        self.start()

    def run(self):
        took = 0.0
        while not self._stopped.wait(max(POLL_SECONDS, 3 * took)):  # a look at GBs of small pages takes a while
            begin = time.time()
            size = resident_bytes(self._pid)
            took = time.time() - begin
            self.samples.append((begin, size))

    def stop(self):
        self._stopped.set()
        self.join()

    def peak_above(self, begin, end):
        """The highest value within the time, above the last one before it."""
        before = [size for when, size in self.samples if when < begin]
        within = [size for when, size in self.samples if begin <= when <= end]
        return max(within) - before[-1] if before and within else None


def files_in(folder):
    return [path for path in pathlib.Path(folder).rglob("*") if path.is_file() and not path.is_symlink()]


def stored_bytes(folder):
    """Blocks that the files have on the disk; names of one file count once."""
    return sum({(found.st_dev, found.st_ino): found.st_blocks * 512 for found in map(os.stat, files_in(folder))}.values())


def cached_pages(path):
    size = os.path.getsize(path)
    if size == 0:
        return 0
    mapped = np.memmap(path, np.uint8, "r")
    flags = (ctypes.c_ubyte * ((size + PAGE - 1) // PAGE))()
    if libc.mincore(ctypes.c_void_p(mapped.ctypes.data), ctypes.c_size_t(size), flags) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    return int((np.frombuffer(flags, np.uint8) & 1).sum())


def drop_cache(folder):
    """Has the kernel forget what it holds of the files. Raises OSError if it does not."""
    sync_file_system(folder)
    files = files_in(folder)
    for path in files:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    left = sum(map(cached_pages, files)) * PAGE
    if left > max(sum(path.stat().st_size for path in files) // 100, 1 << 20):
        raise OSError(f"{folder}: the kernel still holds {left} bytes of the files")
