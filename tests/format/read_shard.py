#!/usr/bin/env python3
"""Prints what is in a Tidemark shard as JSON, with a SHA-256 of the bytes of each entry.

Written from docs/format.md alone: the standard library and the zstd command line tool are all it uses. It checks the
structure, not the XXH3 checksums, which Python's library does not have.
"""
import hashlib
import json
import math
import pathlib
import struct
import subprocess
import sys

BLOCK = 4096
KINDS = {1: "tensor", 2: "bytes", 3: "string", 4: "int64", 5: "double", 6: "bool"}
FLOATS = {2: "<H", 4: "<I", 8: "<Q"}


class Cursor:
    """Takes fields off the front of bytes."""

    def __init__(self, data):
        self.data, self.offset = data, 0

    def take(self, layout):
        values = struct.unpack_from("<" + layout, self.data, self.offset)
        self.offset += struct.calcsize("<" + layout)
        return values

    def text(self, size):
        self.offset += size
        return self.data[self.offset - size : self.offset].decode()


def require(holds, what):
    if not holds:
        raise ValueError(what)


def read_header(file):
    magic, version, order, store, attempt, step, sequence, rank, world, chunk_bytes = struct.unpack_from(
        "<8sII16s16sqQIII", file.read(BLOCK))
    require(magic == b"TMKSHARD" and version == 1 and order == 0x01020304, "not a shard of format 1")
    return {"store_id": store.hex(), "attempt": attempt.hex(), "step": step, "sequence": sequence, "rank": rank,
            "world_size": world, "chunk_bytes": chunk_bytes}


def read_index(file):
    file_bytes = file.seek(0, 2)
    file.seek(file_bytes - BLOCK)
    magic, version, _, stated_bytes, offset, size, _ = struct.unpack_from("<8sIIQQQ16s", file.read(BLOCK))
    require(magic == b"TMKFOOTR" and version == 1 and stated_bytes == file_bytes, "no footer, or not the whole file")
    file.seek(offset)
    return Cursor(file.read(size))


def join_planes(planes, width):
    numbers = bytearray(len(planes))
    count = len(planes) // width
    for k in range(width):
        numbers[k::width] = planes[k * count : (k + 1) * count]
    top = 8 * width - 1
    rotated = (((n >> 1) | ((n & 1) << top)) for (n,) in struct.iter_unpack(FLOATS[width], numbers))
    return b"".join(struct.pack(FLOATS[width], n) for n in rotated)


def read_chunk(chunk, paths):
    codec, width, number, raw_bytes, stored_bytes, padding, offset, _, _ = chunk
    with open(paths[number], "rb") as file:
        file.seek(offset)
        data = file.read(stored_bytes)
    if codec != 0:
        data = subprocess.run(["zstd", "-dc"], input=data, stdout=subprocess.PIPE, check=True).stdout
    if codec == 2:
        data = join_planes(data, width)
    require(len(data) == raw_bytes and padding == 0, "a chunk of another size")
    return data


def read_entry(index, chunks, paths):
    name_bytes, kind, has_box, dtype, dimensions, first, count = index.take("HBBHHQQ")
    name = index.text(name_bytes)
    extents = [list(index.take(f"{dimensions}q")) for _ in range(3 if has_box else 1)]
    data = b"".join(read_chunk(chunk, paths) for chunk in chunks[first : first + count])
    entry = {"name": name, "kind": KINDS[kind], "dtype": dtype, "shape": extents[0], "bytes": len(data),
             "first_chunk": first, "sha256": hashlib.sha256(data).hexdigest(),
             "codecs": sorted({chunk[0] for chunk in chunks[first : first + count]})}
    if has_box:
        entry["box_offset"], entry["box_extent"] = extents[1:]
    return entry


def read_shard(path):
    with open(path, "rb") as file:
        shard = read_header(file)
        index = read_index(file)
    require(index.text(8) == "TMKINDEX", "no index")
    (chunk_count, entry_count, file_count, metric_count, property_count, metadata_bytes,
     shard["created_unix_ns"], shard["blocked_ns"]) = index.take("QQIIIIqQ")
    paths = [path]
    for _ in range(file_count):
        attempt, step, rank, world = index.take("16sqII")
        paths.append(path.parent.parent / f"{step:010}-{attempt.hex()}" / f"shard-{rank:05}-of-{world:05}.tmk")
    chunks = [index.take("BBHIIIQQ16s") for _ in range(chunk_count)]
    shard["entries"] = [read_entry(index, chunks, paths) for _ in range(entry_count)]
    shard["metrics"], shard["properties"] = {}, {}
    for _ in range(metric_count):
        value, name_bytes = index.take("dH")
        shard["metrics"][index.text(name_bytes)] = value if math.isfinite(value) else str(value)  # JSON has no infinity
    for _ in range(property_count):
        key_bytes, value_bytes = index.take("HI")
        key = index.text(key_bytes)
        shard["properties"][key] = index.text(value_bytes)
    shard["user_metadata"] = json.loads(index.text(metadata_bytes))
    require(index.offset == len(index.data), "bytes behind the index")
    return shard


if __name__ == "__main__":
    json.dump(read_shard(pathlib.Path(sys.argv[1])), sys.stdout, indent=1)
    print()
