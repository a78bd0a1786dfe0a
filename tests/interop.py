#!/usr/bin/env python3
"""What checkpoint-inspect exports opens in safetensors and numpy, bit by bit, and what these write it imports; what a
trainer writes for Prometheus its client reads; a browser shows the report, where one is installed.

  interop.py CHECKPOINT_INSPECT INSPECT_MAKE_RUN MAKE_TEST_STORE [unittest arguments]

Run by tests/interop.sh, with the packages.
"""

import base64
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy
import prometheus_client.parser
import safetensors
import safetensors.numpy

SEED = 20261122

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")

# The dtypes that the format, Tidemark and numpy have.
DTYPES = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64",
          "complex64")
# Those that numpy lacks, and their bytes.
NARROW = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e8m0fnu": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1}


def arrays():
    """Of every dtype and of shapes that are hard to get right, with bytes that are whatever they are."""
    random = numpy.random.default_rng(SEED)
    made = {}
    for name in DTYPES:
        for shape in ((), (1,), (0, 3), (7, 5), (3, 1, 2)):
            size = int(numpy.prod(shape)) * numpy.dtype(name).itemsize
            raw = random.integers(0, 2 if name == "bool" else 256, size, dtype=numpy.uint8).tobytes()
            made[f"model.{name}." + "x".join(map(str, shape))] = numpy.frombuffer(raw, dtype=name).reshape(shape)
    made["model.large"] = random.standard_normal((1500, 1000)).astype(numpy.float32)
    made["naïve \"name\" \\ \n"] = numpy.arange(4, dtype=numpy.float32)
    return made


def trained_tensors():
    """What make_test_store saves, made anew: see TestState in tests/tools/checkpoint_inspect/test_store.cc."""
    numbers = [1]
    for _ in range(5000):
        numbers.append((numbers[-1] * 1664525 + 1013904223) % 2**32)
    weight = numpy.array(numbers[1:], dtype=numpy.uint32).astype(numpy.float32) / numpy.float32(4e9)
    weight = weight.reshape(5000, 1)
    return {"model.weight": weight, "model.bias": numpy.ones(3, dtype=numpy.float32), "model.tied": weight,
            "model.tied_too": weight}


def value_array(value):
    """What a value is in npz and raw."""
    if isinstance(value, str):
        return numpy.frombuffer(value.encode(), dtype=numpy.uint8)
    if isinstance(value, bytes):
        return numpy.frombuffer(value, dtype=numpy.uint8)
    return numpy.array(value, dtype={bool: "bool", int: "<i8", float: "<f8"}[type(value)])


