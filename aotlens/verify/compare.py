"""Compare two observations and name what differs, by the user's names and within stated tolerances."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

import torch
from torch import Tensor

from aotlens.model.source import Outcome, Verdict
from aotlens.verify.difference_text import (
    WRITABLE,
    aliases_text,
    count,
    gradient_kind_text,
    gradient_text,
    identity_text,
    version_text,
    view_text,
    write_effects_text,
    write_text,
)
from aotlens.verify.observe import Failure, Observation, TensorFacts
from aotlens.verify.tensors.values import (
    as_dense_double,
    close,
    error_between,
    metadata,
    preview_values,
    shape_of,
)

Kind = Literal[
    "error",
    "structure",
    "value",
    "mutation",
    "dtype",
    "shape",
    "stride",
    "offset",
    "requires_grad",
    "is_leaf",
    "type",
    "identity",
    "view",
    "aliasing",
    "version",
    "grad mode",
    "random state",
    "gradient",
    "backward error",
    "backward mutation",
    "write",
]


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between the compiled call and eager."""

    kind: Kind
    name: str
    """The user's name of the input, output or parameter; empty for the whole call."""
    actual: str
    expected: str
    max_abs: float | None = None
    """Largest absolute error; None when no values were compared."""
    max_rel: float | None = None
    """Largest absolute error over the largest eager value; None when no values were compared."""

    @property
    def is_harmless(self) -> bool:
        """Return True if a write succeeds that eager rejects, for example to one result of `chunk`."""
        return self.kind == "write" and self.actual == WRITABLE

    def __str__(self) -> str:
        error = (
            "" if self.max_abs is None else f" (max error {self.max_abs:.2g}, relative {self.max_rel:.2g})"
        )
        return (
            f"{self.kind} of {self.name or 'the call'}: compiled {self.actual}, eager {self.expected}{error}"
        )


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdict on one call."""

    differences: tuple[Difference, ...]
    values: int
    """Outputs compared."""
    gradients: int
    """Gradients compared, those that are None included."""
    mutated: int
    """Inputs that eager changed."""
    max_error: float
    """Largest absolute error of any value, gradient or mutated input."""
    uses_random: bool = False
    """Whether eager used random numbers; then only code with eager's random numbers can be equal."""
    fresh_rounds: int = 0
    """Rounds on random arguments that were equal as well."""
    on_random: bool = False
    """Whether the differences appear only on random arguments and not on the caller's."""
    nondeterministic: str = ""
    """What differs between two runs of eager; empty where nothing does."""
    not_compared: str = ""
    """Why the call or its backward was not compared; empty if it was."""
    notes: tuple[str, ...] = ()
    """Differences that are accepted or not compared, each a sentence."""
    where: str = ""
    """The first stage and node that differ, in lines; empty if nothing was located."""

    @property
    def outcome(self) -> Outcome:
        """Return `not verified` where two runs of eager differ, or part of the call was not compared."""
        if self.differences:
            return "not verified" if self.nondeterministic else "differs"
        return "not verified" if self.not_compared else "equal"

    @property
    def ok(self) -> bool:
        """Return True if everything was compared and is equal."""
        return self.outcome == "equal"

    def verdict(self) -> Verdict:
        """Return the outcome in words: one line, then the notes and where a difference begins."""
        lines = [self._finding(), *self.notes, *self.where.splitlines()]
        return Verdict(self.outcome, "\n".join(lines))

    def summary(self) -> str:
        """Return the verdict as text."""
        verdict = self.verdict()
        return "\n".join([verdict.headline, *verdict.details])

    def _finding(self) -> str:
        match self.outcome:
            case "not verified":
                return self._nondeterminism() if self.differences else self.not_compared
            case "differs":
                return self._first_difference()
            case _:
                return self._compared()

    def _nondeterminism(self) -> str:
        return (
            f"eager differs from eager in the {self.nondeterministic}, with the same arguments and random"
            " state; make the function depend on those alone to compare it"
        )

    def _first_difference(self) -> str:
        on_random = " on random arguments (equal on the given ones)" if self.on_random else ""
        more = f", and {len(self.differences) - 1} more" if len(self.differences) > 1 else ""
        return f"{self.differences[0]}{on_random}{more}"

    def _compared(self) -> str:
        parts = [count(self.values, "value"), count(self.gradients, "gradient")]
        parts += [count(self.mutated, "mutated input")] if self.mutated else []
        rounds = ", on random arguments too" if self.fresh_rounds else ""
        return f"{', '.join(parts)}{rounds} (max error {self.max_error:.2g})"


