"""A Dynamo graph that runs in eager with eager's numbers.

Dynamo captures `torch.utils.checkpoint` as an operator on a subgraph, which recomputes with other random
numbers in eager because it leaves the RNG state to a compiler.  Here the subgraph is checkpointed as the user
wrote it.

Invariant: the captured graph is not changed; a graph without checkpoints is returned unchanged.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils.checkpoint import checkpoint

from aotlens.torch_api.modes import without_modes
from aotlens.torch_api.operators import OpOverload

__all__ = ["SecondWrites", "eager_graph"]

CHECKPOINT = torch.ops.higher_order.tag_activation_checkpoint
CONTEXTS = "_checkpoint_context_fn"
"""The metadata key under which Dynamo stores the user's `context_fn`."""
OPTIONS = frozenset(
    name
    for name, parameter in inspect.signature(checkpoint).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
) | {"use_reentrant", "preserve_rng_state"}
"""Keywords of `checkpoint` that are not the function's own."""
READ_BY_OPERATOR = frozenset({"index", "indexOf", "inv", "invert", "is_", "is_not", "itemgetter"})
"""Functions of Python's `operator` whose names begin with an i although they do not mutate."""


class SecondWrites:
    """Keeps in-place writes of a checkpoint's recomputation from the caller's tensors.

    In eager a checkpointed function runs twice, so batch norm within it counts each batch twice.  Compiled
    code runs it once, as torch.compile does, so comparisons discard the second writes and say so.  Mutable:
    `number` counts the tensors that were protected.
    """

    def __init__(self) -> None:
        self.number = 0

    def once(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` with copies of tensors without gradient as arguments of its second call.

        Version counters do not reveal the mutated ones: batch norm updates its statistics without
        incrementing them.
        """
        has_run = False

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal has_run
            if not has_run:
                has_run = True
                return function(*args, **kwargs)
            with without_modes():  # a selective checkpoint expects the calls of the forward, and no others
                passed = [_copied(arg) for arg in args]
            try:
                return function(*passed, **kwargs)
            finally:  # `checkpoint` raises to end the recomputation, once it has what the backward needs
                with without_modes():
                    changed = [not _is_equal(arg, copy) for arg, copy in zip(args, passed, strict=True)]
                self.number += sum(changed)

        return call


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) and not value.requires_grad else value


def _is_equal(value: Any, copy: Any) -> bool:
    return value is copy or bool(torch.equal(value, copy))


def eager_graph(graph: fx.GraphModule, second_writes: SecondWrites | None = None) -> fx.GraphModule:
    """Return the graph with every checkpoint in it, and in its subgraphs, as in eager.

    With `second_writes`, the recomputation of a checkpoint does not write to the caller's tensors.
    """
    bodies = {
        name: body
        for name, child in graph.named_children()
        if isinstance(child, fx.GraphModule) and (body := eager_graph(child, second_writes)) is not child
    }
    has_checkpoint = any(node.target is CHECKPOINT for node in graph.graph.nodes)
    if not has_checkpoint and not bodies:
        return graph
    nodes = fx.Graph()
    nodes.output(nodes.graph_copy(graph.graph, {}))
    for node in nodes.nodes:
        if node.target is CHECKPOINT:
            node.target = checkpointed if second_writes is None else _without_second_writes(second_writes)
    copied = fx.GraphModule(graph, nodes, graph.__class__.__name__)
    copied.meta.update(graph.meta)
    for name, body in bodies.items():
        setattr(copied, name, body)
    return copied


def _without_second_writes(second_writes: SecondWrites) -> Callable[..., Any]:
    def checkpointed_once(body: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        return _checkpointed(body, second_writes.once(body.forward), args, kwargs)

    return checkpointed_once


def checkpointed(body: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    return _checkpointed(body, body.forward, args, kwargs)


def _checkpointed(
    body: fx.GraphModule, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call `checkpoint` as the user did; `body` is the graph of the checkpointed function.

    `checkpoint` saves its arguments and checks their version counters.  Dynamo turns free variables of the
    function into arguments, such as the batch count of a batch norm, which the function itself increments.
    """
    options = {name: value for name, value in kwargs.items() if name in OPTIONS}
    own = {name: value for name, value in kwargs.items() if name not in OPTIONS}
    if CONTEXTS in body.meta:
        options["context_fn"] = body.meta[CONTEXTS]
    written = _written_inputs(body)
    passed = [arg for index, arg in enumerate(args) if index not in written]

    def forward(*passed: Any, **own: Any) -> Any:
        rest = iter(passed)
        return call(*(arg if index in written else next(rest) for index, arg in enumerate(args)), **own)

    # A reentrant one has the same numbers, but no gradients if no input of the function requires grad.
    return checkpoint(forward, *passed, **{**options, "use_reentrant": False}, **own)


def _written_inputs(body: fx.GraphModule) -> frozenset[int]:
    """Return the inputs that a node of the graph mutates."""
    inputs = [node for node in body.graph.nodes if node.op == "placeholder"]
    written = {node.args[0] for node in body.graph.nodes if node.args and _writes(node)}
    return frozenset(index for index, node in enumerate(inputs) if node in written)


def _writes(node: fx.Node) -> bool:
    """Return True if a node mutates its first argument: `x.add_(1)`, `x += 1`, `aten.add_`."""
    if node.op == "call_method":
        name = str(node.target)
        return name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
    if isinstance(node.target, OpOverload):
        alias = node.target._schema.arguments[0].alias_info
        return alias is not None and alias.is_write
    name = getattr(node.target, "__name__", "")
    if getattr(node.target, "__module__", "") == "_operator":
        return name == "setitem" or (name.startswith("i") and name not in READ_BY_OPERATOR)
    return node.op == "call_function" and name.endswith("_") and not name.endswith("__")
