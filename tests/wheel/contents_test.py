#!/usr/bin/env python3
"""What is in the wheel, and what it asks of the machine: nothing that is not in every Linux of its tag.

  contents_test.py WHEEL [unittest arguments]

Needs readelf.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

BYTES_MAX = 12 << 20
GLIBC_OF_DEBIAN_12 = 36
# These are in every Linux that can have the wheel; manylinux lists them.
SYSTEM_LIBRARIES = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}
# What is inside, and beside it what was compiled in from headers.
LICENCES = {"abseil", "fmtlib", "libcli11-dev", "liburing-dev", "libzstd-dev", "nanobind", "nlohmann-json3-dev", "rocksdb",
            "xxhash", "zlib1g-dev"}
OF_LIBRARIES = re.compile(r"rocksdb|4absl|3fmt|ZSTD_|XXH3?_|io_uring_|inflate|nlohmann|8tidemark")


def readelf(path, *options):
    return subprocess.run(["readelf", "-W", *options, str(path)], capture_output=True, text=True, check=True).stdout


def dynamic_symbols(path):
    """(binding, is defined, name without version) of each symbol that the dynamic linker sees."""
    rows = [line.split() for line in readelf(path, "--dyn-syms").splitlines()]
    return [(row[4], row[6] != "UND", row[7].split("@")[0]) for row in rows if len(row) >= 8 and row[0].rstrip(":").isdigit()]


def tagged(path, tag):
    return re.findall(rf"\({tag}\).*\[(.*)\]", readelf(path, "--dynamic"))


class Contents(unittest.TestCase):
    wheel = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        with zipfile.ZipFile(cls.wheel) as archive:
            archive.extractall(cls.folder)
        cls.module = cls.folder / "tidemark" / "_native.abi3.so"
        [cls.program] = cls.folder.glob("*.data/scripts/checkpoint-inspect")
        [cls.information] = cls.folder.glob("*.dist-info")

    def test_it_is_small(self):
        self.assertLessEqual(os.path.getsize(self.wheel), BYTES_MAX)

    def test_its_tag_is_of_the_stable_abi_and_a_glibc_that_debian_12_has(self):
        tag = re.fullmatch(r"tidemark-[\d.]+-cp310-abi3-manylinux_2_(\d+)_x86_64\.whl", os.path.basename(self.wheel))
        self.assertIsNotNone(tag, self.wheel)
        self.assertLessEqual(int(tag.group(1)), GLIBC_OF_DEBIAN_12)
        needed = [int(minor) for path in (self.module, self.program)
                  for minor in re.findall(r"Name: GLIBC_2\.(\d+)", readelf(path, "--version-info"))]
        self.assertTrue(needed)
        self.assertLessEqual(max(needed), int(tag.group(1)))

    def test_it_has_the_package_and_the_program_and_nothing_else(self):
        sources = pathlib.Path(__file__).parents[2] / "python" / "tidemark"
        wanted = {f"tidemark/{path.relative_to(sources)}" for path in sources.rglob("*")
                  if path.suffix in (".py", ".pyi") or path.name == "py.typed"}
        found = {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}
        mine = {path for path in found if not path.startswith(self.information.name)}
        self.assertEqual(mine, wanted | {str(path.relative_to(self.folder)) for path in (self.module, self.program)})

    def test_it_lists_the_licences_of_what_is_inside(self):
        licences = {path.name: path.stat().st_size for path in (self.information / "licenses").iterdir()}
        self.assertEqual(set(licences), LICENCES)
        self.assertGreater(min(licences.values()), 500)

    def test_the_module_exports_its_initialiser_alone(self):
        exported = [name for _, defined, name in dynamic_symbols(self.module) if defined]
        self.assertEqual(exported, ["PyInit__native"])

    def test_no_symbol_is_one_for_the_whole_process(self):
        for path in (self.module, self.program):
            self.assertEqual([name for binding, defined, name in dynamic_symbols(path) if defined and binding == "UNIQUE"], [])

    def test_no_function_of_the_libraries_inside_is_looked_for_elsewhere(self):
        for path in (self.module, self.program):
            names = [name for _, defined, name in dynamic_symbols(path) if not defined]
            self.assertIn("malloc", names)
            self.assertEqual([name for name in names if OF_LIBRARIES.search(name)], [])

    def test_only_libraries_of_every_linux_are_loaded_from_where_the_system_has_them(self):
        for path in (self.module, self.program):
            needed = set(tagged(path, "NEEDED"))
            self.assertIn("libc.so.6", needed)
            self.assertEqual(needed - SYSTEM_LIBRARIES, set())
            self.assertEqual(tagged(path, "RUNPATH") + tagged(path, "RPATH"), [])


if __name__ == "__main__":
    Contents.wheel = sys.argv.pop(1)
    unittest.main()
