"""The names that the parameters of optimizers have in a checkpoint, and the states of optimizers by these names.

A parameter has its name in its module, wherever in the state that module is: "encoder.weight". If two parameters of one
optimizer would have the same name, all of them have the paths of their modules in front: "gan.G.encoder.weight". A tensor that
is in no module goes by its own path. An optimizer with a parameter that the state lacks goes by indices, as earlier versions
stored all whose modules are not at the top of the state, or have parameters of one name. So does one whose state_dict() has
other keys than "state" and "param_groups". A restore takes any of these.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..errors import InvalidArgumentError
from .modules import Names


def is_optimizer(value: Any) -> bool:
    groups = getattr(value, "param_groups", None)
    return isinstance(groups, list) and all(isinstance(group, dict) and "params" in group for group in groups)


class ParameterNames:
    """The names of the parameters of one state. `modules`: (path, module); a parameter of several modules has its name from the
    first. `tensors`: the paths of the tensors in no module, by identity. `renames`: (name in the checkpoint, name here), of a
    restore. Thread-compatible."""

    def __init__(self, modules: Iterable[tuple[str, Any]], tensors: Mapping[int, str], names_of: Callable[[Any], Names],
                 renames: Sequence[tuple[str, str]] = ()) -> None:
        self._names: dict[int, list[str | None]] = {}  # the names that each parameter may have, the same number of all
        self._renames = renames
        for path, module in modules:
            name_of = names_of(module)
            for name, parameter in module.named_parameters():
                self._names.setdefault(id(parameter), self._names_in(path, name_of(name)))
        for tensor, path in tensors.items():
            self._names.setdefault(tensor, self._names_in("", path))

    def _names_in(self, path: str, name: str) -> list[str | None]:
        """In the module at that path, and with the path; before these what they were before `renames`."""
        whole = f"{path}.{name}" if path else name
        if not self._renames:
            return [name, whole]
        before = self._before_renames(whole)
        module = self._before_renames(path) + "." if path else ""
        return [before[len(module):] if before.startswith(module) else None, before, name, whole]

    def _before_renames(self, name: str) -> str:
        for old, new in self._renames:
            if name == new or name.startswith(f"{new}."):
                return old + name[len(new):]
        return name

    def of(self, optimizer: Any) -> dict[int, str] | None:
        """By the indices in its state_dict(), as a save writes them. None: it is no optimizer, or a parameter has no name."""
        return next(iter(self.possible(optimizer)), None)

    def possible(self, optimizer: Any) -> list[dict[int, str]]:
        """The names that they may have in a checkpoint, one dict for each way. In C++ the caller may give modules names, which
        then are in front."""
        if not is_optimizer(optimizer):
            return []
        found = [self._names.get(id(parameter)) for group in optimizer.param_groups for parameter in group["params"]]
        if None in found:
            return []
        ways = zip(*found) if found else [()]
        # A list of names is stored with one name a line.
        return [dict(enumerate(names)) for names in ways
                if len(set(names)) == len(names) and not any(name is None or "\n" in name for name in names)]

    def by_index(self, optimizer: Any, state: Any, path: str) -> Any:
        """Its state by the indices that its parameters have here, whatever their order was when it was saved.
        InvalidArgumentError: it has other parameters here, or other groups, or one that has no name."""
        possible = self.possible(optimizer)
        if not possible:
            raise InvalidArgumentError(f"'{path}': the checkpoint has its parameters by name, and here "
                                       f"{self._unnamed(optimizer)}")
        stored = sorted(name for group in state["param_groups"] for name in group["params"])
        names = next((names for names in possible if sorted(names.values()) == stored), None)
        if names is None:
            raise InvalidArgumentError(
                f"'{path}' has other parameters than in the checkpoint: {_some(set(stored) - set(possible[0].values()))} only "
                f"there, and {_some(set(possible[0].values()) - set(stored))} only here. Create it with the parameters of the "
                f"save; if their modules have moved in the state, name the places as `renames`")
        index = {name: i for i, name in names.items()}
        # load_state_dict goes by places, so groups and parameters have to come in the order that they have here. It keeps the
        # optimizer's own param_names (PyTorch 2.6) if there are no others; those have the order of the save.
        groups = [{**{key: item for key, item in group.items() if key != "param_names"},
                   "params": sorted(index[name] for name in group["params"])} for group in state["param_groups"]]
        groups.sort(key=lambda group: group["params"][:1])
        placed = [i for group in groups for i in group["params"]]
        sizes = [len(group["params"]) for group in optimizer.param_groups]
        if placed != sorted(placed) or [len(group["params"]) for group in groups] != sizes:
            first = _some(names[group["params"][0]] for group in groups if group["params"])
            raise InvalidArgumentError(f"'{path}' has its parameters in other groups than in the checkpoint, whose groups begin "
                                       f"with {first}. Create it with the groups of the save")
        return {"state": {index.get(key, key): item for key, item in state["state"].items()}, "param_groups": groups}

    def _unnamed(self, optimizer: Any) -> str:
        """Which of its parameters has no name, and what to do."""
        if not is_optimizer(optimizer):
            return f"it is a {type(optimizer).__name__}, which has no param_groups. Put an optimizer there"
        for g, group in enumerate(optimizer.param_groups):
            for i, parameter in enumerate(group["params"]):
                if id(parameter) not in self._names:
                    return (f"parameter {i} of group {g}, of the shape {list(parameter.shape)}, is neither in a module of the "
                            f"state nor a tensor of it. Put its module into the state")
        return "two of its parameters have one name, or a name has a line break. Give their places in the state other names"


def refuse_other_groups(optimizer: Any, state: Any, path: str) -> None:
    """InvalidArgumentError: `load_state_dict` of PyTorch would refuse the state, which goes by indices, for its groups have other
    sizes."""
    if not (isinstance(state, dict) and is_optimizer(_Groups(state.get("param_groups"))) and _has_load_of_torch(optimizer)):
        return
    stored, here = ([len(group["params"]) for group in groups] for groups in (state["param_groups"], optimizer.param_groups))
    if stored != here:
        raise InvalidArgumentError(f"'{path}' has groups of {here} parameters here, and of {stored} in the checkpoint. Create it "
                                   f"with the groups of the save")


class _Groups:
    def __init__(self, param_groups: Any) -> None:
        self.param_groups = param_groups


def _has_load_of_torch(optimizer: Any) -> bool:
    kind = getattr(sys.modules.get("torch.optim"), "Optimizer", None)
    return kind is not None and getattr(type(optimizer), "load_state_dict", None) is kind.load_state_dict


def _some(names: Iterable[str]) -> str:
    """The first three, and how many more there are."""
    found = sorted(names)
    text = ", ".join(f"'{name}'" for name in found[:3]) or "none"
    return f"{text} and {len(found) - 3} more" if len(found) > 3 else text
