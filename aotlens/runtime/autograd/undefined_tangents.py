"""Module text and runtime objects for a backward that receives an undefined (None) tangent.

Invariant: a gradient is None exactly where eager's is None.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aotlens.errors import AotlensError
from aotlens.ir.origin import site_of
from aotlens.ir.program import Program, has_effect
from aotlens.ir.slots import GRADIENTS, SavedInput, Tangent
from aotlens.joint.partial_backward import DefinedTangents, partial_gradients
from aotlens.model.report import Site
from aotlens.partition.derivatives import derivative_program, positions_read, recorded_inputs
from aotlens.partition.records import Partitioned
from aotlens.partition.undefined_tangents import infinite_factors, without_tangents
from aotlens.runtime.autograd.double_backward import rerecord_obstacle
from aotlens.runtime.autograd.tangents import BackwardWrappers, TangentText
from aotlens.runtime.graph_text import load_program, runnable_graph
from aotlens.runtime.module_text import TextBuilder
from aotlens.torch_api.modes import hidden_from_user_modes

Conditions = dict[tuple[type, int], str]
"""By the class of a gradient's slot and its index: the name of its condition; none if always defined."""


def write_undefined_checks(
    builder: TextBuilder,
    parts: Partitioned,
    wrappers: BackwardWrappers,
    tangents: list[TangentText],
    count: int,
) -> Conditions:
    """Write the checks of a backward that takes one tangent per output and returns `count` gradients."""
    received = [tangent for tangent in tangents if tangent.nodes]
    several, fills = len(received) > 1, _materialises_zeros(parts)
    if len(received) == 1 and not fills:
        _write_all_undefined(builder, received, count)
    conditions = _defined_conditions(
        parts, [tangent for tangent in tangents if tangent.differentiable], len(received)
    )
    named = {
        condition: f"defined_{index}" for index, condition in enumerate(dict.fromkeys(conditions.values()))
    }
    with builder.step("materialise zeros", _reason(parts, several, fills, conditions)):
        if several and not fills:
            _write_all_undefined(builder, received, count)
        builder.add(*(f"{name} = {condition}" for condition, name in named.items()))
        for index, tangent in enumerate(tangents):
            if tangent.nodes and (several or fills):
                wrappers.write_zeros(builder, tangent, index)
    return {key: named[condition] for key, condition in conditions.items()}


def _materialises_zeros(parts: Partitioned) -> bool:
    """Return True if eager's backward does something although no tangent is defined."""
    assert parts.backward is not None  # written for training only
    return parts.joint.dependence.materialises_zeros or any(map(has_effect, parts.backward.nodes))


def _write_all_undefined(builder: TextBuilder, received: list[TangentText], count: int) -> None:
    with builder.block(f"if {_all_undefined(received)}:"):
        builder.add(f"return {', '.join(['None'] * count)}")


def _defined_conditions(parts: Partitioned, tangents: list[TangentText], received: int) -> Conditions:
    """Return the condition for each gradient that depends on only some of the received tangents."""
    conditions: Conditions = {}
    for key, indices in parts.joint.dependence.tangents.items():
        named = [tangents[index].parameter for index in sorted(indices) if tangents[index].nodes]
        if 0 < len(named) < received:
            conditions[key] = " or ".join(f"{name} is not None" for name in named)
    return conditions


def _reason(parts: Partitioned, several: bool, fills: bool, conditions: Conditions) -> str:
    assert parts.backward is not None  # written for training only
    if fills and not several:
        return "a custom function materialises zeros for undefined tangents"
    slots = (out.slot for out in parts.backward.outputs if isinstance(out.slot, GRADIENTS))
    names = dict.fromkeys(f"`{slot.name}`" for slot in slots if (type(slot), slot.index) in conditions)
    others = f"; {', '.join(names)} may then be undefined too" if names else ""
    return f"several outputs: some tangents may be undefined{others}"


BOUND_NAME = "backward_of_some"
CompilePartial = Callable[[Program], Callable[[list[Any]], Any]]


def _recording_obstacle(parts: Partitioned) -> str | None:
    """Return why a backward for some tangents is not recorded; None if it is."""
    if parts.backward is not None and any(map(has_effect, parts.backward.nodes)):
        return "its backward has an effect"
    return rerecord_obstacle(parts)


