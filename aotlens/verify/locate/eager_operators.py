"""List the operators that eager runs, and compare them with the captured ones."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from aotlens.ir.program import Program, op_name
from aotlens.torch_api.modes import TorchDispatchMode
from aotlens.verify.locate.nodes import WrongNode, first_difference

Ran = tuple[str, Any]
"""An operator's name, and a copy of its result."""


class _Listing(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.ran: list[Ran] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        with torch.no_grad():
            value = result.detach().clone() if isinstance(result, Tensor) else result
        self.ran.append((op_name(func), value))
        return result


def operators_of(call: Callable[[], object]) -> list[Ran]:
    """Return every operator that a call runs, below autograd, in order."""
    listing = _Listing()
    with listing:
        call()
    return listing.ran


def first_differing_operator(program: Program, values: Mapping[str, Any], ran: list[Ran]) -> WrongNode | None:
    """Return the first captured operator that eager does not run next, or whose result differs."""
    rest: Iterator[Ran] = iter(ran)
    for node in program.nodes:
        if node.op is None or node.constant is not None or not node.target.startswith("aten"):
            continue
        expected = next((value for name, value in rest if name == node.target), None)
        if expected is None:
            return None  # from here on the operators differ, so their values cannot be compared
        wrong = first_difference(values.get(node.name), expected)
        if wrong is not None:
            return WrongNode(node, *wrong)
    return None
