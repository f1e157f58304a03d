"""Reads of inputs whose sizes or strides the function changes with grad mode off.

Autograd regenerates the `grad_fn` of a view when it is next asked for after a write to its base, and uses the
geometry of both at that moment.  Invariant: a function is unsupported if its compiled call would ask at
another moment than eager.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from aotlens.capture.operators import Kind, describe, is_operator
from aotlens.capture.records import Captured, CapturedInput
from aotlens.capture.storage import Write
from aotlens.model.report import Span
from aotlens.unsupported import unsupported


def is_input_read(captured: Captured, captured_input: CapturedInput) -> bool:
    """Return True if an operator other than a metadata mutation reads the input itself."""
    return any(True for _ in _reads(captured, captured_input.argument))


def is_used_before_detach(captured: Captured, tensor: Any) -> bool:
    """Return True if autograd recorded a use of a tensor before the function detached it."""
    detach_index = captured.recorded.calls_before_detaching(tensor)
    return any(position < detach_index for position in _reads(captured, tensor, by_autograd=True))


def check_views_with_grad_fn(
    captured: Captured, captured_input: CapturedInput, mutations: Sequence[Write]
) -> None:
    """Check reads of an input whose own sizes or strides change with grad mode off only.

    Raises:
        UnsupportedError: a view of it is read before; or it is a view itself and is read after; or it is a
            leaf that gets other sizes and is read before.
    """
    storage: Any = captured_input.storage
    if not captured_input.argument.requires_grad:
        return
    origins = {id(move.origin) for move in mutations}
    mutation_index = next(
        (index for index, call in enumerate(captured.calls) if id(call[4]) in origins), len(captured.calls)
    )
    span, argument = mutations[-1].origin.location.innermost, captured_input.argument
    other_sizes = captured_input.is_leaf and argument.shape != captured_input.fake.shape
    if other_sizes and any(index < mutation_index for index in _reads(captured, argument, by_autograd=True)):
        _raise_unsupported(
            captured_input, "it is a leaf and is read before that: its gradient has its former sizes", span
        )
    if captured_input.is_view and any(
        index > mutation_index for index in _reads(captured, argument, by_autograd=True)
    ):
        _raise_unsupported(captured_input, "it is a view, and is read after that", span)
    if not storage.overlapping_inputs:
        return
    for other in captured.inputs:
        is_view = other.storage is storage and other.argument._base is argument
        if is_view and any(
            index < mutation_index for index in _reads(captured, other.argument, by_autograd=True)
        ):
            _raise_unsupported(captured_input, f"its view `{other.slot.name}` is read before that", span)


def check_reads_before_resize(captured: Captured, captured_input: CapturedInput) -> None:
    """Check reads of a leaf whose `.data` is assigned memory of other sizes.

    Raises:
        UnsupportedError: autograd recorded a use before the assignment.  The leaf's gradient keeps the former
            sizes for as long as something holds the result of that use.
    """
    for leaf, assignment_index, span in captured.recorded.resized_leaves:
        if leaf is captured_input.argument and any(
            index < assignment_index for index in _reads(captured, leaf, by_autograd=True)
        ):
            raise unsupported("data-of-other-sizes-after-read", span, input=captured_input.slot.name)


def _reads(captured: Captured, tensor: Any, by_autograd: bool = False) -> Iterator[int]:
    """Yield the indices of the calls that read a tensor; with `by_autograd`, only of recorded ones."""
    for index, (func, args, _, result, _) in enumerate(captured.calls):
        if is_operator(func) and describe(func).kind is Kind.METADATA_MUTATION:
            continue
        reads_tensor = any(value is tensor for value in _flattened(args))
        if reads_tensor and (
            not by_autograd or any(_is_seen_by_autograd(value) for value in _flattened((result,)))
        ):
            yield index


def _flattened(values: tuple[Any, ...]) -> Iterator[Any]:
    """Yield the values, and the items of the lists among them."""
    for value in values:
        yield from value if isinstance(value, (list, tuple)) else (value,)


def _is_seen_by_autograd(result: Any) -> bool:
    """Return True if the tensor has a `grad_fn`; False for written leaves and for views without one."""
    if not getattr(result, "requires_grad", False):
        return False
    try:
        return result.grad_fn is not None
    except RuntimeError:
        return False


def _raise_unsupported(captured_input: CapturedInput, what: str, span: Span | None) -> None:
    raise unsupported("geometry-change-after-read", span, input=captured_input.slot.name, reason=what)
