"""Tensors on devices, with an accelerator whose streams a test can hold."""

import gc
import os
import pathlib
import signal
import subprocess
import sys
import threading
import weakref

import numpy as np
import pretend_device
import pytest
import tidemark
import torch
from pretend_device import DEVICES, Gate, filled, on_device, ops, to_host
from tidemark import _native
from tidemark._state import arrays, devices

KB = 1024
HELPERS = str(pathlib.Path(pretend_device.__file__).parent)


def numbers(count=KB, start=0):
    return torch.arange(start, start + count, dtype=torch.float32)


def stored(checkpointer, step, name):
    checkpointer.committed(step).result(60)
    with tidemark.open(checkpointer.path, step, framework="pt") as opened:
        return opened.get_tensor(name)


@pytest.fixture(autouse=True)
def a_device_as_it_was():
    yield
    ops.fail_copy_after(-1)
    for index in (0, 1):
        ops.limit_memory(index, -1)


STAGINGS = ["blocking", "overlapped", "on_device"]


@pytest.mark.parametrize("staging", STAGINGS)
def test_tensors_of_every_sort_come_back_to_their_device_in_place(checkpointer, staging):
    def make(fill):
        wide = on_device(fill(torch.arange(120, dtype=torch.float64).reshape(4, 5, 6)))
        pairs = torch.view_as_complex(numbers().double().view(-1, 2))
        return {"first": on_device(fill(numbers())), "second": on_device(fill(numbers()), 1),
                "view": wide.as_strided((6, 5, 4), (1, 6, 30)), "bfloat16": on_device(fill(numbers().bfloat16())),
                "bool": on_device(fill(numbers()) > 5), "scalar": on_device(fill(torch.tensor(3))),
                "complex": on_device(fill(pairs)), "empty": on_device(torch.zeros(0, 3)),
                "host": fill(numbers()), "strided": fill(numbers().view(32, 32).t()), "numpy": fill(np.arange(6).reshape(2, 3).T)}

    state = make(lambda array: array + 1)
    save = checkpointer.save(1, state, staging=staging)
    assert save.staging == staging
    save.committed.result(60)
    restored = make(lambda array: array * 0)
    places = {name: array.data_ptr() for name, array in restored.items() if torch.is_tensor(array)}
    assert checkpointer.resume(restored) == 2
    for name, array in state.items():
        if name == "numpy":
            np.testing.assert_array_equal(restored[name], array)
            continue
        assert restored[name].device == array.device and restored[name].data_ptr() == places[name]
        assert torch.equal(to_host(restored[name]), to_host(array)), name
        assert torch.equal(stored(checkpointer, 1, name), to_host(array)), name


def test_modules_and_optimizers_on_a_device_are_saved_and_restored(checkpointer):
    def make():
        model = torch.nn.Linear(3, 2)
        content = {name: value.clone() for name, value in model.state_dict().items()}
        model.to(DEVICES[1])
        optimizer = torch.optim.Adam(model.parameters())
        moments = {}
        for name, parameter in model.named_parameters():
            for field in ("exp_avg", "exp_avg_sq"):
                moments[name, field] = torch.rand(content[name].shape)
                optimizer.state[parameter][field] = on_device(moments[name, field], 1)
            optimizer.state[parameter]["step"] = torch.tensor(7.0)
        return model, optimizer, content, moments

    model, optimizer, content, moments = make()
    checkpointer.save(1, {"model": model, "optimizer": optimizer}).committed.result(60)
    other, resumed, _, _ = make()
    checkpointer.resume({"model": other, "optimizer": resumed})
    for name, parameter in other.named_parameters():
        assert parameter.device == DEVICES[1] and torch.equal(to_host(parameter.detach()), content[name])
        for field in ("exp_avg", "exp_avg_sq"):
            moment = resumed.state[parameter][field]
            assert moment.device == DEVICES[1] and torch.equal(to_host(moment), moments[name, field])


