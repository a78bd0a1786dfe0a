#!/usr/bin/env python3
"""Who may include whom, and who may sync. The arrows are those of docs/architecture.md; all of them point down.

  layering_test.py ROOT [unittest arguments]
"""

import re
import sys
import unittest

import source_tree

# Each room, and the rooms whose headers its files may include besides its own and the public ones. The first room
# whose prefix fits a path is the path's room.
SHARD = ["storage/shard/format/", "storage/shard/write/", "storage/shard/read/"]
STORAGE = ["storage/io/", "storage/bytes/", "storage/codec/", *SHARD, "storage/records/", "storage/journal/",
           "storage/index/", "storage/store/", "storage/ranks/", "storage/retention/"]
ROOMS = [
    ("include/tidemark/torch.h", []),
    ("include/tidemark/torch_ranks.h", []),
    ("include/tidemark/", []),
    ("storage/io/", []),
    ("storage/bytes/", ["storage/io/"]),
    ("storage/codec/", []),
    ("storage/shard/format/", ["storage/io/", "storage/bytes/", "storage/codec/"]),
    ("storage/shard/write/", ["storage/io/", "storage/bytes/", "storage/codec/", "storage/shard/format/"]),
    ("storage/shard/read/", ["storage/io/", "storage/bytes/", "storage/shard/format/"]),
    ("storage/records/", ["storage/io/", "storage/bytes/", *SHARD]),
    ("storage/journal/", ["storage/io/", "storage/bytes/"]),
    ("storage/index/", ["storage/io/", "storage/bytes/", "storage/records/", "storage/journal/"]),
    ("storage/store/", ["storage/io/", "storage/bytes/", *SHARD, "storage/records/", "storage/journal/",
                        "storage/index/"]),
    ("storage/ranks/", ["storage/io/", "storage/bytes/", *SHARD, "storage/records/", "storage/journal/",
                        "storage/store/"]),
    ("storage/retention/", ["storage/io/", "storage/bytes/", "storage/records/", "storage/store/"]),
    ("snapshot/exchange/", STORAGE + ["snapshot/"]),
    ("snapshot/torch/", STORAGE + ["snapshot/", "snapshot/exchange/"]),
    ("snapshot/", STORAGE),
    ("eval/", STORAGE + ["snapshot/"]),
]
# Rooms on top of everything: they may include any header, but nobody below may include theirs.
TOP = ("python/", "tools/", "examples/", "tests/", "fuzz/", "bench/")

# A foreign library's headers, and the prefixes of the files that may include them. Tests may include them all.
LIBRARIES = [
    ("LibTorch", r"^(torch|ATen|c10|caffe2)/", 
     ("include/tidemark/torch.h", "include/tidemark/torch_ranks.h", "snapshot/torch/", "examples/", "bench/")),
    ("the LibTorch edge", r"^tidemark/torch(_file|_ranks)?\.h$",
     ("include/tidemark/torch.h", "snapshot/torch/", "examples/", "bench/")),
    ("liburing", r"^(liburing\.h|liburing/|linux/io_uring\.h)", ("storage/io/",)),
    ("zstd", r"^(zstd|zdict|zstd_errors)\.h$", ("storage/shard/", "bench/")),
    ("RocksDB", r"^rocksdb/", ("storage/index/",)),
    ("xxHash", r"^(xxhash|xxh3|xxh_x86dispatch)\.h$", ("storage/bytes/", "storage/shard/")),
    ("nlohmann-json", r"^nlohmann/", ("storage/", "snapshot/", "eval/", "tools/", "examples/", "fuzz/", "bench/")),
    ("CLI11", r"^CLI/", ("tools/", "examples/", "bench/")),
]

# A call of one's own believes a file system that is down (storage/io/sync.h).
SYNC = re.compile(r"\b(fsync|fdatasync)\(")
SYNCED_ROOMS = ("storage/", "snapshot/", "eval/", "tools/", "python/")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(path):
    for prefix, below in ROOMS:
        if path.startswith(prefix):
            return prefix, below
    return None, None


