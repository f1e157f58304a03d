"""How the text takes the caller's arguments apart and puts the result together.

Invariant: tuples, lists and dicts are written out; any other container goes through pytree with its spec.
"""

from collections.abc import Iterator
from typing import Any

import torch

from aotlens.capture.containers import Item, Refill
from aotlens.errors import UnsupportedError
from aotlens.torch_api import pytree

RESULT_SPEC = "RESULT_SPEC"
ARGUMENT_SPEC = "ARGUMENT_SPEC"


def result_text(spec: Any, leaves: list[str]) -> str:
    """The result as an expression over the names of its leaves, in flat order."""
    remaining = iter(leaves)
    written = _written(spec, remaining)
    if written is not None:
        return written
    return f"torch.utils._pytree.tree_unflatten([{', '.join(leaves)}], {RESULT_SPEC})"


def needs_spec(spec: Any) -> bool:
    """Whether the result cannot be written out."""
    return _written(spec, iter(["_"] * spec.num_leaves)) is None


def _written(spec: Any, leaves: Any) -> str | None:
    if spec.is_leaf():
        return next(leaves)
    parts = [_written(child, leaves) for child in spec.children()]
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


def refill_lines(refills: tuple[Refill, ...], leaves: list[str]) -> list[str]:
    """Statements that put new items into the caller's containers; all are looked up before any changes."""
    remaining = iter(leaves)
    boxes = [f"box_{at}" for at in range(len(refills))]
    lines = [f"{box} = {refill.place}" for box, refill in zip(boxes, refills, strict=True)]
    for box, refill in zip(boxes, refills, strict=True):
        lines += [f"del {box}[{key!r}]" for key in refill.removed]
        items = [_item(box, item, remaining) for item in refill.items]
        if not refill.keyed:
            lines.append(f"{box}[:] = [{', '.join(items)}]")
        else:
            lines += [f"{box}[{item.key!r}] = {text}" for item, text in zip(refill.items, items, strict=True)]
    return lines


def _item(box: str, item: Item, leaves: Iterator[str]) -> str:
    if item.before is not None:
        return f"{box}[{item.before}]"
    text = _written(item.spec, leaves)
    if text is None:
        raise UnsupportedError("a container argument that gets a container of a class of its own", None)
    return text


def spec_text(spec: Any) -> str | None:
    """An expression that makes the spec again; None when it names a class that only the user has."""
    try:
        return f"torch.utils._pytree.treespec_loads({pytree.treespec_dumps(spec)!r})"
    except NotImplementedError:
        return None