@pytest.mark.parametrize("staging", STAGINGS)
def test_a_save_has_what_the_trainers_stream_was_given_before_it(checkpointer, staging):
    tensor = filled(1)
    before = ops.copies_enqueued()
    side = pretend_device.Stream(DEVICES[0])
    with pretend_device.stream(side), Gate() as gate:  # not the default stream: nothing else waits for it
        ops.fill(tensor, 2)
        if staging == "blocking":  # which waits for the device
            gate.open()
        save = checkpointer.save(1, {"w": tensor}, staging=staging)
        if staging != "blocking":
            ops.wait_until_quiescent(before + 1)  # the copy is where it waits for the trainer's stream
            assert not save.committed.done()
    assert stored(checkpointer, 1, "w").tolist() == [2] * 4 * KB


def test_what_the_trainer_enqueues_after_a_save_on_the_device_does_not_reach_it(checkpointer):
    tensor = filled(1)
    with Gate():
        save = checkpointer.save(1, {"w": tensor}, staging="on_device")
        assert save.staged.done()
        ops.fill(tensor, 2)  # at once, though nothing has been copied
    assert stored(checkpointer, 1, "w").tolist() == [1] * 4 * KB
    assert to_host(tensor).tolist() == [2] * 4 * KB


def test_an_overlapped_save_does_not_hold_the_trainer_until_it_changes_its_tensors(checkpointer):
    tensor = filled(1)
    with Gate() as gate:
        before = ops.copies_enqueued()
        save = checkpointer.save(1, {"w": tensor}, staging="overlapped")
        ops.wait_until_quiescent(before + 1)
        assert not save.staged.done()  # the trainer is here, and the copy is not done
        gate.open()
        with checkpointer.staged():
            assert save.staged.done()
            ops.fill(tensor, 2)
    assert stored(checkpointer, 1, "w").tolist() == [1] * 4 * KB


def test_a_restore_comes_after_the_trainers_work_and_before_what_follows(checkpointer):
    tensor = filled(1)
    checkpointer.save(1, {"w": tensor}).committed.result(60)
    before = ops.copies_enqueued()
    restored = threading.Event()
    found = []

    def watch(gate):
        ops.wait_until_quiescent(before + 1)  # the copy waits behind the trainer's work
        found.append(restored.is_set())
        gate.open()

    with pretend_device.stream(pretend_device.Stream(DEVICES[0])), Gate() as gate:
        ops.fill(tensor, 2)
        thread = threading.Thread(target=watch, args=[gate])
        thread.start()
        checkpointer.resume({"w": tensor})
        restored.set()
        thread.join()
        copy = torch.empty(4 * KB, dtype=torch.uint8, device=DEVICES[0])
        copy.copy_(tensor)
    assert found == [False] and to_host(copy).tolist() == [1] * 4 * KB


@pytest.mark.parametrize("staging", STAGINGS)
def test_tied_tensors_are_stored_once(checkpointer, staging):
    tensor = on_device(numbers())
    checkpointer.save(1, {"a": tensor, "b": tensor, "other": on_device(numbers(), 1)}, staging=staging)
    checkpointer.wait_until_committed()
    assert checkpointer.steps()[0].logical_bytes == 2 * 4 * KB


def test_tensors_at_the_same_address_of_two_devices_are_not_tied():
    class Devices:
        def copy_to_host(self, requests):
            self.requests = [(index, size) for index, _, size in requests]
            return 0, "", None

    state, devices, arrays = _native.TreeState(), Devices(), _native.ArrayList()
    for name, device in (("a", "x:0"), ("b", "x:1"), ("c", "x:0")):
        arrays.append((name, "uint8", [8], 4096, [], False, device))
    state.set_entries(arrays, [], devices)
    _native.capture(state)
    assert devices.requests == [(0, 8), (1, 8)]


@pytest.mark.parametrize("staging", STAGINGS)
def test_the_tensors_are_not_kept_once_they_are_staged(checkpointer, staging):
    tensor = filled(1)
    alive = weakref.ref(tensor)
    save = checkpointer.save(1, {"w": tensor}, staging=staging)
    del tensor
    save.committed.result(60)
    checkpointer.wait_until_staged()
    gc.collect()
    assert alive() is None
    assert stored(checkpointer, 1, "w").tolist() == [1] * 4 * KB