def value_text(value):
    """What it is in the metadata of safetensors."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def bits(array):
    # A digest, for unittest takes minutes to show how two long runs of bytes differ.
    return (array.dtype.str, array.shape, hashlib.sha256(array.tobytes()).hexdigest())


def read(path):
    with open(path, "rb") as file:
        return file.read()


def views(path):
    """dtype, shape and bytes of each tensor, without a framework that would have to know the dtype."""
    return {name: (view["dtype"], list(view["shape"]), bytes(view["data"])) for name, view in safetensors.deserialize(read(path))}


class Interop(unittest.TestCase):
    inspect = None
    make_run = None
    make_test_store = None

    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}, safetensors {safetensors.__version__}, numpy {numpy.__version__}", flush=True)
        cls.folder = tempfile.TemporaryDirectory(prefix="tidemark-interop-")
        cls.arrays = arrays()
        cls.file = cls.path("theirs.safetensors")
        safetensors.numpy.save_file(cls.arrays, cls.file, metadata={"format": "np", "é": "\n"})
        cls.store = cls.path("store")
        cls.run_inspect("import", cls.file, "--step", "7", "--metric", "loss=0.1", "--create")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder.name, name)

    @classmethod
    def run_inspect(cls, *arguments, status=0, store=None):
        result = subprocess.run([cls.inspect, "--store", store or cls.store, *arguments], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if result.returncode != status:
            raise AssertionError(f"{arguments} ended with {result.returncode}: {result.stderr}")
        return result

    def assert_same(self, found):
        self.assertEqual(sorted(found), sorted(self.arrays))
        for name, array in self.arrays.items():
            self.assertEqual(bits(found[name]), bits(array), name)

    def test_what_they_wrote_comes_back_bit_by_bit(self):
        out = self.path("ours.safetensors")
        self.run_inspect("export", "7", "-o", out)
        self.assert_same(safetensors.numpy.load_file(out))
        self.assertEqual(views(out), views(self.file))
        with safetensors.safe_open(out, framework="np") as file:
            metadata = file.metadata()
            self.assertEqual((metadata["format"], metadata["tidemark.step"]), ("pt", "7"))
            self.assertEqual(json.loads(metadata["tidemark.metrics"]), {"loss": 0.1})
            self.assertEqual(json.loads(metadata["tidemark.user_metadata"]),
                             {"imported_from": ["theirs.safetensors"], "format": "np", "é": "\n"})
            for name, array in self.arrays.items():
                if array.ndim > 0 and array.shape[0] > 1:
                    self.assertEqual(file.get_slice(name)[1:].tobytes(), array[1:].tobytes(), name)

    def test_safetensors_are_the_same_bytes_as_raw(self):
        out = self.path("same.safetensors")
        self.run_inspect("export", "7", "-o", out)
        self.run_inspect("export", "7", "--format", "raw", "-o", self.path("raw"))
        loaded = safetensors.numpy.load_file(out)
        entries = json.loads(read(self.path("raw/index.json")))["entries"]
        self.assertEqual(len(entries), len(self.arrays))
        for entry in entries:
            self.assertEqual(read(self.path("raw/" + entry["file"])), loaded[entry["name"]].tobytes(), entry["name"])
            self.assertEqual(tuple(entry["shape"]), loaded[entry["name"]].shape)

    def test_npz_opens_in_numpy(self):
        out = self.path("ours.npz")
        self.run_inspect("export", "7", "model.*", "-o", out)
        with numpy.load(out, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
            self.assertIsNone(archive.zip.testzip())
        self.assertEqual(sorted(found), sorted(name for name in self.arrays if name.startswith("model.")))
        for name, array in found.items():
            self.assertEqual(bits(array), bits(self.arrays[name]), name)

    def test_several_files_and_their_index_go_both_ways(self):
        out = self.path("many.safetensors")
        self.run_inspect("export", "7", "-o", out, "--shard-size", "1MB")
        index = json.loads(read(out + ".index.json"))
        files = sorted(set(index["weight_map"].values()))
        self.assertGreater(len(files), 1)
        self.assertEqual(index["metadata"]["total_size"], sum(array.nbytes for array in self.arrays.values()))
        found = {}
        for file in files:
            tensors = safetensors.numpy.load_file(self.path(file))
            for name in tensors:
                self.assertEqual(index["weight_map"][name], file)
            found.update(tensors)
        self.assert_same(found)
        self.run_inspect("import", out + ".index.json", "--step", "8")
        self.run_inspect("export", "8", "-o", self.path("again.safetensors"))
        self.assert_same(safetensors.numpy.load_file(self.path("again.safetensors")))

    def assert_trained(self, store, step, values):
        """Every format has the step's tensors, its tied pair and these values, and nothing else."""
        kinds = {"epoch": "int64", "rate": "double", "ended": "bool", "text": "string", "blob": "bytes"}
        tensors = trained_tensors()
        arrays = tensors | {name: value_array(value) for name, value in values.items()}

        out = self.path(f"trained-{step}.safetensors")
        self.run_inspect("export", step, "-o", out, store=store)
        loaded = safetensors.numpy.load_file(out)
        self.assertEqual({name: bits(array) for name, array in loaded.items()},
                         {name: bits(array) for name, array in tensors.items() if name != "model.tied_too"})
        with safetensors.safe_open(out, framework="np") as file:
            metadata = file.metadata()
        self.assertEqual({name: text for name, text in metadata.items() if name in arrays},
                         {name: value_text(value) for name, value in values.items()} | {"model.tied_too": "model.tied"})
        prefix = "tidemark.kind."
        self.assertEqual({key.removeprefix(prefix): kind for key, kind in metadata.items() if key.startswith(prefix)},
                         kinds | {"model.tied_too": "tied"})

        out = self.path(f"trained-{step}.npz")
        self.run_inspect("export", step, "-o", out, store=store)
        with numpy.load(out, allow_pickle=False) as archive:
            self.assertEqual({name: bits(archive[name]) for name in archive.files},
                             {name: bits(array) for name, array in arrays.items()})

        out = self.path(f"trained-{step}.raw")
        self.run_inspect("export", step, "--format", "raw", "-o", out, store=store)
        entries = {entry["name"]: entry for entry in json.loads(read(out + "/index.json"))["entries"]}
        self.assertEqual({name: entry["kind"] for name, entry in entries.items()},
                         {name: kinds.get(name, "tensor") for name in arrays})
        found = {name: numpy.fromfile(os.path.join(out, entry["file"]), dtype=entry["dtype"]).reshape(entry["shape"])
                 for name, entry in entries.items()}
        self.assertEqual({name: bits(array) for name, array in found.items()},
                         {name: bits(array) for name, array in arrays.items()})
        self.assertEqual(entries["model.tied_too"]["file"], entries["model.tied"]["file"])

    def test_values_and_ties_of_a_trainer_open_and_come_back(self):
        store = self.path("trained")
        subprocess.run([self.make_test_store, "sound", store], check=True, cwd=self.folder.name)
        self.assert_trained(store, "2", {"epoch": 3, "rate": 0.125, "ended": False, "text": "hello", "blob": bytes(2)})
        ours = self.path("trained-2.safetensors")
        self.run_inspect("import", ours, "--step", "12", store=store)
        same = json.loads(self.run_inspect("diff", "2", "12", "--json", store=store).stdout)
        self.assertEqual({what: count for what, count in same["counts"].items() if count != 0}, {"same": 9})

        # The same file with other values, as their writer writes it.
        values = {"epoch": -2**63, "rate": -0.1, "ended": True, "text": "naïve \"text\" \\ \n",
                  "blob": bytes(range(256))}
        with safetensors.safe_open(ours, framework="np") as file:
            metadata = file.metadata() | {name: value_text(value) for name, value in values.items()}
        theirs = self.path("trained_theirs.safetensors")
        safetensors.numpy.save_file(safetensors.numpy.load_file(ours), theirs, metadata=metadata)
        self.run_inspect("import", theirs, "--step", "13", store=store)
        self.assert_trained(store, "13", values)
        changed = json.loads(self.run_inspect("diff", "2", "13", "--json", status=1, store=store).stdout)
        self.assertEqual({entry["name"] for entry in changed["entries"] if entry["difference"] == "changed"},
                         values.keys())

    def test_conversions_are_those_of_numpy(self):
        for dtype in ("float16", "float32", "float64"):
            out = self.path(dtype + ".safetensors")
            self.run_inspect("export", "7", "model.large", "model.float64.7x5", "--dtype", dtype, "-o", out)
            found = safetensors.numpy.load_file(out)
            for name in ("model.large", "model.float64.7x5"):
                with numpy.errstate(over="ignore"):
                    expected = self.arrays[name].astype(dtype)
                # What is NaN may be another one.
                self.assertEqual(found[name].dtype, expected.dtype)
                numpy.testing.assert_array_equal(found[name], expected)
        out = self.path("bfloat16.safetensors")
        self.run_inspect("export", "7", "model.large", "--dtype", "bfloat16", "-o", out)
        dtype, _, data = views(out)["model.large"]
        self.assertEqual(dtype, "BF16")
        wide = self.arrays["model.large"].view(numpy.uint32).astype(numpy.uint64)
        self.assertEqual(data, ((wide + 0x7FFF + (wide >> 16 & 1)) >> 16).astype(numpy.uint16).tobytes())

    def test_dtypes_that_numpy_lacks_come_back_as_they_were(self):
        theirs = self.path("narrow.safetensors")
        buffers = {dtype: numpy.arange(width * 4, dtype=numpy.uint8) for dtype, width in NARROW.items()}
        safetensors.serialize_file({dtype: safetensors.TensorSpec(dtype=dtype, shape=[4], data_ptr=buffer.ctypes.data,
                                                                  data_len=buffer.nbytes)
                                    for dtype, buffer in buffers.items()}, theirs)
        self.run_inspect("import", theirs, "--step", "9")
        self.run_inspect("export", "9", "-o", self.path("narrow_again.safetensors"))
        self.assertEqual(views(self.path("narrow_again.safetensors")), views(theirs))
        refused = self.run_inspect("export", "9", "-o", self.path("narrow.npz"), status=1)
        self.assertIn("numpy has no dtype", refused.stderr)
        self.run_inspect("export", "9", "--exclude", "*e8m0*", "--dtype", "float32", "-o", self.path("narrow.npz"))
        with numpy.load(self.path("narrow.npz"), allow_pickle=False) as archive:
            self.assertEqual({archive[name].dtype for name in archive.files}, {numpy.dtype("float32")})

    def test_files_that_they_refuse_are_refused(self):
        whole = read(self.file)
        for what, contents in (("short", whole[:-1]), ("long", whole + b"x"), ("header", whole[:100]),
                               ("length", b"\xff" * 8 + whole[8:])):
            path = self.path(what)
            with open(path, "wb") as file:
                file.write(contents)
            with self.assertRaises(safetensors.SafetensorError):
                safetensors.numpy.load_file(path)
            refused = self.run_inspect("import", path, "--step", "10", status=1)
            self.assertIn(path, refused.stderr)

    def test_the_statistics_are_what_prometheus_reads(self):
        saves = 6
        subprocess.run([self.make_run, self.path("run"), str(saves)], check=True, stdout=subprocess.DEVNULL)
        families = {family.name: family for family in
                    prometheus_client.parser.text_string_to_metric_families(read(self.path("run.prom")).decode())}
        self.assertTrue(all(name.startswith("tidemark_") for name in families), families.keys())
        self.assertTrue(all(family.documentation and family.type != "unknown" for family in families.values()))
        samples = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
                   for family in families.values() for sample in family.samples}
        self.assertEqual(samples[("tidemark_saves_committed_total", ())], saves)
        copies = (("phase", "copy"),)
        self.assertEqual(samples[("tidemark_blocked_seconds_count", copies)], saves)
        buckets = [sample.value for sample in families["tidemark_blocked_seconds"].samples
                   if sample.name.endswith("_bucket") and sample.labels["phase"] == "copy"]
        self.assertEqual(buckets, sorted(buckets), "buckets are cumulative")
        self.assertEqual(buckets[-1], saves)

    def test_a_browser_shows_the_report(self):
        browser = next(filter(None, map(shutil.which, BROWSERS)), None)
        if browser is None:
            print("SKIPPED: a look at the report in a browser, for there is none of", *BROWSERS, flush=True)
            self.skipTest("no browser")
        # Its own sandbox is not to be had by root.
        browser = [browser, "--headless", *(["--no-sandbox"] if os.geteuid() == 0 else []), "--disable-gpu",
                   "--no-first-run", "--user-data-dir=" + self.path("browser")]
        store = self.path("reported")
        page = self.path("report.html")
        picture = self.path("report.png")
        subprocess.run([self.make_run, store, "20"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([self.inspect, "--store", store, "report", "-o", page], check=True, stderr=subprocess.DEVNULL)
        shown = subprocess.run([*browser, "--dump-dom", "file://" + page], check=True, text=True, timeout=120,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        headings = re.findall(r"<h[12]>[^<]+</h[12]>", read(page).decode())
        self.assertGreaterEqual(len(headings), 6)
        for heading in headings:
            self.assertIn(heading, shown)
        self.assertEqual(shown.count("<svg"), read(page).count(b"<svg"))
        subprocess.run([*browser, "--window-size=1280,2000", "--screenshot=" + picture, "file://" + page], check=True,
                       timeout=120, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.assertEqual(read(picture)[:8], b"\x89PNG\r\n\x1a\n")
        self.assertGreater(min(struct.unpack(">2I", read(picture)[16:24])), 1000)
        # A page of that size with nothing on it has a few kilobytes.
        self.assertGreater(len(read(picture)), 50_000)


if __name__ == "__main__":
    Interop.inspect = os.path.abspath(sys.argv[1])
    Interop.make_run = os.path.abspath(sys.argv[2])
    Interop.make_test_store = os.path.abspath(sys.argv[3])
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
