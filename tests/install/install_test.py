#!/usr/bin/env python3
"""Installs the build into a temporary prefix, and builds and runs a stranger's project against it.

  install_test.py --cmake PROGRAM --build FOLDER --compiler PROGRAM --flags FLAGS --torch ON|OFF --torch-dir FOLDER
    --prefix-path LIST [unittest arguments]
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PUBLIC = os.path.join(HERE, "..", "..", "include", "tidemark")
FOREIGN = re.compile(r'#\s*include\s*[<"]((torch|ATen|c10|rocksdb|nlohmann|CLI|fmt)/|liburing|linux/io_uring|zstd|xxh)')
OURS = re.compile(r'#\s*include\s*[<"](storage|snapshot|eval|tools)/')


class Install(unittest.TestCase):
    flags = None

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tidemark-install-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.prefix = os.path.join(cls.folder.name, "prefix")
        subprocess.run([cls.flags.cmake, "--install", cls.flags.build, "--prefix", cls.prefix], check=True,
                       stdout=subprocess.DEVNULL)

    def installed(self, *parts):
        return os.path.join(self.prefix, *parts)

    def run_command(self, *command):
        """Its standard output; what the machine lacks is a warning on the other one."""
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(result.returncode, 0, f"{' '.join(command)}:\n{result.stdout}{result.stderr}")
        return result.stdout

    def configure(self, name, *definitions, torch_dir=None):
        """Configures the stranger's project; returns its build folder, the exit status and the output."""
        build = os.path.join(self.folder.name, name)
        command = [self.flags.cmake, "-G", "Ninja", "-S", os.path.join(HERE, "stranger"), "-B", build,
                   f"-DCMAKE_PREFIX_PATH={self.prefix};{self.flags.prefix_path}", "-DCMAKE_BUILD_TYPE=Release",
                   f"-DCMAKE_CXX_COMPILER={self.flags.compiler}", f"-DCMAKE_CXX_FLAGS={self.flags.flags}",
                   f"-DTorch_DIR={torch_dir or self.flags.torch_dir}", *definitions]
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return build, result.returncode, result.stdout

    def test_the_public_headers_are_installed_and_nothing_else(self):
        expected = set(os.listdir(PUBLIC))
        if self.flags.torch != "ON":
            expected -= {"torch.h"}
        self.assertEqual(set(os.listdir(self.installed("include", "tidemark"))), expected)
        self.assertEqual(os.listdir(self.installed("include")), ["tidemark"])

    def test_no_public_header_but_those_of_libtorch_includes_a_foreign_library_but_abseil(self):
        for name in os.listdir(self.installed("include", "tidemark")):
            with open(self.installed("include", "tidemark", name), encoding="utf-8") as header:
                for number, line in enumerate(header, start=1):
                    self.assertIsNone(OURS.search(line), f"{name}:{number}: {line}")
                    if name not in ("torch.h", "torch_ranks.h"):
                        self.assertIsNone(FOREIGN.search(line), f"{name}:{number}: {line}")
        self.assertIsNotNone(FOREIGN.search('#include "torch/nn/module.h"'))

    def test_a_stranger_saves_restores_and_inspects_without_libtorch(self):
        build, status, output = self.configure("no_torch", torch_dir="/nowhere")
        self.assertEqual(status, 0, output)
        self.assertIn("tidemark::torch is not there", output)
        self.run_command(self.flags.cmake, "--build", build)
        store = os.path.join(self.folder.name, "plain_store")
        self.assertEqual(self.run_command(os.path.join(build, "plain"), store), "restored step 7\n")
        inspect = self.installed("bin", "checkpoint-inspect")
        self.assertRegex(self.run_command(inspect, "--store", store, "ls"), r"\b7\b")
        linked = self.run_command("ldd", os.path.join(build, "plain"))
        self.assertNotIn("libtorch", linked)

    def test_completions_and_the_manual_page_are_installed(self):
        inspect = self.installed("bin", "checkpoint-inspect")
        for path, *words in [
                ("share/bash-completion/completions/checkpoint-inspect", "completions", "bash"),
                ("share/zsh/site-functions/_checkpoint-inspect", "completions", "zsh"),
                ("share/fish/vendor_completions.d/checkpoint-inspect.fish", "completions", "fish"),
                ("share/man/man1/checkpoint-inspect.1", "man-page")]:
            with self.subTest(path), open(self.installed(path), encoding="ascii") as file:
                self.assertEqual(file.read(), self.run_command(inspect, *words))

    def test_asking_for_libtorch_where_there_is_none_says_so(self):
        _, status, output = self.configure("torch_nowhere", "-DTIDEMARK_COMPONENTS=torch", torch_dir="/nowhere")
        self.assertNotEqual(status, 0, output)
        self.assertRegex(output, "LibTorch was not found" if self.flags.torch == "ON" else "without LibTorch")

    def test_every_target_is_a_component_and_an_unknown_one_is_named(self):
        _, status, output = self.configure("components", "-DTIDEMARK_COMPONENTS=tidemark;eval;exchange", torch_dir="/nowhere")
        self.assertEqual(status, 0, output)
        _, status, output = self.configure("no_such_component", "-DTIDEMARK_COMPONENTS=evals", torch_dir="/nowhere")
        self.assertNotEqual(status, 0, output)
        self.assertIn("Tidemark has no component 'evals'. Its components are tidemark, eval, exchange and torch.",
                      re.sub(r"\s+", " ", output))

    def test_a_libtorch_of_another_version_is_refused(self):
        if self.flags.torch != "ON":
            self.skipTest("this build has no LibTorch edge")
        root = os.path.join(self.folder.name, "torch_99")
        header = os.path.join(root, "include", "torch", "csrc", "api", "include", "torch")
        os.makedirs(header)
        os.makedirs(os.path.join(root, "lib"))
        open(os.path.join(header, "torch.h"), "w", encoding="utf-8").close()
        with open(os.path.join(header, "version.h"), "w", encoding="utf-8") as file:
            file.write("".join(f"#define TORCH_VERSION_{part} {number}\n"
                               for part, number in (("MAJOR", 99), ("MINOR", 1), ("PATCH", 2))))
        for name in ("libtorch_cpu.so", "libc10.so"):
            with open(os.path.join(root, "lib", name), "w", encoding="utf-8") as file:
                file.write("__cxx11\n")  # what tells the C++11 ABI
        torch_dir = os.path.join(root, "share", "cmake", "Torch")
        _, status, output = self.configure("torch_99_asked", "-DTIDEMARK_COMPONENTS=torch", torch_dir=torch_dir)
        self.assertNotEqual(status, 0, output)
        self.assertRegex(re.sub(r"\s+", " ", output), r"built against LibTorch \d+\.\d+\.\d+, but .* of LibTorch 99\.1\.2")
        _, status, output = self.configure("torch_99", torch_dir=torch_dir)
        self.assertEqual(status, 0, output)
        self.assertIn("tidemark::torch is not there", output)

    def test_a_stranger_saves_and_restores_a_module(self):
        if self.flags.torch != "ON":
            self.skipTest("this build has no LibTorch edge")
        build, status, output = self.configure("torch", "-DWITH_TORCH=ON")
        self.assertEqual(status, 0, output)
        self.assertIn("tidemark::torch is there", output)
        self.run_command(self.flags.cmake, "--build", build, "--target", "with_torch")
        store = os.path.join(self.folder.name, "torch_store")
        self.assertEqual(self.run_command(os.path.join(build, "with_torch"), store), "restored step 1\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for flag in ("--cmake", "--build", "--compiler", "--flags", "--torch", "--torch-dir", "--prefix-path"):
        parser.add_argument(flag, required=True)
    Install.flags, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