def test_the_tensors_are_not_kept_once_the_checkpointer_is_closed(tmp_path):
    for name in ("closed", "preempted"):
        checkpointer = tidemark.Checkpointer(tmp_path / name, staging="overlapped")
        tensor = filled(1)
        alive = weakref.ref(tensor)
        if name == "closed":
            checkpointer.save(1, {"w": tensor})
            checkpointer.close()
        else:
            assert checkpointer._save_and_close(1, {"w": tensor}, {}, "{}", False, 60.0, 60.0)[:2] == (None, None)
        del tensor
        gc.collect()
        assert alive() is None


def test_copies_on_the_device_live_until_they_are_drained_and_keep_tensors_that_the_trainer_drops(checkpointer):
    tensor = filled(1)
    alive = weakref.ref(tensor)
    taken = ops.memory_taken(0)
    with Gate():
        checkpointer.save(1, {"w": tensor}, staging="on_device")
        assert ops.memory_taken(0) == taken + 4 * KB
        del tensor
        gc.collect()
        assert alive() is not None  # no other tensor gets its memory, which is still to be read
    assert stored(checkpointer, 1, "w").tolist() == [1] * 4 * KB
    gc.collect()
    assert alive() is None and ops.memory_taken(0) == taken - 4 * KB


def test_a_device_without_room_for_copies_makes_the_save_blocking(tmp_path):
    tensor = filled(1)
    with tidemark.Checkpointer(tmp_path / "store", staging="on_device") as checkpointer:
        ops.limit_memory(0, ops.memory_taken(0) + 4 * KB - 1)
        save = checkpointer.save(1, {"w": tensor})
        assert save.staging == "blocking" and save.committed.result(60) == 1
        assert stored(checkpointer, 1, "w").tolist() == [1] * 4 * KB
        assert checkpointer.save(2, {"n": 1}).staging == "blocking"
        ops.limit_memory(0, -1)
        assert checkpointer.save(3, {"w": tensor}).staging == "on_device"
    with tidemark.Checkpointer(tmp_path / "store", staging="on_device",
                               tuning=tidemark.Tuning(device_staging_bytes_max=4 * KB - 1)) as checkpointer:
        assert checkpointer.save(4, {"w": tensor}).staging == "blocking"


def test_a_device_without_memory_to_put_a_tensor_in_order_fails_the_save_and_the_next_one_is_whole(tmp_path):
    tensor = on_device(numbers())
    with tidemark.Checkpointer(tmp_path / "store", saved_dtypes={"*": "float16"}) as checkpointer:
        ops.limit_memory(0, ops.memory_taken(0))
        with pytest.raises(tidemark.errors.ResourceExhaustedError,
                           match="no memory on the device.*the pretend accelerator is full"):
            checkpointer.save(1, {"w": tensor})
        ops.limit_memory(0, -1)
        checkpointer.save(1, {"w": tensor}, overwrite=True).committed.result(60)
        assert torch.equal(stored(checkpointer, 1, "w"), numbers().half())


def test_a_device_with_room_for_copies_but_none_to_make_them_makes_the_save_blocking(tmp_path):
    tensor = on_device(numbers())
    with tidemark.Checkpointer(tmp_path / "store", saved_dtypes={"*": "float16"}) as checkpointer:
        ops.limit_memory(0, ops.memory_taken(0) + 2 * KB)
        assert checkpointer.save(1, {"w": tensor}, staging="on_device").staging == "blocking"
        assert torch.equal(stored(checkpointer, 1, "w"), numbers().half())


@pytest.mark.parametrize("staging", STAGINGS)
def test_tensors_are_converted_on_their_device(tmp_path, staging):
    tensor = on_device(numbers())
    with tidemark.Checkpointer(tmp_path / "store", saved_dtypes={"w*": "bfloat16"}) as checkpointer:
        checkpointer.save(1, {"w": tensor, "w2": tensor, "b": on_device(numbers(start=1))}, staging=staging)
        assert torch.equal(stored(checkpointer, 1, "w"), numbers().bfloat16())
        assert torch.equal(stored(checkpointer, 1, "b"), numbers(start=1))
        restored = on_device(numbers() * 0)
        checkpointer.restore({"w": restored}, only=["w"], convert_dtypes=True)
        assert torch.equal(to_host(restored), numbers().bfloat16().float())


