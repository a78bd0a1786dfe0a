"""Which public names of a module have no docstring, for tests in all folders."""

import inspect
import types


def undocumented(module, inherited=True):
    """The public names of the module, and the methods and properties of its classes, that have no docstring. Those that a class
    has from another class of the package count too. `inherited`: that of the method of a framework which it overrides will do."""
    names = getattr(module, "__all__", None) or [name for name, value in vars(module).items() if not name.startswith("_")
                                                 and getattr(value, "__module__", None) == module.__name__]
    found = {name: getattr(module, name) for name in names}
    found = {name: value for name, value in found.items() if not isinstance(value, types.ModuleType)}
    assert found
    # Python gives a dataclass without a docstring its signature.
    missing = [name for name, value in found.items() if not value.__doc__ or value.__doc__.startswith(f"{name}(")]
    for name, value in found.items():
        for owner in value.__mro__ if isinstance(value, type) else ():
            for part in vars(owner) if owner.__module__.startswith("tidemark.") else ():
                attribute = getattr(owner, part)
                if part.startswith("_") or not (callable(attribute) or isinstance(vars(owner)[part], property)):
                    continue
                if not (inspect.getdoc(attribute) if inherited else vars(owner)[part].__doc__):
                    missing.append(f"{name}.{part}")
    return missing
