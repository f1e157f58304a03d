"""Shorter names of operators and nodes, and shortened lists of names."""

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"_\d+$")


def without_number(node: str) -> str:
    """Return `clone` for the node `clone_12`."""
    return _NUMBER.sub("", node)


def without_default(target: str) -> str:
    """Return `aten.mm` for `aten.mm.default`; other overloads stay."""
    return target.removesuffix(".default")


def bare_op(target: str) -> str:
    """Return `mm` for `aten.mm.default`, and `mul.Tensor` for `aten.mul.Tensor`."""
    return without_default(target.removeprefix("aten."))


def first_names(names: Sequence[str], most: int) -> str:
    """Return `a, b and 3 more`: the first `most` names, and how many others there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def node_in_phase(node: str, phase: str) -> str:
    """Return `forward, mul_1`."""
    return f"{phase}, {node}"


def op_name(target: str) -> str:
    """Return `aten.mul` for `aten.mul.Tensor` and for `torch.ops.aten.mul.Tensor`."""
    parts = target.removeprefix("torch.ops.").split(".")
    return ".".join(parts[:2]) if len(parts) > 2 else ".".join(parts)
