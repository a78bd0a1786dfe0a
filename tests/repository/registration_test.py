#!/usr/bin/env python3
"""Nothing in the tree is left out of the build, too long or wide without a reason, unfinished, or runs what it reads.

  registration_test.py ROOT [unittest arguments]
"""

import os
import re
import sys
import unittest

import source_tree

LINES_MAX = 500
COLUMNS_MAX = 130
REASON = re.compile(r"longer than 500 lines", re.IGNORECASE)
REASON_LINES = 40  # the reason stands in the file's opening comment
PUBLIC_CLASS_LINES_MAX = 199  # what a reader takes in at once; prose that a class shares stands above it

# Put together from halves, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK", "T" + "BD", "W" + "IP"]) +
                        r")\b|" + "|".join(["not imple" + "mented yet", "for n" + "ow,", "future wo" + "rk", "place" + "holder"]))


# Bytes that run as code where they are read; only to refuse them is allowed.
EXECUTABLE_BYTES = re.compile("pic" + "kle", re.IGNORECASE)
REFUSAL = "allow_pic" + "kle=False"
# The reader of PyTorch's files and its tests: a call that such bytes ask for is data there, and nothing is called.
READER = "torch_pic" + "kle"
READER_FILES = tuple(
    folder + name
    for folder in ("snapshot/torch/", "tests/snapshot/torch/", "snapshot/exchange/", "tests/snapshot/exchange/",
                   "tools/checkpoint_inspect/exchange/", "tests/tools/checkpoint_inspect/exchange/", "fuzz/",
                   "fuzz/corpus/")
    for name in (READER, "torch_contents", "torch_file", "torch_save", "zip_directory", "hostile_torch"))
# Of the Python package one module does, for the keys of a state of which both sides say so, and its test. Others may call
# things by the name of that module and of its class.
READER_FILES += ("python/tidemark/_state/pic" + "kled.py", "tests/python/state/pic" + "kled_test.py")
ASKED_FOR = re.compile(r"pic" + r"kled(_test)?\b", re.IGNORECASE)
# The table of what it must refuse, and what it costs.
READER_FILES += ("fuzz/hostile/cases.txt", "tests/fuzz/decoder_cost_test.cc")


# Headers whose calls tests/snapshot/call_cost_test.cc runs at n and 2n, and what of them it may leave out.
CALL_COST_TEST = "tests/snapshot/call_cost_test.cc"
MEASURED_HEADERS = ("async_checkpointer", "average", "best_file", "capture", "export", "health_monitor", "step_selector",
                    "store_reader", "worker")
UNMEASURED = {
    "AddCompanion": "puts a pointer into a list",
    "Reset": "of a monitor, whatever it has seen", "TakeDivergence": "of a monitor, whatever it has seen",
    "Parse": "of one line", "ToString": "of one line", "evaluator_options": "gives back what was asked for",
    "kind": "a field", "journal_problem": "a field", "metric": "a field", "mode": "a field", "step": "a field",
    "store_id": "a field", "tag": "a field", "unread": "a field",
}
PUBLIC_CALL = re.compile(r"^ {0,2}(?:static )?(?:const )?(?:absl::|std::(?!function<)|bool |int64_t |void |[A-Z])"
                         r"[^=;{}(/]*?\b(\w+)\(")


# A run of all tests is to be repeated with the same cases.
DRAWN_CASES = "tests/storage/io/drawn_cases.h"


def cmake_words(root, folder):
    """Every word of the CMakeLists.txt of a folder and of the files beside it that it includes, comments left out."""
    words = set()
    unread = {"CMakeLists.txt"}
    while unread:
        path = os.path.join(folder, unread.pop())
        if os.path.exists(os.path.join(root, path)):
            text = re.sub(r"#.*", "", source_tree.read(root, path))
            words.update(re.split(r"[\s()\"]+", text))
            unread.update(re.findall(r"include\((\w+\.cmake)\)", text))
    return words


