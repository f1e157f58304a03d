"""Real tensors that the recorded function reads: constants of the graph, or inputs if they require grad.

Invariant: the recording works on one fake tensor for each of them, except that autograd's own reads of a leaf
get another.
"""

from typing import TYPE_CHECKING, Any

import torch

from aotlens.ir.program import Node
from aotlens.torch_api.dynamo.state import is_dynamo_input
from aotlens.torch_api.fake.tensors import to_fake
from aotlens.unsupported import unsupported

if TYPE_CHECKING:  # the recording holds its real tensors, so at run time the import would be a cycle
    from aotlens.capture.graph import Recording

PLAIN_CLASSES = (torch.Tensor, torch.nn.Parameter)
"""Classes of tensors with real memory."""


class RealTensors:
    """The real tensors of one recording, with their fake tensors."""

    def __init__(self, recording: "Recording") -> None:
        self._recording = recording
        self._fakes: dict[int, tuple[Any, Any]] = {}
        """By the identity of the real tensor: its fake, and the tensor itself."""
        self.inputs: list[tuple[Node, Any]] = []
        """Free tensors that require grad and became graph inputs."""

    def __contains__(self, tensor: Any) -> bool:
        return id(tensor) in self._fakes

    def fake_of(self, tensor: Any) -> Any:
        """Return the tensor's fake; a new one for a tensor that the recording meets first.

        Raises:
            UnsupportedError: it is no tensor.
        """
        known = self.find(tensor)
        if known is not None and known.requires_grad and not self._recording.in_backward:
            known = None  # a fake for a tensor that autograd has reached itself
        return self._new(tensor) if known is None else known

    def find(self, tensor: Any) -> Any:
        """Return the tensor's fake; None if it has none yet."""
        return self._fakes.get(id(tensor), (None, None))[0]

    def use(self, tensor: Any, fake: Any) -> None:
        """Use `fake` wherever the function reads this tensor itself."""
        self._fakes[id(tensor)] = (fake, tensor)

    def pairs(self) -> list[tuple[Any, Any]]:
        """Return the fakes, each with its real tensor."""
        return list(self._fakes.values())

    def constants_in(self, storages: set[int]) -> list[Any]:
        """Return the function's own constant tensors in any of these storages."""
        constants = (
            tensor
            for fake, tensor in self._fakes.values()
            if type(tensor) in PLAIN_CLASSES and not self._recording.tracked(fake).storage.inputs
        )
        return [tensor for tensor in constants if tensor.untyped_storage()._cdata in storages]

    def _new(self, tensor: Any) -> Any:
        """Return a new fake: of a constant of the graph, or of an input if the tensor needs a gradient."""
        recording = self._recording
        if not isinstance(tensor, torch.Tensor):
            raise unsupported("argument-type", recording.span, type=type(tensor).__name__)
        sizes = {} if is_dynamo_input(tensor) else {"static_shapes": True}  # no call provides a symbol
        fake = to_fake(recording.fake_mode, tensor, **sizes)
        if tensor.requires_grad:
            node = Node(recording.name("outside"), None, (), {}, fake, recording.origin)
            self.inputs.append((node, tensor))
        else:
            node = Node(recording.name("constant"), None, (), {}, fake, recording.origin, constant=tensor)
            recording.nodes.insert(0, node)
        with torch.no_grad():
            alias = recording.new_alias(node)
        self.use(tensor, alias)
        return alias