@pytest.mark.parametrize("staging", STAGINGS)
@pytest.mark.parametrize("failure", ["copy", "synchronize"])
def test_a_copy_that_fails_fails_the_save_and_the_next_one_is_whole(checkpointer, staging, failure):
    state = {"a": filled(1), "b": filled(2)}
    ops.fail_copy_after(1) if failure == "copy" else ops.fail_next_synchronize()
    with pytest.raises(tidemark.errors.InternalError, match="RuntimeError: the pretend accelerator was told to fail"):
        checkpointer.save(1, state, staging=staging).committed.result(60)
    ops.fail_copy_after(-1)
    checkpointer.save(2, state, staging=staging).committed.result(60)
    assert stored(checkpointer, 2, "b").tolist() == [2] * 4 * KB
    with pytest.raises(tidemark.NotFoundError):
        checkpointer.restore(state, 1)


def test_a_device_without_a_stream_to_give_fails_saves_and_restores(checkpointer, monkeypatch):
    def fail(device):
        raise RuntimeError("the pretend accelerator is lost")

    state = {"w": filled(1)}
    with monkeypatch.context() as patched:
        patched.setattr(pretend_device.module, "current_stream", fail)
        for call in (lambda: checkpointer.save(1, state), lambda: checkpointer.restore(state), lambda: tidemark.capture(state)):
            with pytest.raises(tidemark.errors.InternalError, match="RuntimeError: the pretend accelerator is lost"):
                call()
    checkpointer.save(1, state)
    assert stored(checkpointer, 1, "w").tolist() == [1] * 4 * KB


def test_a_restore_that_fails_says_so_and_can_be_repeated(checkpointer):
    tensor = filled(1)
    checkpointer.save(1, {"w": tensor}).committed.result(60)
    ops.fill(tensor, 2)
    ops.fail_copy_after(0)
    with pytest.raises(tidemark.errors.InternalError, match="the pretend accelerator was told to fail"):
        checkpointer.resume({"w": tensor})
    ops.fail_copy_after(-1)
    checkpointer.resume({"w": tensor})
    assert to_host(tensor).tolist() == [1] * 4 * KB


def test_evaluators_and_captures_have_the_tensors_of_devices(checkpointer):
    model = torch.nn.Linear(3, 2)
    content = model.weight.detach().clone()
    found = []

    @checkpointer.evaluator("validation")
    def validate(snapshot):
        filled = torch.nn.Linear(3, 2).to(DEVICES[1])
        snapshot.restore({"model": filled})
        found.append((snapshot["model.weight"].tolist(), to_host(filled.weight.detach())))

    model.to(DEVICES[0])
    checkpointer.save(1, {"model": model}, staging="on_device")
    checkpointer.wait_until_evaluated()
    assert found[0][0] == content.tolist() and torch.equal(found[0][1], content)
    copy = tidemark.capture({"model": model})
    with torch.no_grad():
        model.weight.copy_(torch.zeros(2, 3))
    copy.restore({"model": model})
    assert torch.equal(to_host(model.weight.detach()), content)


def test_a_tensor_that_changes_under_an_overlapped_save_is_found(tmp_path, monkeypatch):
    tensor, other = filled(1), filled(1, KB)
    copy_to_host, calls, changed = devices.DeviceTensors.copy_to_host, [], threading.Event()

    def copy(self, requests):
        calls.append(requests)
        assert len(calls) != 2 or changed.wait(60)  # the first call is that of the check, while save runs
        return copy_to_host(self, requests)

    monkeypatch.setattr(devices.DeviceTensors, "copy_to_host", copy)
    with tidemark.Checkpointer(tmp_path / "store", staging="overlapped",
                               tuning=tidemark.Tuning(check_overlapped_saves=True)) as checkpointer:
        save = checkpointer.save(1, {"w": tensor, "other": other})
        ops.fill(tensor, 2)
        assert to_host(tensor).tolist() == [2] * 4 * KB
        changed.set()
        with pytest.raises(tidemark.errors.AbortedError, match="'w'"):
            save.committed.result(60)
        checkpointer.save(2, {"w": tensor, "other": other}).committed.result(60)
        assert stored(checkpointer, 2, "w").tolist() == [2] * 4 * KB


