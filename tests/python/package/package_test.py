"""What the package is: its imports, its types and its symbols."""

import importlib
import pathlib
import re
import subprocess
import sys
import types

import tidemark
from documented import undocumented


def test_importing_it_imports_no_framework_and_nothing_slow():
    # These take most of the time of an import; the rest of it is below 0.1 s.
    slow = ("numpy", "torch", "jax", "tensorflow", "ml_dtypes", "asyncio", "ssl", "multiprocessing")
    program = f"import sys, tidemark; print([name for name in {slow} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_importing_it_is_quick():
    # The least CPU time of several runs, less that of a Python that imports nothing: a busy machine adds to both.
    program = "import resource, sys; {}; used = resource.getrusage(resource.RUSAGE_SELF); print(used.ru_utime + used.ru_stime)"

    def least(statement):
        runs = [subprocess.run([sys.executable, "-c", program.format(statement)], capture_output=True, text=True, check=True)
                for _ in range(7)]
        return min(float(run.stdout) for run in runs)

    assert least("import tidemark") - least("pass") < 0.2


def test_importing_it_imports_few_modules():
    program = ("import sys; before = set(sys.modules); import tidemark\n"
               "print(*sorted(name.partition('.')[0] for name in set(sys.modules) - before))")
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = result.stdout.split()
    others = set(imported) - {"tidemark", "nanobind_backend"} - set(sys.stdlib_module_names)
    assert others == set()
    assert len(imported) < 150


def test_every_public_handle_has_a_docstring_of_its_own_and_the_package_is_typed():
    assert undocumented(tidemark, inherited=False) == undocumented(tidemark.errors, inherited=False) == []
    assert undocumented(importlib.import_module("tidemark.worker"), inherited=False) == []
    assert (pathlib.Path(tidemark.__file__).parent / "py.typed").exists()


def test_a_name_without_a_docstring_is_found(monkeypatch):
    module = types.ModuleType("tidemark.sample")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec("""
import dataclasses
class Base:
    def method(self): "It has one."
class Sample(Base):
    def method(self): pass
    def other(self): pass
    @property
    def value(self): pass
@dataclasses.dataclass
class Record:
    x: int
def function(): pass
""", vars(module))
    assert undocumented(module, inherited=False) == ["Base", "Sample", "Record", "function", "Sample.method", "Sample.other",
                                                     "Sample.value"]
    assert undocumented(module) == ["Base", "Sample", "Record", "function", "Sample.other", "Sample.value"]


def test_the_module_exports_its_initialiser_alone():
    module = next(pathlib.Path(tidemark.__file__).parent.glob("_native*.so"))
    assert ".abi3." in module.name
    symbols = subprocess.run(["nm", "-D", "--defined-only", str(module)], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in symbols.splitlines()] == ["PyInit__native"]


def test_the_version_is_that_of_the_project():
    text = (pathlib.Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert tidemark.__version__ == re.search(r'^version = "(.*)"$', text, re.M)[1]
