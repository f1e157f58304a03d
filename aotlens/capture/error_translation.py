"""Translate torch's errors about fake tensors into unsupported cases at the user's line."""

import os
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType

import torch

from aotlens.capture.hop.lifting import Lifted
from aotlens.capture.invalid_views import invalid_view_error, is_invalid_view
from aotlens.capture.provenance.frames import is_user_code
from aotlens.capture.recorder import Recorder
from aotlens.capture.storage import find_tracked
from aotlens.capture.views import CANNOT_VIEW
from aotlens.errors import AotlensError, UserError
from aotlens.ir.origin import span_of
from aotlens.model.report import Span
from aotlens.torch_api.fake.tensors import DATA_DEPENDENT_ERRORS, UnsupportedOperatorException
from aotlens.torch_api.modes import without_modes
from aotlens.unsupported import unsupported

NESTED = "aten._nested_"

TORCH_ERRORS: tuple[tuple[type[Exception], tuple[str, ...], str], ...] = (
    (IndexError, ("(got SymInt)",), "data-dependent-index"),
    (TypeError, ("but got FakeTensor",), "tensor-as-size"),
    (AttributeError, ("'SymInt' object has no attribute 'unsqueeze'",), "scan-over-symbolic-size"),
    (TypeError, ("unhashable type: non-nested SymInt",), "symbolic-size-as-key"),
    (RuntimeError, (" on tensor with symbolic sizes",), "operator-needs-static-sizes"),
    (RuntimeError, (NESTED, "NestedTensorImpl"), "strided-nested-tensor"),
    (RuntimeError, ("is not tracked with proxy",), "outer-number-in-subgraph"),
    (RuntimeError, ("Expected IntList but got GenericList",), "vmap-needs-static-sizes"),
    (RuntimeError, ("tried to directly modify sizes for customized tensor",), "in-place-resize"),
    (RuntimeError, ("data is not allocated yet", "Not available for 'meta' device type"), "reads-values"),
    (RuntimeError, (".numpy() is not supported",), "numpy-values"),
    (RuntimeError, ("new_fn INTERNAL ASSERT FAILED",), "view-before-detach-and-write"),
    (RuntimeError, ("NYI SymInt equality",), "symbolic-exponent"),
    (RuntimeError, ("Can't detach views in-place",), "detach-of-view"),
)
"""Errors of torch's and of Python's about fake tensors and symbolic numbers: type, phrases, our case."""
NO_META_KERNEL = re.compile(r"(\w+)::(\w+): attempted to run this operator with Meta tensors")


@contextmanager
def translated_errors(recorder: Recorder) -> Iterator[None]:
    """Translate torch's errors about fake tensors into one error that names the user's line."""
    try:
        yield
    except AotlensError:
        raise
    except Exception as error:
        span = raising_span(error) or recorder.span or _layer_span(error)
        refusal = (
            invalid_view_error(span, None) if _is_view_error(error, recorder) else _as_user_error(error, span)
        )
        if refusal is None:
            raise
        raise refusal from error


def _is_view_error(error: Exception, recorder: Recorder) -> bool:
    """Return True if autograd failed to regenerate a view, not the user's code.

    It regenerates views before the operator runs, so only the views themselves show the cause.
    """
    if not isinstance(error, (RuntimeError, ValueError, IndexError)) or not _has_metadata_mutation(recorder):
        return False
    if CANNOT_VIEW in str(error):
        return True
    with without_modes(), recorder.fake_mode:
        return any(is_invalid_view(tensor) for tensor in recorder.seen_tensors())


def _has_metadata_mutation(recorder: Recorder) -> bool:
    """Return True if a tensor's sizes or strides were changed in place."""
    states = map(find_tracked, recorder.seen_tensors())
    return any(step.in_place for tracked in states if tracked is not None for step in tracked.chain)


def _as_user_error(error: Exception, span: Span | None) -> AotlensError | None:
    """Return our error for one of torch's; None for the user's own errors."""
    text = str(error)
    if isinstance(error, DATA_DEPENDENT_ERRORS):
        op = error.args[0] if error.args else "an operator"
        return unsupported("data-dependent-control-flow", span, operator=op)
    if type(error).__name__ == "GuardOnDataDependentSymNode":
        return unsupported("data-dependent-size", span)
    if isinstance(error, UnsupportedOperatorException) and NESTED not in text:
        return unsupported("no-fake-kernel", span, operator=error.args[0])
    # Torch runs the real kernel in place of a missing fake one, on zeros, which may fail as well.
    without_kernel = NO_META_KERNEL.match(str(error.__context__))
    if isinstance(error, NotImplementedError) and without_kernel is not None:
        return unsupported("no-fake-kernel", span, operator=".".join(without_kernel.groups()))
    higher_order = re.search(r"HigherOrderOperator[^\w]*(\w+)|HOP[^\w]*(\w+)", text)
    if isinstance(error, NotImplementedError) and higher_order is not None:
        return unsupported("higher-order-operator", span, operator=higher_order[1] or higher_order[2])
    for raised, phrases, case in TORCH_ERRORS:
        if isinstance(error, raised) and any(phrase in text for phrase in phrases):
            return unsupported(case, span)
    if not isinstance(error, RuntimeError):
        return None
    if "a leaf Variable that requires grad" in text and _within_higher_order(error):
        return unsupported("operand-written", span)
    if "modified by an inplace operation" in text or "has been detached in-place" in text:
        first = text.strip().splitlines()[0]
        return UserError(f"the backward of this function fails in eager too: {first}", span=span)
    return None


def _within_higher_order(error: Exception) -> bool:
    """Return True if torch ran a function of a higher-order operator, on leaves of its own."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(isinstance(frame.f_locals.get("self"), Lifted) for frame in frames)


def raising_span(error: Exception) -> Span | None:
    """Return the user's expression that raised the error."""
    return _innermost_span(error, is_user_code)


def _layer_span(error: Exception) -> Span | None:
    """Return the line in torch's own layer, if it is compiled directly and no user code runs."""
    return _innermost_span(error, lambda code: code.co_filename.startswith(LAYERS))


def _innermost_span(error: Exception, is_wanted: Callable[[CodeType], bool]) -> Span | None:
    span, step = None, error.__traceback__
    while step is not None:
        if is_wanted(step.tb_frame.f_code):
            span = span_of(step.tb_frame.f_code, step.tb_lasti) or span
        step = step.tb_next
    return span


LAYERS = os.path.dirname(torch.nn.modules.__file__) + os.sep
