"""The recorder: one pass over the user's function that observes, functionalises and writes down.

It is a dispatch mode below autograd and above fake tensors.  Invariant: every operator that reaches it
either becomes nodes without side effects, or is refused by name; what the user's tensors alias, and who
wrote to them where, is known at every moment (`aotlens.capture.tape`).
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import CodeType
from typing import Any

import torch

from aotlens.capture.bodies import INLINE, record_higher_order
from aotlens.capture.checkpoints import Checkpoints
from aotlens.capture.custom_operators import record_custom_mutation
from aotlens.capture.exchanges import record_data_assignment, record_exchange, record_resize_of
from aotlens.capture.frames import user_place
from aotlens.capture.mutations import Write, only_reads, record_metadata_mutation, record_mutation
from aotlens.capture.operators import (
    RESIZE_STORAGE,
    Decompositions,
    Kind,
    Operator,
    aten,
    describe,
    is_builtin,
    is_operator,
)
from aotlens.capture.randomness import RandomState, without_generators
from aotlens.capture.storage import Storage, Tracked
from aotlens.capture.tape import TRACK, Tape
from aotlens.capture.views import ViewStep
from aotlens.capture.wrappers import has_wrapper, note_result
from aotlens.errors import UnsupportedError
from aotlens.ir.origin import NOWHERE, Checkpoint, Origin, Place
from aotlens.ir.program import Node, nodes_in, op_name
from aotlens.torch_api import (
    DATA_DEPENDENT_ERRORS,
    FakeTensor,
    FakeTensorMode,
    TorchDispatchMode,
    current_autograd_node,
    known_number,
    make_shape_env,
    next_sequence_number,
    pytree,
    tell_of_silent_changes,
)

QUERIES = frozenset(
    {
        torch.ops.prim.device.default,
        torch.ops.prim.layout.default,
        aten.size.default,
        aten.sym_size.default,
        aten.sym_size.int,
        aten.stride.default,
        aten.sym_stride.default,
        aten.sym_stride.int,
        aten.sym_numel.default,
        aten.numel.default,
        aten.dim.default,
        aten.is_contiguous.default,
        aten.is_contiguous.memory_format,
        aten.is_strides_like_format.default,
        aten.is_non_overlapping_and_dense.default,
        aten.storage_offset.default,
        aten.sym_storage_offset.default,
        aten.is_same_size.default,
        aten._has_compatible_shallow_copy_type.default,
    }
)
"""Questions about metadata: answered by the fake tensors, not recorded."""

tell_of_silent_changes()

Call = tuple[Any, tuple[Any, ...], dict[str, Any], Any, Origin]
"""One operator as the user's code ran it: overload, arguments, keyword arguments, result, origin."""