def compare(compiled: Observation, eager: Observation) -> Verification:
    """Compare the compiled observation with the eager one."""
    errors = [error_between(actual, expected) for actual, expected in _value_pairs(compiled, eager)]
    return Verification(
        differences=tuple(differences(compiled, eager)),
        values=len(eager.outputs) - eager.accumulated,
        gradients=(len(eager.gradients.leaves) if eager.gradients else 0) + eager.accumulated,
        mutated=sum(facts.is_mutated for facts in eager.inputs),
        uses_random=eager.uses_random,
        not_compared=_not_compared(eager),
        max_error=max((error for error in errors if error == error), default=0.0),
    )


def _not_compared(eager: Observation) -> str:
    """Return why a call was not compared as a whole although both sides agree; empty if it was."""
    if eager.failure is not None:
        return f"eager raises {eager.failure}"
    if eager.backward_failure is not None:
        return f"the backward was not compared because it raises {eager.backward_failure}, in eager too"
    outputs = (facts for facts in eager.outputs if isinstance(facts, TensorFacts))
    if eager.gradients is None and any(facts.requires_grad for facts in outputs):
        return "the backward was not compared because autograd leads from no output to an input"
    return ""


def differences(compiled: Observation, eager: Observation) -> Iterator[Difference]:
    """Yield every difference, the most serious first."""
    if compiled.failure or eager.failure:
        yield from _failures("error", compiled.failure, eager.failure)
        return
    if compiled.structure != eager.structure:
        yield Difference("structure", "out", compiled.structure, eager.structure)
        return
    if compiled.argument_structure != eager.argument_structure:
        yield Difference("structure", "arguments", compiled.argument_structure, eager.argument_structure)
    for name, actual, expected in zip(eager.output_names, compiled.outputs, eager.outputs, strict=True):
        yield from _output(name, actual, expected)
    for actual_input, expected_input in zip(compiled.inputs, eager.inputs, strict=True):
        yield from _tensor(actual_input, expected_input, "mutation")
    yield from _call(compiled, eager)
    yield from _gradients(compiled, eager)
    yield from _writes(compiled, eager)


def _failures(kind: Kind, actual: Failure | None, expected: Failure | None) -> Iterator[Difference]:
    if actual and expected and issubclass(actual.kind, expected.kind):
        return
    if actual is not expected:
        yield Difference(kind, "", _failure_text(actual), _failure_text(expected))


def _failure_text(failure: Failure | None) -> str:
    return str(failure) if failure else "no error"


def _output(name: str, actual: object, expected: object) -> Iterator[Difference]:
    if isinstance(actual, TensorFacts) and isinstance(expected, TensorFacts):
        yield from _tensor(actual, expected, "value")
    elif (
        type(actual) is float and type(expected) is float
    ):  # perhaps read from a tensor: compare with the precision of that tensor
        if not close(torch.tensor(actual), torch.tensor(expected)):
            yield Difference("value", name, repr(actual), repr(expected))
    elif type(actual) is not type(expected) or actual != expected:
        yield Difference("value", name, repr(actual), repr(expected))


def _tensor(actual: TensorFacts, expected: TensorFacts, kind: Kind) -> Iterator[Difference]:
    name = expected.name
    wrong = _values(kind, name, actual.value, expected.value)
    if wrong:
        yield wrong
        if wrong.kind in ("dtype", "shape"):
            return
    if _real_strides(actual) != _real_strides(expected):
        yield Difference("stride", name, str(actual.stride), str(expected.stride))
    if not expected.owns_storage and actual.offset != expected.offset:
        yield Difference("offset", name, str(actual.offset), str(expected.offset))
    for field in ("requires_grad", "is_leaf"):
        if getattr(actual, field) != getattr(expected, field):
            yield Difference(field, name, str(getattr(actual, field)), str(getattr(expected, field)))
    if actual.kind != expected.kind:
        yield Difference("type", name, actual.kind, expected.kind)
    elif actual.metadata != expected.metadata:
        yield Difference("type", name, actual.metadata, expected.metadata)
    yield from _relations(actual, expected)


def _relations(actual: TensorFacts, expected: TensorFacts) -> Iterator[Difference]:
    name = expected.name
    if actual.same_as != expected.same_as:
        yield Difference("identity", name, identity_text(actual.same_as), identity_text(expected.same_as))
    if actual.view_of != expected.view_of:
        yield Difference("view", name, view_text(actual.view_of), view_text(expected.view_of))
    if actual.aliases != expected.aliases:
        yield Difference("aliasing", name, aliases_text(actual.aliases), aliases_text(expected.aliases))
    # An update that leaves the version counter unchanged in eager may bump it when compiled.
    if actual.is_version_bumped != expected.is_version_bumped and not (
        actual.is_version_bumped and expected.is_mutated
    ):
        yield Difference(
            "version",
            name,
            version_text(actual.is_version_bumped),
            version_text(expected.is_version_bumped),
        )


