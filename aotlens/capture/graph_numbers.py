"""Numbers that Dynamo's graphs read from tensors: a float of the caller's comes in a tensor of no dimensions.

Invariant: a number that Dynamo knows as a symbol is recorded as that symbol, in the functions of higher-order
operators too.
"""

from typing import Any

import torch
from torch import fx

from aotlens.capture.floats import Floats
from aotlens.capture.graph_places import PlacedRunner
from aotlens.ir.origin import Origin


class NumberRunner(PlacedRunner):
    """Runs a graph of Dynamo's; see `aotlens.capture.floats` for a recorder that has `fixed_floats`."""

    def run_node(self, n: fx.Node) -> Any:
        number = self._known_number(n)
        if isinstance(number, torch.SymFloat) and self.recorder.fixed_floats:
            floats = self.recorder.floats = self.recorder.floats or Floats(self.recorder)
            floats.define(number, self.env[n.args[0]])  # type: ignore[index]
            return number
        if number is None:
            return super().run_node(n)
        with self.at(n):
            self.recorder.origin = Origin(self.recorder.origins.here(), "_local_scalar_dense")
            self.recorder.read_number(self.env[n.args[0]], number)  # type: ignore[index]
        return number

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        floats = self.recorder.floats
        return super().output(target, *((args, kwargs) if floats is None else floats.fixed((args, kwargs))))

    def _known_number(self, n: fx.Node) -> Any:
        """The symbol that Dynamo has for a number which the graph reads from a tensor."""
        number = n.meta.get("example_value") if n.target == "item" else None
        if not isinstance(number, (torch.SymFloat, torch.SymInt)):
            return None
        return number if number.node.shape_env is self.recorder.fake_mode.shape_env else None
