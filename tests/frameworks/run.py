"""Runs a framework's own tests on the classes of this package: tests/frameworks.sh.

  run.py FRAMEWORK CHECKOUT PACKAGES [--theirs] [options of pytest]

CHECKOUT is a clone of the framework's repository, PACKAGES a folder of packages that only the tests import. --theirs: the
tests as they are, on the framework's own classes.
"""

import importlib
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))


def main(framework, checkout, packages, *options):
    theirs = "--theirs" in options
    door = importlib.import_module(f"{framework}_door")
    checkout = os.path.abspath(checkout)
    # In front of what is installed: the tests are of one version with what they import from the repository.
    sys.path[:0] = [os.path.join(checkout, folder) for folder in door.FOLDERS]
    sys.path.append(packages)
    os.chdir(os.path.join(checkout, door.FOLDERS[0]))
    door.prepare()
    import pytest
    from outcomes import Outcomes

    expected = os.path.join(FOLDER, "expected", f"{framework}.list")
    plugins = [Outcomes(framework, None if theirs else expected), door.Always()] + ([] if theirs else [door.Ours()])
    return pytest.main(["-q", "-p", "no:cacheprovider", "--color=no", "--tb=line", "--show-capture=no",
                        "--no-header", "-rN",
                        *(option for option in options if option != "--theirs"), *door.FILES], plugins)


if __name__ == "__main__":
    status = main(*sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads that a failed test has left are not waited for
