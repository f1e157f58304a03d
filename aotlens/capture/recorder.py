"""The recorder: one pass over the user's function that observes, functionalises and writes down.

It is a dispatch mode below autograd and above fake tensors.  Invariant: every operator that reaches it
either becomes nodes without side effects, or is refused by name; what the user's tensors alias, and who
wrote to them where, is known at every moment (`aotlens.capture.storage`).
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import torch

from aotlens.capture.frames import user_place
from aotlens.capture.operators import Decompositions, Kind, Operator, aten, describe, missing_defaults
from aotlens.capture.storage import Storage, Tracked, Write
from aotlens.capture.symbols import Symbols
from aotlens.capture.views import ViewStep, put_back
from aotlens.errors import UnsupportedError
from aotlens.ir.origin import NOWHERE, Origin, Place
from aotlens.ir.program import Node, nodes_in, op_name
from aotlens.torch_api import (
    FakeTensor,
    FakeTensorMode,
    TorchDispatchMode,
    current_autograd_node,
    next_sequence_number,
)

PLAIN = frozenset(
    {int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)
TRACK = "_aotlens_tracked"
"""The attribute under which a fake tensor carries its `Tracked`."""

QUERIES = frozenset(
    {
        torch.ops.prim.device.default,
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

Call = tuple[Any, tuple[Any, ...], dict[str, Any], Any, Origin]
"""One operator as the user's code ran it: overload, arguments, keyword arguments, result, origin."""


def getitem(values: Any, index: int) -> Any:
    """One result of an operator that gives several."""
    return values[index]


