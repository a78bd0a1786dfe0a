#!/usr/bin/env python3
"""The page that `report` writes of a run parses, refers to nothing outside of it, and takes nothing that a store says for
its own.

  report_page_test.py CHECKPOINT_INSPECT MAKE_RUN [unittest arguments]
"""

import html.parser
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

VOID = {"meta", "br", "input"}
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


class Page(html.parser.HTMLParser):
    """Every element with its attributes, and the text; fails where elements are not nested."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.open = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> in {self.open}"
        self.open.pop()

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        raise AssertionError(f"comment {data}")

    def unknown_decl(self, data):
        raise AssertionError(f"declaration {data}")


def svgs(text):
    begin = text.find("<svg")
    while begin >= 0:
        end = text.index("</svg>", begin) + len("</svg>")
        yield text[begin:end]
        begin = text.find("<svg", end)


class ReportPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.pages = {}
        for kind in ("plain", "hostile"):
            store = os.path.join(cls.folder.name, kind)
            subprocess.run([make_run, store, "20", kind], check=True)
            path = store + ".html"
            subprocess.run([inspect, "--store", store, "report", "-o", path], check=True, stderr=subprocess.DEVNULL)
            with open(path, encoding="utf-8") as file:
                cls.pages[kind] = file.read()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_refers_to_nothing_outside(self):
        for outside in ("http:", "https:", "src=", "href=", "url(", "@import", "javascript:"):
            self.assertNotIn(outside, self.pages["plain"])
        for kind, text in self.pages.items():
            for tag, attributes in Page(text).elements:
                self.assertNotIn(tag, {"script", "link", "img", "image", "iframe", "object", "embed", "use", "a", "form",
                                       "base", "foreignobject", "animate", "set"}, kind)
                for name in attributes:
                    self.assertFalse(name.startswith("on") or name in {"src", "href", "xlink:href", "style", "action"},
                                     f"{kind}: {tag} {name}")

    def test_has_a_policy_that_forbids_everything(self):
        for text in self.pages.values():
            policies = [attributes["content"] for tag, attributes in Page(text).elements
                        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"]
            self.assertEqual(policies, [POLICY])

    def test_takes_nothing_of_the_store_for_its_own(self):
        plain = {tag for tag, _ in Page(self.pages["plain"]).elements}
        hostile = Page(self.pages["hostile"])
        self.assertEqual({tag for tag, _ in hostile.elements} - plain, set())
        self.assertNotIn("<script", self.pages["hostile"])
        self.assertNotIn("]]>", self.pages["hostile"])
        self.assertNotIn("\x1b", self.pages["hostile"])
        # As text it is all there: a metric, a tensor, a pin's note, a verdict, a failure's reason, metadata.
        for said in ("<script>alert('x')</script>]]>", "pinned: <script>", "unhealthy: validation: <script>"):
            self.assertIn(said, hostile.text)

    def test_svgs_are_xml(self):
        for text in self.pages.values():
            count = 0
            for svg in svgs(text):
                root = xml.etree.ElementTree.fromstring(svg)
                if root.get("role") == "img":
                    self.assertEqual(root[0].tag, "title")
                    self.assertEqual(root[1].tag, "desc")
                    count += 1
            # Metrics, bytes, blocked, the map, histograms.
            self.assertGreater(count, 5 + 2 + 1 + 10)

    def test_ids_are_unique_and_labels_find_theirs(self):
        elements = Page(self.pages["plain"]).elements
        ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertGreater(len(ids), 0)
        self.assertEqual([attributes["for"] for tag, attributes in elements if tag == "label"], ids)

    def test_shows_what_happened_to_the_run(self):
        text = Page(self.pages["plain"]).text
        for said in ("A restore takes step 2000", "unhealthy: validation: loss 2.14", "pinned: figure 3 of the paper",
                     "no device of the evaluation pool was free", "optimizer.layers", "books-v3"):
            self.assertIn(said, text)


if __name__ == "__main__":
    inspect, make_run = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