def unmeasured(root):
    """The public calls whose cost the test does not measure."""
    found = []
    test = source_tree.read(root, CALL_COST_TEST)
    for header in MEASURED_HEADERS:
        is_private = False
        for line in source_tree.read(root, f"include/tidemark/{header}.h").splitlines():
            is_private = line == " private:" or (is_private and line != "};")
            call = None if is_private else PUBLIC_CALL.match(line)
            if call and call[1] not in UNMEASURED and not re.search(rf"(->|\.|::|\b){call[1]}\(", test):
                found.append(f"{header}.h: {call[1]}")
    return sorted(set(found))


def is_built(root, path):
    """Whether the CMakeLists.txt of the file's folder, or of one above, names it."""
    folder = os.path.dirname(path)
    while folder:
        name = os.path.relpath(path, folder).replace(os.sep, "/")
        words = cmake_words(root, folder)
        if any(word == name or word.endswith("}/" + name) for word in words):
            return True
        folder = os.path.dirname(folder)
    return False


def is_entered(root, path):
    """Whether the CMakeLists.txt files lead from the root to the file's folder by add_subdirectory."""
    folder = os.path.dirname(path)
    while folder and not os.path.exists(os.path.join(root, folder, "CMakeLists.txt")):
        folder = os.path.dirname(folder)
    while folder:
        above = os.path.dirname(folder)
        while above and not os.path.exists(os.path.join(root, above, "CMakeLists.txt")):
            above = os.path.dirname(above)
        if os.path.relpath(folder, above or ".").replace(os.sep, "/") not in cmake_words(root, above):
            return False
        folder = above
    return True


def unregistered(root):
    # A project inside the tree that stands for a stranger's is built by the test that owns it.
    built = [path for path in source_tree.files(root, ".cc", "_test.py") if "/stranger/" not in path]
    found = [f"{path}: no CMakeLists.txt names it" for path in built if not is_built(root, path)]
    found += [f"{path}: add_subdirectory does not lead to it" for path in built if not is_entered(root, path)]
    return found


def too_long(root):
    found = []
    for path in source_tree.files(root, ".h", ".cc", ".py"):
        lines = source_tree.read(root, path).splitlines()
        if len(lines) > LINES_MAX and not REASON.search("\n".join(lines[:REASON_LINES])):
            found.append(f"{path}: {len(lines)} lines, and its opening comment does not say why it is longer than 500 lines")
    return found


def wide_lines(root):
    """Lines of Python that have more columns than a line may."""
    found = []
    for path in source_tree.files(root, ".py", ".pyi"):
        for number, line in enumerate(source_tree.read(root, path).splitlines(), 1):
            if len(line) > COLUMNS_MAX:
                found.append(f"{path}:{number}: {len(line)} columns, more than {COLUMNS_MAX}")
    return found


def long_classes(root):
    """Classes of public headers, from their first line to their last, that are too long to be read at once."""
    found = []
    for path in source_tree.files(root, ".h"):
        if not path.startswith("include/"):
            continue
        for match in re.finditer(r"^(?:class|struct) (\w+)[^;]*?\{$.*?^\};$", source_tree.read(root, path), re.M | re.S):
            lines = match.group(0).count("\n") + 1
            if lines > PUBLIC_CLASS_LINES_MAX:
                found.append(f"{path}: {match.group(1)} has {lines} lines; at most {PUBLIC_CLASS_LINES_MAX}")
    return found


def unfinished(root):
    found = []
    for path in source_tree.files(root, ".h", ".cc", ".py", ".txt", ".cmake", ".in", ".sh"):
        for number, line in enumerate(source_tree.read(root, path).splitlines(), start=1):
            match = UNFINISHED.search(line)
            if match:
                found.append(f"{path}:{number}: {match.group(0)!r} announces work that is not done")
    return found


