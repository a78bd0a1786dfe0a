"""python/bench/devices.py and gpu.sh, as they would run on a GPU, on the pretend accelerator. It has no hardware's times, so
only that all is there and compared is tested; and that the checks find saves that have what came after them.
"""

import base64
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest
import tidemark
from tidemark import _native

BENCH = pathlib.Path(__file__).parents[2] / "python" / "bench"
SMALL = ("--device", "pretend", "--check-bytes", "100000", "--saves", "3", "--bytes", "400000", "--rounds", "1",
         "--loop-seconds", "0.02")
CHECKS = ("write_behind_save", "write_on_another_stream", "written_by_another_stream", "dropped_behind_save", "many_saves")
STAGINGS = ("blocking", "overlapped", "on_device")
# Each undoes one thing that a save or a restore relies on.
COPIES_AT_ONCE = """
init = devices._Lane.__init__
def without_waiting(self, device, streams):
    init(self, device, None)
    self.copies = streams and streams.of(device)
devices._Lane.__init__ = without_waiting
"""
TRAINER_GOES_ON = """
def join(self):
    for part in self._parts.values():
        part.drain.wait_stream(part.lane.copies)
devices.DeviceImage.join = join
"""
RESTORES_BESIDE = """
init = devices._Lane.__init__
def beside(self, device, streams):
    init(self, device, streams)
    if streams is None:
        self.trainer = self.new_stream()
devices._Lane.__init__ = beside
"""


def run(*arguments, broken="", **environment):
    program = f"""
import runpy, sys, torch
from tidemark._state import devices
sys.path.insert(0, {str(BENCH)!r})
{broken}
sys.argv = ["devices.py", *{[str(argument) for argument in arguments]!r}]
runpy.run_path({str(BENCH / "devices.py")!r}, run_name="__main__")
"""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=240,
                          env={**os.environ, **environment})


def a_wheel(folder):
    """The package of these tests as a wheel, without the programs."""
    package = pathlib.Path(tidemark.__file__).parent
    info = "tidemark-0.0.0.dist-info/"
    files = {f"tidemark/{path.relative_to(package)}": path.read_bytes() for path in package.rglob("*")
             if path.suffix in (".py", ".typed")}
    files[f"tidemark/{pathlib.Path(_native.__file__).name}"] = pathlib.Path(_native.__file__).read_bytes()
    files[info + "METADATA"] = b"Metadata-Version: 2.1\nName: tidemark\nVersion: 0.0.0\nRequires-Dist: nanobind-backend>=1.0\n"
    files[info + "WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip('=')},"
                     f"{len(content)}\n" for name, content in files.items()) + info + "RECORD,,\n"
    wheel = folder / "tidemark-0.0.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in {**files, info + "RECORD": record.encode()}.items():
            archive.writestr(name, content)
    return wheel


def gpu(*arguments, **environment):
    return subprocess.run([str(BENCH / "gpu.sh"), *map(str, arguments)], capture_output=True, text=True, check=False,
                          timeout=240, env={**os.environ, "PYTHON": sys.executable, **environment})