def project_path(included):
    """The path in the tree of a header of ours, or None."""
    if included.startswith("tidemark/"):
        return "include/" + included
    if included.startswith(("storage/", "snapshot/", "eval/") + TOP):
        return included
    return None


def include_violations(path, included):
    found = []
    for library, pattern, users in LIBRARIES:
        if re.search(pattern, included) and not path.startswith(users + ("tests/",)):
            found.append(f"includes {included}, but {library} belongs to {', '.join(users)}")
    target = project_path(included)
    if target is not None and path.startswith("python/") and not target.startswith(("include/", "python/")):
        found.append(f"includes {included}, but the Python package stands on the public headers")
    if target is not None and path.startswith("examples/") and not target.startswith(("include/", "examples/")):
        found.append(f"includes {included}, but an example shows what can be done with the public headers")
    if target is None or path.startswith(TOP):
        return found
    room, below = room_of(path)
    target_room, _ = room_of(target)
    public = target.startswith("include/")
    if room is None:
        found.append("is in no room that this test knows")
    elif not public and target_room != room and target_room not in below:
        found.append(f"includes {included}, an arrow from {room} up to {target_room or target.split('/')[0] + '/'}")
    return found


def violations(root):
    found = []
    for path in source_tree.files(root, ".h", ".cc"):
        for number, line in enumerate(source_tree.read(root, path).splitlines(), start=1):
            call = SYNC.search(line.split("//")[0])
            if call and path.startswith(SYNCED_ROOMS) and path != "storage/io/sync.cc":
                found.append(f"{path}:{number}: calls {call.group(1)}, which storage/io/sync.h is for")
            match = INCLUDE.match(line)
            if match is None:
                continue
            included = match.group(2)
            for what in include_violations(path, included):
                found.append(f"{path}:{number}: {what}")
            if project_path(included) and match.group(1) == "<":
                found.append(f"{path}:{number}: includes {included} of this project in angle brackets")
            if ".." in included.split("/"):
                found.append(f"{path}:{number}: includes {included} by a relative path")
    return found


