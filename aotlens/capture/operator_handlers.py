"""How a call of each kind of operator becomes nodes: one handler per `Kind`.

Invariant: a handler returns what the operator returns, and every tensor in it is tracked.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from aotlens.capture.as_strided import check_within_input, with_storage_offset
from aotlens.capture.graph import Recording
from aotlens.capture.hop.subgraphs import INLINE, record_higher_order
from aotlens.capture.mutations.custom_operators import record_custom_mutation
from aotlens.capture.mutations.in_place import (
    WritingCall,
    leaky_relu_for,
    only_reads,
    record_metadata_mutation,
    record_mutation,
)
from aotlens.capture.mutations.storage_swaps import record_storage_swap
from aotlens.capture.mutations.writability import is_writable_outside_inference_mode
from aotlens.capture.operator_fixes import without_unread
from aotlens.capture.operators import HIDDEN_SPLITS, Kind, Operator, aten, describe, is_builtin, with_dtype
from aotlens.capture.recording_mode import RecordingMode
from aotlens.capture.result_fixes import (
    SELECT,
    as_boolean_mask,
    is_evenly_divided_gradient,
    is_random_mask,
)
from aotlens.capture.rng.random_op_rules import apply_rule
from aotlens.capture.rng.rng_state import without_generators
from aotlens.capture.storage import Storage, Tracked, set_tracked
from aotlens.capture.symbols.known_values import known_scalar, record_literal
from aotlens.capture.views import ViewStep, apply_view
from aotlens.ir.program import op_name
from aotlens.ir.symbols import is_data_dependent
from aotlens.torch_api.fake.tensors import DATA_DEPENDENT_ERRORS, FakeTensor
from aotlens.torch_api.modes import with_view_tracking
from aotlens.torch_api.operators import check, composite_kernel, has_view_tracking_kernel
from aotlens.torch_api.symbolic import make_shape_env
from aotlens.unsupported import unsupported

WITH_STRIDES = (torch.strided, torch.jagged, torch.sparse_coo)
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def _pure(recorder: RecordingMode, func: Any, operator: Operator, args: Args, kwargs: Kwargs) -> Any:
    """Record an operator that returns new values, decomposed if the table contains it."""
    args = without_unread(func, args)
    if func in recorder.decompositions:
        return _decomposed(recorder, func, args, kwargs)
    if any(isinstance(arg, torch.Tensor) and type(arg) is not FakeTensor for arg in args):
        args = tuple(_as_fake(recorder, arg) for arg in args)
    node_args = tuple([recorder.argument(arg) for arg in args])
    if recorder.in_backward and is_evenly_divided_gradient(func, node_args):
        return _pure(recorder, SELECT, describe(SELECT), (*args, 0), {})
    try:
        run = operator.fake or func
        result = run(*args, **(without_generators(kwargs) if kwargs and operator.random else kwargs))
    except DATA_DEPENDENT_ERRORS:
        result = _with_symbols(recorder, func, args, kwargs)
    kwargs = with_dtype(func, kwargs, result, recorder.default_dtype)
    node = recorder.add_node(func, node_args, recorder.keywords(kwargs), result)
    if operator.random and is_random_mask(func):
        node = as_boolean_mask(recorder, node)
    recorder.track_results(node, result)
    return result


def _with_symbols(recorder: RecordingMode, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """Create symbols for a data-dependent result, with an environment of sizes if there is none yet."""
    if recorder.fake_mode.shape_env is not None:
        raise unsupported("data-dependent-output", recorder.span, operator=op_name(func))
    recorder.fake_mode.shape_env = make_shape_env()
    return func(*args, **kwargs)


def _as_fake(recorder: RecordingMode, arg: Any) -> Any:
    if isinstance(arg, torch.Tensor) and type(arg) is not FakeTensor:
        return recorder.fake_of(arg)
    return arg


def _decomposed(recorder: RecordingMode, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """Run a decomposition on the recorder; one that returns NotImplemented leaves the operator whole."""
    with recorder:
        result = apply_rule(recorder.decompositions[func], recorder.random.functional, args, kwargs)
    if result is NotImplemented:
        rest = {key: rule for key, rule in recorder.decompositions.items() if key is not func}
        table, recorder.decompositions = recorder.decompositions, rest
        try:
            return _pure(recorder, func, describe(func), args, kwargs)
        finally:
            recorder.decompositions = table
    recorder.decomposed = True
    return _copy_if_argument(recorder, result, args)


def _copy_if_argument(recorder: RecordingMode, result: Any, args: Args) -> Any:
    """Copy an argument that a decomposition returned: the operator promises a new value."""
    if isinstance(result, (list, tuple)):
        return [_copy_if_argument(recorder, item, args) for item in result]
    if not isinstance(result, torch.Tensor):
        return result
    storage = recorder.tracked(result).storage
    for arg in args:
        if isinstance(arg, torch.Tensor) and recorder.tracked(arg).storage is storage:
            with recorder:
                return aten.clone.default(result)
    return result


def _read(recorder: RecordingMode, func: Any, operator: Operator, args: Args, kwargs: Kwargs) -> Any:
    known = known_scalar(recorder, func, args)
    return _pure(recorder, func, operator, args, kwargs) if known is None else known


def _view(recorder: RecordingMode, func: Any, operator: Operator, args: Args, kwargs: Kwargs) -> Any:
    """Record an operator whose results are views of its first argument."""
    source, func = args[0], HIDDEN_SPLITS.get(func, func)
    if isinstance(source, (int, float, complex)):  # autograd conjugates a factor `2j`
        with recorder:
            source = torch.scalar_tensor(source, dtype=torch.complex128)
    source, rest = _as_fake(recorder, source), args[1:]
    if source.layout not in WITH_STRIDES:
        raise unsupported("view-of-sparse", recorder.span, operator=func, layout=source.layout)
    if func is aten.select.int and not recorder.is_subgraph:
        _check_index(source, *rest)
    tracked, node = recorder.tracked(source), recorder.node_to_view(source)
    result = apply_view(func, (source, *rest), kwargs)
    step = ViewStep.in_current_modes(func, rest, kwargs)
    if func is aten.as_strided.default:
        step = with_storage_offset(step, source, tracked, recorder.span)
        check_within_input(tracked.storage, step, result, recorder.span)
    if tracked.storage.version and step.offset is not None:
        node = recorder.replay(tracked.storage, (*tracked.chain, step))
    elif func in recorder.decompositions or node.val.stride() != source.stride():
        node = recorder.emit(func, node, *rest, **kwargs)
    else:
        node_args = (node, *recorder.argument(rest))
        node = recorder.add_node(func, node_args, recorder.keywords(kwargs), result)
    _track_views(recorder, tracked, step, node, result)
    return result


def _track_views(recording: Recording, source: Tracked, step: ViewStep, node: Any, result: Any) -> None:
    """Track each result on the storage of its source, with the step that leads to it."""
    storage = source.storage
    if not isinstance(result, (list, tuple)):
        chain = (*source.chain, step)
        set_tracked(result, Tracked(storage, chain, node, storage.version))
        return
    for index, view in enumerate(result):
        chain = (*source.chain, replace(step, result=index))
        view_node = recording.item(node, index)
        set_tracked(view, Tracked(storage, chain, view_node, storage.version))


def _check_index(source: Any, dim: int, index: Any) -> None:
    """Add a run-time check of a data-dependent index, since a backend would read out of bounds."""
    if is_data_dependent(index):
        check(index < source.shape[dim])
        check(index >= -source.shape[dim])


def _detach(recorder: RecordingMode, func: Any, operator: Operator, args: Args, kwargs: Kwargs) -> Any:
    """Record `detach`, an alias that autograd does not follow, or the tensor that `torch.tensor` makes."""
    source = args[0]
    result = func(*args, **kwargs)
    if type(source) is not FakeTensor:
        constant = recorder.node_of(recorder.fake_of(source))
        fresh = recorder.add_node(aten.lift_fresh_copy.default, (constant,), {}, result)
        recorder.track(result, Storage(fresh, result))
        record_literal(recorder, func, fresh, source)
        return result
    node = recorder.node_of(source)
    known = recorder.tracked(source)
    outside = is_writable_outside_inference_mode(func, known, result)
    set_tracked(result, Tracked(known.storage, known.chain, node, known.version, outside))
    return result


def _mutation(recorder: RecordingMode, func: Any, operator: Operator, args: Args, kwargs: Kwargs) -> Any:
    """Record a write: of a custom operator, of leaky ReLU, as a read if nothing is written, or in place."""
    call = WritingCall(func, operator, args, kwargs)
    if operator.functional is None and not is_builtin(func):
        return record_custom_mutation(recorder, call)
    if (leaky_relu := leaky_relu_for(call)) is not None:
        with recorder:
            return leaky_relu()
    if only_reads(call):
        return _pure(recorder, func, Operator(Kind.PURE, fake=operator.fake), args, kwargs)
    return record_mutation(recorder, call)


def _composite(recorder: RecordingMode, func: Any, operator: Operator, args: Args, kwargs: Kwargs) -> Any:
    """Run the operators that define this one, which come back to the recorder."""
    if not torch.is_inference_mode_enabled():
        # Torch's Python rules support symbolic sizes; the composite kernel is what eager runs.
        decomposed = composite_kernel(func) if recorder.fake_mode.shape_env is None else func.decompose
        with recorder:
            return decomposed(*args, **kwargs)
    # Inference mode does not decompose the operator; its views must still be recorded as views.
    recorder.notes_views = not has_view_tracking_kernel(func)
    try:
        with with_view_tracking() if recorder.notes_views else nullcontext(), recorder:
            return composite_kernel(func)(*args, **kwargs)
    finally:
        recorder.notes_views = False


def _effect(recorder: RecordingMode, func: Any, operator: Operator, args: Args, kwargs: Kwargs) -> Any:
    recorder.origin = replace(recorder.origin, effect=True)
    args = recorder.torchbind.with_fakes(args)
    return recorder.torchbind.checked_result(args, _pure(recorder, func, operator, args, kwargs))


def _higher_order(recorder: RecordingMode, func: Any, operator: Operator, args: Args, kwargs: Kwargs) -> Any:
    inline = INLINE.get(func.name()) or recorder.decompositions.get(func)
    if inline is not None:
        recorder.is_inside_operator = False  # what follows are calls of the user's code
        with recorder:
            return inline(*args, **kwargs)
    args = recorder.torchbind.with_fakes(args)
    return recorder.torchbind.checked_result(args, record_higher_order(recorder, func, args, kwargs))


HANDLERS: dict[Kind, Callable[..., Any]] = {
    Kind.PURE: _pure,
    Kind.READ: _read,
    Kind.VIEW: _view,
    Kind.DETACH: _detach,
    Kind.MUTATION: _mutation,
    Kind.METADATA_MUTATION: lambda recorder, *call: record_metadata_mutation(recorder, WritingCall(*call)),
    Kind.COMPOSITE: _composite,
    Kind.STORAGE_SWAP: lambda recorder, *call: record_storage_swap(recorder, WritingCall(*call)),
    Kind.HIGHER_ORDER: _higher_order,
    Kind.EFFECT: _effect,
}
"""By kind: takes the recorder, the overload, its classification, arguments and keyword arguments."""