def test_from_a_wheel_alone_everything_is_checked_and_measured(tmp_path):
    out, work = tmp_path / "out", tmp_path / "work"
    tools = os.environ.get("TIDEMARK_PROGRAMS", "/nowhere") + "/tools"
    done = gpu(a_wheel(tmp_path), *SMALL, OUT=str(out), WORK=str(work), PATH=f"{tools}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr + done.stdout
    assert sorted(os.listdir(out)) == ["bench.json", "bench.txt", "check.json", "check.txt"] and os.listdir(work) == []

    found = json.loads((out / "check.json").read_text(encoding="utf-8"))
    conditions = found["conditions"]
    assert conditions["device_kind"] == "pretend" and conditions["hardware"] is False
    assert conditions["tidemark"].startswith(str(work)), "the wheel's package, not the one of these tests"
    assert found["passed"] is True
    assert [(check["check"], check["staging"]) for check in found["checks"]] == [
        (name, staging) for name in CHECKS for staging in STAGINGS]
    for check in found["checks"]:
        assert check["passed"] and check["saves"] and set(check["stagings"]) == {check["staging"]}, check

    found = json.loads((out / "bench.json").read_text(encoding="utf-8"))
    assert found["failed"] == {} and set(found["skipped"]) == {"torch.save", "DCP"}
    assert (found["rounds"], found["warmed_up"]) == (1, True)
    inspected = shutil.which("checkpoint-inspect", path=f"{tools}:{os.environ['PATH']}")
    assert found["notes"]["staging_memory"] == ("pinned" if inspected else "unknown: there is no checkpoint-inspect")
    for staging in STAGINGS:
        for what in ("blocked", "staged", "durable", "restore", "training"):
            assert found["columns"][f"{what}_{staging}"][0] > 0
        blocked, durable = (found["columns"][f"{what}_{staging}"][0] for what in ("blocked", "durable"))
        assert blocked < durable
    rows = {row["name"]: row for row in found["rows"]}
    columns = found["columns"]
    assert rows["blocked_on_device"]["ratio"] == pytest.approx(columns["blocked_on_device"][0] / columns["copy_pinned"][0])
    assert rows["restore_vs_dcp"]["skipped"].startswith("DCP: ")
    assert "the pretend accelerator of the tests: no hardware" in done.stdout and "| blocked_on_device" in done.stdout


def test_torch_save_and_dcp_are_measured_where_the_device_has_what_they_need(tmp_path):
    sides = [argument for side in ("tidemark blocking", "torch.save", "DCP") for argument in ("--only", side)]
    done = run(*SMALL, "--device", "cpu", *sides, "--dir", tmp_path, "--json", tmp_path / "found.json")
    assert done.returncode == 0, done.stderr + done.stdout
    rows = {row["name"]: row for row in json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["rows"]}
    for name in ("blocked_vs_torch_save", "durable_vs_torch_save", "restore_vs_torch_load", "blocked_vs_dcp", "durable_vs_dcp",
                 "restore_vs_dcp"):
        assert rows[name]["ratio"] > 0, name
    assert rows["training_slowdown_blocking"]["skipped"] == "not asked for"
    assert os.listdir(tmp_path) == ["found.json"]


# Larger where two streams race, and small where a restore has to be faster than the stream before it.
@pytest.mark.parametrize(("broken", "size", "stagings"), [
    (COPIES_AT_ONCE, 1_000_000, {"blocking", "overlapped"}), (TRAINER_GOES_ON, 8_000_000, {"on_device"}),
    (RESTORES_BESIDE, 20_000, {"blocking"})])
def test_a_package_whose_copies_are_out_of_order_fails_the_checks(tmp_path, broken, size, stagings):
    done = run(*SMALL, "--check", "--check-bytes", size, "--dir", tmp_path, "--json", tmp_path / "found.json", broken=broken)
    assert done.returncode == 1, done.stderr + done.stdout
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert found["passed"] is False
    assert stagings <= {check["staging"] for check in found["checks"] if check["wrong"]}, done.stderr
    assert not any(check["error"] for check in found["checks"])


def test_a_bench_whose_restores_give_something_else_fails(tmp_path):
    broken = """
from tidemark import Checkpointer
Checkpointer.restore = lambda self, state, step: None
"""
    done = run(*SMALL, "--only", "tidemark blocking", "--only", "pinned", "--dir", tmp_path, "--json", tmp_path / "found.json",
               broken=broken)
    assert done.returncode == 1, done.stderr + done.stdout
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert "tensors are not what was saved" in found["failed"]["tidemark blocking"]
    assert next(row for row in found["rows"] if row["name"] == "blocked_blocking")["failed"] == "tidemark blocking failed"


def test_what_a_machine_lacks_is_said(tmp_path):
    done = run("--device", "cuda", "--dir", tmp_path, "--bytes", 1000, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2 and "finds no CUDA device" in done.stderr
    done = run("--device", "cpu", "--dir", tmp_path, "--bytes", 10**15)
    assert done.returncode == 2 and "4000000.1 GB are needed" in done.stderr
    full = "import device.accelerators; device.accelerators.Cpu.free_bytes = lambda self: 3 * 10**6"
    done = run("--device", "cpu", "--dir", tmp_path, "--bytes", 10**6, broken=full)
    assert done.returncode == 2 and "the device has 0.0 GB free, and 0.0 GB are needed" in done.stderr
    done = gpu(tmp_path / "none.whl", OUT=str(tmp_path), WORK=str(tmp_path))
    assert done.returncode == 2 and "no wheel: name one" in done.stderr
    done = gpu(a_wheel(tmp_path), OUT=str(tmp_path), WORK=str(tmp_path), PYTHON="/nowhere/python3")
    assert done.returncode == 2 and "has no PyTorch" in done.stderr