def _call(compiled: Observation, eager: Observation) -> Iterator[Difference]:
    if compiled.grad_enabled != eager.grad_enabled:
        yield Difference("grad mode", "", str(compiled.grad_enabled), str(eager.grad_enabled))
    states = (compiled.random_state, eager.random_state)
    if states[0] is not None and states[1] is not None and not torch.equal(states[0], states[1]):
        yield Difference("random state", "", "another state after the call", "its own")


def _gradients(compiled: Observation, eager: Observation) -> Iterator[Difference]:
    if compiled.backward_failure or eager.backward_failure:
        yield from _failures("backward error", compiled.backward_failure, eager.backward_failure)
        return
    roots = [side.gradients.roots if side.gradients else () for side in (compiled, eager)]
    if roots[0] != roots[1]:
        yield Difference("gradient", "outputs to differentiate", ", ".join(roots[0]), ", ".join(roots[1]))
        return
    gradients = dict(compiled.gradients.leaves) if compiled.gradients else {}
    scale = _largest_gradient(eager)
    for name, expected in eager.gradients.leaves if eager.gradients else ():
        gradient = gradients.pop(name, None)
        if gradient is None or expected is None:
            if gradient is not expected:
                yield Difference("gradient", name, gradient_text(gradient), gradient_text(expected))
            continue
        if metadata(gradient) != metadata(expected):
            yield Difference("gradient", name, gradient_kind_text(gradient), gradient_kind_text(expected))
            continue
        wrong = _values("gradient", name, gradient, expected, scale)
        if wrong:
            yield wrong
    for name, surplus in gradients.items():
        if surplus is not None:
            yield Difference("gradient", name, gradient_text(surplus), "None")
    before = {facts.name: facts.value for facts in compiled.inputs}
    after = zip(compiled.inputs_after_backward, eager.inputs_after_backward, eager.inputs, strict=True)
    for actual_value, expected_value, facts in after:
        wrong = _values("backward mutation", facts.name, actual_value, expected_value)
        if wrong and close(before[facts.name], facts.value):
            yield wrong


def _writes(compiled: Observation, eager: Observation) -> Iterator[Difference]:
    for actual, expected in zip_longest(compiled.writes, eager.writes):
        if (actual.error is None) != (expected.error is None):
            yield Difference("write", expected.name, write_text(actual.error), write_text(expected.error))
        elif actual.changed_aliases != expected.changed_aliases:
            yield Difference(
                "write",
                expected.name,
                write_effects_text(actual.changed_aliases),
                write_effects_text(expected.changed_aliases),
            )


def _largest_gradient(eager: Observation) -> float:
    """Return the largest gradient, the scale of noise for gradients that cancel out."""
    leaves = eager.gradients.leaves if eager.gradients else ()
    sizes = (
        float(as_dense_double(gradient).abs().max())
        for _, gradient in leaves
        if gradient is not None and gradient.numel()
    )
    return max((size for size in sizes if size < float("inf")), default=1.0)


def _values(kind: Kind, name: str, actual: Tensor, expected: Tensor, scale: float = 1.0) -> Difference | None:
    if actual.dtype != expected.dtype:
        return Difference("dtype", name, str(actual.dtype), str(expected.dtype))
    if shape_of(actual) != shape_of(expected):
        return Difference("shape", name, str(shape_of(actual)), str(shape_of(expected)))
    if close(actual, expected, max(scale, 1.0)):
        return None
    error = error_between(actual, expected)
    largest = float(as_dense_double(expected).abs().max())
    return Difference(
        kind, name, preview_values(actual), preview_values(expected), error, error / (largest or 1.0)
    )


def _value_pairs(compiled: Observation, eager: Observation) -> Iterator[tuple[Tensor, Tensor]]:
    outputs = zip(compiled.outputs, eager.outputs, strict=False)
    for actual, expected in (*outputs, *zip(compiled.inputs, eager.inputs, strict=False)):
        if isinstance(actual, TensorFacts) and isinstance(expected, TensorFacts):
            yield actual.value, expected.value
    sides = [
        observation.gradients.leaves if observation.gradients else () for observation in (compiled, eager)
    ]
    for (_, gradient), (_, expected_gradient) in zip(*sides, strict=False):
        if gradient is not None and expected_gradient is not None:
            yield gradient, expected_gradient


def _real_strides(facts: TensorFacts) -> tuple[int, ...]:
    """Return the strides that matter: those of dimensions with more than one element."""
    sizes = facts.value.shape
    if 0 in sizes:
        return ()
    return tuple(stride for size, stride in zip(sizes, facts.stride, strict=False) if size > 1)
