"""The recording as a dispatch mode: what the handlers of operators use of the recorder.

A handler runs operators on the recording again (`with recorder:`), decomposes them, and records the functions
of a higher-order operator.  The recorder itself (`aotlens.capture.recorder`) looks its handlers up, so they
know it by this class.
"""

from typing import Any

import torch

from aotlens.capture.graph import Recording
from aotlens.capture.operators import Decompositions, Kind, aten, describe
from aotlens.capture.rng.random_op_rules import apply_rule
from aotlens.capture.rng.rng_state import RecordedRngState
from aotlens.capture.torchbind import FakeObjects
from aotlens.ir.program import Node, nodes_in
from aotlens.torch_api.fake.tensors import FakeTensorMode
from aotlens.torch_api.modes import TorchDispatchMode


class RecordingMode(Recording, TorchDispatchMode):
    """A recording on which operators run."""

    supports_higher_order_operators = True

    def __init__(self, fake_mode: FakeTensorMode, decompositions: Decompositions) -> None:
        Recording.__init__(self, fake_mode)
        TorchDispatchMode.__init__(self)
        self.random, self.torchbind = RecordedRngState(self), FakeObjects(self)
        self.decompositions = decompositions
        self.decomposed = False
        """Whether any operator was decomposed."""
        self.default_dtype = torch.get_default_dtype()
        self.notes_views = False
        """Whether views are noted although inference mode decomposes no operator."""

    def subgraph_recorder(self) -> "RecordingMode":
        """Return a recorder for a subgraph of the running operator.

        It has the names, the settings that hold for the whole graph, and the origin of this call.
        """
        raise NotImplementedError

    def decomposed_node(
        self, op: Any, values: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if op not in self.decompositions:
            return None
        bound = [self._bind(value, arg) for value, arg in zip(values, args, strict=True)]
        with self.inside_operator(self.origin), self:
            result = apply_rule(self.decompositions[op], self.random.functional, bound, kwargs)
        if result is NotImplemented:
            return None
        self.decomposed = True
        node = self._nodes(result)
        arg_ids = {id(arg) for arg in nodes_in(args)}
        if type(node) is Node and id(node) in arg_ids and describe(op).kind is not Kind.VIEW:
            return self.emit(aten.clone.default, node)
        return node

    def _bind(self, value: Any, arg: Any) -> Any:
        """Return a new tensor for a node, so that a decomposition can run on it."""
        if type(arg) is Node and isinstance(value, torch.Tensor):
            return self.new_alias(arg)
        if type(arg) in (list, tuple):
            return [self._bind(v, a) for v, a in zip(value, arg, strict=True)]
        return value