class Recorder(Tape, TorchDispatchMode):
    """Records one function's forward, and then its backward, as nodes."""

    supports_higher_order_operators = True

    def __init__(self, fake_mode: FakeTensorMode, decompositions: Decompositions, boundary: CodeType) -> None:
        Tape.__init__(self, fake_mode)
        TorchDispatchMode.__init__(self)
        self.calls: list[Call] = []
        self.checkpoints = Checkpoints()
        self.random = RandomState(self)
        self.place: Place | None = None
        """Set by a frontend that knows the place itself; None walks the stack."""
        self.decompositions = decompositions
        self.decomposed = False
        """Whether any operator was taken apart."""
        self._boundary = boundary
        self._default_dtype = torch.get_default_dtype()
        self._depth = 0
        self._declines = False
        self._sequence: list[int] = []
        self._by_sequence: list[Origin] = []
        self._handlers: dict[Kind, Callable[..., Any]] = {
            Kind.PURE: self.pure,
            Kind.NUMBER: self._number,
            Kind.VIEW: self._view,
            Kind.SAME: self._same,
            Kind.MUTATION: self._mutation,
            Kind.METADATA_MUTATION: lambda *call: record_metadata_mutation(self, Write(*call)),
            Kind.COMPOSITE: self._composite,
            Kind.EXCHANGE: lambda *call: record_exchange(self, Write(*call)),
            Kind.HIGHER_ORDER: self._higher_order,
            Kind.EFFECT: self._effect,
        }
        self.arguments: tuple[Any, ...] = ()
        """The tensors among the arguments."""
        self._stage: tuple[str, str] | None = None
        """The stage of ours that runs operators now, and why; None for the user's code."""
        self._caller: Origin | None = None
        """Of the higher-order operator whose body is recorded; None for the user's function itself."""

    def data_assigned(self, target: Any, source: Any) -> None:
        """`target.data = source` is about to happen, which no operator tells of."""
        self.origin = self._new_origin(aten.set_.source_Tensor, None)
        record_data_assignment(self, target, source)
        self.calls.append((aten.set_.source_Tensor, (target, source), {}, target, self.origin))

    def storage_resized(self, storage: Any, size: Any) -> None:
        """`storage.resize_(size)` is about to happen, which no operator tells of."""
        self.origin = self._new_origin(RESIZE_STORAGE.default, None)
        record_resize_of(self, storage, size)

    def seen_tensors(self) -> Iterator[Any]:
        """The arguments, and every tensor that an operator took or gave so far."""
        yield from self.arguments
        for _, args, _, result, _ in self.calls:
            for value in pytree.tree_leaves((args, result)):
                if type(value) is FakeTensor:
                    yield value

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if has_wrapper(types):
            return self._desugared(func, args, kwargs)
        if func in QUERIES:
            return self._answer(func, args, kwargs)
        operator = describe(func)
        if self._depth:
            return self._handlers[operator.kind](func, operator, args, kwargs)
        mark = self.checkpoints.mark(func, args, kwargs) if self.checkpoints.active else None
        self.origin = self._new_origin(func, mark)
        self._depth = 1
        try:
            result = self._handlers[operator.kind](func, operator, args, kwargs)
        except UnsupportedError:
            if not self._on_stand_ins(args, kwargs):
                raise
            return func(*args, **kwargs)
        finally:
            self._depth = 0
        if not self.in_backward:
            if (
                torch.get_default_dtype() is not self._default_dtype
                and operator.kind is not Kind.HIGHER_ORDER
            ):
                kwargs = _with_dtype(func, kwargs, result)
            self.calls.append((func, args, kwargs, result, self.origin))
        return result

    def _on_stand_ins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether all tensors were made outside: by torch, which traces a higher-order operator's gradient.

        What comes of them is a stand-in too, and refused where it meets the recording.
        """
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        return bool(tensors) and not any(
            type(tensor) is not FakeTensor or hasattr(tensor, TRACK) for tensor in tensors
        )

    def _desugared(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let the subclass take an operator on wrappers apart; its inner operators come back here.

        The operator is called once more so that torch itself finds the subclass's way (a DTensor's is not in
        Python); that second time it is declined.
        """
        if self._declines:
            self._declines = False
            return NotImplemented
        query, place = func in QUERIES, self.place
        if not query and place is None:
            self.place = user_place(self._boundary)
        self._declines = True
        try:
            with self:
                result = func(*args, **kwargs)
            if not query:
                self.origin = self._new_origin(func, None)
                note_result(self, Write(func, describe(func), args, kwargs), result)
        finally:
            self._declines, self.place = False, place
        return result

    @contextmanager
    def on_behalf_of(self, stage: str, reason: str) -> Iterator[None]:
        """Within the block, a stage of ours runs operators on the recorded tensors, seen by autograd."""
        self._stage = (stage, reason)
        try:
            yield
        finally:
            self._stage = None

    def note_call(self, call: Any) -> None:
        self.calls.append(call)

    def play(self, call: Call) -> Any:
        """Record one call of another recording, its arguments given as this recording's; its result here.

        Call it below autograd and in the fake mode, with this recorder off the stack of modes.
        """
        func, args, kwargs, _, self.origin = call
        if not is_operator(func):
            result = None if call[3] is None else call[3].detach()
            node = self.add_node(func, tuple(self.argument(arg) for arg in args), {}, result)
            self._adopt(node, result)
            return result
        self._depth = 1
        try:
            return self._handlers[describe(func).kind](func, describe(func), args, kwargs)
        finally:
            self._depth = 0

    def _answer(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is torch.ops.prim.device.default and type(args[0]) is FakeTensor:
            return args[0].fake_device
        return func(*args, **kwargs)

    def body(self) -> "Recorder":
        body = Recorder(self.fake_mode, self.decompositions, self._boundary)
        body._names = self._names
        body._caller = self.origin
        return body

    def _origin_in_body(self, func: Any, caller: Origin) -> Origin:
        place = self.place or user_place(self._boundary)
        if not place.frames and not place.known_spans:
            place = caller.place
        return Origin(place, op_name(func), caller.backward, differentiates=caller.differentiates)

    def _new_origin(self, func: Any, checkpoint: Checkpoint | None) -> Origin:
        if self._caller is not None:
            return self._origin_in_body(func, self._caller)
        place = self.place or user_place(self._boundary)
        if self.in_backward:
            node = current_autograd_node()
            forward = self._forward_origin(node) if node is not None else None
            if forward is not None and not place.frames:
                place = forward.place
            return Origin(place, op_name(func), backward=True, differentiates=forward)
        origin = Origin(place, op_name(func), checkpoint=checkpoint)
        if self._stage is not None:
            origin = Origin(NOWHERE, op_name(func), stage=self._stage[0], reason=self._stage[1])
        number = next_sequence_number() - 1
        if not self._sequence or number > self._sequence[-1]:
            self._sequence.append(number)
            self._by_sequence.append(origin)
        return origin

    def place_here(self) -> Place:
        return self.place or user_place(self._boundary)

    def _forward_origin(self, node: Any) -> Origin | None:
        """The forward operator that an autograd node differentiates: the last one not numbered after it."""
        at = bisect_right(self._sequence, node._sequence_nr())
        return self._by_sequence[at - 1] if at else None

    def decomposed_node(
        self, op: Any, values: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if op not in self.decompositions:
            return None
        bound = [self._bind(value, arg) for value, arg in zip(values, args, strict=True)]
        depth, self._depth = self._depth, 1
        try:
            with self:
                result = self.decompositions[op](*bound, **kwargs)
        finally:
            self._depth = depth
        if result is NotImplemented:
            return None
        self.decomposed = True
        node = self._nodes(result)
        given = {id(arg) for arg in nodes_in(args)}
        if type(node) is Node and id(node) in given and describe(op).kind is not Kind.VIEW:
            return self.emit(aten.clone.default, node)
        return node

    def _bind(self, value: Any, arg: Any) -> Any:
        """A fresh tensor that stands for a node, so that a decomposition can run on it."""
        if type(arg) is Node and isinstance(value, torch.Tensor):
            alias = value.detach()
            self.track(alias, Storage(arg, alias))
            return alias
        if type(arg) in (list, tuple):
            return [self._bind(v, a) for v, a in zip(value, arg, strict=True)]
        return value

    def pure(self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func in self.decompositions:
            return self._decomposed(func, args, kwargs)
        if any(isinstance(arg, torch.Tensor) and type(arg) is not FakeTensor for arg in args):
            args = tuple(self._faked(arg) for arg in args)
        node_args = tuple([self.argument(arg) for arg in args])
        try:
            result = func(*args, **(without_generators(kwargs) if kwargs and operator.random else kwargs))
        except DATA_DEPENDENT_ERRORS:
            result = self._with_symbols(func, args, kwargs)
        if torch.get_default_dtype() is not self._default_dtype:
            kwargs = _with_dtype(func, kwargs, result)
        node = self.add_node(func, node_args, self.keywords(kwargs), result)
        self._adopt(node, result)
        return result

    def _number(self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A tensor whose value is known, so that an operator may ask for it (`cov` does)."""
        device = kwargs.get("device")
        if type(args[0]) not in (int, float, bool) or (device is not None and device.type != "cpu"):
            return self.pure(func, operator, args, kwargs)
        result = known_number(self.fake_mode, lambda: func(*args, **kwargs))
        if torch.get_default_dtype() is not self._default_dtype:
            kwargs = _with_dtype(func, kwargs, result)
        self._adopt(self.add_node(func, args, kwargs, result), result)
        return result

    def _with_symbols(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Under known sizes too, a number that only the data tells is a symbol; made when one is met."""
        if self.fake_mode.shape_env is not None:
            raise UnsupportedError(f"a result of `{op_name(func)}`, which depends on data", self.span)
        self.fake_mode.shape_env = make_shape_env()
        return func(*args, **kwargs)

    def _faked(self, arg: Any) -> Any:
        if isinstance(arg, torch.Tensor) and type(arg) is not FakeTensor:
            return self.constant(arg)
        return arg

    def _adopt(self, node: Node, result: Any) -> None:
        """Track each tensor of a new result as a storage of its own."""
        if isinstance(result, torch.Tensor):
            self.track(result, Storage(node, result))
        elif isinstance(result, (list, tuple)):
            for index, item in enumerate(result):
                if isinstance(item, torch.Tensor):
                    self.track(item, Storage(self.item(node, index), item))
        elif isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            self.symbols.define_data(node, self.item, set(result.node.expr.free_symbols))

    def _decomposed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self:
            result = self.decompositions[func](*args, **kwargs)
        if result is NotImplemented:
            rest = {key: rule for key, rule in self.decompositions.items() if key is not func}
            table, self.decompositions = self.decompositions, rest
            try:
                return self.pure(func, describe(func), args, kwargs)
            finally:
                self.decompositions = table
        self.decomposed = True
        return self._fresh(result, args)

    def _fresh(self, result: Any, args: tuple[Any, ...]) -> Any:
        """A new value where a decomposition gave an argument back, since the operator promises a new one."""
        if isinstance(result, (list, tuple)):
            return [self._fresh(item, args) for item in result]
        if not isinstance(result, torch.Tensor):
            return result
        storage = self.tracked(result).storage
        for arg in args:
            if isinstance(arg, torch.Tensor) and self.tracked(arg).storage is storage:
                with self:
                    return aten.clone.default(result)
        return result

    def _view(self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        source = args[0]
        if isinstance(source, (int, float, complex)):  # autograd takes the conjugate of a factor `2j`
            with self:
                source = torch.scalar_tensor(source, dtype=torch.complex128)
            args = (source, *args[1:])
        if type(source) is not FakeTensor:
            args = (source := self._faked(source), *args[1:])
        tracked = self.tracked(source)
        source_node = self.node_of(source)
        result = func(*args, **kwargs)
        several = isinstance(result, (list, tuple))
        step = ViewStep(func, args[1:], tuple(kwargs.items()), None, torch.is_grad_enabled())
        node: Any = None
        if func not in self.decompositions and source_node.val.stride() == source.stride():
            node = self.add_node(func, (source_node, *self.argument(args[1:])), self.keywords(kwargs), result)
        else:
            node = self.emit(func, source_node, *args[1:], **kwargs)
        for index, view in enumerate(result if several else (result,)):
            one = replace(step, result=index) if several else step
            chain = (*tracked.chain, one)
            view_node = self.item(node, index) if several else node
            setattr(view, TRACK, Tracked(tracked.storage, chain, view_node, tracked.storage.version))
        return result

    def _same(self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        source = args[0]
        result = func(*args, **kwargs)
        if type(source) is not FakeTensor:
            constant = self.node_of(self.constant(source))
            fresh = self.add_node(aten.lift_fresh_copy.default, (constant,), {}, result)
            self.track(result, Storage(fresh, result))
            return result
        node = self.node_of(source)
        known = self.tracked(source)
        setattr(result, TRACK, Tracked(known.storage, known.chain, node, known.version))
        return result

    def _composite(self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self:
            return func.decompose(*args, **kwargs)

    def _effect(self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.origin = replace(self.origin, effect=True)
        return self.pure(func, operator, args, kwargs)

    def _higher_order(
        self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if func.name() in INLINE:
            self._depth = 0
            with self:
                return args[0](*args[1])
        result, args, kwargs = record_higher_order(self, func, args, kwargs)
        if not self.in_backward:
            self.calls.append((func, args, kwargs, result, self.origin))
        return result

    def _mutation(self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = Write(func, operator, args, kwargs)
        if operator.functional is None and not is_builtin(func):
            return record_custom_mutation(self, call)
        if only_reads(call):
            return self.pure(func, Operator(Kind.PURE), args, kwargs)
        return record_mutation(self, call)


def _with_dtype(func: Any, kwargs: dict[str, Any], result: Any) -> dict[str, Any]:
    """The type of a result spelled out, where the function has changed the default type for a while."""
    named = any(argument.name == "dtype" for argument in func._schema.arguments)
    if named and kwargs.get("dtype") is None and isinstance(result, torch.Tensor):
        return {**kwargs, "dtype": result.dtype}
    return kwargs
