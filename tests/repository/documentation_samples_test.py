#!/usr/bin/env python3
"""Every code sample of the documents and the public headers gets into the sources that the build compiles.

  documentation_samples_test.py ROOT [unittest arguments]
"""

import sys
import unittest

import documentation_samples
import source_tree

README = """# A
```cpp
#include "tidemark/state.h"

absl::Status Train(int64_t steps) {
  ...
  return absl::OkStatus();
}
```
```cmake
find_package(tidemark);
```
"""
HEADER = """// State: a thing.
//
//   tidemark::State state;
//   state.Add();  // a comment
//
// A table is no sample:
//
//   name   what; it is
class State {
  //   tidemark::TorchState state;
  int a;
};
"""


def places(samples):
    return [f"{sample.path}:{sample.line}" for sample in samples]


class DocumentationSamples(unittest.TestCase):
    root = None

    def made_up(self):
        return source_tree.MadeUpTree({"README.md": README, "include/tidemark/state.h": HEADER})

    def test_the_tree_has_samples_for_both_edges(self):
        samples = documentation_samples.find_samples(self.root)
        for path in ["README.md", "include/tidemark/async_checkpointer.h", "include/tidemark/torch.h"]:
            self.assertIn(path, [sample.path for sample in samples])
        self.assertEqual({sample.edge for sample in samples}, {"core", "torch"})

    def test_finds_fenced_blocks_and_indented_comments_and_no_tables(self):
        with self.made_up() as root:
            self.assertEqual(places(documentation_samples.find_samples(root)),
                             ["README.md:3", "include/tidemark/state.h:3", "include/tidemark/state.h:10"])

    def test_a_sample_that_names_libtorch_is_of_its_edge(self):
        with self.made_up() as root:
            self.assertEqual([sample.edge for sample in documentation_samples.find_samples(root)],
                             ["core", "core", "torch"])

    def test_messages_name_the_line_of_the_document(self):
        with self.made_up() as root:
            source = documentation_samples.make_source(root, "core").splitlines()
            for path, first in [("README.md", 3), ("include/tidemark/state.h", 3)]:
                place = source.index(f'#line {first} "{root}/{path}"')
                self.assertGreater(place, 0)
            self.assertEqual(source[place + 1:place + 3],
                             ["tidemark::State state;", "state.Add();  // a comment"])

    def test_functions_stand_alone_and_statements_are_a_body(self):
        with self.made_up() as root:
            source = documentation_samples.make_source(root, "core")
            self.assertEqual(source.count("absl::Status Body(SAMPLE_PARAMETERS) {"), 1)
            self.assertNotIn("...", source)
            self.assertEqual(source.count('#include "tidemark/state.h"'), 1)


if __name__ == "__main__":
    DocumentationSamples.root = sys.argv.pop(1)
    unittest.main()
