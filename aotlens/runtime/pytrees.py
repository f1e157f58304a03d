"""Module text that flattens the caller's arguments and builds the caller's output structure."""

from collections.abc import Iterator
from typing import Any

import torch

from aotlens.capture.records import Captured
from aotlens.ir.render import Names
from aotlens.runtime.module_text import TextBuilder
from aotlens.torch_api.operators import pytree

OUTPUT_SPEC = "OUTPUT_SPEC"
ARGUMENT_SPEC = "ARGUMENT_SPEC"


def output_text(spec: Any, leaves: list[str], existing: dict[tuple[int, ...], str]) -> str:
    """Return the output as an expression over the names of its leaves, in flat order.

    `existing` has the text of existing containers in it, by the indices that lead to them.
    """
    names = iter(leaves)
    if not needs_spec(spec):
        return str(structure_literal(spec, names, existing))
    parts = ", ".join(_leaf_texts(spec, names, existing, ()))
    return f"torch.utils._pytree.tree_unflatten([{parts}], {OUTPUT_SPEC})"


def needs_spec(spec: Any) -> bool:
    """Return True if the structure cannot be written as a literal."""
    return structure_literal(spec, iter(["_"] * spec.num_leaves)) is None


NO_EXISTING: dict[tuple[int, ...], str] = {}


def custom_spec(spec: Any) -> Any:
    """Return the structure with literals as leaves: pytree makes a tuple of a `torch.Size`."""
    if not needs_spec(spec):
        return pytree.tree_structure(0)
    return pytree.TreeSpec(spec.type, spec.context, [custom_spec(child) for child in spec.children()])


def _leaf_texts(
    spec: Any, leaves: Iterator[str], existing: dict[tuple[int, ...], str], path: tuple[int, ...]
) -> Iterator[str]:
    """Yield the text of each leaf of `custom_spec(spec)`."""
    if not needs_spec(spec):
        yield str(structure_literal(spec, leaves, existing, path))
        return
    for index, child in enumerate(spec.children()):
        yield from _leaf_texts(child, leaves, existing, (*path, index))


def structure_literal(
    spec: Any, leaves: Any, existing: dict[tuple[int, ...], str] = NO_EXISTING, path: tuple[int, ...] = ()
) -> str | None:
    """Return the structure as a literal; None if it contains a container of another class."""
    if spec.is_leaf():
        return next(leaves)
    parts = [
        structure_literal(child, leaves, existing, (*path, index))
        for index, child in enumerate(spec.children())
    ]
    if path in existing:
        return existing[path]
    if any(part is None for part in parts):
        return None
    if spec.type is tuple:
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"  # type: ignore[arg-type]
    if spec.type is torch.Size:
        return f"torch.Size([{', '.join(parts)}])"  # type: ignore[arg-type]
    if spec.type is list:
        return f"[{', '.join(parts)}]"  # type: ignore[arg-type]
    if spec.type is dict:
        return (
            "{" + ", ".join(f"{key!r}: {part}" for key, part in zip(spec.context, parts, strict=True)) + "}"
        )
    return None


def spec_text(spec: Any) -> str | None:
    """Return an expression that recreates the spec; None if it names a class of the user's."""
    try:
        return f"torch.utils._pytree.treespec_loads({pytree.treespec_dumps(spec)!r})"
    except NotImplementedError:
        return None


def argument_names(captured: Captured, names: Names) -> list[str]:
    """Return the text's name of every flat input: the graph's name for a graph input."""
    texts: list[str] = []
    for index, captured_input in enumerate(captured.inputs):
        if captured_input.node is not None:
            texts.append(names.node(captured_input.node))
        else:
            texts.append(f"plain_{index}" if not captured_input.is_tensor else f"same_{index}")
    return texts


def is_plain(spec: Any) -> bool:
    """Return True if the structure consists of lists, tuples and dicts with string keys."""
    if spec.is_leaf():
        return True
    if spec.type is dict and not all(isinstance(key, str) for key in spec.context):
        return False
    if spec.type not in (list, tuple, dict):
        return False
    return all(is_plain(child) for child in spec.children())


def _key_set(spec: Any) -> str:
    """Return a dict's keys as the text of a set, always in the same order."""
    return f"{{{', '.join(repr(key) for key in spec.context)}}}" if spec.context else "set()"


class Unpacking:
    """Writes the lines that bind every leaf of `(args, kwargs)` to its name."""

    def __init__(self, builder: TextBuilder, target: str, leaves: list[str]) -> None:
        self._builder = builder
        self._target = target
        self._leaves = leaves
        self._container_count = 0

    def write(self, spec: Any) -> None:
        if not is_plain(spec):
            self._through_pytree()
            return
        args, kwargs = spec.children()
        self._children(args, "args", self._leaves[: args.num_leaves], f"len(args) != {args.num_children}")
        if kwargs.context:
            keys = f"kwargs.keys() != {_key_set(kwargs)}"
            self._children(kwargs, "kwargs", self._leaves[args.num_leaves :], keys)
        else:
            self._check("kwargs", "kwargs", "no keyword arguments")

    def _through_pytree(self) -> None:
        builder = self._builder
        builder.add("leaves, spec = torch.utils._pytree.tree_flatten((args, kwargs))")
        self._check(
            f"spec != {ARGUMENT_SPEC}", "spec", ("arguments with the structure that it was compiled for")
        )
        if self._leaves:
            builder.unpack(self._leaves, "leaves")

    def _check(self, condition: str, actual: str, wanted: str) -> None:
        message = f"compiled `{self._target}` takes {wanted}, got "
        self._builder.raise_if(condition, "TypeError", message, actual)

    def _children(self, spec: Any, source: str, leaves: list[str], checked: str | None = None) -> None:
        """Check one container and bind its items; `leaves` names the leaves below it, in flat order."""
        children, kind = spec.children(), spec.type.__name__
        keyed, keys = spec.type is dict, list(spec.context or ())
        words = f"a dict with the keys {keys}" if keyed else f"a {kind} of {len(children)}"
        if checked is None:
            words += " in this order" if keyed and len(keys) > 1 else ""
            size = f"list({source}) != {keys}" if keyed else f"len({source}) != {len(children)}"
            checked = f"type({source}) is not {kind} or {size}"
        self._check(checked, source, words)
        names, below, start = [], [], 0
        for child in children:
            inner = leaves[start : start + child.num_leaves]
            start += child.num_leaves
            names.append(inner[0] if child.is_leaf() else self._container_name())
            if not child.is_leaf():
                below.append((child, names[-1], inner))
        if keyed:
            self._builder.add(
                *(f"{name} = {source}[{key!r}]" for key, name in zip(spec.context, names, strict=True))
            )
        elif names:
            self._builder.unpack(names, source)
        for child, name, inner in below:
            self._children(child, name, inner)

    def _container_name(self) -> str:
        self._container_count += 1
        return f"part_{self._container_count}"
