"""tests/frameworks/outcomes.py: which failures of a framework's own tests fail the run."""

import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).parents[2] / "frameworks"
TESTS = """
import pytest

def test_good(): pass
def test_bad(): assert 1 == 2
def test_skipped(): pytest.skip()
@pytest.fixture
def broken():
    yield
    raise ValueError("the tear-down")
def test_torn(broken): pass
"""


def run(folder, expected):
    (folder / "some_test.py").write_text(TESTS)
    (folder / "expected.txt").write_text(expected)
    program = (f"import sys; sys.path.insert(0, {str(FOLDER)!r})\nimport outcomes, pytest\n"
               "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '--color=no'], "
               "[outcomes.Outcomes('some', 'expected.txt')]))")
    ran = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=120)
    return ran.returncode, ran.stdout + ran.stderr


def test_listed_failures_are_counted_and_excused(tmp_path):
    status, text = run(tmp_path, "# It is bad.\nsome_test.py::test_bad\n\n"
                                 "# Its end is.\nsome_test.py::test_torn\n? some_test.py::test_good\n")
    assert status == 0, text
    assert "some: 4 tests in 1 files, 3 run, 1 passed, 2 failed, 1 skipped, 0 not run" in text
    assert "1 expected to fail: It is bad." in text and "1 expected to fail: Its end is." in text


def test_a_failure_that_is_not_listed_fails_the_run(tmp_path):
    status, text = run(tmp_path, "# It is bad.\nsome_test.py::test_bad\n")
    assert status == 1 and "fails, and is not in expected.txt: some_test.py::test_torn: ValueError: the tear-down" in text


def test_a_list_that_is_not_true_fails_the_run(tmp_path):
    listed = "# Bad.\nsome_test.py::test_bad\nsome_test.py::test_torn\n"
    for test, words in (("good", "passed, and is in expected.txt"), ("skipped", "skipped, and is in expected.txt"),
                        ("gone", "in expected.txt, and does not exist")):
        status, text = run(tmp_path, f"{listed}some_test.py::test_{test}\n")
        assert status == 1 and f"{words}: some_test.py::test_{test}" in text
    for expected, words in (("some_test.py::test_bad\n", "has no reason"),
                            (listed + "some_test.py::test_bad\n", "is there twice")):
        status, text = run(tmp_path, expected)
        assert status == 1 and words in text


def test_tests_that_cannot_be_collected_fail_the_run(tmp_path):
    (tmp_path / "other_test.py").write_text("import no_such_module\n")
    status, text = run(tmp_path, "# Bad.\nsome_test.py::test_bad\nsome_test.py::test_torn\n")
    assert status not in (0, 1) and "no_such_module" in text
