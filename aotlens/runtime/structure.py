"""How the text takes the caller's arguments apart and puts the result together.

Invariant: tuples, lists and dicts are written out; any other container goes through pytree with its spec,
around what is written out in it.
"""

from collections.abc import Iterator
from typing import Any

import torch

from aotlens.torch_api.operators import pytree

RESULT_SPEC = "RESULT_SPEC"
ARGUMENT_SPEC = "ARGUMENT_SPEC"


def result_text(spec: Any, leaves: list[str], standing: dict[tuple[int, ...], str]) -> str:
    """The result as an expression over the names of its leaves, in flat order.

    `standing` has the text of containers in it that are there already, by the positions that lead to them.
    """
    return structure_text(spec, iter(leaves), RESULT_SPEC, standing)


def needs_spec(spec: Any) -> bool:
    """Whether the result cannot be written out."""
    return written_out(spec, iter(["_"] * spec.num_leaves)) is None


NONE_STANDING: dict[tuple[int, ...], str] = {}


def structure_text(
    spec: Any, leaves: Iterator[str], name: str, standing: dict[tuple[int, ...], str] = NONE_STANDING
) -> str:
    """The structure as an expression, with the text `name` for `spec_of_own(spec)` if it needs that."""
    if not needs_spec(spec):
        return str(written_out(spec, leaves, standing))
    parts = ", ".join(_parts(spec, leaves, standing, ()))
    return f"torch.utils._pytree.tree_unflatten([{parts}], {name})"


def spec_of_own(spec: Any) -> Any:
    """The structure with what can be written out as leaves: pytree makes a tuple of a `torch.Size`."""
    if not needs_spec(spec):
        return pytree.tree_structure(0)
    return pytree.TreeSpec(spec.type, spec.context, [spec_of_own(child) for child in spec.children()])


def _parts(
    spec: Any, leaves: Iterator[str], standing: dict[tuple[int, ...], str], path: tuple[int, ...]
) -> Iterator[str]:
    """The text of each leaf of `spec_of_own(spec)`."""
    if not needs_spec(spec):
        yield str(written_out(spec, leaves, standing, path))
        return
    for at, child in enumerate(spec.children()):
        yield from _parts(child, leaves, standing, (*path, at))


def written_out(
    spec: Any, leaves: Any, standing: dict[tuple[int, ...], str] = NONE_STANDING, path: tuple[int, ...] = ()
) -> str | None:
    """The structure as an expression; None where a container is of a class of its own."""
    if spec.is_leaf():
        return next(leaves)
    parts = [written_out(child, leaves, standing, (*path, at)) for at, child in enumerate(spec.children())]
    if path in standing:
        return standing[path]
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
    """An expression that makes the spec again; None when it names a class that only the user has."""
    try:
        return f"torch.utils._pytree.treespec_loads({pytree.treespec_dumps(spec)!r})"
    except NotImplementedError:
        return None
