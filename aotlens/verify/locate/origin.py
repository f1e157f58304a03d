"""Find where a difference from eager begins: the first stage, the first node, and the user's line.

Every stage is replayed on the arguments that showed the difference.  If all stages agree with each other, the
stage that first computes the wrong fact is to blame: the recording for values, the joint program for
gradients, the wrapper for what no graph contains (aliasing, strides, version counters).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from aotlens.build.programs import StageProgram
from aotlens.compiled import Compiled
from aotlens.model.report import Span
from aotlens.model.spans import location, text_of
from aotlens.options import CompileOptions, Compilers
from aotlens.verify.compare import Difference
from aotlens.verify.locate.backend_nodes import first_wrong_backend_node
from aotlens.verify.locate.eager_operators import first_differing_operator, operators_of
from aotlens.verify.locate.gradient_nodes import first_wrong_gradient
from aotlens.verify.locate.nodes import WrongNode, differs, first_wrong_node, play
from aotlens.verify.locate.stage_call import WRAPPER
from aotlens.verify.locate.stage_inputs import AFTER, GENERATED, InputCopies, StageResult, copies_by_name
from aotlens.verify.locate.stages import compare_stages, replay_stages, stage_tangents
from aotlens.verify.observe import Observation
from aotlens.verify.tensors.values import error_between, preview_values

IN_THE_RECORDING = frozenset({"value", "mutation", "dtype", "shape", "structure", "random state"})
EAGER = "eager"


@dataclass(frozen=True, slots=True)
class Located:
    """The first stage that differs from the one before."""

    stage: str
    before: str
    what: str
    """The output, mutated input or gradient that differs."""
    wrong: WrongNode | None = None
    """The first node; None if the whole stage is meant."""
    span: Span | None = None
    """The user's expression, if it is known without a node."""

    def lines(self) -> str:
        """Return lines for the user: the stage, the node with its values, and its source expression."""
        other = f"{self.what} is not what {self.before} gives"
        shown = [f"the first stage that differs is {_stage(self.stage)}: {other}"]
        span = self.span
        if self.wrong is not None:
            node, span = self.wrong.node, self.wrong.node.origin.location.innermost or span
            shown.append(
                f"its first node that differs is `{node.name}` ({node.target}): {_values(self.wrong)}"
            )
        if span is not None:
            shown.append(f"{location(span)}: {text_of(span)}")
        return "\n".join(shown)


def _stage(name: str) -> str:
    return name if name in (GENERATED, WRAPPER) else f"`{name}`"


def _values(wrong: WrongNode) -> str:
    subject = f"{wrong.ancestor} is" if wrong.ancestor.startswith("the ") else "it should be"
    if wrong.ancestor and not wrong.ancestor.startswith("the "):
        subject = f"`{wrong.ancestor}`, from which it is made, is"
    if not isinstance(wrong.actual, Tensor):
        return f"{subject} {preview_values(wrong.expected)}"
    error = f"max error {error_between(wrong.actual, wrong.expected):.2g}"
    return f"it is {preview_values(wrong.actual)}, {subject} {preview_values(wrong.expected)} ({error})"


def locate(
    compiled: Compiled,
    options: CompileOptions,
    values: list[Any] | None,
    first_difference: tuple[Difference, Observation, Callable[[], object]],
) -> Located | None:
    """Locate a difference; `first_difference` holds it, eager's observation, and a call of eager on the same
    arguments.

    None if the stages cannot be replayed: free variables that change.
    """
    if values is None or compiled.code.interpreted is not None:
        return None
    results = replay_stages(compiled, values)
    if not results:
        return None
    return _Search(compiled, options, values, results).first(*first_difference)


