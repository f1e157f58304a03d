"""Module text and runtime objects for a backward that receives an undefined (None) tangent.

Invariant: a gradient is None exactly where eager's is None.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from aotlens.errors import AotlensError
from aotlens.ir.origin import site_of
from aotlens.ir.program import Program, has_effect
from aotlens.ir.slots import GRADIENTS, SavedInput, Tangent
from aotlens.joint.derivatives import DefinedTangents, partial_gradients
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


BACKWARD_OF_SOME = "backward_of_some"
CompilePartial = Callable[[Program], Callable[[list[Any]], Any]]


class UndefinedTangents:
    """Writes what one target's `backward` does about undefined tangents."""

    def __init__(
        self, builder: TextBuilder, parts: Partitioned, backward: Program, tangents: list[TangentText]
    ) -> None:
        self._builder = builder
        self._parts = parts
        self._backward = backward
        self._tangents = tangents
        """One per output of the forward."""
        self._differentiable = [tangent for tangent in tangents if tangent.differentiable]
        self._received = [tangent for tangent in tangents if tangent.nodes]
        self._lacks_partial = _lacks_partial_backward(parts)
        self._chooses_graph = False
        """Whether the text calls `backward_of_some`."""

    def write_choice(self, graph: str) -> str:
        """Return the name of the graph that runs; `graph` is that of the full backward."""
        conditions = dict[str, str]()
        for source in self._parts.joint.dependence.user_grad_sources:
            read = [tangent for tangent in self._tangents_at(source.tangents) if tangent.nodes]
            if read:
                conditions.setdefault(
                    _all_undefined(read), f"{source.name} may distinguish an undefined tangent from zeros"
                )
        zeros, sites = self._unsafe_zeros()
        reasons = [*dict.fromkeys(conditions.values()), *zeros.values()]
        if zeros:
            any_defined = " or ".join(f"{tangent.parameter} is not None" for tangent in self._received)
            conditions[f"({' or '.join(zeros)}) and ({any_defined})"] = ""
        if not conditions:
            return graph
        self._chooses_graph = True
        with self._builder.step("choose the backward graph", "; ".join(reasons), sites=sites):
            self._builder.add(f"graph = {graph}")
            with self._builder.block(f"if {' or '.join(conditions)}:"):
                defined = ", ".join(f"{tangent.parameter} is not None" for tangent in self._received)
                self._builder.add(f"graph = {BACKWARD_OF_SOME}(({defined},))")
        return "graph"

    def _unsafe_zeros(self) -> tuple[dict[str, str], tuple[Site, ...]]:
        """Return, by their conditions, why zeros would give other gradients; and the user's lines."""
        if len(self._received) < 2 or self._lacks_partial:
            return {}, ()
        reasons, sites = dict[str, str](), list[Site | None]()
        for factor in infinite_factors(self._backward):
            affected = [
                tangent for tangent in self._received if factor.tangents & set(map(id, tangent.nodes))
            ]
            if len(affected) == len(self._received):  # inner tensors of one wrapper are defined together
                continue
            results = ", ".join(f"`{tangent.name}`" for tangent in affected)
            of_what = factor.node.origin.differentiates or factor.node.origin
            reasons[_all_undefined(affected)] = (
                f"zeros for an undefined tangent of {results} would be multiplied by a value that may be"
                f" infinite, in the derivative of `{of_what.op or factor.node.target}`"
            )
            sites.append(site_of(factor.node.origin))
        return reasons, tuple(site for site in sites if site is not None)

    def write_checks(self, wrappers: BackwardWrappers, count: int) -> Conditions:
        """Write the checks of a backward that returns `count` gradients."""
        builder, several = self._builder, len(self._received) > 1
        materialises = self._materialises_zeros()
        if len(self._received) == 1 and not materialises:
            self._write_all_undefined(count)
        conditions = self._defined_conditions()
        named = {
            condition: f"defined_{index}"
            for index, condition in enumerate(dict.fromkeys(conditions.values()))
        }
        with builder.step("materialise zeros", self._reason(several, materialises, conditions)):
            if several and not materialises:
                self._write_all_undefined(count)
            builder.add(*(f"{name} = {condition}" for condition, name in named.items()))
            for index, tangent in enumerate(self._tangents):
                if tangent.nodes and (several or materialises):
                    wrappers.write_zeros(builder, tangent, index)
        return {key: named[condition] for key, condition in conditions.items()}

    def _materialises_zeros(self) -> bool:
        """Return True if eager's backward does something although no tangent is defined."""
        return self._parts.joint.dependence.materialises_zeros or any(map(has_effect, self._backward.nodes))

    def _write_all_undefined(self, count: int) -> None:
        with self._builder.block(f"if {_all_undefined(self._received)}:"):
            self._builder.add(f"return {', '.join(['None'] * count)}")

    def _defined_conditions(self) -> Conditions:
        """Return the condition for each gradient that depends on only some of the received tangents."""
        conditions: Conditions = {}
        for key, indices in self._parts.joint.dependence.tangents.items():
            named = [tangent.parameter for tangent in self._tangents_at(indices) if tangent.nodes]
            if 0 < len(named) < len(self._received):
                conditions[key] = " or ".join(f"{name} is not None" for name in named)
        return conditions

    def _tangents_at(self, indices: Iterable[int]) -> list[TangentText]:
        return [self._differentiable[index] for index in sorted(indices)]

    def _reason(self, several: bool, materialises: bool, conditions: Conditions) -> str:
        if materialises and not several:
            return "a custom function materialises zeros for undefined tangents"
        slots = (out.slot for out in self._backward.outputs if isinstance(out.slot, GRADIENTS))
        names = dict.fromkeys(f"`{slot.name}`" for slot in slots if (type(slot), slot.index) in conditions)
        others = f"; {', '.join(names)} may then be undefined too" if names else ""
        return f"several outputs: some tangents may be undefined{others}"

    def write_error(self, graph: str) -> None:
        """Write what the module does by itself; if aotlens loads it, `PartialBackward` replaces it."""
        if not self._chooses_graph:
            return
        reason = _recording_obstacle(self._parts)
        self._builder.add("", "")
        with self._builder.block(f"def {BACKWARD_OF_SOME}(defined):"):
            if not self._parts.joint.dependence.user_grad_sources:
                _write_zeros_instead(self._builder, self._parts, graph)
                return
            if reason is None:
                self._builder.add(
                    "# records the backward of the defined tangents; bound when aotlens loads this module"
                )
            message = no_partial_backward_error(self._parts, reason or "the recording is not available")
            self._builder.add(f"raise RuntimeError({message!r})")

    def partial_backward(self, compile_other: CompilePartial | None) -> "PartialBackward | None":
        """Return what replaces the written function; None if the text does not call it, or keeps its error.

        `compile_other` compiles a graph by the backend; None where a program's own text runs.
        """
        if not self._chooses_graph or self._lacks_partial:
            return None
        return PartialBackward(self._parts, self._backward, self._received, compile_other)


