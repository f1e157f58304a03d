"""Double backward: the gradients as differentiable functions of the inputs and of the incoming gradients.

The user's function runs once more, uncompiled, on the inputs of the call, and autograd differentiates it
with a graph of its own.  Invariant: nothing is kept alive for it that the call would not keep alive anyway;
an input that is gone or has changed by then is refused by name, never taken at another value.
"""

import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch

from aotlens.analysis.records import MutationType
from aotlens.capture.owned import call_on, module_tensors
from aotlens.capture.records import CapturedInput
from aotlens.codegen.records import GraphCode
from aotlens.ir.program import draws
from aotlens.ir.render import Names
from aotlens.ir.slots import Buffer, Gradient, OutsideTensor, Parameter, SavedInput, UserOutput
from aotlens.partition.records import Partitioned
from aotlens.runtime.backward_writes import written_in_backward
from aotlens.runtime.builder import TextBuilder
from aotlens.runtime.graphs import call_graph, graph_context
from aotlens.runtime.leaves import made_leaves
from aotlens.runtime.subclass_backward import BackwardWrappers
from aotlens.torch_api import pytree

BOUND_NAME = "differentiable_backward"


def why_not(parts: Partitioned) -> str | None:
    """What keeps the function from being differentiated twice; None when nothing does."""
    joint = parts.joint
    if any(info.mutation_type is not MutationType.NOT_MUTATED for info in joint.meta.inputs):
        return "it writes to an input"
    if written_in_backward(parts.backward):
        return "its backward writes to an input"
    wanted = [out for out, needed in zip(joint.forward_outputs, joint.differentiable, strict=True) if needed]
    if not all(isinstance(out.slot, UserOutput) for out in wanted):
        return "its results are views of a hidden result"
    if any(isinstance(given.slot, OutsideTensor) and given.requires_grad for given in joint.captured.inputs):
        return "it reads a tensor that requires grad and is no argument"
    if made_leaves(parts):
        return "it makes a tensor require grad itself"
    if any(draws(node.op) for node in parts.forward.nodes):
        return "it draws random numbers"
    wrapped = any(given.wrapped is not None for given in joint.captured.inputs)
    if wrapped or joint.wrapped_gradients or any(joint.wrapped_tangents):
        return "it takes or gives a tensor subclass"
    return None


def unsaved_inputs(parts: Partitioned) -> list[CapturedInput]:
    """Graph inputs that the backward does not get from the forward, and that a second derivative needs."""
    assert parts.backward is not None  # asked in training only
    saved = {id(given.node) for given in parts.backward.inputs if isinstance(given.slot, SavedInput)}
    return [
        given
        for given in parts.joint.captured.inputs
        if given.node is not None and given.duplicate_of is None and id(given.node) not in saved
    ]


def write_kept(builder: TextBuilder, parts: Partitioned, names: Names) -> None:
    """In `forward`: how a second derivative finds the inputs that are not saved."""
    if why_not(parts) is not None:
        return
    unsaved = unsaved_inputs(parts)
    tensors = [names.node(given.node) for given in unsaved if given.node is not None and given.is_tensor]
    if not unsaved:
        return
    kept = ", ".join(_reference(given, names) for given in unsaved)
    builder.add(f"ctx.unsaved = ({kept},)")
    builder.add(f"ctx.version = {' + '.join(f'{name}._version' for name in tensors) or '0'}")


def _reference(given: CapturedInput, names: Names) -> str:
    name = names.node(given.node) if given.node is not None else ""
    held = isinstance(given.slot, (Parameter, Buffer, OutsideTensor)) or not given.is_tensor
    return name if held else f"weakref.ref({name})"


def needs_weakref(parts: Partitioned) -> bool:
    if parts.backward is None or why_not(parts) is not None:
        return False
    return any(
        given.is_tensor and not isinstance(given.slot, (Parameter, Buffer, OutsideTensor))
        for given in unsaved_inputs(parts)
    )


def double_call(parts: Partitioned, code: GraphCode, names: Names, also_seen: list[str]) -> str:
    """The expression that gives the gradients where they are to be differentiated again.

    What is `also_seen` by autograd are the wrappers, of which the graph gets the tensors inside.
    """
    program = code.program
    arguments = [names.node(given.node) for given in program.inputs]
    if why_not(parts) is not None:
        differentiable = "torch.empty(0, requires_grad=True)"  # what is saved may carry no history itself
        return f"DoubleBackward.apply({', '.join([*arguments, differentiable, *also_seen])})"
    flat = {id(given.node) for given in parts.joint.captured.inputs if given.node is not None}
    saved = [name for name, given in zip(arguments, program.inputs, strict=True) if id(given.node) in flat]
    tangents = [
        name
        for name, given in zip(arguments, program.inputs, strict=True)
        if not isinstance(given.slot, SavedInput)
    ]
    unsaved = "ctx.unsaved, ctx.version" if unsaved_inputs(parts) else "(), 0"
    return f"{BOUND_NAME}({_tuple(saved)}, {unsaved}, {_tuple(tangents)})"


