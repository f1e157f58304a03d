"""A warning where a function is compiled again and again: which argument differs from call to call."""

import warnings
from typing import Any

import torch

MANY = 8
"""Compilations of one function after which it is told, once; as many as Dynamo makes before it gives up."""

PROPERTIES = (
    "the class",
    "the type",
    "the device",
    "the sizes and strides",
    "whether it requires grad",
    "whether it is a leaf",
    "whether it is an inference tensor",
    "whether it is conjugated or negated",
    "which arguments are one tensor",
    "which arguments share memory",
    "the metadata of a subclass",
)
"""What is told of a tensor in a signature, in its order (`frontends/signature.py`)."""


class Recompilations:
    """Of one function, as it is called."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._count = 0
        self._before: tuple[Any, list[Any]] | None = None

    def note(self, described: Any, leaves: list[Any], names: list[str]) -> None:
        """Call it at each compilation, with the arguments' signature, and their values and names."""
        self._count += 1
        if self._before is not None:
            known, values = self._before
            told = _differences(known, described, names, list(zip(values, leaves, strict=False)))
            warnings.warn(
                f"`{self._name}` has been compiled {MANY} times, as for any call of another kind: {told}",
                stacklevel=3,
            )
        last = self._count == MANY - 1
        self._before = (described, [_shown(leaf) for leaf in leaves]) if last else None


def _shown(leaf: Any) -> Any:
    """What a message tells of an argument; a tensor is not kept."""
    return list(leaf.shape) if isinstance(leaf, torch.Tensor) else leaf


def _differences(known: Any, now: Any, names: list[str], values: list[tuple[Any, Any]]) -> str:
    comparable = isinstance(known, tuple) and isinstance(now, tuple) and len(known) == len(now) == len(names)
    found = [at for at in range(len(names)) if known[at] != now[at]] if comparable else []
    if not found:
        return (
            "a mode of torch, what it reads beside its arguments or their structure differs, or sizes do not "
            "fit what was assumed of them (the reports in `.compiled` list it)"
        )
    return "; ".join(_difference(names[at], known[at], now[at], values[at]) for at in found[:3])


def _difference(name: str, known: Any, now: Any, values: tuple[Any, Any]) -> str:
    before, after = values[0], _shown(values[1])
    if not isinstance(values[1], torch.Tensor) or len(known) != len(now):
        return f"`{name}` is {after!r}, and was {before!r}: it is built in; a tensor of it would not be"
    which = [what for what, one, other in zip(PROPERTIES, known, now, strict=True) if one != other]
    if before == after or which != ["the sizes and strides"]:
        return f"`{name}` differs in {', '.join(which)}"
    return (
        f"`{name}` is {after}, and was {before}: `CompileOptions(dynamic=True)` compiles once for all sizes"
    )
