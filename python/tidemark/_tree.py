"""A state as flat entries. A state is a tree of containers, arrays, values and objects with state.

- An array (NumPy, PyTorch) is an entry of its own. A restore writes into it, or, if it is on the meta device, puts a new
  one in its place.
- A Box, and a DTensor of PyTorch, is a part of an entry that the ranks of a job hold together.
- A dict, list, tuple or dataclass that holds an array or an object with state is walked. The parts of a path are joined
  by dots, so {"model": {"weight": w}} has the entry "model.weight".
- A module (an object with named_parameters) is the dict of its state_dict(): a restore writes into its tensors.
- An optimizer of PyTorch has the entries that the C++ library gives it, and a torch.Generator is its bytes, as there.
- Another object with state_dict() and load_state_dict() is one text entry, which holds its values and names its arrays,
  and an entry for each array. A restore hands new arrays to load_state_dict().
- Everything else is a value, in one entry. A restore replaces it in the container that holds it.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any

from . import _arrays, _boxes, _codec, _devices, _dtensors, _native, _optimizers, _pickled
from ._boxes import Box, Boxes
from ._new_arrays import NewArrays
from ._pickled import Pickled
from ._rng import adapter_of, is_torch_generator, set_torch_generator, torch_generator_bytes
from .errors import DataLossError, Error, InvalidArgumentError, UnsupportedTypeError

_Set = Callable[[Any], None]
# Values whatever else holds, unless a codec is registered for them.
_SCALARS = frozenset((type(None), bool, int, float, complex, str, bytes))


def has_state(value: object) -> bool:
    return not isinstance(value, type) and callable(getattr(value, "state_dict", None)) and callable(
        getattr(value, "load_state_dict", None))


def is_module(value: object) -> bool:
    return has_state(value) and callable(getattr(value, "named_parameters", None))


def _is_record(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _holds_places(value: object, above: tuple[int, ...] = ()) -> bool:
    """Whether the value is, or contains, something that a restore fills in place."""
    if _codec.is_registered(value):
        return False
    if (_arrays.is_array(value) or has_state(value) or _is_record(value) or adapter_of(value) is not None
            or is_torch_generator(value) or type(value) in (Pickled, Box, Boxes)):
        return True
    if id(value) in above:
        raise InvalidArgumentError("a container of the state contains itself")
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    for item in items:
        if _holds_places(item, (*above, id(value))):
            return True
    return False


def _is_optimizer(value: Any) -> bool:
    groups = getattr(value, "param_groups", None)
    return isinstance(groups, list) and all(isinstance(group, dict) and "params" in group for group in groups)


def bare_name(name: str) -> str:
    """The name without what wrappers of modules put into it."""
    parts = [part for part in name.split(".")
             if part not in ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")]
    return ".".join(parts[1:] if len(parts) > 1 and parts[0] == "module" else parts)


def copy_of_containers(value: Any, above: tuple[int, ...] = ()) -> Any:
    """The same state in new dicts, lists, tuples and dataclasses. What they hold is not copied."""
    if (type(value) in _SCALARS or _codec.is_registered(value) or _arrays.is_array(value) or has_state(value)
            or adapter_of(value) is not None or is_torch_generator(value)):
        return value
    if type(value) is Pickled:
        return Pickled(value.value)
    if type(value) is Box:
        return Box(value.array, value.shape, value.offset)
    if type(value) is Boxes:
        return Boxes([copy_of_containers(box) for box in value.boxes])
    if id(value) in above:
        raise InvalidArgumentError("a container of the state contains itself")
    above = (*above, id(value))
    made: Any
    if isinstance(value, dict):
        made = copy.copy(value)
        for key, item in value.items():
            made[key] = copy_of_containers(item, above)
        return made
    if isinstance(value, (list, tuple)):
        items = [copy_of_containers(item, above) for item in value]
        if isinstance(value, list):
            made = copy.copy(value)
            made[:] = items
            return made
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if _is_record(value):
        made = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(made, field.name, copy_of_containers(getattr(value, field.name), above))
        return made
    return value


class Weights(dict[str, Any]):
    """The arrays of a module by name. `parameters`: the names of its parameters; the others are buffers, which a forward pass
    may change, and which differ between the ranks of a job."""

    def __init__(self, arrays: dict[str, Any], parameters: Collection[str]) -> None:
        super().__init__(arrays)
        self.parameters = parameters


class Tree:
    """A state, walked once: for one save or one restore. `before`: the arrays of the save before, which makes it quicker.

    `device`, `of_all`: of a restore, those of its NewArrays. `has_ranks`: of a save in a job of several processes.
    """

    def __init__(self, state: Any, *, writable: bool, before: _native.ArrayList | None = None, device: Any = None,
                 of_all: bool = False, has_ranks: bool = False) -> None:
        self.arrays = _native.ArrayList() if before is None else before.after()
        self.owners: list[Any] = []  # keeps the memory of `arrays` alive
        self._on_devices: list[int] = []  # indices of those on devices
        self.part = ""  # the name of one that is a part of a tensor; empty: there is none
        self.values: dict[str, tuple[Any, _Set]] = {}
        self.objects: dict[str, Any] = {}
        self._writable = writable
        self._has_ranks = has_ranks
        self._new = NewArrays(device, of_all)
        self._ndarray: Any = getattr(sys.modules.get("numpy"), "ndarray", None)
        if not isinstance(state, dict) and not _is_record(state):
            raise InvalidArgumentError(f"the state is a {type(state).__name__}, not a dict or dataclass")
        self._walk_children(state, "", self._refuse)
        # After the modules' state_dict(), for which FSDP puts back the parameters that the optimizer has.
        self._parameters = self._parameter_names(state)

    @staticmethod
    def _refuse(_: Any) -> None:
        raise InvalidArgumentError("the state itself cannot be replaced")

    def _parameter_names(self, state: Any) -> dict[int, str]:
        """The names of the parameters of all modules at the top of the state, by identity."""
        names: dict[int, str] = {}
        items = state.values() if isinstance(state, dict) else (vars(state).values() if _is_record(state) else ())
        for value in items:
            if type(value) is not self._ndarray and is_module(value):
                for name, parameter in value.named_parameters():
                    names.setdefault(id(parameter), bare_name(name))
        return names

    def _walk(self, value: Any, path: str, put: _Set) -> None:
        if _arrays.is_array(value):
            self._add_array(self._new.instead_of(value, path, put) if self._writable else value, path)
        elif type(value) in _SCALARS:
            self.values[path] = (value, put)
        elif type(value) is Pickled:
            self.values[path] = (value, lambda new: setattr(value, "value", new))
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
        elif is_module(value) and not _codec.is_registered(value):
            self._walk_module(value, path)
        elif not _codec.is_registered(value) and (has_state(value) or adapter_of(value) is not None):
            self.objects[path] = adapter_of(value) or value
        elif is_torch_generator(value):
            state = torch_generator_bytes(value) if not self._writable else b""
            self.values[path] = (state, lambda new: set_torch_generator(value, new, path))
        elif _holds_places(value):
            self._walk_children(value, path, put)
        else:
            self.values[path] = (value, put)

    def _walk_box(self, box: Box, path: str) -> None:
        _boxes.check(box, path)
        array = box.array
        if self._writable:
            array = self._new.instead_of(array, path, lambda new: setattr(box, "array", new))
        self._add_array(Box(array, box.shape, box.offset), path)

    def _add_array(self, value: Any, path: str, changes_early: bool = False) -> None:
        if type(value) is not self._ndarray and _dtensors.is_dtensor(value):
            value = _dtensors.part_of(value, path)
            if value is None:
                self.part = path  # an empty one
                return
        if not _codec.is_text(path):
            raise UnsupportedTypeError(f"the array {path!a} has half of a surrogate pair in its name: names of entries must be "
                                       f"UTF-8")
        array = value.array if type(value) is Box else value
        if type(value) is Box and tuple(array.shape) == value.shape and not (value.spread or self._has_ranks):
            value = array  # the whole tensor: no other process has a part, not even an empty one
        if type(value) is Box:
            self.part = path
        place: Any = _arrays.place_of(array, path, writable=self._writable, changes_early=changes_early)
        if len(place) == 7 and place[6]:
            self._on_devices.append(len(self.owners))
        self.arrays.append((*place, list(value.shape), list(value.offset)) if type(value) is Box else place)
        self.owners.append(array)

    def _walk_module(self, module: Any, path: str) -> None:
        parameters = {bare_name(name) for name, _ in module.named_parameters()}
        extra: dict[str, Any] = {}
        state = module.state_dict()
        instead_of = self._new.of_module(module, state, path, bare_name) if self._writable else lambda name, value: value
        for key, value in state.items():
            name = bare_name(key)
            if _arrays.is_array(value):
                self._add_array(instead_of(name, value), f"{path}.{name}", changes_early=name not in parameters)
            else:
                extra[key] = value
        if extra:
            def put(loaded: Any) -> None:
                module.load_state_dict(loaded, strict=False)

            self.values[f"{path}._extra_state"] = (extra, put)

    def _add_plain_arrays(self, items: dict[Any, Any], prefix: str) -> Iterator[tuple[Any, Any]]:
        """Adds the arrays of NumPy whose dtype was seen before. Yields each other item, in its turn."""
        found = self.arrays.append_run(items, 0, prefix, self._ndarray, _arrays.dtype_names, self._writable, self.owners)
        while found is not None:
            position, key, item = found
            yield key, item
            found = self.arrays.append_run(items, position, prefix, self._ndarray, _arrays.dtype_names, self._writable,
                                           self.owners)

    def _walk_children(self, value: Any, path: str, put: _Set) -> None:
        prefix = f"{path}." if path else ""
        if isinstance(value, dict):
            plain = type(value) is dict and self._ndarray is not None and not self._new.of_all
            for key, item in self._add_plain_arrays(value, prefix) if plain else value.items():
                if type(key) not in (str, int):
                    raise _codec.unsupported(f"{prefix}{key} (the key)", key)
                if type(key) is str and not _codec.is_text(key):
                    where = f"'{path}'" if path else "the state"
                    raise UnsupportedTypeError(f"{where} has the key {key!a}, which has half of a surrogate pair: names of entries "
                                               f"must be UTF-8")
                self._walk(item, f"{prefix}{key}", lambda new, key=key: value.__setitem__(key, new))  # type: ignore[misc]
        elif isinstance(value, list):
            for i, item in enumerate(value):
                self._walk(item, f"{prefix}{i}", lambda new, i=i: value.__setitem__(i, new))  # type: ignore[misc]
        elif isinstance(value, tuple):
            items = list(value)

            def replace(i: int, new: Any) -> None:
                items[i] = new
                put(type(value)(*items) if hasattr(value, "_fields") else tuple(items))

            for i, item in enumerate(value):
                self._walk(item, f"{prefix}{i}", lambda new, i=i: replace(i, new))  # type: ignore[misc]
        else:
            # A frozen one that the restore has made may be changed.
            set_field: Any = object.__setattr__ if self._new.of_all and value.__dataclass_params__.frozen else setattr
            for field in dataclasses.fields(value):
                self._walk(getattr(value, field.name), f"{prefix}{field.name}",
                           lambda new, name=field.name: set_field(value, name, new))  # type: ignore[misc]

    def on_devices(self, streams: _devices.Streams | None) -> _devices.DeviceTensors | None:
        """Those of `arrays` that are on devices; None: there are none. On the thread whose work on the devices comes first."""
        found = {i: (self.owners[i], self.arrays[i][1]) for i in self._on_devices}
        return _devices.DeviceTensors(found, streams) if found else None

    # Saving.

    def entries_of_values(self) -> list[tuple[str, str, bytes]]:
        """[(name, kind, bytes)] of the values and objects; adds the objects' arrays to `arrays`."""
        entries = [(path, *(_pickled if type(value) is Pickled else _codec).to_entry(value, path))
                   for path, (value, _) in self.values.items()]
        for path, value in self.objects.items():
            entries += self._entries_of_object(value, path)
        return entries

    def _entries_of_object(self, value: Any, path: str) -> list[tuple[str, str, bytes]]:
        state = value.state_dict()
        names = self._optimizer_names(value)
        if names is not None:
            state = {"state": {names.get(key, key): item for key, item in state["state"].items()},
                     "param_groups": [{**group, "params": [names.get(index, index) for index in group["params"]]}
                                      for group in state["param_groups"]]}
            self._check_parts(state["state"], path, value)
            fields = _optimizers.to_entries(value, state, path)
            if fields is not None:
                for name, tensor in fields[1]:
                    self._add_array(tensor, name)
                return fields[0]
        frameworks: dict[str, str] = {}

        def take(item: object, name: str) -> bool:
            if not _arrays.is_array(item):
                return False
            if names is None and _dtensors.is_dtensor(item):
                raise UnsupportedTypeError(f"'{name}' is a DTensor in the state of a {type(value).__name__}, which could not be "
                                           f"given it back. Give the state of the checkpoint the DTensor itself")
            self._add_array(item, _entry_of(path, name, names is not None))
            frameworks[name] = "pt" if _arrays.is_torch(item) else "np"
            return True

        encoded = _codec.encode(state, path, take)
        return [(path, "string", _codec.to_text({"$object": [encoded, frameworks, names is not None]}))]

    def _sharded(self, path: str, value: Any) -> dict[str, tuple[Any, _dtensors.Placed]]:
        """The parameters of an optimizer that are DTensors, and what this rank holds of them: {"optimizer.NAME": ...}."""
        names = self._optimizer_names(value)
        if names is None:
            return {}
        found = {}
        for parameter, name in zip((p for group in value.param_groups for p in group["params"]), names.values()):
            if _dtensors.is_dtensor(parameter):
                held = _dtensors.placed(parameter, name)
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
                if not _arrays.is_array(item) or len(item.shape) == 0:
                    continue
                if not _dtensors.is_dtensor(item) or _dtensors.placed(item, name) != held:
                    raise UnsupportedTypeError(f"'{name}.{field}' belongs to a sharded DTensor, and is no DTensor with "
                                               f"the same shape and placements: it cannot be saved")

    def boxes_of_optimizers(self) -> dict[str, _dtensors.Placed]:
        """What a restore reads of each tensor beneath a name: its state belongs to a DTensor."""
        return {name: held for path, value in self.objects.items() for name, (_, held) in self._sharded(path, value).items()}

    def _optimizer_names(self, value: Any) -> dict[int, str] | None:
        """The names of an optimizer's parameters by their index in its state_dict(); None: it is no optimizer, or one
        of its parameters belongs to no module of the state."""
        if not _is_optimizer(value):
            return None
        parameters = [parameter for group in value.param_groups for parameter in group["params"]]
        names = [self._parameters.get(id(parameter)) for parameter in parameters]
        if None in names or len(set(names)) != len(names):
            return None
        return dict(enumerate(names))  # type: ignore[arg-type]

    # Restoring.

    def assign(self, received: dict[str, tuple[str, str, list[int], bytearray, bool]],
               received_arrays: dict[int, tuple[str, str, list[int], bytearray, bool]], left_out: Callable[[str], bool]) -> None:
        """Sets the values and objects to what a restore received, converts the arrays that it received, by their indices, and
        puts new arrays in their places, except those whose names it has left out. Decodes everything before it sets anything."""
        values = [(put, self._received_value(value, path, received[path][0], bytes(received[path][3])))
                  for path, (value, put) in self.values.items() if path in received]
        converted = [(owner, self._received_array("pt" if _arrays.is_torch(owner) else "np", found))
                     for owner, found in ((self.owners[i], found) for i, found in received_arrays.items())]
        objects = [(value, self._readable_state(value, path, received)) for path, value in self.objects.items()
                   if path in received or f"{path}.type" in received]
        for owner, array in converted:
            _arrays.convert(owner, array)
        self._new.put(left_out, list(self.objects.values()))
        for put, value in values:
            put(value)
        for value, state in objects:
            value.load_state_dict(state)
        self._mark_written()

    @staticmethod
    def _received_value(place: Any, path: str, kind: str, content: bytes) -> Any:
        def no_array(name: str) -> object:
            raise KeyError(name)

        if type(place) is Pickled and _pickled.is_pickled(kind, content):
            return _pickled.from_entry(kind, content, path)
        _pickled.refuse(kind, content, path)
        return _codec.from_entry(kind, content, no_array)

    @staticmethod
    def _received_array(framework: str, received: tuple[str, str, list[int], bytearray, bool]) -> Any:
        """A new array of the framework, "np" or "pt", in the dtype of the checkpoint."""
        _, dtype, shape, content, _ = received
        made = _arrays.new_array(framework, dtype, shape)
        _arrays.copy_into(made, content)
        return made

    def _readable_state(self, value: Any, path: str, received: dict[str, tuple[str, str, list[int], bytearray, bool]]) -> Any:
        try:
            return self._object_state(value, path, received)
        except _codec.UNREADABLE as error:
            if isinstance(error, Error):
                raise
            raise DataLossError(f"'{path}' cannot be read: {error!r}") from error

    def _object_state(self, value: Any, path: str, received: dict[str, tuple[str, str, list[int], bytearray, bool]]) -> Any:
        sharded = self._sharded(path, value)

        def array(entry: str, framework: str) -> Any:
            made = self._received_array(framework, received[entry])
            parameter, _ = sharded.get(entry.rpartition(".")[0], (None, None))
            return _dtensors.like(parameter, made) if received[entry][4] else made

        def no_array(name: str) -> object:
            raise KeyError(name)

        names = self._optimizer_names(value)
        if path in received:
            found = object_state(received[path][0], bytes(received[path][3]), path, array)
            if found is None:
                raise InvalidArgumentError(f"'{path}' is an object with state here, and a value in the checkpoint")
            state, by_name = found
            if not by_name:
                return state
        else:
            state = _optimizers.from_entries(
                value, list((names or {}).values()), path, received,
                lambda entry: _codec.from_entry(received[entry][0], bytes(received[entry][3]), no_array),
                lambda entry: array(entry, "pt"))
        if names is None:
            raise InvalidArgumentError(f"'{path}': the checkpoint has its parameters by name, and here one of them "
                                       f"belongs to no module of the state")
        return _by_index(state, names, path, [len(group["params"]) for group in value.param_groups])

    def _mark_written(self) -> None:
        """Tells autograd that the tensors have changed."""
        torch = sys.modules.get("torch")
        bump = getattr(getattr(torch, "autograd", None), "graph", None)
        bump = getattr(bump, "increment_version", None)
        if bump is not None:
            for owner in self.owners:
                if type(owner) is not self._ndarray and _arrays.is_torch(owner) and not owner.is_inference():
                    bump(owner)