@dataclass(frozen=True, slots=True)
class _Search:
    """The stages of one target, replayed."""

    compiled: Compiled
    options: CompileOptions
    values: list[Any]
    results: tuple[StageResult, ...]

    def first(self, difference: Difference, eager: Observation, call: Callable[[], object]) -> Located:
        wrong = self._output_unlike_eager(eager)
        if wrong and difference.kind in IN_THE_RECORDING:
            stage = self._stages()[self.results[0].stage]
            node = first_differing_operator(stage.program, self._node_values(stage), operators_of(call))
            return Located(stage.name, EAGER, wrong, node, self._span(difference))
        mismatches = compare_stages(self.results)
        if mismatches:
            first = mismatches[0]
            return Located(first.stage, f"`{first.parent}`", first.what, self._node(first.stage))
        what = f"the {difference.kind} of {difference.name or 'the call'}"
        if difference.kind in ("gradient", "backward error", "backward mutation"):
            return Located("joint", EAGER, what, self._wrong_gradient(), self._span(difference))
        return Located(WRAPPER, EAGER, what, None, self._span(difference))

    def _output_unlike_eager(self, eager: Observation) -> str:
        """Return an output or mutated input for which the first stage differs from eager; empty if none."""
        values = self.results[0].values
        facts: dict[str, Any] = {}
        for name, item in zip(eager.output_names, eager.outputs, strict=True):
            facts |= copies_by_name(name, getattr(item, "value", None))
        for item in eager.inputs:
            facts |= copies_by_name(item.name, getattr(item, "value", None), AFTER)
        for name, value in values.items():
            expected = facts.get(name)
            if isinstance(value, Tensor) and isinstance(expected, Tensor):
                other = value.shape != expected.shape or value.dtype != expected.dtype
                if other or differs(value, expected):
                    return f"`{name}`"
        return ""

    def _stages(self) -> dict[str, StageProgram]:
        return {stage.name: stage for stage in self.compiled.stages()}

    def _input_copies(self) -> InputCopies:
        return InputCopies(self.compiled, self.values, stage_tangents(self.compiled, self.values))

    def _node_values(self, stage: StageProgram) -> dict[str, Any]:
        inputs = self._input_copies()
        if stage.name != "backward":
            return play(stage.program, inputs.arguments(stage.program, {}))
        forward = self.compiled.parts.forward
        _, environment = inputs.call(forward, {})
        return play(stage.program, inputs.arguments(stage.program, environment))

    def _node(self, name: str) -> WrongNode | None:
        """Return the first node of a stage that differs from the stage before."""
        if name == WRAPPER:
            return None
        if name == GENERATED:
            return self._wrong_in_generated_code()
        stages = self._stages()
        sides = [stages[name], *([stages["backward"]] if name == "forward" else [])]
        for stage in sides:
            parent = self._parent(stage, stages)
            wrong = first_wrong_node(stage, self._node_values(stage), parent, self._node_values(parent))
            if wrong is not None:
                return wrong
        return self._wrong_gradient() if name == "joint" else None

    def _parent(self, stage: StageProgram, stages: dict[str, StageProgram]) -> StageProgram:
        return stages[stage.parent] if stage.parent is not None else stage

    def _wrong_in_generated_code(self) -> WrongNode | None:
        if isinstance(self.options.backend, Compilers):
            return None
        parts, inputs = self.compiled.parts, self._input_copies()
        _, environment = inputs.call(parts.forward, {})
        for program in filter(None, (parts.forward, parts.backward)):
            arguments = inputs.arguments(program, environment)
            expected = play(program, [_copy(value) for value in arguments])
            wrong = first_wrong_backend_node(self.compiled, self.options, program, (arguments, expected))
            if wrong is not None:
                return wrong
        return None

    def _wrong_gradient(self) -> WrongNode | None:
        stages = self._stages()
        if "joint" not in stages:
            return None
        functional, joint = stages["functional"].program, stages["joint"]
        tangents = stage_tangents(self.compiled, self.values)
        arguments = self._input_copies().arguments(functional, {})
        return first_wrong_gradient(functional, arguments, tangents, joint.program, self._node_values(joint))

    def _span(self, difference: Difference) -> Span | None:
        """Return the expression that the report names for an output or an input."""
        target = self.compiled.target()
        rows: list[Any] = [*target.outputs, *target.inputs]
        row = next((row for row in rows if row.name == difference.name and row.sites), None)
        return row.sites[0].span if row is not None else None


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value
