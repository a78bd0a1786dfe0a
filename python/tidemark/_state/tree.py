"""A state as flat entries. A state is a tree of containers, arrays, values and objects with state.

- An array (NumPy, PyTorch) is an entry of its own. A restore writes into it, or, if it is on the meta device, puts a new
  one in its place.
- A Box, and a DTensor of PyTorch, is a part of an entry that the ranks of a job hold together.
- A dict, list, tuple, deque or dataclass that holds an array or an object with state is walked, and so are named tuples,
  whatever they hold. The parts of a path are joined by dots, so {"model": {"weight": w}} has the entry "model.weight".
- An object of a class derived from dict, list or deque that holds neither is one value. A restore replaces all its items. Its
  own class is not stored, so whatever holds such an object is walked.
- A module (an object with named_parameters) is the dict of its state_dict(): a restore writes into its tensors.
- An optimizer of PyTorch has the entries that the C++ library gives it, and a torch.Generator is its bytes, as there.
  Modules anywhere in these containers, and the free tensors there, give names to its parameters.
- Another object with state_dict() and load_state_dict() is one text entry, which holds its values and names its arrays,
  and an entry for each array. A restore hands new arrays to load_state_dict().
- Everything else is a value, in one entry. A restore replaces it in the container that holds it.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from .. import _native
from ..errors import DataLossError, Error, InvalidArgumentError, UnsupportedTypeError
from . import arrays, boxes, codec, devices, dtensors, optimizers, pickled
from .boxes import Box, Boxes
from .containers import (SCALARS, Frozen, fill, has_state, holds_places, is_derived, is_filled_whole, is_module, is_record,
                         like_tuple, plain_copy, refuse_attributes, refuse_other_content, set_item, too_deep)
from .modules import ExtraState, is_extra, names_of, older_name
from .names import shared_name
from .new_arrays import NewArrays
from .objects import Received, entry_of, is_object, misfit, state_for
from .parameters import ParameterNames, is_optimizer
from .pattern import matches
from .pickled import Pickled
from .rng import adapter_of, has_trial, is_torch_generator, left_out_by, load_state, set_torch_generator, torch_generator_bytes

_Set = Callable[[Any], None]


class Weights(dict[str, Any]):
    """The arrays of a module by name. `parameters`: the names of its parameters; the others are buffers, which a forward pass
    may change, and which differ between the ranks of a job."""

    def __init__(self, arrays: dict[str, Any], parameters: Collection[str]) -> None:
        super().__init__(arrays)
        self.parameters = parameters


class Tree:
    """A state, walked once: for one save or one restore. `before`: the arrays of the save before, which makes it quicker.

    `device`, `of_all`: of a restore, those of its NewArrays. `renames`: its option. `has_ranks`: of a save in a job of several
    processes.
    `older_names`: modules have the names that older versions gave them; `has_older_names`: these differ for one of them.
    """

    def __init__(self, state: Any, *, writable: bool, before: _native.ArrayList | None = None, device: Any = None,
                 of_all: bool = False, has_ranks: bool = False, older_names: bool = False,
                 renames: Sequence[tuple[str, str]] = ()) -> None:
        self.arrays = _native.ArrayList() if before is None else before.after()
        self.owners: list[Any] = []  # keeps the memory of `arrays` alive
        self._on_devices: list[int] = []  # indices of those on devices
        self.part = ""  # the name of one that is a part of a tensor; empty: there is none
        self.values: dict[str, tuple[Any, _Set]] = {}
        self.objects: dict[str, Any] = {}
        self._torch_generators: dict[str, Any] = {}  # those of `values`
        self.has_older_names = False
        self._entry_names: list[str] = []  # of what `entries_of_values` has returned
        self._frozen: dict[str, str] = {}  # names of what a restore would have to replace in a frozen dataclass, and its class
        self._extra: dict[str, ExtraState] = {}  # by the names of their values
        self._extra_arrays: list[tuple[str, Any, str, Any]] = []  # name, module, its own key, array
        self._modules: list[tuple[str, Any]] = []  # path, module
        self._free_tensors: dict[int, str] = {}  # paths of those that are in no module, by identity
        self.state = state
        self.state_dict = ""  # the path of a dict that is an optimizer's state_dict(); empty: there is none
        self._names_of = (lambda module: older_name) if older_names else names_of
        self._writable = writable
        self._has_ranks = has_ranks
        self._new = NewArrays(device, of_all)
        self._ndarray: Any = getattr(sys.modules.get("numpy"), "ndarray", None)
        if not isinstance(state, dict) and not is_record(state):
            raise InvalidArgumentError(f"the state is a {type(state).__name__}, not a dict or dataclass")
        try:
            self._walk_children(state, "", self._refuse)
        except RecursionError:
            raise InvalidArgumentError(too_deep(state)) from None
        # After the modules' state_dict(), for which FSDP puts back the parameters that the optimizer has.
        self._parameters = self._parameter_names(state, renames)

    @staticmethod
    def _refuse(_: Any) -> None:
        raise InvalidArgumentError("the state itself cannot be replaced")

    def _parameter_names(self, state: Any, renames: Sequence[tuple[str, str]]) -> ParameterNames:
        if not any(map(is_optimizer, self.objects.values())):
            return ParameterNames([], {}, self._names_of)
        items = state.items() if isinstance(state, dict) else (
            (field.name, getattr(state, field.name)) for field in dataclasses.fields(state))
        # Those at the top come first, since earlier versions knew no others.
        top = [(str(key), value) for key, value in items if type(value) is not self._ndarray and is_module(value)]
        at_top = {id(module) for _, module in top}
        others = [(path, module) for path, module in self._modules if id(module) not in at_top]
        return ParameterNames([*top, *others], self._free_tensors, self._names_of, renames)

    # Every name of an entry goes through one of these two, or, of an array, to the native list: the library looks for names
    # that occur twice there, and `explained` then says where they are.

    def _add_value(self, path: str, value: Any, put: _Set) -> None:
        self._claim(path)
        if self._writable and type(put) is Frozen:
            self._frozen[path] = put.kind
        self.values[path] = (value, put)

    def _add_object(self, path: str, value: Any) -> None:
        self._claim(path)
        self.objects[path] = value

    def _claim(self, path: str) -> None:
        if path in self.values or path in self.objects:
            raise shared_name(self.state, path)

    def explained(self, error: InvalidArgumentError) -> InvalidArgumentError:
        """The library's error, or one that says where in the state the two entries are that have one name."""
        seen: set[str] = set()
        whole = [place[0] for place in (self.arrays[i] for i in range(len(self.arrays))) if len(place) == 7]
        others = self._entry_names or [*self.values, *self.objects]
        for name in [*whole, *others]:
            if name in seen:
                return shared_name(self.state, name)
            seen.add(name)
        return error

    def _walk(self, value: Any, path: str, put: _Set) -> None:
        if arrays.is_array(value):
            array = self._new.instead_of(value, path, put) if self._writable else value
            if array is not value and type(put) is Frozen:
                self._frozen[path] = put.kind
            if type(value) is not self._ndarray:
                self._free_tensors.setdefault(id(value), path)
            self._add_array(array, path)
        elif type(value) in SCALARS:
            self._add_value(path, value, put)
        elif type(value) is Pickled:
            self._add_value(path, value, lambda new: setattr(value, "value", new))
        elif type(value) is Box:
            self._walk_box(value, path)
        elif type(value) is Weights:
            for name, array in value.items():
                self._add_array(array, f"{path}.{name}", changes_early=name not in value.parameters)
        elif type(value) is Boxes:
            if not value.boxes:
                self.part = path  # other processes have all of it
            for box in value.boxes:
                self._walk_box(box, path)
        elif is_module(value) and not codec.is_registered(value):
            self._walk_module(value, path)
        elif not codec.is_registered(value) and (has_state(value) or adapter_of(value) is not None):
            self._add_object(path, adapter_of(value) or value)
        elif is_torch_generator(value):
            state = torch_generator_bytes(value) if not self._writable else b""
            self._torch_generators[path] = value
            self._add_value(path, state, lambda new: set_torch_generator(value, new, path))
        elif is_filled_whole(value):
            refuse_attributes(value, path)
            self._add_value(path, value if self._writable else plain_copy(value), lambda new: fill(value, new, path))
        elif holds_places(value):
            arrays.refuse_jax(value, path, writable=self._writable)
            self._walk_children(value, path, put)
        else:
            self._note_state_dict(value, path)
            self._add_value(path, value, put)

    def _note_state_dict(self, value: Any, path: str) -> None:
        if optimizers.is_state_dict(value) and not self.state_dict:
            self.state_dict = path

    def _walk_box(self, box: Box, path: str) -> None:
        boxes.check(box, path)
        array = box.array
        if self._writable:
            array = self._new.instead_of(array, path, lambda new: setattr(box, "array", new))
        self._add_array(Box(array, box.shape, box.offset), path)

    def _add_array(self, value: Any, path: str, changes_early: bool = False) -> None:
        if type(value) is not self._ndarray and dtensors.is_dtensor(value):
            value = dtensors.part_of(value, path)
            if value is None:
                self.part = path  # an empty one
                return
        if not codec.is_text(path):
            raise UnsupportedTypeError(f"the array {path!a} has half of a surrogate pair in its name: names of entries must be "
                                       f"UTF-8")
        array = value.array if type(value) is Box else value
        if type(value) is Box and tuple(array.shape) == value.shape and not (value.spread or self._has_ranks):
            value = array  # the whole tensor: no other process has a part, not even an empty one
        if type(value) is Box:
            self.part = path
        place: Any = arrays.place_of(array, path, writable=self._writable, changes_early=changes_early)
        if len(place) == 7 and place[6]:
            self._on_devices.append(len(self.owners))
        self.arrays.append((*place, list(value.shape), list(value.offset)) if type(value) is Box else place)
        self.owners.append(array)

    def _walk_module(self, module: Any, path: str) -> None:
        self._modules.append((path, module))
        name_of = self._names_of(module)
        parameters = {name_of(name) for name, _ in module.named_parameters()}
        extra = ExtraState(module, name_of, path)
        state = module.state_dict()
        instead_of = self._new.of_module(module, state, path, name_of) if self._writable else lambda name, value: value
        for key, value in state.items():
            name = name_of(key)
            if self._writable and name != older_name(key):
                self.has_older_names = True
            if arrays.is_array(value):
                array = instead_of(name, value)
                self._add_array(array, f"{path}.{name}", changes_early=name not in parameters)
                if is_extra(key):
                    self._extra_arrays.append((f"{path}.{name}", module, key, array))
            else:
                extra.add(key, value)
        if extra.values:
            name = f"{path}._extra_state"
            self._extra[name] = extra
            self._add_value(name, extra.values, extra.load)

    def _add_plain_arrays(self, items: dict[Any, Any], prefix: str) -> Iterator[tuple[Any, Any]]:
        """Adds the arrays of NumPy whose dtype was seen before. Yields each other item, in its turn. InvalidArgumentError: the
        dict was changed meanwhile."""
        keys = None  # before any code of the user runs
        found = self.arrays.append_run(items, 0, prefix, self._ndarray, arrays.dtype_names, self._writable, self.owners)
        while found is not None:
            position, key, item = found
            if keys is None:
                keys = list(items)
            yield key, item
            found = self.arrays.append_run(items, position, prefix, self._ndarray, arrays.dtype_names, self._writable,
                                           self.owners)
        if keys is not None and keys != list(items):
            raise InvalidArgumentError(f"{_shown(prefix[:-1])} is a dict whose keys were changed while it was read. Change no "
                                       f"state until save returns, neither on another thread nor in state_dict() or "
                                       f"get_extra_state()")

    def _walk_children(self, value: Any, path: str, put: _Set) -> None:
        prefix = f"{path}." if path else ""
        if is_derived(value):
            refuse_attributes(value, path)
        if isinstance(value, dict):
            self._note_state_dict(value, path)
            plain = type(value) is dict and self._ndarray is not None and not self._new.of_all
            for key, item in self._add_plain_arrays(value, prefix) if plain else value.items():
                if type(key) not in (str, int):
                    raise UnsupportedTypeError(f"{_shown(path)} has the key {key!r:.60}, a {type(key).__name__}: the keys of a "
                                               f"dict that holds arrays or objects are parts of names, and must be str or int")
                if type(key) is int and key.bit_length() > codec.DECIMAL_BITS_MAX:
                    raise UnsupportedTypeError(f"{_shown(path)} has a key that is an int of {key.bit_length()} bits, more than "
                                               f"the {codec.DECIMAL_BITS_MAX} that the name of an entry can have: use a str")
                if type(key) is str and not codec.is_text(key):
                    raise UnsupportedTypeError(f"{_shown(path)} has the key {key!a}, which has half of a surrogate pair: names "
                                               f"of entries must be UTF-8")
                self._walk(item, f"{prefix}{key}",
                           lambda new, key=key: set_item(value, key, new, f"{prefix}{key}"))  # type: ignore[misc]
        elif isinstance(value, (list, collections.deque)):
            for i, item in enumerate(value):
                self._walk(item, f"{prefix}{i}", lambda new, i=i: set_item(value, i, new, f"{prefix}{i}"))  # type: ignore[misc]
        elif isinstance(value, tuple):
            items = list(value)

            def replace(i: int, new: Any) -> None:
                items[i] = new
                put(like_tuple(value, items))

            for i, item in enumerate(value):
                self._walk(item, f"{prefix}{i}",
                           put if type(put) is Frozen else lambda new, i=i: replace(i, new))  # type: ignore[misc]
        else:
            # A frozen one that the restore has made may be changed.
            frozen = value.__dataclass_params__.frozen
            set_field: Any = object.__setattr__ if frozen else setattr
            fixed = Frozen(type(value).__qualname__) if frozen and not self._new.of_all else None
            for field in dataclasses.fields(value):
                self._walk(getattr(value, field.name), f"{prefix}{field.name}",
                           fixed or (lambda new, name=field.name: set_field(value, name, new)))  # type: ignore[misc]

    def refuse_frozen(self, only: Sequence[str]) -> None:
        """InvalidArgumentError: a restore of what matches `only` would replace something in a frozen dataclass."""
        for name, kind in self._frozen.items():
            if not only or matches(name, only):
                raise InvalidArgumentError(f"'{name}' lies in a {kind}, a frozen dataclass, in which a restore cannot replace "
                                           f"it. Use load(like=state), which makes a new state")

    def on_devices(self, streams: devices.Streams | None) -> devices.DeviceTensors | None:
        """Those of `arrays` that are on devices; None: there are none. On the thread whose work on the devices comes first."""
        found = {i: (self.owners[i], self.arrays[i][1]) for i in self._on_devices}
        return devices.DeviceTensors(found, streams) if found else None

    # Saving.

    def entries_of_values(self) -> list[tuple[str, str, bytes]]:
        """[(name, kind, bytes)] of the values and objects; adds the objects' arrays to `arrays`."""
        entries = [(path, *(pickled if type(value) is Pickled else codec).to_entry(value, path))
                   for path, (value, _) in self.values.items()]
        for path, value in self.objects.items():
            with codec.refusing_depth(path):
                entries += self._entries_of_object(value, path)
        self._entry_names = [name for name, _, _ in entries]
        return entries

    def _entries_of_object(self, value: Any, path: str) -> list[tuple[str, str, bytes]]:
        state = optimizers.without_own_functions(value, value.state_dict())
        # What else an optimizer has there would be lost by names.
        names = self._parameters.of(value) if isinstance(state, dict) and set(state) == {"state", "param_groups"} else None
        if names is not None:
            state = {"state": {names.get(key, key): item for key, item in state["state"].items()},
                     "param_groups": [{**group, "params": [names.get(index, index) for index in group["params"]]}
                                      for group in state["param_groups"]]}
            self._check_parts(state["state"], path, value)
            fields = optimizers.to_entries(value, state, path)
            if fields is not None:
                for name, tensor in fields[1]:
                    self._add_array(tensor, name)
                return fields[0]
        frameworks: dict[str, str] = {}

        def take(item: object, name: str) -> bool:
            if not arrays.is_array(item):
                return False
            if names is None and dtensors.is_dtensor(item):
                raise UnsupportedTypeError(f"'{name}' is a DTensor in the state of a {type(value).__name__}, which could not be "
                                           f"given it back. Give the state of the checkpoint the DTensor itself")
            self._add_array(item, entry_of(path, name, names is not None))
            frameworks[name] = "pt" if arrays.is_torch(item) else "np"
            return True

        encoded = codec.encode(state, path, take)
        return [(path, "string", codec.to_text({"$object": [encoded, frameworks, names is not None]}))]

    def _sharded(self, path: str, value: Any) -> dict[str, tuple[Any, dtensors.Placed]]:
        """The parameters of an optimizer that are DTensors, and what this rank holds of them: {"optimizer.NAME": ...}."""
        found = {}
        for names in self._parameters.possible(value):
            for parameter, name in zip((p for group in value.param_groups for p in group["params"]), names.values()):
                if dtensors.is_dtensor(parameter):
                    held = dtensors.placed(parameter, name)
                    if held is not None:
                        found[f"{path}.{name}"] = (parameter, held)
        return found

    def _check_parts(self, state: dict[str, Any], path: str, value: Any) -> None:
        """Refuses what an optimizer keeps for a part of a parameter and does not say which part: it would be taken for all
        of a tensor."""
        for name, (_, held) in self._sharded(path, value).items():
            if held[2] == held[0]:
                continue
            for field, item in state.get(name[len(path) + 1:], {}).items():
                if not arrays.is_array(item) or len(item.shape) == 0:
                    continue
                if not dtensors.is_dtensor(item) or dtensors.placed(item, name) != held:
                    raise UnsupportedTypeError(f"'{name}.{field}' belongs to a sharded DTensor, and is no DTensor with "
                                               f"the same shape and placements: it cannot be saved")

    def boxes_of_optimizers(self) -> dict[str, dtensors.Placed]:
        """What a restore reads of each tensor beneath a name: its state belongs to a DTensor."""
        return {name: held for path, value in self.objects.items() for name, (_, held) in self._sharded(path, value).items()}

    # Restoring.

    def assign(self, received: Received,
               received_arrays: dict[int, tuple[str, str, list[int], bytearray, bool]], left_out: Callable[[str], bool]) -> None:
        """Sets the values and objects to what a restore received, converts the arrays that it received, by their indices, and
        puts new arrays in their places, except those whose names it has left out. Decodes everything before it sets anything."""
        values = [(put, self._received_value(value, path, received[path][0], bytes(received[path][3])))
                  for path, (value, put) in self.values.items() if path in received and path not in self._extra]
        values += [(extra.load, extra.own(self._received_value(None, path, received[path][0], bytes(received[path][3]))))
                   for path, extra in self._extra.items() if path in received]
        converted = [(owner, self._received_array("pt" if arrays.is_torch(owner) else "np", found))
                     for owner, found in ((self.owners[i], found) for i, found in received_arrays.items())]
        objects = [(value, self._readable_state(value, path, received), path) for path, value in self.objects.items()
                   if path in received or f"{path}.type" in received]
        for owner, array in converted:
            arrays.convert(owner, array)
        self._new.put(left_out, list(self.objects.values()))
        for name, module, key, array in self._extra_arrays:
            if not left_out(name):
                module.load_state_dict({key: array}, strict=False)
        for put, value in values:
            put(value)
        for value, state, path in objects:
            load_state(value, state, path)
        self._mark_written()

    @staticmethod
    def _received_value(place: Any, path: str, kind: str, content: bytes) -> Any:
        def no_array(name: str) -> object:
            raise KeyError(name)

        if type(place) is Pickled and pickled.is_pickled(kind, content):
            return pickled.from_entry(kind, content, path)
        pickled.refuse(kind, content, path)
        if is_object(kind, content):
            raise InvalidArgumentError(f"'{path}' is an object with state in the checkpoint, and a {type(place).__name__} here")
        value = codec.from_entry(kind, content, no_array)
        if is_derived(place):
            refuse_other_content(place, value, path)
        return value

    @staticmethod
    def _received_array(framework: str, received: tuple[str, str, list[int], bytearray, bool]) -> Any:
        """A new array of the framework, "np" or "pt", in the dtype of the checkpoint."""
        _, dtype, shape, content, _ = received
        made = arrays.new_array(framework, dtype, shape)
        arrays.copy_into(made, content)
        return made

    def _readable_state(self, value: Any, path: str, received: Received) -> Any:
        try:
            return self._object_state(value, path, received)
        except codec.UNREADABLE as error:
            if isinstance(error, Error):
                raise
            raise DataLossError(f"'{path}' cannot be read: {error!r}") from error

    def _object_state(self, value: Any, path: str, received: Received) -> Any:
        sharded = self._sharded(path, value)

        def array(entry: str, framework: str) -> Any:
            if left_out_by(value, framework):
                return None
            made = self._received_array(framework, received[entry])
            parameter, _ = sharded.get(entry.rpartition(".")[0], (None, None))
            return dtensors.like(parameter, made) if received[entry][4] else made

        return state_for(value, path, received, array, self._parameters)

    def can_misfit(self) -> bool:
        """Whether `misfits` may find anything."""
        return bool(self._torch_generators) or any(is_optimizer(value) or has_trial(value) for value in self.objects.values())

    def misfits(self, received: Received, only: Sequence[str]) -> list[str]:
        """Why optimizers and generators would refuse what the checkpoint has, as far as the values tell that a restore of what
        matches `only` has received. One text for each."""
        found = []
        for path, value in [*self.objects.items(), *self._torch_generators.items()]:
            if not only or matches(path, only) or matches(f"{path}.type", only):
                found += misfit(value, path, received, self._parameters)
        return found

    def _mark_written(self) -> None:
        """Tells autograd that the tensors have changed."""
        torch = sys.modules.get("torch")
        bump = getattr(getattr(torch, "autograd", None), "graph", None)
        bump = getattr(bump, "increment_version", None)
        if bump is not None:
            for owner in self.owners:
                if type(owner) is not self._ndarray and arrays.is_torch(owner) and not owner.is_inference():
                    bump(owner)


@contextlib.contextmanager
def naming(tree: Tree) -> Iterator[None]:
    """For calls of the library that are given the tree: `Tree.explained` of their errors."""
    try:
        yield
    except InvalidArgumentError as error:
        raise tree.explained(error) from None


def _shown(path: str) -> str:
    return f"'{path}'" if path else "the state"