def test_staging_memory_is_page_locked_if_the_driver_can_and_released_with_the_checkpointer(tmp_path, monkeypatch):
    empty, locked = torch.empty, []

    def locking(*size, pin_memory=False, **options):
        memory = empty(*size, **options)
        if pin_memory:
            locked.append(weakref.ref(memory))
        return memory

    monkeypatch.setattr(torch, "empty", locking)
    checkpointer = tidemark.Checkpointer(tmp_path / "store")
    checkpointer.save(1, {"w": filled(1)})
    assert any(memory() is not None and memory().numel() >= 4 * KB for memory in locked)
    assert stored(checkpointer, 1, "w").tolist() == [1] * 4 * KB
    checkpointer.save(2, {"n": 1})  # needs none
    checkpointer.close()
    del checkpointer
    gc.collect()
    assert all(memory() is None for memory in locked)
    address, owner = devices.page_locked(4 * KB)
    assert address % 4096 == 0 and owner.data_ptr() <= address <= owner.data_ptr() + owner.numel() - 4 * KB


def test_an_interrupt_leaves_a_save_whole(checkpointer, python_handles_ctrl_c):
    tensor = filled(1)
    before = ops.copies_enqueued()

    def interrupt(gate):
        ops.wait_until_quiescent(before + 1)  # the save waits for the copy
        os.kill(os.getpid(), signal.SIGINT)
        gate.open()

    with Gate() as gate:
        thread = threading.Thread(target=interrupt, args=[gate])
        with pytest.raises(KeyboardInterrupt):
            thread.start()
            checkpointer.save(1, {"w": tensor})
    thread.join()
    checkpointer.wait_until_committed()
    assert stored(checkpointer, 1, "w").tolist() == [1] * 4 * KB


def test_a_device_without_streams_is_copied_synchronously(checkpointer, monkeypatch):
    monkeypatch.setattr(torch, "privateuseone", None)
    for step, staging in enumerate(STAGINGS):
        tensor = filled(step)
        assert checkpointer.save(step, {"w": tensor}, staging=staging).staging == staging
        checkpointer.wait_until_staged()
        assert stored(checkpointer, step, "w").tolist() == [step] * 4 * KB
        ops.fill(tensor, 9)
        checkpointer.restore({"w": tensor}, step)
        assert to_host(tensor).tolist() == [step] * 4 * KB


def test_devices_without_memory_are_refused(checkpointer):
    with pytest.raises(tidemark.errors.UnsupportedTypeError, match="'w' is on the device meta, which has no memory"):
        checkpointer.save(1, {"w": torch.zeros(3, device="meta")})


def test_the_end_of_the_interpreter_waits_for_tensors_that_are_being_copied(tmp_path):
    program = """
import atexit
import sys
import pretend_device, tidemark, torch
tensor = pretend_device.on_device(torch.full((4096,), 1, dtype=torch.uint8))
gate = pretend_device.Gate()
before = pretend_device.ops.copies_enqueued()
checkpointer = tidemark.Checkpointer(sys.argv[1], staging="overlapped")
checkpointer.save(1, {"w": tensor})
pretend_device.ops.wait_until_quiescent(before + 1)  # the copy waits for the gate
atexit.register(gate.open)  # right before the package closes what is open
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], HELPERS])}
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "store")], timeout=300, check=False,
                          capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    with tidemark.open(tmp_path / "store") as opened:
        assert opened.get_tensor("w").tolist() == [1] * 4 * KB


def test_tensors_are_made_in_host_memory_whatever_the_default_device_is(monkeypatch):
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, device=DEVICES[0], **options: empty(*size, device=device, **options))
    assert arrays.new_array("pt", "float32", [3]).device.type == "cpu"


def test_a_module_on_meta_is_made_on_the_device_that_is_named(checkpointer):
    module = torch.nn.Linear(3, 2)
    checkpointer.save(1, {"model": module, "more": numbers()}).committed.result(60)
    made = {"model": torch.nn.Linear(3, 2, device="meta"), "more": torch.empty(KB, device="meta")}
    checkpointer.restore(made, device=DEVICES[1])
    assert {str(tensor.device) for tensor in (*made["model"].parameters(), made["more"])} == {str(DEVICES[1])}
    assert torch.equal(to_host(made["model"].weight.detach()), module.weight) and torch.equal(to_host(made["more"]), numbers())
