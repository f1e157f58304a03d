"""What a later stage may do to a recording: look up current values, and add nodes.

Invariant: a stage that holds a `Builder` can neither change a storage or a tensor nor run user code on the
recording; only capture and joint, which record the function and its backward, hold the `Recorder` itself.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from aotlens.capture.symbols.sizes import Symbols
from aotlens.ir.origin import Origin
from aotlens.ir.program import Node
from aotlens.torch_api.fake.tensors import FakeTensorMode


class Builder(Protocol):
    """A recording to which nodes are added; a `Recorder` is one."""

    fake_mode: FakeTensorMode
    symbols: Symbols

    @property
    def span(self) -> Any:
        """The user's expression that runs now, or ran last."""

    def node_of(self, tensor: Any) -> Node:
        """Return the node of a tensor's current value, also after a write to its storage."""

    def argument(self, arg: Any) -> Any:
        """Return a value as nodes take it: a tensor or symbol as its node, nested values likewise."""

    def emit(self, op: Callable[..., Any], *args: Any, **kwargs: Any) -> Node:
        """Add one operator on nodes, decomposed if the table contains it."""

    def item(self, node: Any, index: int) -> Node:
        """Return one result of a node with several."""

    def add_node(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], val: Any, origin: Origin | None = None
    ) -> Node:
        """Add one operator as it is, with the value that it returns."""

    def use_view_of_storage(self, tensor: Any) -> None:
        """Read the tensor as a view of its storage's value: after a write, its node has its own memory."""

    def adding(self, stage: str, reason: str) -> AbstractContextManager[None]:
        """Attribute the nodes in the block to one of our stages instead of the user's code."""