def _tuple(names: Sequence[str]) -> str:
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def write_double(builder: TextBuilder, parts: Partitioned, code: GraphCode, names: Names) -> None:
    """`differentiable_backward` where it can be made, or `DoubleBackward`, which refuses by name."""
    name, reason = parts.joint.captured.subject.name, why_not(parts)
    builder.add("", "")
    if reason is None:
        with builder.block(f"def {BOUND_NAME}(saved, unsaved, version, tangents):"):
            builder.add("# runs the original function once more; bound where aotlens loads this module")
            builder.add(f"raise RuntimeError({_refusal(name, 'the original function is not at hand')!r})")
        return
    arguments = [f"inputs[{at}]" for at in range(len(code.program.inputs))]
    with builder.block("class DoubleBackward(torch.autograd.Function):"):
        builder.add("@staticmethod")
        with builder.block("def forward(ctx, *inputs):"), builder.block(graph_context(parts)):
            wrappers = BackwardWrappers(parts, names)
            wrappers.read_symbols(builder, "inputs[-1]")
            builder.add(f"return tuple({wrappers.wrapped_call(call_graph(code, arguments))})")
        builder.add("", "@staticmethod")
        with builder.block("def backward(ctx, *gradients):"):
            builder.add(f"raise RuntimeError({_refusal(name, reason)!r})")


def _refusal(name: str, reason: str) -> str:
    return (
        f"the compiled backward of `{name}` was itself differentiated (double backward), which is "
        f"not supported here: {reason}; call the function uncompiled where second derivatives are needed"
    )


class DifferentiableBackward:
    """What `differentiable_backward` of a loaded module is bound to; it keeps nothing of the recording."""

    def __init__(self, parts: Partitioned) -> None:
        assert parts.backward is not None  # made in training only
        joint, captured = parts.joint, parts.joint.captured
        place = {id(given.node): at for at, given in enumerate(captured.inputs) if given.node is not None}
        self._name, self._names = captured.subject.name, [given.slot.name for given in captured.inputs]
        self._function: Any = captured.subject.function
        self._spec, self._autocast = captured.structure.arguments, captured.modes.autocast
        self._plain = [None if given.node is not None else given.argument for given in captured.inputs]
        self._same = {
            at: g.duplicate_of for at, g in enumerate(captured.inputs) if g.duplicate_of is not None
        }
        self._saved = [place[id(given.node)] for given in parts.backward.inputs if id(given.node) in place]
        self._unsaved = [place[id(given.node)] for given in unsaved_inputs(parts)]
        self._wanted = [out.slot.index for out in parts.backward.outputs if isinstance(out.slot, Gradient)]
        self._results = [
            out.slot.index
            for out, needed in zip(joint.forward_outputs, joint.differentiable, strict=True)
            if needed and isinstance(out.slot, UserOutput)
        ]
        self._training = self._training_modes()

    def __call__(self, saved: tuple[Any, ...], unsaved: tuple[Any, ...], version: int, tangents: Any) -> Any:
        """The gradients, in the backward's order, as part of autograd's graph."""
        flat = self._inputs(saved, unsaved, version)
        if self._training_modes() != self._training:
            raise RuntimeError(_refusal(self._name, "the module went between train and eval since"))
        with ExitStack() as stack:
            stack.enter_context(torch.enable_grad())
            for kind, enabled, dtype in self._autocast:
                if enabled:
                    stack.enter_context(torch.autocast(kind, dtype))
            fresh = [_alone(value) for value in flat]
            leaves = pytree.tree_leaves(self._run(fresh), is_leaf=lambda leaf: leaf is None)
        outputs = [leaves[index] for index in self._results]
        wanted = [fresh[index] for index in self._wanted]
        return torch.autograd.grad(outputs, wanted, tangents, create_graph=True, allow_unused=True)

    def _inputs(self, saved: tuple[Any, ...], unsaved: tuple[Any, ...], version: int) -> list[Any]:
        """The call's flat inputs, as they were."""
        flat = list(self._plain)
        for index, value in zip(self._saved, saved, strict=True):
            flat[index] = value
        now = 0
        for index, kept in zip(self._unsaved, unsaved, strict=True):
            value = kept() if isinstance(kept, weakref.ref) else kept
            if value is None:
                reason = f"the input `{self._names[index]}` is gone; keep it until then"
                raise RuntimeError(_refusal(self._name, reason))
            now += value._version if isinstance(value, torch.Tensor) else 0
            flat[index] = value
        if now != version:
            raise RuntimeError(_refusal(self._name, "an input was written to since the call"))
        for index, first in self._same.items():
            flat[index] = flat[first]
        return flat

    def _run(self, flat: list[Any]) -> Any:
        if self._spec is None:
            return self._function(*flat)
        owned = list(module_tensors(self._function))
        args, kwargs = pytree.tree_unflatten(flat[len(owned) :][: self._spec.num_leaves], self._spec)
        if not owned:
            return self._function(*args, **kwargs)
        return call_on(self._function, dict(zip(owned, flat, strict=False)), args, kwargs)

    def _training_modes(self) -> tuple[bool, ...]:
        if not isinstance(self._function, torch.nn.Module):
            return ()
        return tuple(module.training for module in self._function.modules())


def _alone(value: Any) -> Any:
    """The value as a tensor of its own in the tape: only this function's use of it is differentiated."""
    return value.view_as(value) if isinstance(value, torch.Tensor) and value.requires_grad else value