def write_choice(builder: TextBuilder, parts: Partitioned, tangents: list[TangentText], graph: str) -> str:
    """Return the name of the graph that runs; `graph` is that of the full backward."""
    differentiable = [tangent for tangent in tangents if tangent.differentiable]
    received = [tangent for tangent in differentiable if tangent.nodes]
    conditions = dict[str, str]()
    for source in parts.joint.dependence.user_grad_sources:
        read = [differentiable[index] for index in sorted(source.tangents) if differentiable[index].nodes]
        if read:
            conditions.setdefault(
                _all_undefined(read), f"{source.name} may distinguish an undefined tangent from zeros"
            )
    zeros, sites = _unsafe_zeros(parts, received)
    reasons = [*dict.fromkeys(conditions.values()), *zeros.values()]
    if zeros:
        any_defined = " or ".join(f"{tangent.parameter} is not None" for tangent in received)
        conditions[f"({' or '.join(zeros)}) and ({any_defined})"] = ""
    if not conditions:
        return graph
    with builder.step("choose the backward graph", "; ".join(reasons), sites=sites):
        builder.add(f"graph = {graph}")
        with builder.block(f"if {' or '.join(conditions)}:"):
            defined = ", ".join(f"{tangent.parameter} is not None" for tangent in received)
            builder.add(f"graph = {BOUND_NAME}(({defined},))")
    return "graph"


def _all_undefined(tangents: list[TangentText]) -> str:
    return " and ".join(f"{tangent.parameter} is None" for tangent in tangents)


def _unsafe_zeros(parts: Partitioned, received: list[TangentText]) -> tuple[dict[str, str], tuple[Site, ...]]:
    """Return, by their conditions, why zeros would give other gradients; and the user's lines."""
    if (
        parts.backward is None
        or len(received) < 2
        or (parts.joint.dependence.user_grad_sources and _recording_obstacle(parts) is not None)
    ):
        return {}, ()
    reasons, sites = dict[str, str](), list[Site | None]()
    for slope in infinite_factors(parts.backward):
        affected = [tangent for tangent in received if slope.tangents & set(map(id, tangent.nodes))]
        if len(affected) == len(received):  # the inner tensors of one wrapper are defined together
            continue
        results = ", ".join(f"`{tangent.name}`" for tangent in affected)
        of_what = slope.node.origin.differentiates or slope.node.origin
        reasons[_all_undefined(affected)] = (
            f"zeros for an undefined tangent of {results} would be multiplied by a value that may be"
            f" infinite, in the derivative of `{of_what.op or slope.node.target}`"
        )
        sites.append(site_of(slope.node.origin))
    return reasons, tuple(site for site in sites if site is not None)


def may_run_partial_backward(builder: TextBuilder) -> bool:
    """Return True if the backward may be one for some of the tangents."""
    return any(f"graph = {BOUND_NAME}(" in line for line in builder.lines)


def needs_partial_backward(builder: TextBuilder, parts: Partitioned) -> bool:
    """Return True if the module is bound to a `PartialBackward`."""
    return may_run_partial_backward(builder) and not (
        parts.joint.dependence.user_grad_sources and _recording_obstacle(parts) is not None
    )


def write_undefined_error(builder: TextBuilder, parts: Partitioned, graph: str) -> None:
    """Write what the module does by itself; if aotlens loads it, `PartialBackward` replaces it."""
    if not may_run_partial_backward(builder):
        return
    reason = _recording_obstacle(parts)
    builder.add("", "")
    with builder.block(f"def {BOUND_NAME}(defined):"):
        if not parts.joint.dependence.user_grad_sources:
            _write_zeros_instead(builder, parts, graph)
            return
        if reason is None:
            builder.add(
                "# records the backward of the defined tangents; bound when aotlens loads this module"
            )
        message = no_partial_backward_error(parts, reason or "the recording is not available")
        builder.add(f"raise RuntimeError({message!r})")


def _write_zeros_instead(builder: TextBuilder, parts: Partitioned, graph: str) -> None:
    """Write a backward with zeros for undefined tangents, which is valid if no zero meets an infinity."""
    builder.add("# skips undefined tangents; bound when aotlens loads this module, otherwise uses zeros")
    with builder.block("def of_zeros(inputs):"):
        builder.add(f"gradients = {graph}(inputs)")
        has_nan = "any(torch.is_tensor(gradient) and gradient.isnan().any() for gradient in gradients)"
        message = (
            f"the backward of `{parts.joint.captured.subject.name}` was run with undefined tangents:"
            " zeros for them give nan, which eager may not; differentiate all outputs, or call the"
            " function where aotlens compiles it"
        )
        builder.raise_if(has_nan, "RuntimeError", message)
        builder.add("return gradients")
    builder.add("return of_zeros")


