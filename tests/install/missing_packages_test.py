#!/usr/bin/env python3
"""A configuration that lacks libraries or headers names all of Debian's packages that have them, in one error.

  missing_packages_test.py --cmake CMAKE SOURCES
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("--cmake", required=True)
parser.add_argument("sources")
options = parser.parse_args()

failed = False
# What CMake is told not to find, and the packages that it is to name.
for definitions, packages in (
        (["-DCMAKE_DISABLE_FIND_PACKAGE_absl=ON"], "libabsl-dev"),
        (["-DCMAKE_DISABLE_FIND_PACKAGE_RocksDB=ON", "-DCMAKE_PROJECT_tidemark_INCLUDE=no_libraries.cmake"],
         "librocksdb-dev liburing-dev libxxhash-dev libzstd-dev"),
        (["-DTIDEMARK_PYTHON=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_Python=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON",
          "-DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON"],
         "libfmt-dev nlohmann-json3-dev python3 python3-dev")):
    with tempfile.TemporaryDirectory() as build:
        no_libraries = pathlib.Path(build, "no_libraries.cmake")
        no_libraries.write_text("set(CMAKE_FIND_LIBRARY_PREFIXES none)\n", encoding="ascii")
        definitions = [definition.replace(no_libraries.name, str(no_libraries)) for definition in definitions]
        done = subprocess.run([options.cmake, "-G", "Ninja", "-S", options.sources, "-B", build, *definitions],
                              capture_output=True, text=True, check=False)
    if done.returncode == 0 or f"apt-get install {packages}\n" not in done.stderr:
        print(f"{definitions}: exit code {done.returncode}, not the packages {packages}:\n{done.stderr}")
        failed = True
sys.exit(1 if failed else 0)
