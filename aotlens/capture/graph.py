"""The graph under construction: its nodes, and the current node of each of the user's tensors.

Invariant: every tensor that the user's function can hold has a node for its current value; after a write to
its storage the node is found again through the tensor's view chain.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from aotlens.capture.as_strided import step_from_base
from aotlens.capture.events import Call, Event, EventKind, Events
from aotlens.capture.invalid_views import check_view_is_valid
from aotlens.capture.operator_fixes import FAKES
from aotlens.capture.operators import aten
from aotlens.capture.storage import Storage, Tracked, Write, find_tracked, set_tracked
from aotlens.capture.symbols.numbers import Floats
from aotlens.capture.symbols.sizes import Symbols
from aotlens.capture.views import ViewStep
from aotlens.ir.names import free_name
from aotlens.ir.origin import NO_ORIGIN, Frames, Origin
from aotlens.ir.program import Node, getitem
from aotlens.ir.regions import Region
from aotlens.torch_api.dynamo.state import is_dynamo_input
from aotlens.torch_api.fake.tensors import FakeTensor, FakeTensorMode, to_fake
from aotlens.torch_api.objects import FakeScriptObject, ScriptObject
from aotlens.torch_api.operators import tensor_leaves
from aotlens.unsupported import unsupported

PLAIN = frozenset(
    {int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)


class Recording:
    """The nodes in recording order, and the tracked state of each tensor."""

    current_inputs: Any = None
    """While the backward is recorded: the inputs as the user's backward code reads them."""
    floats_as_tensors = False
    """Whether the graph must not read Python floats: see `aotlens.capture.symbols.numbers`."""
    is_replay: bool = False
    """Whether it replays another recording."""
    events = Events()
    """What happened to single tensors and no node shows."""

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        self.fake_mode = fake_mode
        self.nodes: list[Node] = []
        self.calls: list[Call] = []
        self.arguments: tuple[Any, ...] = ()
        """The tensors among the arguments."""
        self.symbols = Symbols(self._append, lambda: self.span)
        self.in_backward = False
        self.is_inside_operator = False
        """Whether the operators that run are parts of one call of the user's code, which `origin` names."""
        self.is_subgraph = False
        """Whether it records a subgraph of a higher-order operator."""
        self.originals: dict[int, Any] = {}
        """The caller's values by the identity of their fake argument."""
        self.origin = Origin(NO_ORIGIN, "")
        """The origin of new nodes."""
        self.regions: dict[Any, Any] = {}
        """Programs of marked regions, each recorded once."""
        self._names: dict[str, int] = {}
        self.objects: dict[int, Node] = {}
        """Nodes of generators and of fake torchbind objects, by identity."""
        self.on_data_dependent_number: Callable[[], None] = lambda: None
        """Called when a data-dependent number appears."""
        self.floats: Floats | None = None
        """The symbolic floats; set when `floats_as_tensors` holds and a float argument appears."""
        self.known_values: dict[Node, Any] = {}
        """Values that are the same at every call; None for those that only a call determines."""
        self.real_tensors: dict[int, tuple[Any, Any]] = {}
        """By identity, the real tensors that the function reads: the fake of each, and the tensor itself.

        The recording works on that fake, except that autograd's own reads of a leaf get another."""
        self.outside_inputs: list[tuple[Node, Any]] = []
        """Real tensors that require grad, which are inputs of the graph; all others are constants."""

    @contextmanager
    def adding(
        self, stage: str, reason: str, frames: Frames = NO_ORIGIN, forward: bool = False
    ) -> Iterator[None]:
        """Attribute the nodes in the block to one of our stages instead of the user's code.

        With `forward` they belong to the forward, even while the backward is recorded.
        """
        backward = self.in_backward and not forward
        before, self.origin = self.origin, Origin(frames, "", backward, stage, reason)
        try:
            yield
        finally:
            self.origin = before

    @property
    def span(self) -> Any:
        """The user's expression that runs now, or ran last."""
        return self.origin.location.innermost

    def name(self, base: str) -> str:
        """Return a name that no other node and no identifier of the module text has."""
        base = free_name(base)
        count = self._names.get(base)
        self._names[base] = 0 if count is None else count + 1
        if count is None:
            return base
        numbered = f"{base}_{count + 1}"
        return self.name(numbered) if free_name(numbered) == numbered else self.name(f"x_{base}")

    def add_node(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], val: Any, origin: Origin | None = None
    ) -> Node:
        node = self._append(op, args, kwargs, val, origin)
        environment = self.fake_mode.shape_env
        if environment is not None and environment.pending_fresh_unbacked_symbols:
            fresh = set(environment.pending_fresh_unbacked_symbols)
            environment.pending_fresh_unbacked_symbols.clear()
            self.on_data_dependent_number()
            self.symbols.define_data(node, self.item, fresh)
        return node

    def _append(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], val: Any, origin: Origin | None = None
    ) -> Node:
        base = getattr(op, "__name__", str(op)).split(".")[0].strip("_") or "node"
        node = Node(self.name(base), op, args, kwargs, val, origin or self.origin)
        self.nodes.append(node)
        return node

    def emit(self, op: Any, *args: Any, **kwargs: Any) -> Node:
        """Record one operator on nodes, decomposed if the table contains it."""
        values = [self._value(arg) for arg in args]
        decomposed = self.decomposed_node(op, values, args, kwargs)
        if decomposed is not None:
            return decomposed
        val = FAKES.get(op, op)(*values, **{key: self._value(value) for key, value in kwargs.items()})
        return self.add_node(op, tuple(self._symbolic(arg) for arg in args), kwargs, val)

    def decomposed_node(
        self, op: Any, values: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return the node (or list of nodes) of a decomposed operator; None for all others."""
        return None

    @contextmanager
    def inside_operator(self, origin: Origin) -> Iterator[None]:
        """Record the operators in the block as parts of one user call, which is added separately."""
        was_inside, before = self.is_inside_operator, self.origin
        self.is_inside_operator, self.origin = True, origin
        try:
            yield
        finally:
            self.is_inside_operator, self.origin = was_inside, before

    def seen_tensors(self) -> Iterator[Any]:
        """Yield the arguments, and every tensor that an operator has read or returned so far."""
        yield from self.arguments
        for call in self.calls:
            for value in tensor_leaves((call.args, call.result)):
                if type(value) is FakeTensor:
                    yield value

    def item(self, node: Any, index: int) -> Node:
        """Return one result of a node with several."""
        if isinstance(node, (list, tuple)):
            return node[index]
        return self.add_node(getitem, (node, index), {}, node.val[index])

    def split_regions(self) -> tuple[Region, ...]:
        """Return the marked regions that have a gradient, each once."""
        return tuple(entry[0] for entry in self.regions.values() if isinstance(entry[0], Region))

    def _symbolic(self, arg: Any) -> Any:
        return arg if type(arg) is Node or type(arg) in PLAIN else self.argument(arg)

    def _value(self, arg: Any) -> Any:
        if type(arg) is Node:
            return arg.val
        if type(arg) in (list, tuple):
            return [self._value(item) for item in arg]
        return arg

    def _nodes(self, result: Any) -> Any:
        if isinstance(result, torch.Tensor):
            return self.node_of(result)
        return [self._nodes(item) for item in result]

    def track(self, tensor: Any, storage: Storage) -> None:
        """Track the tensor as the whole of a storage's current value."""
        set_tracked(tensor, Tracked(storage, (), storage.base, storage.version))

    def new_alias(self, node: Node) -> Any:
        """Return a new fake tensor that is tracked as the node's value, on a storage of its own."""
        alias = node.val.detach()
        self.track(alias, Storage(node, alias))
        return alias

    def track_results(self, node: Node, result: Any) -> None:
        """Track each tensor of a new result as a storage of its own, including nested results."""
        if isinstance(result, torch.Tensor):
            self.track(result, Storage(node, result))
        elif isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            self.symbols.define_data(node, self.item, set(result.node.expr.free_symbols))
        elif isinstance(result, (list, tuple)):
            for index, item in enumerate(result):
                if isinstance(item, (torch.Tensor, list, tuple, torch.SymInt)):
                    self.track_results(self.item(node, index), item)

    def tracked(self, tensor: Any) -> Tracked:
        """Return the tracked state of a tensor; a real tensor becomes a constant."""
        record = find_tracked(tensor)
        if record is not None and getattr(record.storage, "base", None) is not None:
            return record
        if type(tensor) is not FakeTensor and hasattr(type(tensor), "__tensor_flatten__"):
            self.track(tensor, Storage(Node(self.name("wrapper"), None, (), {}, tensor, self.origin), tensor))
            return self.tracked(tensor)
        if type(tensor) is FakeTensor:
            raise unsupported("unexpected-fake", self.span)
        return self.tracked(self.fake_of(tensor))

    def fake_of(self, tensor: Any) -> Any:
        """Return the fake of a real tensor that the function reads; a new one when the recording meets it.

        Raises:
            UnsupportedError: it is no tensor.
        """
        known, _ = self.real_tensors.get(id(tensor), (None, None))
        if known is not None and (self.in_backward or not known.requires_grad):
            return known
        if not isinstance(tensor, torch.Tensor):
            raise unsupported("argument-type", self.span, type=type(tensor).__name__)
        sizes = {} if is_dynamo_input(tensor) else {"static_shapes": True}  # no call provides a symbol
        fake = to_fake(self.fake_mode, tensor, **sizes)
        if tensor.requires_grad:  # also one that has a fake already: autograd has reached the tensor itself
            node = Node(self.name("outside"), None, (), {}, fake, self.origin)
            self.outside_inputs.append((node, tensor))
        else:
            node = Node(self.name("constant"), None, (), {}, fake, self.origin, constant=tensor)
            self.nodes.insert(0, node)
        with torch.no_grad():
            alias = self.new_alias(node)
        self.real_tensors[id(tensor)] = alias, tensor
        return alias

    def node_of(self, tensor: Any) -> Node:
        """Return the node of a tensor's current value, also after a write to its storage."""
        if self.current_inputs is not None and (tracked := self.tracked(tensor)).storage.inputs:
            self.current_inputs.note_access(tracked)
        return self.node_to_view(tensor)

    def node_to_view(self, tensor: Any) -> Node:
        """Return the node for taking a view, which does not count as an access.

        Autograd itself takes views while it regenerates the grad_fn of a saved tensor, under a lock that an
        access would wait for.
        """
        tracked = self.tracked(tensor)
        storage = tracked.storage
        if (
            storage.metadata_mutations
            and tensor._base is not None
            and tensor.requires_grad
            and torch.is_grad_enabled()
        ):
            check_view_is_valid(tensor, self.span)
        if tracked.version != storage.version:
            tracked.node = self.replay(storage, tracked.chain)
            tracked.version = storage.version
        return tracked.node

    def replay(self, storage: Storage, chain: tuple[ViewStep, ...]) -> Node:
        """Return the node of the view to which a chain leads, of the storage's current value."""
        if not chain:
            return storage.base
        known = storage.views.get(chain)
        if known is None:
            source, step = self.source_of_view(storage, chain)
            known = storage.views[chain] = step.apply(self, source)
        return known

    def source_of_view(self, storage: Storage, chain: tuple[ViewStep, ...]) -> tuple[Node, ViewStep]:
        """Return the node that the last view of a chain views, and that view."""
        step = step_from_base(storage, chain)
        if step is not None:
            return storage.base, step
        return self.replay(storage, chain[:-1]), chain[-1]

    def use_constant_for(self, argument: Any, tensor: Any) -> None:
        """Give an argument that no node has read yet the node of a constant instead of an input's."""
        tracked = self.tracked(argument)
        tracked.node = tracked.storage.base = replace(tracked.node, constant=tensor)
        self.nodes.insert(0, tracked.node)

    def argument(self, arg: Any) -> Any:
        """Return a value as nodes take it: a tensor or symbol as its node, nested values likewise."""
        kind = type(arg)
        if kind is FakeTensor:
            return self.node_of(arg)
        if kind in PLAIN:
            return arg
        if kind is list or kind is tuple:
            return [self.argument(item) for item in arg]
        if isinstance(arg, torch.Tensor):
            return self.node_of(arg)
        if isinstance(arg, torch.Generator):
            return self.generator(arg)
        if isinstance(arg, (FakeScriptObject, ScriptObject)):
            return self.objects[id(arg)]
        if isinstance(arg, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            known = arg if self.floats is None else self.floats.specialised(arg)
            return self.symbols.value(arg) if known is arg else known
        return arg

    def generator(self, generator: torch.Generator) -> Node:
        """Return the node of a generator: an argument's, or a constant."""
        known = self.objects.get(id(generator))
        if known is None:
            known = Node(self.name("generator"), None, (), {}, None, self.origin, constant=generator)
            self.nodes.insert(0, known)
            self.objects[id(generator)] = known
        return known

    def add_call(self, call: tuple[Any, ...]) -> None:
        """Add a user call; some are represented by no operator."""
        self.calls.append(Call(*call))

    def current_frames(self) -> Frames:
        """Return the user's current frames; the recorder walks the stack."""
        return self.origin.location

    def note(self, kind: EventKind, tensor: Any) -> None:
        """Add an event that the user's current expression caused."""
        chain = tracked.chain if (tracked := find_tracked(tensor)) is not None else ()
        event = Event(kind, tensor, self.current_frames().innermost, len(self.calls), chain)
        self.events = self.events.with_event(event)

    def note_hidden_change(self, tensor: Any) -> None:
        """Note a change that autograd does not know; of several only the first."""
        if not self.events.has(EventKind.HIDDEN_CHANGE):
            self.note(EventKind.HIDDEN_CHANGE, tensor)

    def keywords(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {key: self.argument(value) for key, value in kwargs.items()} if kwargs else {}

    def read_number(self, tensor: Any, number: Any) -> None:
        """Record that a tensor's single value is a number which the frontend has as a symbol."""
        op = aten._local_scalar_dense.default
        self.symbols.define(number, self.add_node(op, (self.node_of(tensor),), {}, number))
        self.add_call((op, (tensor,), {}, number, self.origin))

    def use_view_of_storage(self, tensor: Any) -> None:
        """Read the tensor as a view of its storage's value: after a write, its node has its own memory."""
        tracked = self.tracked(tensor)
        if tracked.storage.version and tracked.chain:
            tracked.storage.views = {}
            tracked.version = -1

    def new_write(self, chain: tuple[ViewStep, ...] = (), version: int = 0) -> Write:
        """Return a write that happens now, through a tensor with this view chain."""
        return Write(self.origin, torch.is_grad_enabled(), chain, version)
