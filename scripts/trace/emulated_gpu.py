"""Let torch.compile compile whole programs for a GPU that is not here, as if each kernel had run.

Promise: the compiler is torch's own.  Replaced are the launch of generated code, by the graph that it was
made of, and autograd's engine, which would open a stream of the GPU: its nodes are called one by one.
"""

import copy
import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

__all__ = ["emulated_gpu"]


@contextmanager
def emulated_gpu(name: str) -> Iterator[None]:
    """Within the context, programs see the GPU of that name, and tensors have no memory."""
    import torch
    from torch._inductor import compile_fx, config
    from torch._subclasses import FakeTensorMode

    from aotlens.codegen.gpu.offline.context import offline_gpu
    from aotlens.model.gpus.names import find_target

    inner_compile = partial(_without_launch, compile_fx.compile_fx_inner)
    with ExitStack() as stack:
        stack.enter_context(offline_gpu(find_target(name)))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(config.patch(joint_graph_constant_folding=False))  # computes them on the device
        compile_program = partial(compile_fx.compile_fx, inner_compile=inner_compile)
        stack.enter_context(patch.object(compile_fx, "compile_fx", compile_program))
        stack.enter_context(patch.object(torch.autograd, "grad", _grad))
        stack.enter_context(patch.object(torch.autograd, "backward", _backward))
        keeps_graph = "_get_current_graph_task_keep_graph"  # donated buffers ask the engine
        stack.enter_context(patch.object(torch._C._autograd, keeps_graph, lambda: False))
        yield


def _without_launch(compile_inner: Callable[..., Any], module: Any, inputs: Any, **options: Any) -> Any:
    """Return Inductor's generated code, which runs the graph that it was made of in place of its kernels."""
    import torch

    graph = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    code = compile_inner(module, inputs, **options)

    def run(arguments: list[Any]) -> Any:
        values = tuple(arguments)
        arguments.clear()
        return torch.fx.Interpreter(graph).run(*values)

    code.current_callable = run
    return code


def _grad(outputs: Any, inputs: Any, grad_outputs: Any = None, *_: Any, **__: Any) -> tuple[Any, ...]:
    """`torch.autograd.grad`: None for an input that no output depends on."""
    wanted = [_edge(tensor) for tensor in (inputs if isinstance(inputs, Sequence) else (inputs,))]
    sums = _run(outputs, grad_outputs, {node for node, _ in wanted})
    return tuple(sums[node].get(slot) for node, slot in wanted)


def _backward(tensors: Any, grad_tensors: Any = None, *_: Any, **__: Any) -> None:
    """`torch.autograd.backward`: adds to the gradients of the leaves."""
    for node, grads in _run(tensors, grad_tensors, None).items():
        if _is_leaf(node):
            leaf = node.variable
            leaf.grad = grads[0] if leaf.grad is None else leaf.grad + grads[0]


def _run(outputs: Any, grads: Any, wanted: set[Any] | None) -> dict[Any, dict[int, Any]]:
    """Call the nodes between the outputs and the wanted nodes, by default the leaves, the latest first.

    Returns the gradients that arrived, by node and position.
    """
    import torch
    from torch.fx import traceback

    outputs = outputs if isinstance(outputs, Sequence) else (outputs,)
    grads = [None] * len(outputs) if grads is None else grads if isinstance(grads, Sequence) else (grads,)
    sums: dict[Any, dict[int, Any]] = defaultdict(dict)
    queue: list[tuple[int, int, Any]] = []

    def give(edge: tuple[Any, int], grad: Any) -> None:
        node, slot = edge
        if node is None or grad is None:
            return
        metadata = node._input_metadata[slot]  # the engine sums over broadcast dimensions, and casts
        if grad.shape != metadata.shape:
            grad = grad.sum_to_size(metadata.shape)
        grad = grad.to(metadata.dtype)
        if node not in sums and node in called:
            heapq.heappush(queue, (-node._sequence_nr(), len(sums), node))
        sums[node][slot] = grad if slot not in sums[node] else sums[node][slot] + grad

    called = _between([_edge(output)[0] for output in outputs], wanted)
    with torch.no_grad():
        for output, grad in zip(outputs, grads, strict=True):
            give(_edge(output), torch.ones_like(output) if grad is None else grad)
        while queue:
            node = heapq.heappop(queue)[2]
            stack = node.metadata.get("traceback_", [])  # of the forward; torch's hooks on nodes set it
            traceback.set_stack_trace(stack)
            traceback.set_grad_fn_seq_nr(node._sequence_nr())
            traceback._mark_autograd_backward()
            made = _call(node, [sums[node].get(slot) for slot in range(len(node._input_metadata))])
            traceback.set_stack_trace([*stack, traceback.GRADIENT_ACC_SPECIAL_STACK])
            traceback.reset_grad_fn_seq_nr()
            traceback._reset_autograd_backward()
            for edge, grad in zip(node.next_functions, made, strict=False):
                give(edge, grad)
    return sums


def _between(roots: Sequence[Any], wanted: set[Any] | None) -> set[Any]:
    """Return the nodes from which a wanted node can be reached; the others are not called."""
    order: list[Any] = []
    seen: set[Any] = set()
    todo = [(root, False) for root in roots]
    while todo:
        node, is_left = todo.pop()
        if is_left:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            todo += [(node, True), *((below, False) for below, _ in node.next_functions if below is not None)]
    called: set[Any] = set()
    for node in order:
        below = [each for each, _ in node.next_functions if each is not None]
        if any(each in called or (_is_leaf(each) if wanted is None else each in wanted) for each in below):
            called.add(node)
    return called


def _edge(tensor: Any) -> tuple[Any, int]:
    """Return the edge through which gradients of the tensor arrive."""
    import torch

    edge = torch.autograd.graph.get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def _is_leaf(node: Any) -> bool:
    return hasattr(node, "variable")


def _call(node: Any, grads: list[Any]) -> Sequence[Any]:
    import torch

    is_python = isinstance(node, torch.autograd.function.BackwardCFunction)
    made = node.apply(*grads) if is_python else node(*grads)
    return made if isinstance(made, tuple) else (made,)