def no_partial_backward_error(parts: Partitioned, reason: str) -> str:
    names = ", ".join(dict.fromkeys(source.name for source in parts.joint.dependence.user_grad_sources))
    return (
        f"the backward of `{parts.joint.captured.subject.name}` was run with undefined tangents, which"
        f" {names} may distinguish from zeros, and is not supported here: {reason}; differentiate all"
        " outputs, or call the function uncompiled"
    )


@dataclass(frozen=True, slots=True)
class PartialBackwardGraph:
    """Replaces the backward's graph."""

    defined: DefinedTangents
    run: Callable[[list[Any]], Any]

    def __call__(self, inputs: list[Any]) -> Any:
        return self.run(inputs)


class PartialBackward:
    """Makes graphs that replace the backward's, one for each set of defined tangents."""

    def __init__(self, parts: Partitioned, compile_other: CompilePartial | None) -> None:
        self._parts = parts
        self._compile = compile_other
        self._graphs: dict[DefinedTangents, PartialBackwardGraph] = {}
        self.records = bool(parts.joint.dependence.user_grad_sources)
        """Whether the backward is recorded anew, instead of derived from the full one."""

    def __call__(self, defined: DefinedTangents) -> PartialBackwardGraph:
        """Return a graph that takes the backward's inputs, in one list that it empties, and returns its
        outputs.

        Raises:
            RuntimeError: it cannot be recorded, or needs what the backward does not save.
        """
        graph = self._graphs.get(defined)
        if graph is None:
            with hidden_from_user_modes("partial backward"):
                graph = self._graphs[defined] = self._make(defined)
        return graph

    def _make(self, defined: DefinedTangents) -> PartialBackwardGraph:
        if not self.records:
            return self._by_backend(defined)
        try:
            return self._by_recording(defined)
        except AotlensError as error:
            raise RuntimeError(no_partial_backward_error(self._parts, str(error))) from error

    def _by_backend(self, defined: DefinedTangents) -> PartialBackwardGraph:
        """Return the part of the backward that the defined tangents need, compiled by the backend."""
        backward, joint = self._parts.backward, self._parts.joint
        assert backward is not None  # written for training only
        nodes = (graph_input.node for graph_input in backward.inputs_of(Tangent))
        received = [
            index for index in range(len(joint.wrapped_tangents)) if index not in joint.failing_tangents
        ]
        missing, defined_indices = set[int](), set[int]()
        for index, is_defined in zip(received, defined, strict=True):
            wrapped = joint.wrapped_tangents[index]
            inner_nodes = [next(nodes) for _ in (wrapped.nodes() if wrapped is not None else (None,))]
            if is_defined:
                defined_indices.add(index)
            else:
                missing |= set(map(id, inner_nodes))
        dependence = joint.dependence.tangents
        program = without_tangents(
            backward,
            missing,
            lambda slot: bool(defined_indices & dependence.get((type(slot), slot.index), set())),
        )
        compile_other = self._compile
        run = runnable_graph(compile_other(program)) if compile_other else load_program(program, boxed=True)
        return PartialBackwardGraph(defined, run)

    def _by_recording(self, defined: DefinedTangents) -> PartialBackwardGraph:
        """Return a backward recorded anew for the defined tangents, since user code depends on them."""
        backward, joint = self._parts.backward, self._parts.joint
        assert backward is not None  # written for training only
        gradients = partial_gradients(joint, defined)
        slots = [out.slot for out in backward.outputs if isinstance(out.slot, GRADIENTS)]
        inputs = recorded_inputs(self._parts)
        saved = [item.node for item in inputs if isinstance(item.slot, SavedInput)]
        tangents = [item.node for item in inputs if isinstance(item.slot, Tangent)]
        assert len(slots) == len(gradients)  # one per wanted input: `rerecord_obstacle` excludes all else
        program = derivative_program(self._parts, BOUND_NAME, tangents, gradients, saved)
        reads, run = positions_read(program, [item.node for item in inputs]), load_program(program)

        def graph(values: list[Any]) -> Any:
            arguments = [values[index] for index in reads]
            values.clear()
            return run(*arguments)

        return PartialBackwardGraph(defined, graph)
