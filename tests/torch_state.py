"""What of torch can be changed from outside, written down before and after aotlens is imported.

`python -m tests.torch_state` imports every module of the package `aotlens` and prints each difference.  The
modules of torch that aotlens loads are loaded before the first look, so what they register themselves is part
of torch.  `python -m tests.torch_state --loaded` prints their names, and `--loaded-are NAMES`
takes them, instead of asking another process.
"""

import gc
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

from tests.import_graph import ROOT, names

CACHES = frozenset({"_type_eval_globals", "_builtin_table"})
"""Tables that fill without a change: Python's `typing` notes the overloads of every library, and torch notes
an operator when `torch.ops` is asked for it first."""

LOADED, LOADED_ARE = "--loaded", "--loaded-are"

State = dict[tuple[str, ...], Any]
"""By path, the very object that stands there."""


def every_module() -> list[str]:
    """The names of all modules of the package, without those that run when they are imported."""
    return [name for name in names() if name.partition(".")[0] == "aotlens" and not name.endswith("__main__")]


def import_all() -> None:
    """Import every module of the package; one whose optional dependency is missing is left out."""
    for name in every_module():
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("aotlens"):
                raise


def torch_modules() -> Iterator[tuple[str, ModuleType]]:
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] == "torch" and isinstance(module, ModuleType):
            yield name, module


def state() -> State:
    """Every attribute of torch's modules and classes, every entry of their tables, every kernel."""
    attributes: State = {}
    for name, module in torch_modules():
        for attribute, value in list(vars(module).items()):
            attributes[name, attribute] = value
            for key, entry in _entries(value):
                attributes[name, attribute, key] = entry
            if issubclass(type(value), type) and value.__module__ == name:
                for member, inner in list(vars(value).items()):
                    attributes[name, attribute, member] = inner
    for operator in gc.get_objects():
        if issubclass(type(operator), torch._ops.OperatorBase):
            for key, kernel in operator.py_kernels.items():
                attributes["kernel", str(operator), str(key)] = kernel
    for key in _dispatch_keys():
        names = torch._C._dispatch_get_registrations_for_dispatch_key(key)
        attributes["dispatcher", key] = tuple(sorted(names))
    return attributes


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """What a table holds, two levels deep, and how long a list or set is."""
    kind = type(value)  # `isinstance` would ask deprecated names of torch for their class
    if issubclass(kind, dict):
        for key, entry in list(value.items()):
            yield f"[{key!r}]", entry
            if isinstance(entry, dict):
                for inner, last in list(entry.items()):
                    yield f"[{key!r}][{inner!r}]", last
    elif issubclass(kind, (list, set, frozenset)):
        yield "length", len(value)


def _dispatch_keys() -> list[str]:
    names = "CPU CUDA Meta Autograd AutogradCPU AutogradCUDA AutocastCPU AutocastCUDA Python ADInplaceOrView"
    return [*names.split(), "CompositeImplicitAutograd", "CompositeExplicitAutograd"]


def changed(before: State, after: State) -> Iterator[str]:
    """Each path at which another object stands; what is new in a module or class counts too."""
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path, "nothing"), after.get(path, "nothing")
        if old is not new and not _is_equal(old, new) and not _is_noise(path, old, new):
            yield f"{' '.join(path)}: {old!r:.80} -> {new!r:.80}"


def _is_equal(old: Any, new: Any) -> bool:
    return type(old) is type(new) and isinstance(old, (int, str, float, tuple)) and bool(old == new)


def _is_noise(path: tuple[str, ...], old: Any, new: Any) -> bool:
    """A module that its parent has now, or what remembers results."""
    return isinstance(new, ModuleType) or bool(CACHES & set(path))


def loaded_by_aotlens() -> list[str]:
    """torch's modules that are loaded once aotlens is, in order, asked of another process."""
    command = [sys.executable, "-m", "tests.torch_state", LOADED]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def main(words: list[str]) -> None:
    if words == [LOADED]:
        import_all()
        loaded = dict(torch_modules())
        sys.stdout.write(" ".join(name for name in sys.modules if name in loaded))
        return
    names = words[1:] if words[:1] == [LOADED_ARE] else loaded_by_aotlens()
    for name in names:
        importlib.import_module(name)
    environment, before = dict(os.environ), state()
    import_all()
    differences = list(changed(before, state()))
    if os.environ != environment:
        differences.append("the environment of the process")
    sys.stdout.write("\n".join(differences))


if __name__ == "__main__":
    main(sys.argv[1:])
