"""The recorder: one run of the user's function that observes and functionalises every operator.

It is a dispatch mode below autograd and above fake tensors.  Invariant: every operator either becomes nodes
without side effects or is rejected by name; the aliases and writes of the user's tensors are always known
(`aotlens.capture.graph`).
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.capture.autograd.checkpoints import Checkpoints
from aotlens.capture.autograd.saved_tensor_hooks import SavedValues
from aotlens.capture.events import Call, EventKind
from aotlens.capture.modes import SplitRegion
from aotlens.capture.mutations.in_place import WritingCall
from aotlens.capture.mutations.storage_swaps import (
    record_data_assignment,
    record_storage_resize,
    set_from_tensor,
    tensor_on,
)
from aotlens.capture.operator_handlers import HANDLERS
from aotlens.capture.operators import (
    QUERIES,
    RESIZE_STORAGE,
    Decompositions,
    Kind,
    aten,
    describe,
    is_operator,
    with_dtype,
)
from aotlens.capture.provenance.origins import Origins
from aotlens.capture.recording_mode import RecordingMode
from aotlens.capture.storage import find_tracked
from aotlens.capture.subclasses import has_wrapper, record_wrapper_output
from aotlens.capture.symbols.numbers import Floats
from aotlens.errors import UnsupportedError
from aotlens.ir.names import node_name
from aotlens.ir.origin import NO_ORIGIN, Frames, Origin
from aotlens.ir.program import Node
from aotlens.torch_api.fake.gpu import device_for_autograd, with_original_device
from aotlens.torch_api.fake.tensors import FakeTensor, FakeTensorMode
from aotlens.torch_api.modes import below_views
from aotlens.torch_api.operators import tensor_leaves
from aotlens.unsupported import unsupported


@dataclass(frozen=True, slots=True)
class UnwrappedCall:
    """An operator on wrappers as the user's code ran it, and its subclass's calls."""

    call: Call
    first: int
    """The index of the first of its calls among all calls."""
    end: int


class Recorder(RecordingMode):
    """Records a function's forward, and then its backward, as nodes.

    `torch_api/tensor_attributes.py` calls the methods `on_…` by name, for what no operator reports.
    """

    def __init__(self, fake_mode: FakeTensorMode, decompositions: Decompositions) -> None:
        super().__init__(fake_mode, decompositions)
        self.unwrapped_calls: list[UnwrappedCall] = []
        self.saved = SavedValues(self)
        self.checkpoints = Checkpoints(self.saved)
        self.origins = Origins()
        self._declines_next_call = False
        self.split_region: SplitRegion | None = None
        self.hooked_edges: list[tuple[Any, int]] = []
        """Gradient edges of intermediate tensors on which the function registered hooks."""
        self.unmaterialised_nodes: list[Any] = []
        """Autograd nodes of custom functions that do not materialise zeros."""
        self.inputs: tuple[Any, ...] = ()
        """The `OpenInput`s, once the function has returned: the backward writes to their storages."""
        self.argument_names: dict[int, str] = {}
        """The user's names of the arguments, by identity."""

    def on_data_assignment(self, target: Any, source: Any) -> None:
        """Record `target.data = source` before it happens; no operator represents it."""
        self.origin = self.origins.origin_of(aten.set_.source_Tensor, self.in_backward)
        record_data_assignment(self, target, source)
        self.add_call((aten.set_.source_Tensor, (target, source), {}, target, self.origin))

    def on_detach(self, tensor: Any) -> None:
        """Record `tensor.detach_()` or `tensor.requires_grad_(False)` after it happened.

        In eager, views from before keep their grad_fn; regenerating them would lose it.
        """
        self.note(EventKind.DETACH, tensor)
        for view in self.seen_tensors():
            if view._base is tensor and find_tracked(view) and view.requires_grad:
                self.note(EventKind.VIEW_BEFORE_DETACH, view)

    def on_grad_access(self, tensor: Any) -> None:
        """Reject an access to `.grad` of an argument: the recording lacks it."""
        self._reject_access("grad-of-input", tensor)

    def on_deepcopy(self, tensor: Any) -> None:
        """Reject `copy.deepcopy` of a recorded tensor: it copies the attributes, and with them the record."""
        if find_tracked(tensor) is not None:
            raise unsupported("deepcopy", self.current_frames().innermost)

    def on_memory_read(self, owner: Any) -> None:
        """Reject a read of the memory of a fake tensor or of its storage; real ones have theirs."""
        if owner.device.type == "meta" or type(owner) is FakeTensor:
            raise unsupported("reads-values", self.current_frames().innermost)

    def on_hook_registration(self, tensor: Any) -> None:
        """Note that user code is about to register a hook on a tensor, which no operator represents."""
        self._reject_access("hook-on-input", tensor)
        if tensor.grad_fn is not None:
            self.hooked_edges.append((tensor.grad_fn, tensor.output_nr))

    def _reject_access(self, case: str, tensor: Any) -> None:
        """Raise the error for this case if the tensor is an argument, or the caller's tensor for one."""
        for argument in self.arguments:
            if argument is tensor or self.originals.get(id(argument)) is tensor:
                span = self.current_frames().innermost
                raise unsupported(case, span, input=self.argument_names[id(argument)])

    def on_storage_resize(self, storage: Any, size: Any) -> None:
        """Record `storage.resize_(size)` before it happens; no operator represents it."""
        self.origin = self.origins.origin_of(RESIZE_STORAGE.default, self.in_backward)
        record_storage_resize(self, tensor_on(self, storage), size)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record one operator: a call of the user's code, or a part of such a call if one is running."""
        kwargs = with_original_device(args, kwargs) if kwargs else {}
        if has_wrapper(types):
            return self._unwrap(func, args, kwargs)
        if func in QUERIES:
            return self._query(func, args, kwargs)
        if self.floats is not None:
            func, args, kwargs = self._with_floats(self.floats, func, args, kwargs)
        operator = describe(func)
        if operator.kind is Kind.STORAGE_SWAP:
            func, args = set_from_tensor(self, func, args)
        if self.is_inside_operator:
            with below_views() if self.notes_views else nullcontext():
                return HANDLERS[operator.kind](self, func, operator, args, kwargs)
        mark = self.checkpoints.mark(func, args, kwargs) if self.checkpoints.active else None
        self.origin = self.origins.origin_of(func, self.in_backward, mark)
        self.is_inside_operator = True
        try:
            result = HANDLERS[operator.kind](self, func, operator, args, kwargs)
        except UnsupportedError:
            if not self._has_only_untracked(args, kwargs):
                raise
            return func(*args, **kwargs)
        finally:
            self.is_inside_operator = False
        # Higher-order operators add their own call, with their subgraphs.
        if not self.in_backward and operator.kind is not Kind.HIGHER_ORDER:
            kwargs = with_dtype(func, kwargs, result, self.default_dtype)
            self.add_call((func, args, kwargs, result, self.origin))
        return result

    def _with_floats(self, floats: Floats, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the call without symbolic floats, unless the operator is decomposed."""
        func, args, kwargs = floats.with_tensors(func, args, kwargs)
        if func in self.decompositions or describe(func).kind is Kind.COMPOSITE:
            return func, args, kwargs
        return func, *floats.specialised((args, kwargs))

    def _has_only_untracked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return True if all tensors are untracked fakes, which torch creates to trace a subgraph's gradient.

        Their results are untracked too, and are rejected when they meet the recording.
        """
        tensors = tensor_leaves((args, kwargs))
        return bool(tensors) and not any(
            type(tensor) is not FakeTensor or find_tracked(tensor) is not None for tensor in tensors
        )

    def _unwrap(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let the subclass unwrap an operator on wrappers; its inner operators return here.

        The operator is called again so that torch finds the subclass's implementation itself (a DTensor's is
        not in Python); that second call returns NotImplemented.
        """
        if self._declines_next_call:
            self._declines_next_call = False
            return NotImplemented
        is_query, frames = func in QUERIES, self.origins.known_frames
        if not is_query:
            self.origins.known_frames = self.origins.current_frames()
        self._declines_next_call = True
        first, unwrapped_before = len(self.calls), len(self.unwrapped_calls)
        try:
            with self:
                result = func(*args, **kwargs)
            if not is_query:
                self.origin = self.origins.origin_of(func, self.in_backward)
                record_wrapper_output(self, WritingCall(func, describe(func), args, kwargs), result)
                if not self.in_backward:  # for nested wrappers, the outermost operator is the user's
                    call = Call(func, args, kwargs, result, self.origin)
                    self.unwrapped_calls[unwrapped_before:] = [UnwrappedCall(call, first, len(self.calls))]
        finally:
            self._declines_next_call, self.origins.known_frames = False, frames
        return result

    def replay_call(self, call: Call) -> Any:
        """Record one call of another recording with this recording's arguments; return its result.

        Call it below autograd and in the fake mode, without this recorder on the stack of modes.
        """
        func, args, kwargs, _, self.origin = call
        self.is_replay = True
        if not is_operator(func):
            result = None if call.result is None else call.result.detach()
            node = self.add_node(func, tuple(self.argument(arg) for arg in args), {}, result)
            self.track_results(node, result)
            return result
        with self.inside_operator(self.origin):
            return HANDLERS[describe(func).kind](self, func, describe(func), args, kwargs)

    def _query(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is torch.ops.prim.device.default and type(args[0]) is FakeTensor:
            return device_for_autograd(args[0])
        return func(*args, **kwargs)

    def subgraph_recorder(self) -> "Recorder":
        """Return a recorder for a subgraph of the running operator.

        It has the names, the settings that hold for the whole graph, and the origin of this call.
        """
        inner = Recorder(self.fake_mode, self.decompositions)
        inner.is_subgraph, inner.on_data_dependent_number = True, self.on_data_dependent_number
        inner.floats_as_tensors = self.floats_as_tensors
        inner._names, inner.regions, inner.split_region = self._names, self.regions, self.split_region
        inner.origins = Origins(caller=self.origin)
        return inner

    def new_tangent(self, like: Any, name: str, stage: str, reason: str) -> tuple[Node, Any]:
        """Return a tangent's node and fake tensor, in the layout of `like`, contiguous if that has gaps or
        overlaps."""
        kind = {"dtype": like.dtype, "device": like.device}
        if aten.is_non_overlapping_and_dense.default(like):
            tensor = torch.empty_strided(like.shape, like.stride(), **kind)
        else:
            tensor = torch.empty(like.shape, **kind)
        origin = Origin(NO_ORIGIN, "", backward=True, stage=stage, reason=reason)
        node = Node(self.name(node_name(name)), None, (), {}, tensor, origin)
        return node, self.new_alias(node)

    def current_frames(self) -> Frames:
        return self.origins.current_frames()