def _all_undefined(tangents: list[TangentText]) -> str:
    return " and ".join(f"{tangent.parameter} is None" for tangent in tangents)


def _recording_obstacle(parts: Partitioned) -> str | None:
    """Return why a backward for some tangents is not recorded; None if it is."""
    if parts.backward is not None and any(map(has_effect, parts.backward.nodes)):
        return "its backward has an effect"
    return rerecord_obstacle(parts)


def _lacks_partial_backward(parts: Partitioned) -> bool:
    """Return True if user code sees undefined tangents, and the backward cannot be recorded with some."""
    return bool(parts.joint.dependence.user_grad_sources) and _recording_obstacle(parts) is not None


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

    def __init__(
        self,
        parts: Partitioned,
        backward: Program,
        received: list[TangentText],
        compile_other: CompilePartial | None,
    ) -> None:
        self._parts = parts
        self._backward = backward
        self._received = received
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
            return self._from_full_backward(defined)
        try:
            return self._from_recording(defined)
        except AotlensError as error:
            raise RuntimeError(no_partial_backward_error(self._parts, str(error))) from error

    def _from_full_backward(self, defined: DefinedTangents) -> PartialBackwardGraph:
        """Return the part of the backward that the defined tangents need, compiled by the backend."""
        missing, defined_indices = set[int](), set[int]()
        for tangent, is_defined in zip(self._received, defined, strict=True):
            if is_defined:
                defined_indices.add(tangent.index)
            else:
                missing |= set(map(id, tangent.nodes))
        dependence = self._parts.joint.dependence.tangents
        program = without_tangents(
            self._backward,
            missing,
            lambda slot: bool(defined_indices & dependence.get((type(slot), slot.index), set())),
        )
        compile_other = self._compile
        run = runnable_graph(compile_other(program)) if compile_other else load_program(program, boxed=True)
        return PartialBackwardGraph(defined, run)

    def _from_recording(self, defined: DefinedTangents) -> PartialBackwardGraph:
        """Return a backward recorded anew for the defined tangents, since user code depends on them."""
        gradients = partial_gradients(self._parts.joint, defined)
        slots = [out.slot for out in self._backward.outputs if isinstance(out.slot, GRADIENTS)]
        inputs = recorded_inputs(self._parts)
        saved = [item.node for item in inputs if isinstance(item.slot, SavedInput)]
        tangents = [item.node for item in inputs if isinstance(item.slot, Tangent)]
        assert len(slots) == len(gradients)  # one per wanted input: `rerecord_obstacle` excludes all else
        program = derivative_program(self._parts, BACKWARD_OF_SOME, tangents, gradients, saved)
        reads, run = positions_read(program, [item.node for item in inputs]), load_program(program)

        def graph(values: list[Any]) -> Any:
            arguments = [values[index] for index in reads]
            values.clear()
            return run(*arguments)

        return PartialBackwardGraph(defined, graph)