def drawn_elsewhere(root):
    """Tests of C++ that draw from a seed which TIDEMARK_SEED does not give."""
    found = []
    for path in source_tree.files(root, ".h", ".cc"):
        if path.startswith("tests/") and path != DRAWN_CASES and "random_device" in source_tree.read(root, path):
            found.append(f"{path}: draws with std::random_device, and not from SeedOfCases() of {DRAWN_CASES}")
    return found


def executed(root):
    found = []
    for path in source_tree.files(root, ".h", ".cc", ".py", ".txt", ".cmake", ".in", ".sh"):
        if path.startswith(READER_FILES):
            continue
        for number, line in enumerate(source_tree.read(root, path).splitlines(), start=1):
            if EXECUTABLE_BYTES.search(ASKED_FOR.sub("", line.replace(REFUSAL, "").replace(READER, ""))):
                found.append(f"{path}:{number}: {line.strip()!r} runs what it reads")
    return found


class Registration(unittest.TestCase):
    root = None

    def test_every_source_and_test_of_the_tree_is_built(self):
        self.assertGreater(len(source_tree.files(self.root, "_test.cc", "_test.py")), 1, f"{self.root} is not the project")
        self.assertEqual(unregistered(self.root), [])

    def test_every_long_file_of_the_tree_says_why(self):
        self.assertEqual(too_long(self.root), [])

    def test_no_line_of_python_is_too_wide(self):
        self.assertEqual(wide_lines(self.root), [])

    def test_every_public_class_is_short_enough_to_be_read(self):
        self.assertEqual(long_classes(self.root), [])

    def test_the_tree_announces_no_unfinished_work(self):
        self.assertEqual(unfinished(self.root), [])

    def test_every_drawn_case_has_the_seed_that_is_asked_for(self):
        self.assertEqual(drawn_elsewhere(self.root), [])

    def test_nothing_in_the_tree_runs_what_it_reads(self):
        self.assertEqual(executed(self.root), [])

    def test_every_public_call_is_measured(self):
        self.assertEqual(unmeasured(self.root), [])

    def test_finds_calls_that_are_not_measured(self):
        headers = {f"include/tidemark/{header}.h": "" for header in MEASURED_HEADERS}
        headers["include/tidemark/capture.h"] = (
            "absl::Status Run(int a);\nclass A {\n public:\n  absl::StatusOr<B> Ask(State& s) const;\n"
            "  const std::vector<C>& all() const;\n  bool Done();\n private:\n  bool Hidden();\n};\nbool Late();\n")
        with source_tree.MadeUpTree({**headers, CALL_COST_TEST: "run.a->Ask(state); a.all();"}) as root:
            self.assertEqual(unmeasured(root), ["capture.h: Done", "capture.h: Late", "capture.h: Run"])

    def test_finds_what_is_not_built(self):
        with source_tree.MadeUpTree({
                "CMakeLists.txt": "add_subdirectory(tests)\n",
                "tests/CMakeLists.txt": "add_subdirectory(io)\n# add_subdirectory(shard)\n",
                "tests/io/CMakeLists.txt": "tidemark_test(a_test.cc tidemark_io)\n# tidemark_test(b_test.cc)\ninclude(e.cmake)\n",
                "tests/io/e.cmake": "tidemark_test(e_test.cc)\n", "tests/io/e_test.cc": "",
                "tests/io/f.cmake": "tidemark_test(f_test.cc)\n", "tests/io/f_test.cc": "",
                "tests/io/a_test.cc": "", "tests/io/b_test.cc": "", "tests/io/c_test.py": "", "tests/io/fixture.py": "",
                "tests/shard/CMakeLists.txt": "tidemark_test(d_test.cc)\n", "tests/shard/d_test.cc": "",
        }) as root:
            self.assertEqual(unregistered(root), [
                "tests/io/b_test.cc: no CMakeLists.txt names it",
                "tests/io/c_test.py: no CMakeLists.txt names it",
                "tests/io/f_test.cc: no CMakeLists.txt names it",
                "tests/shard/d_test.cc: add_subdirectory does not lead to it",
            ])

    def test_finds_long_files_without_a_reason(self):
        with source_tree.MadeUpTree({
                "storage/io/a.cc": "int a;\n" * 501,
                "storage/io/b.cc": "// Longer than 500 lines because it is one table.\n" + "int a;\n" * 501,
                "storage/io/c.cc": "int a;\n" * 500,
        }) as root:
            self.assertEqual([line.split(":")[0] for line in too_long(root)], ["storage/io/a.cc"])

    def test_finds_lines_that_are_too_wide(self):
        with source_tree.MadeUpTree({
                "python/tidemark/a.py": "a" * 130 + "\n" + "a" * 131 + "\n",
                "python/tidemark/b.pyi": "a" * 132 + "\n",
                "tests/python/state/d_test.py": "\n" + "ä" * 130 + "\n" + "a" * 133 + "\n",
                "examples/c.cc": "a" * 131 + "\n",
        }) as root:
            self.assertEqual(wide_lines(root), ["python/tidemark/a.py:2: 131 columns, more than 130",
                                                "python/tidemark/b.pyi:1: 132 columns, more than 130",
                                                "tests/python/state/d_test.py:3: 133 columns, more than 130"])

    def test_finds_long_classes_of_public_headers(self):
        with source_tree.MadeUpTree({
                "include/a.h": "class Forward;\nclass Long final : public B {\n" + "  int a;\n" * 198 + "};\n",
                "include/b.h": "struct Short {\n" + "  int a;\n" * 197 + "};\nclass C {\n" + "  int a;\n" * 9 + "};\n",
                "storage/c.h": "class Private {\n" + "  int a;\n" * 300 + "};\n",
        }) as root:
            self.assertEqual(long_classes(root), ["include/a.h: Long has 200 lines; at most 199"])

    def test_finds_unfinished_work(self):
        with source_tree.MadeUpTree({
                "storage/io/a.cc": "int a;\n// TO" "DO: b\n",
                "storage/shard/b.cc": "auto h = XXH3_128bits(p, n);\n",
                "snapshot/c.h": "return Status(\"not imple" "mented yet\");\n",
        }) as root:
            self.assertEqual([":".join(line.split(":")[:2]) for line in unfinished(root)],
                             ["snapshot/c.h:1", "storage/io/a.cc:2"])

    def test_finds_cases_that_are_drawn_elsewhere(self):
        with source_tree.MadeUpTree({
                DRAWN_CASES: "return std::random_device()();\n",
                "tests/storage/a_test.cc": "std::mt19937 random(SeedOfCases());\n",
                "tests/storage/b_test.cc": "std::mt19937 random(std::random_device{}());\n",
                "storage/ids.cc": "std::random_device random;\n",
        }) as root:
            self.assertEqual([line.split(":")[0] for line in drawn_elsewhere(root)], ["tests/storage/b_test.cc"])

    def test_finds_what_runs_what_it_reads(self):
        with source_tree.MadeUpTree({
                "tests/a.py": "import pic" "kle\nnumpy.load(path, allow_pic" "kle=False)\n"
                              "numpy.load(path, allow_pic" "kle=True)\n",
                "python/tidemark/_state/tree.py": "from ._pic" "kled import Pic" "kled\nPic" "kleds()\n"
                                                  "from pic" "kle import loads\n",
                "python/tidemark/_state/pic" "kled.py": "import pic" "kle\n",
                "tools/b.cc": "torch::pic" "kle_load(bytes);\n",
                "snapshot/torch/torch_pic" "kle.cc": "// reads a pic" "kle as data\n",
        }) as root:
            self.assertEqual([":".join(line.split(":")[:2]) for line in executed(root)],
                             ["python/tidemark/_state/tree.py:2", "python/tidemark/_state/tree.py:3", "tests/a.py:1",
                              "tests/a.py:3", "tools/b.cc:1"])


if __name__ == "__main__":
    Registration.root = sys.argv.pop(1)
    unittest.main()