def _by_index(state: Any, names: dict[int, str], path: str, sizes: list[int]) -> Any:
    """An optimizer's state by the indices that its parameters have here, whatever their order was when it was saved."""
    index = {name: i for i, name in names.items()}
    stored = [name for group in state["param_groups"] for name in group["params"]]
    if sorted(stored) != sorted(index):
        raise InvalidArgumentError(f"'{path}' has other parameters than in the checkpoint: {sorted(set(stored) ^ set(index))}")
    # load_state_dict goes by places, so groups and parameters have to come in the order that they have here.
    groups = [{**group, "params": sorted(index[name] for name in group["params"])} for group in state["param_groups"]]
    groups.sort(key=lambda group: group["params"][:1])
    placed = [i for group in groups for i in group["params"]]
    if placed != sorted(placed) or [len(group["params"]) for group in groups] != sizes:
        raise InvalidArgumentError(f"'{path}' has its parameters in other groups than in the checkpoint")
    return {"state": {index.get(key, key): item for key, item in state["state"].items()}, "param_groups": groups}


def _entry_of(path: str, name: str, by_name: bool) -> str:
    """State of a parameter: "optimizer.encoder.weight.exp_avg", as the C++ library names it."""
    return path + name[len(path + ".state"):] if by_name and name.startswith(path + ".state.") else name


def object_state(kind: str, content: bytes, path: str, array: Callable[[str, str], Any]) -> tuple[Any, bool] | None:
    """What `state_dict` of the object of that entry returned, and whether it has parameters by name, not by index. None:
    the entry is a plain value. `array(entry, framework)` reads an array as one of NumPy ("np") or PyTorch ("pt")."""
    if kind != "string" or not content.startswith(_codec.MARK.encode()):
        return None
    try:
        value = json.loads(content[len(_codec.MARK):])
        if not isinstance(value, dict) or "$object" not in value:
            return None
        encoded, frameworks, by_name = value["$object"]
        read = _codec.once(lambda name: array(_entry_of(path, name, by_name), frameworks[name]))
        return _codec.decode(encoded, read), bool(by_name)
    except _codec.UNREADABLE as error:
        if isinstance(error, Error):
            raise
        raise DataLossError(f"'{path}' cannot be read: {error}") from error