class Layering(unittest.TestCase):
    root = None

    def test_every_include_of_the_tree_points_down(self):
        self.assertGreater(len(source_tree.files(self.root, ".h", ".cc")), 10, f"{self.root} is not the project")
        self.assertEqual(violations(self.root), [])

    def assert_allowed(self, path, included):
        with source_tree.MadeUpTree({path: f'#include "{included}"\n'}) as root:
            self.assertEqual(violations(root), [])

    def assert_refused(self, path, included, expected):
        with source_tree.MadeUpTree({path: f'// A comment.\n#include "{included}"\n'}) as root:
            found = violations(root)
            self.assertTrue(any(line.startswith(path + ":2: ") and expected in line for line in found), (expected, found))

    def test_arrows_down_are_allowed(self):
        self.assert_allowed("storage/index/manifest.cc", "storage/bytes/ids.h")
        self.assert_allowed("storage/shard/format/entry.cc", "storage/io/file_system.h")
        self.assert_allowed("storage/io/posix.cc", "tidemark/entry.h")
        self.assert_allowed("snapshot/consumers/persister.cc", "storage/store/store.h")
        self.assert_allowed("snapshot/torch/torch_state.cc", "snapshot/staging/staging_plan.h")
        self.assert_allowed("snapshot/torch/torch_state.cc", "torch/torch.h")
        self.assert_allowed("snapshot/torch/torch_file.cc", "snapshot/exchange/torch_contents.h")
        self.assert_allowed("eval/worker.cc", "snapshot/restore/restore.h")
        self.assert_allowed("snapshot/exchange/export.cc", "snapshot/numbers/float_arrays.h")
        self.assert_allowed("tests/storage/shard/format/chunk_codec_test.cc", "zstd.h")

    def test_arrows_up_are_refused(self):
        self.assert_refused("storage/io/posix.cc", "storage/bytes/ids.h", "up to storage/bytes/")
        self.assert_refused("storage/bytes/ids.cc", "storage/index/manifest.h", "up to storage/index/")
        self.assert_refused("storage/journal/journal.cc", "storage/shard/format/shard_format.h", "up to storage/shard/")
        self.assert_refused("storage/codec/byte_planes.cc", "storage/bytes/ids.h", "up to storage/bytes/")
        self.assert_refused("storage/store/a.cc", "snapshot/persister.h", "up to snapshot/")
        self.assert_refused("storage/store/a.cc", "eval/worker.h", "up to eval/")
        self.assert_refused("snapshot/consumers/persister.cc", "eval/worker.h", "up to eval/")
        self.assert_refused("eval/worker.cc", "snapshot/exchange/output_file.h", "up to snapshot/exchange/")
        self.assert_refused("snapshot/restore/restore.cc", "snapshot/exchange/output_file.h", "up to snapshot/exchange/")
        self.assert_refused("snapshot/consumers/persister.cc", "snapshot/torch/torch_state.h", "up to snapshot/torch/")
        self.assert_refused("snapshot/consumers/persister.cc", "tests/fakes.h", "up to tests/")
        self.assert_refused("include/tidemark/state.h", "storage/bytes/ids.h", "up to storage/bytes/")

    def test_foreign_libraries_stay_in_their_rooms(self):
        self.assert_refused("include/tidemark/state.h", "torch/torch.h", "LibTorch belongs to")
        self.assert_refused("include/tidemark/state.h", "tidemark/torch.h", "the LibTorch edge belongs to")
        self.assert_refused("snapshot/consumers/persister.cc", "ATen/core/Tensor.h", "LibTorch belongs to")
        self.assert_refused("snapshot/consumers/persister.cc", "tidemark/torch.h", "the LibTorch edge belongs to")
        self.assert_refused("storage/shard/write/a.cc", "storage/shard/read/shard_reader.h", "up to storage/shard/read/")
        self.assert_refused("storage/shard/read/a.cc", "storage/shard/write/shard_writer.h", "up to storage/shard/write/")
        self.assert_refused("storage/shard/format/a.cc", "storage/shard/read/shard_reader.h", "up to storage/shard/read/")
        self.assert_refused("storage/shard/a.cc", "liburing.h", "liburing belongs to")
        self.assert_refused("storage/io/a.cc", "zstd.h", "zstd belongs to")
        self.assert_refused("storage/shard/a.cc", "rocksdb/db.h", "RocksDB belongs to")
        self.assert_refused("storage/store/a.cc", "xxhash.h", "xxHash belongs to")
        self.assert_refused("include/tidemark/state.h", "nlohmann/json.hpp", "nlohmann-json belongs to")
        self.assert_refused("snapshot/a.cc", "CLI/CLI.hpp", "CLI11 belongs to")

    def test_examples_use_the_public_headers_alone(self):
        self.assert_allowed("examples/char_lm/main.cc", "tidemark/torch.h")
        self.assert_allowed("examples/char_lm/main.cc", "examples/char_lm/model.h")
        self.assert_refused("examples/char_lm/main.cc", "storage/bytes/ids.h", "with the public headers")

    def test_one_file_syncs(self):
        for call in "fsync(fd)", "::fdatasync(fd)":
            with source_tree.MadeUpTree({"snapshot/a.cc": f"if ({call} != 0) return;\n"}) as root:
                self.assertEqual(len(violations(root)), 1)
            with source_tree.MadeUpTree({"snapshot/a.cc": f"// {call}\n", "storage/io/sync.cc": f"{call};\n"}) as root:
                self.assertEqual(violations(root), [])

    def test_ways_around_are_refused(self):
        self.assert_refused("storage/io/a.cc", "../shard/ids.h", "by a relative path")
        with source_tree.MadeUpTree({"storage/io/a.cc": "# include <storage/io/b.h>\n"}) as root:
            self.assertEqual(len(violations(root)), 1)


if __name__ == "__main__":
    Layering.root = sys.argv.pop(1)
    unittest.main()