class Recorder(TorchDispatchMode):
    """Records one function's forward, and then its backward, as nodes."""

    def __init__(self, fake_mode: FakeTensorMode, decompositions: Decompositions, boundary: CodeType) -> None:
        super().__init__()
        self.fake_mode = fake_mode
        self.nodes: list[Node] = []
        self.calls: list[Call] = []
        self.symbols = Symbols(self.add_node)
        self.place: Place | None = None
        """Set by a frontend that knows the place itself; None walks the stack."""
        self.in_backward = False
        self._decompositions = decompositions
        self._boundary = boundary
        self._origin = Origin(NOWHERE, "")
        self._depth = 0
        self._names: dict[str, int] = {}
        self._sequence: list[int] = []
        self._by_sequence: list[Origin] = []
        self._constants: dict[int, Any] = {}
        self._handlers: dict[Kind, Callable[..., Any]] = {
            Kind.PURE: self._pure,
            Kind.VIEW: self._view,
            Kind.SAME: self._same,
            Kind.MUTATION: self._mutation,
            Kind.METADATA_MUTATION: self._metadata_mutation,
            Kind.COMPOSITE: self._composite,
            Kind.REFUSED: self._refused,
        }

    # --- entry -------------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in QUERIES:
            return self._answer(func, args, kwargs)
        operator = describe(func)
        if self._depth:
            return self._handlers[operator.kind](func, operator, args, kwargs)
        self._origin = origin = self._new_origin(func)
        self._depth = 1
        try:
            result = self._handlers[operator.kind](func, operator, args, kwargs)
        finally:
            self._depth = 0
        if not self.in_backward:
            self.calls.append((func, args, kwargs, result, origin))
        return result

    def _answer(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is torch.ops.prim.device.default and type(args[0]) is FakeTensor:
            return args[0].fake_device
        return func(*args, **kwargs)

    def _new_origin(self, func: Any) -> Origin:
        place = self.place or user_place(self._boundary)
        if self.in_backward:
            node = current_autograd_node()
            forward = self._forward_origin(node) if node is not None else None
            if forward is not None and not place.frames:
                place = forward.place
            return Origin(place, op_name(func), backward=True)
        origin = Origin(place, op_name(func))
        number = next_sequence_number() - 1
        if not self._sequence or number > self._sequence[-1]:
            self._sequence.append(number)
            self._by_sequence.append(origin)
        return origin

    def _forward_origin(self, node: Any) -> Origin | None:
        """The forward operator that an autograd node differentiates: the last one not numbered after it."""
        at = bisect_right(self._sequence, node._sequence_nr())
        return self._by_sequence[at - 1] if at else None

    @contextmanager
    def adding(self, stage: str, reason: str, place: Place = NOWHERE) -> Iterator[None]:
        """Within the block, nodes are added by a stage of ours and not by the user's code."""
        before, self._origin = self._origin, Origin(place, "", self.in_backward, stage, reason)
        try:
            yield
        finally:
            self._origin = before

    # --- nodes -------------------------------------------------------------------------------------------

    def name(self, base: str) -> str:
        """A name that no other node has."""
        count = self._names.get(base)
        self._names[base] = 0 if count is None else count + 1
        return base if count is None else self.name(f"{base}_{count + 1}")

    def add_node(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], val: Any, origin: Origin | None = None
    ) -> Node:
        base = getattr(op, "__name__", str(op)).split(".")[0].strip("_") or "node"
        node = Node(self.name(base), op, args, kwargs, val, origin or self._origin)
        self.nodes.append(node)
        return node

    def emit(self, op: Any, *args: Any, **kwargs: Any) -> Node:
        """Record one operator on nodes, decomposed where the table says so."""
        values = [self._value(arg) for arg in args]
        decomposed = self._emit_decomposed(op, values, args, kwargs) if op in self._decompositions else None
        if decomposed is not None:
            return decomposed
        return self.add_node(op, tuple(self._symbolic(arg) for arg in args), kwargs, op(*values, **kwargs))

    def _emit_decomposed(self, op: Any, values: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The node (or list of nodes) of a decomposed operator; None when the rule does not apply here."""
        bound = [self._bind(value, arg) for value, arg in zip(values, args, strict=True)]
        depth, self._depth = self._depth, 1
        try:
            with self:
                result = self._decompositions[op](*bound, **kwargs)
        finally:
            self._depth = depth
        if result is NotImplemented:
            return None
        node = self._nodes(result)
        given = {id(arg) for arg in nodes_in(args)}
        if type(node) is Node and id(node) in given and describe(op).kind is not Kind.VIEW:
            return self.emit(aten.clone.default, node)
        return node

    def item(self, node: Any, index: int) -> Node:
        """One result of a node that gives several."""
        if isinstance(node, (list, tuple)):
            return node[index]  # type: ignore[no-any-return]
        return self.add_node(getitem, (node, index), {}, node.val[index])

    def _symbolic(self, arg: Any) -> Any:
        return arg if type(arg) is Node or type(arg) in PLAIN else self._argument(arg)

    def _value(self, arg: Any) -> Any:
        if type(arg) is Node:
            return arg.val
        if type(arg) in (list, tuple):
            return [self._value(item) for item in arg]
        return arg

    def _bind(self, value: Any, arg: Any) -> Any:
        """A fresh tensor that stands for a node, so that a decomposition can run on it."""
        if type(arg) is Node and isinstance(value, torch.Tensor):
            alias = value.detach()
            self.track(alias, Storage(arg, alias))
            return alias
        if type(arg) in (list, tuple):
            return [self._bind(v, a) for v, a in zip(value, arg, strict=True)]
        return value

    def _nodes(self, result: Any) -> Any:
        if isinstance(result, torch.Tensor):
            return self.node_of(result)
        return [self._nodes(item) for item in result]

    # --- tensors -----------------------------------------------------------------------------------------

    def track(self, tensor: Any, storage: Storage) -> None:
        """Make the tensor the whole of a storage's current value."""
        setattr(tensor, TRACK, Tracked(storage, (), storage.base, storage.version))

    def tracked(self, tensor: Any) -> Tracked:
        """What is known of a tensor; a real tensor becomes a constant."""
        found = getattr(tensor, TRACK, None)
        if found is not None and getattr(found.storage, "base", None) is not None:
            return found  # type: ignore[no-any-return]
        if type(tensor) is FakeTensor:
            raise UnsupportedError("a tensor that was made outside the traced function", self.span)
        return self.tracked(self._constant(tensor))

    def node_of(self, tensor: Any) -> Node:
        """The node of a tensor's current value, looked up again after a write to its storage."""
        tracked = self.tracked(tensor)
        storage = tracked.storage
        if tracked.version != storage.version:
            tracked.node = self._replay(storage, tracked.chain)
            tracked.version = storage.version
        return tracked.node

    def _replay(self, storage: Storage, chain: tuple[ViewStep, ...]) -> Node:
        if not chain:
            return storage.base
        known = storage.views.get(chain)
        if known is None:
            source = self._replay(storage, chain[:-1])
            known = storage.views[chain] = chain[-1].apply(self, source)
        return known

    def __call__(self, op: Any, *args: Any, **kwargs: Any) -> Node:
        """The recorder is the `Emit` of the view rules."""
        return self.emit(op, *args, **kwargs)

    def _constant(self, tensor: Any) -> Any:
        known = self._constants.get(id(tensor))
        if known is None:
            if not isinstance(tensor, (torch.Tensor, torch.Generator)):
                raise UnsupportedError(f"an argument of type `{type(tensor).__name__}`", self.span)
            if isinstance(tensor, torch.Generator):
                raise UnsupportedError("a random operator with a generator of its own", self.span)
            if tensor.requires_grad:
                raise UnsupportedError(
                    "a tensor that requires grad and is neither argument nor parameter of the compiled function",
                    self.span,
                    "pass it as an argument, or compile the module that owns it",
                )
            fake = self.fake_mode.from_tensor(tensor)
            name = self.name("constant")
            node = Node(name, None, (), {}, fake, self._origin, constant=tensor)
            self.nodes.insert(0, node)
            alias = fake.detach()
            self.track(alias, Storage(node, alias))
            known = self._constants[id(tensor)] = (alias, tensor)
        return known[0]

    def _argument(self, arg: Any) -> Any:
        kind = type(arg)
        if kind is FakeTensor:
            return self.node_of(arg)
        if kind in PLAIN:
            return arg
        if kind is list or kind is tuple:
            return [self._argument(item) for item in arg]
        if isinstance(arg, (torch.Tensor, torch.Generator)):
            return self.node_of(arg)
        if isinstance(arg, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self.symbols.value(arg)
        return arg

    def _keywords(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {key: self._argument(value) for key, value in kwargs.items()} if kwargs else {}

    @property
    def span(self) -> Any:
        """The user's expression that runs now, or ran last."""
        return self._origin.place.innermost

    # --- one handler per kind of operator ----------------------------------------------------------------

    def _pure(self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func in self._decompositions:
            return self._decomposed(func, args, kwargs)
        if any(isinstance(arg, torch.Tensor) and type(arg) is not FakeTensor for arg in args):
            args = tuple(self._faked(arg) for arg in args)
        node_args = tuple([self._argument(arg) for arg in args])
        result = func(*args, **kwargs)
        node = self.add_node(func, node_args, self._keywords(kwargs), result)
        self._adopt(node, result)
        return result

    def _faked(self, arg: Any) -> Any:
        if isinstance(arg, torch.Tensor) and type(arg) is not FakeTensor:
            return self._constant(arg)
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
            self.symbols.define(result, node)

    def _decomposed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self:
            result = self._decompositions[func](*args, **kwargs)
        if result is NotImplemented:
            rest = {key: rule for key, rule in self._decompositions.items() if key is not func}
            table, self._decompositions = self._decompositions, rest
            try:
                return self._pure(func, describe(func), args, kwargs)
            finally:
                self._decompositions = table
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
        if type(source) is not FakeTensor:
            args = (source := self._faked(source), *args[1:])
        tracked = self.tracked(source)
        source_node = self.node_of(source)
        result = func(*args, **kwargs)
        several = isinstance(result, (list, tuple))
        step = ViewStep(func, args[1:], tuple(kwargs.items()))
        node: Any = None
        if func not in self._decompositions and source_node.val.stride() == source.stride():
            node = self.add_node(func, (source_node, *self._argument(args[1:])), self._keywords(kwargs), result)
        else:
            node = self.emit(func, source_node, *args[1:], **kwargs)
        for index, view in enumerate(result if several else (result,)):
            one = ViewStep(func, step.args, step.kwargs, index) if several else step
            chain = (*tracked.chain, one)
            view_node = self.item(node, index) if several else node
            setattr(view, TRACK, Tracked(tracked.storage, chain, view_node, tracked.storage.version))
        return result

    def _same(self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        source = args[0]
        result = func(*args, **kwargs)
        if type(source) is not FakeTensor:
            constant = self.node_of(self._constant(source))
            fresh = self.add_node(aten.clone.default, (constant,), {}, result)
            self.track(result, Storage(fresh, result))
            return result
        node = self.node_of(source)
        known = self.tracked(source)
        setattr(result, TRACK, Tracked(known.storage, known.chain, node, known.version))
        return result

    def _composite(self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self:
            return func.decompose(*args, **kwargs)

    def _refused(self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        case = f"storage mutation by `{op_name(func)}`"
        raise UnsupportedError(case, self.span, "give the new tensor as a result instead")

    def _metadata_mutation(
        self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        tensor = args[0]
        tracked = self.tracked(tensor)
        if func is aten.detach_.default:
            return func(*args, **kwargs)
        if operator.functional is None:
            raise UnsupportedError(f"metadata mutation by `{op_name(func)}`", self.span)
        node = self.emit(operator.functional, self.node_of(tensor), *args[1:], **kwargs)
        step = ViewStep(operator.functional, args[1:], tuple(kwargs.items()))
        func(*args, **kwargs)
        setattr(tensor, TRACK, Tracked(tracked.storage, (*tracked.chain, step), node, tracked.version))
        return tensor

    def _mutation(self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        written = [args[at] if isinstance(at, int) else kwargs[at] for at in operator.written]
        if any(tensor is None for tensor in written) or _only_reads(func, args):
            return self._pure(func, Operator(Kind.PURE), args, kwargs)
        if operator.functional is None:
            raise UnsupportedError(
                f"mutation by `{op_name(func)}`, which has no functional variant", self.span
            )
        targets = [t for item in written for t in (item if isinstance(item, (list, tuple)) else (item,))]
        for target in targets:
            self._check_writable(target, func)
        values, results = self._new_values(func, operator, args, kwargs, len(targets))
        for target, value in zip(targets, values, strict=True):
            self._write(target, self._fitted(func, args, kwargs, target, value))
        if not func._schema.returns:
            return None
        if not operator.returns_written:
            return results
        return targets[0] if len(targets) == 1 else tuple(targets)

    def _new_values(
        self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], count: int
    ) -> tuple[list[Node], Any]:
        """The written tensors' new values, and what else the operator returns."""
        if func is aten.copy_.default:
            return [self._copied(*args[:2])], None
        inputs = {key: value for key, value in kwargs.items() if key not in operator.written}
        args = (*args, *missing_defaults(func, operator.functional, len(args)))
        node = self.emit(
            operator.functional, *[self._argument(arg) for arg in args], **self._keywords(inputs)
        )
        results = operator.functional._schema.returns
        if len(results) == 1 and not isinstance(node.val if type(node) is Node else node, (list, tuple)):
            return [node], None
        total = len(node.val) if type(node) is Node else len(node)
        nodes = [self.item(node, index) for index in range(total)]
        if any("[]" in str(result.type) or "List" in str(result.type) for result in results) and len(results) > 1:
            nodes = [self.item(group, i) for group in nodes for i in range(len(group.val))]
        for node in nodes[: len(nodes) - count]:
            self.track(node.val, Storage(node, node.val))
        others = tuple(node.val for node in nodes[: len(nodes) - count])
        return nodes[len(nodes) - count :], others if len(others) != 1 else others[0]

    def _copied(self, target: Any, source: Any) -> Node:
        """The value of `target` after `copy_`: a copy of the source in the target's layout."""
        if not isinstance(source, torch.Tensor):
            return self.emit(aten.fill.Scalar, self.node_of(target), source)
        node = self.node_of(source)
        same = (
            node.val.dtype == target.dtype
            and node.val.shape == target.shape
            and node.val.stride() == target.stride()
            and node.val.device == target.device
        )
        if same:
            return self.emit(aten.clone.default, node)
        return self.emit(aten.copy.default, self.node_of(target), node)

    def _fitted(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], target: Any, value: Node
    ) -> Node:
        """The new value in the written tensor's dtype; a misfit raises the operator's own error."""
        if value.val.shape != target.shape or value.val.dtype != target.dtype:
            func(*args, **kwargs)
            if value.val.shape != target.shape:
                raise UnsupportedError(f"`{op_name(func)}` to a tensor of another size", self.span)
            value = self.emit(aten._to_copy.default, value, dtype=target.dtype)
        return value

    def _check_writable(self, target: Any, func: Any) -> None:
        tracked = self.tracked(target)
        if tracked.storage.base.constant is not None:
            raise UnsupportedError(
                f"mutation by `{op_name(func)}` of a tensor that is neither argument, parameter nor buffer",
                self.span,
                "pass it as an argument or register it as a buffer",
            )
        if len(tracked.storage.inputs) > 1:
            raise UnsupportedError(
                f"mutation by `{op_name(func)}` of one of several inputs that share a storage "
                "(synthetic base)",
                self.span,
                "clone one of them before the call",
            )

    def _write(self, target: Any, value: Node) -> None:
        """Give a tensor's storage the value that a write through this tensor leaves."""
        tracked = self.tracked(target)
        storage = tracked.storage
        new = value
        for at in range(len(tracked.chain) - 1, -1, -1):
            source = self._replay(storage, tracked.chain[:at])
            new = put_back(self, source, tracked.chain[at], new)
        storage.base = new
        storage.version += 1
        storage.views = {tracked.chain: value} if tracked.chain else {}
        storage.writes.append(Write(self._origin, torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
        tracked.node, tracked.version = value, storage.version
        if getattr(target, "constant", None) is not None:
            self.fake_mode.fake_tensor_converter.invalidate_constant_aliases(target.constant)


def _only_reads(func: Any, args: tuple[Any, ...]) -> bool:
    """Batch norm in eval mode: it is marked as writing, but writes only when training."""
    if func._schema.name.endswith("native_batch_norm"):
        return not args[5]
    return False
