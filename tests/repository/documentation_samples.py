#!/usr/bin/env python3
"""Makes one C++ source of every code sample that users are shown, so that the build compiles what they copy.

  documentation_samples.py ROOT --edge core|torch --output FILE

Samples are the ```cpp blocks of README.md, CONTRIBUTING.md and docs/*.md, and the indented blocks in comments of
include/tidemark/*.h of which a line ends in a semicolon. A sample that names LibTorch belongs to the edge `torch`, any
other to `core`. Each stands in a namespace of its own, behind the names of documentation_samples.h, or of
documentation_torch_samples.h. A sample that is no function definition is the body of a function. Of a sample's lines
only those that consist of `...` are left out. A compiler's message names the document and its line.
"""

import argparse
import dataclasses
import glob
import os
import re

DOCUMENTS = ["README.md", "CONTRIBUTING.md", "docs/*.md"]
HEADERS = ["include/tidemark/*.h"]

FENCE = re.compile(r"^\s*```(.*)$")
COMMENT = re.compile(r"^\s*//(.*)$")
INDENT = "   "  # behind the //
STATEMENT = re.compile(r";\s*(//.*)?$")
TORCH = re.compile(r"\btorch\b|\bat::|\bTorchState\b|\bLoadModule\b|\bAddOptimizer\b")
FUNCTION = re.compile(r"^[\w:<>&*, ]+ \w+\([^;]*\) \{$")
INCLUDE = re.compile(r"^#include\b")


@dataclasses.dataclass
class Sample:
    path: str  # relative to the root
    line: int  # of its first line, from 1
    lines: list

    @property
    def edge(self):
        return "torch" if any(TORCH.search(line.split("//")[0]) for line in self.lines) else "core"

    @property
    def includes(self):
        return [line for line in self.lines if INCLUDE.match(line)]

    @property
    def code(self):
        """The lines to compile, as many as the sample has."""
        return ["" if line.strip() == "..." or INCLUDE.match(line) else line for line in self.lines]

    @property
    def is_function(self):
        first = next((line for line in self.code if line.strip()), "")
        return FUNCTION.match(first) is not None


def fenced_samples(path, text):
    samples, current = [], None
    for number, line in enumerate(text.splitlines(), start=1):
        fence = FENCE.match(line)
        if fence is None:
            if current is not None:
                current.lines.append(line)
        elif current is not None:
            samples.append(current)
            current = None
        else:
            current = Sample(path, number + 1, [])
            current.language = fence.group(1).strip()
    return [sample for sample in samples if sample.language == "cpp"]


def comment_samples(path, text):
    samples, current = [], None
    for number, line in enumerate(text.splitlines() + [""], start=1):
        comment = COMMENT.match(line)
        indented = comment is not None and comment.group(1).startswith(INDENT)
        if indented:
            if current is None:
                current = Sample(path, number, [])
            current.lines.append(comment.group(1)[len(INDENT):])
        elif current is not None:
            samples.append(current)
            current = None
    return [sample for sample in samples if any(STATEMENT.search(line) for line in sample.lines)]


def find_samples(root):
    samples = []
    for patterns, extract in [(DOCUMENTS, fenced_samples), (HEADERS, comment_samples)]:
        for pattern in patterns:
            for full in sorted(glob.glob(os.path.join(root, pattern))):
                path = os.path.relpath(full, root).replace(os.sep, "/")
                with open(full, encoding="utf-8") as file:
                    samples += extract(path, file.read())
    return samples


def make_source(root, edge):
    samples = [sample for sample in find_samples(root) if sample.edge == edge]
    prelude = {"core": "documentation_samples.h", "torch": "documentation_torch_samples.h"}[edge]
    source = [f'#include "tests/repository/{prelude}"', ""]
    for include in sorted({line for sample in samples for line in sample.includes}):
        source.append(include)
    source += ["#include <cstdio>", "", "namespace tidemark_samples {", ""]
    for sample in samples:
        name = re.sub(r"\W", "_", sample.path)
        source += [f"namespace {name}_{sample.line} {{"]
        if not sample.is_function:
            source += ["absl::Status Body(SAMPLE_PARAMETERS) {", "{"]
        source += [f'#line {sample.line} "{os.path.join(root, sample.path)}"', *sample.code]
        if not sample.is_function:
            source += ["}", "return absl::OkStatus();", "}"]
        source += ["}", ""]
    source += ["}  // namespace tidemark_samples", "", "int main() {"]
    for sample in samples:
        source.append(f'  std::puts("{sample.path}:{sample.line}");')
    source += ["}", ""]
    return "\n".join(source)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("--edge", required=True, choices=["core", "torch"])
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()
    with open(arguments.output, "w", encoding="utf-8") as file:
        file.write(make_source(arguments.root, arguments.edge))


if __name__ == "__main__":
    main()
