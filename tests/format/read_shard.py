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
    require(magic == b"TMKSHARD" and version in (1, 2) and order == 0x01020304, "not a shard of version 1 or 2")
    return {"version": version, "store_id": store.hex(), "attempt": attempt.hex(), "step": step, "sequence": sequence,
            "rank": rank, "world_size": world, "chunk_bytes": chunk_bytes}


def read_index(file):
    """The index as it is stored, its digest, and whether it is a delta."""
    file_bytes = file.seek(0, 2)
    file.seek(file_bytes - BLOCK)
    magic, version, _, stated_bytes, offset, size, digest = struct.unpack_from("<8sIIQQQ16s", file.read(BLOCK))
    require(magic == b"TMKFOOTR" and version in (1, 2) and stated_bytes == file_bytes, "no footer, or not the whole file")
    file.seek(offset)
    return Cursor(file.read(size)), digest, version == 2


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


def take_chunk(index):
    return index.take("BBHIIIQQ16s")


def take_entry(index):
    name_bytes, kind, has_box, dtype, dimensions, first, count = index.take("HBBHHQQ")
    entry = {"name": index.text(name_bytes), "kind": KINDS[kind], "dtype": dtype}
    extents = [list(index.take(f"{dimensions}q")) for _ in range(3 if has_box else 1)]
    entry["shape"] = extents[0]
    if has_box:
        entry["box_offset"], entry["box_extent"] = extents[1:]
    return entry, first, count


def read_entry(entry, chunks, paths):
    described, first, count = entry
    data = b"".join(read_chunk(chunk, paths) for chunk in chunks[first : first + count])
    return described | {"bytes": len(data), "first_chunk": first, "sha256": hashlib.sha256(data).hexdigest(),
                        "codecs": sorted({chunk[0] for chunk in chunks[first : first + count]})}


def take_delta(index, base, paths, chunk_count, entry_count, changed_chunks, changed_entries):
    """The tables of the base, and in them what the delta has."""
    chunks, entries = list(base["chunks"]), list(base["entries"])
    require(len(chunks) == chunk_count and len(entries) == entry_count, "a base of other counts")
    changed = set()
    for _ in range(changed_chunks):
        (number,) = index.take("Q")
        changed.add(number)
        chunks[number] = take_chunk(index)
    for _ in range(changed_entries):
        (number,) = index.take("Q")
        entries[number] = take_entry(index)
    for number in set(range(chunk_count)) - changed:
        chunk = chunks[number]
        chunks[number] = chunk[:2] + (paths.index(base["paths"][chunk[2]]),) + chunk[3:]
    return chunks, entries


def overlap(one, other):
    """Whether the boxes have a common element, or are the same."""
    if (one["box_offset"], one["box_extent"]) == (other["box_offset"], other["box_extent"]):
        return True
    sides = zip(one["box_offset"], one["box_extent"], other["box_offset"], other["box_extent"])
    return all(max(a, b) < min(a + a_size, b + b_size) for a, a_size, b, b_size in sides)


def check_names(entries, repeats):
    """Names are unique, or those of several boxes of one tensor."""
    by_name = {}
    for entry, _, _ in entries:
        by_name.setdefault(entry["name"], []).append(entry)
    require((len(by_name) < len(entries)) == repeats, "the version says otherwise of the names")
    for boxes in by_name.values():
        require(len(boxes) == 1 or all(box["kind"] == "tensor" and "box_extent" in box for box in boxes), "a name twice")
        require(len({(box["dtype"], tuple(box["shape"])) for box in boxes}) == 1, "boxes of different tensors")
        for number, box in enumerate(boxes):
            require(not any(overlap(box, other) for other in boxes[:number]), "boxes that overlap")


def read_tables(path):
    with open(path, "rb") as file:
        shard = read_header(file)
        index, digest, is_delta = read_index(file)
    require(index.text(8) == ("TMKDELTA" if is_delta else "TMKINDEX"), "no index")
    (chunk_count, entry_count, file_count, metric_count, property_count, metadata_bytes,
     shard["created_unix_ns"], shard["blocked_ns"]) = index.take("QQIIIIqQ")
    if is_delta:
        base_digest, base_file, changed_entries, changed_chunks = index.take("16sIIQ")
    paths = [path]
    for _ in range(file_count):
        attempt, step, rank, world = index.take("16sqII")
        paths.append(path.parent.parent / f"{step:010}-{attempt.hex()}" / f"shard-{rank:05}-of-{world:05}.tmk")
    if is_delta:
        base = read_tables(paths[base_file])
        require(base["digest"] == base_digest and not base["is_delta"], "another base than it was")
        require(base["shard"]["version"] == shard["version"], "a base of another version")
        chunks, entries = take_delta(index, base, paths, chunk_count, entry_count, changed_chunks, changed_entries)
    else:
        chunks = [take_chunk(index) for _ in range(chunk_count)]
        entries = [take_entry(index) for _ in range(entry_count)]
    check_names(entries, shard["version"] == 2)
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
    return {"shard": shard, "paths": paths, "chunks": chunks, "entries": entries, "digest": digest, "is_delta": is_delta}


def read_shard(path):
    tables = read_tables(path)
    entries = [read_entry(entry, tables["chunks"], tables["paths"]) for entry in tables["entries"]]
    return tables["shard"] | {"entries": entries}


if __name__ == "__main__":
    json.dump(read_shard(pathlib.Path(sys.argv[1])), sys.stdout, indent=1)
    print()
