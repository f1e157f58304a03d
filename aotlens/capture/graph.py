"""The tape of a recording: its nodes, and which node each of the user's tensors stands for.

Invariant: every tensor that the user's function can hold has a node for its current value; after a write to
its storage that node is looked up again through the tensor's chain of views.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from aotlens.capture.as_strided import (
    MAY_REPEAT,
    as_strided_chain,
    check_as_strided_grad_fn,
    from_base,
    is_as_strided_chain,
    overlaps_itself,
)
from aotlens.capture.invalid_views import check_view_is_valid
from aotlens.capture.operators import FAKES, aten
from aotlens.capture.rng.generators import CreatedGenerators
from aotlens.capture.storage import Storage, Tracked, Write
from aotlens.capture.symbols.float_inputs import Floats
from aotlens.capture.symbols.size_nodes import Symbols
from aotlens.capture.views import ViewStep, inverse_write, with_lazy_bits_of
from aotlens.ir.names import free_name
from aotlens.ir.origin import NO_ORIGIN, Frames, Origin
from aotlens.ir.program import Node, getitem
from aotlens.ir.regions import Region
from aotlens.model.report import Span
from aotlens.torch_api.fake import FakeTensor, FakeTensorMode, to_fake
from aotlens.torch_api.objects import FakeScriptObject, ScriptObject
from aotlens.unsupported import unsupported

PLAIN = frozenset(
    {int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)
REAL_MODULES = (torch.Tensor, torch.nn.Parameter)
"""Types of tensors with memory of their own."""

TRACKED_ATTRIBUTE = "_aotlens_tracked"
"""The attribute under which a fake tensor carries its `Tracked`."""


class Recording:
    """Nodes in the order in which they were recorded, and what is known of each tensor."""

    current: Any = None
    """While the backward is recorded: the inputs as its own code finds them (`current_input_slots`)."""
    containers: tuple[Any, ...] = ()
    """Lists and dicts that the function is given: copies of the caller's."""

    fixed_floats = False
    """Whether the graph cannot read a number: see `aotlens.capture.symbols.float_inputs`."""
    outputs_requiring_grad: frozenset[int] = frozenset()
    """Identities of the results that require grad, noted where views lost their tensor's history."""
    resized_leaves: tuple[tuple[Any, int, Span | None], ...] = ()
    """Leaves that were given memory of other sizes (`.data`): how many operators had run, and where."""
    inference_data_spans: tuple[Span | None, ...] = ()
    """Where inference tensors got other memory (`.data`): they are none since, and count no versions."""
    is_replay: bool = False
    """Whether it records what another recording did, which was taken there."""
    reset_leaves_with_gradient: tuple[Any, ...] = ()
    """Of `reset_leaves` those that get their gradient there: nothing arrives at the former one."""

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        self.fake_mode = fake_mode
        self.nodes: list[Node] = []
        self.symbols = Symbols(self._append, lambda: self.span)
        self.in_backward, self._depth = False, 0
        """Above zero while an operator of the user's is recorded by the operators that it is made of."""
        self.is_subgraph = False
        """Whether it is the tape of a function of a higher-order operator."""
        self.has_metadata_mutation = False
        """Whether the sizes or strides of any tensor were changed in place."""
        self.intermediate_views: list[tuple[Tracked, int, Any]] = []
        """Views whose history misses a write of one `_foreach_` call; the storage's version, the line."""
        self.has_hidden_changes = False
        """Whether a tensor that requires grad was changed in a way that autograd cannot see (`.data`)."""
        self.swapped_tensors: list[Any] = []
        """Tensors that were given another storage."""
        self.views_before_detach: list[tuple[ViewStep, ...]] = []
        """Chains of views whose tensor lost its history after they were taken."""
        self.detached: list[tuple[Any, Span | None, int]] = []
        """Tensors that lost their history in place, where, and after how many operators."""
        self.originals: dict[int, Any] = {}
        """The caller's values by the identity of the argument that stands for each."""
        self.reset_leaves: list[Any] = []
        """Leaves whose place in autograd was made anew (`set_`): uses before it lead to the former place."""
        self.origin = Origin(NO_ORIGIN, "")
        """Of the nodes that are recorded now."""
        self.regions: dict[Any, Any] = {}
        """Programs of the marked regions, so that each is recorded once."""
        self._names: dict[str, int] = {}
        self.objects: dict[int, Node] = {}
        """Nodes of generators, and of the stand-ins of torchbind objects, by identity."""
        self.created_generators = CreatedGenerators()
        self.on_data_dependent_number: Callable[[], None] = lambda: None
        """Called where a number comes that only the data tells."""
        self.floats: Floats | None = None
        """Set where the graph cannot read a number, and a float argument has come."""
        self._constants: dict[int, Any] = {}
        self.known_values: dict[Node, Any] = {}
        """Values that every call has; None for what only a call tells."""
        self.free_inputs: list[tuple[Node, Any]] = []
        """Graph inputs that are no arguments: tensors from outside that require grad, as they are."""

    @contextmanager
    def adding(
        self, stage: str, reason: str, frames: Frames = NO_ORIGIN, forward: bool = False
    ) -> Iterator[None]:
        """Within the block, nodes are added by a stage of ours and not by the user's code.

        With `forward` they belong to the forward, whatever has been recorded since.
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
        """A name that no other node has, and that the module text does not use itself."""
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
        """Record one operator on nodes, decomposed where the table says so."""
        values = [self._value(arg) for arg in args]
        decomposed = self.decomposed_node(op, values, args, kwargs)
        if decomposed is not None:
            return decomposed
        val = FAKES.get(op, op)(*values, **{key: self._value(value) for key, value in kwargs.items()})
        return self.add_node(op, tuple(self._symbolic(arg) for arg in args), kwargs, val)

    def decomposed_node(
        self, op: Any, values: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The node (or list of nodes) of an operator that is to be taken apart; None for all others."""
        return None

    @contextmanager
    def inside_operator(self, origin: Origin) -> Iterator[None]:
        """Within it, operators are recorded as parts of one call of the user's, which is noted by itself."""
        depth, before = self._depth, self.origin
        self._depth, self.origin = 1, origin
        try:
            yield
        finally:
            self._depth, self.origin = depth, before

    def leave_operator(self) -> None:
        """What runs next is recorded as calls of the user's."""
        self._depth = 0

    def subgraph_recorder(self) -> Any:
        """A recorder for a body of the higher-order operator that runs: its own nodes, names shared."""
        raise NotImplementedError

    def seen_tensors(self) -> Iterator[Any]:
        """Every tensor that an operator took or gave so far."""
        return iter(())

    def item(self, node: Any, index: int) -> Node:
        """One result of a node that gives several."""
        if isinstance(node, (list, tuple)):
            return node[index]
        return self.add_node(getitem, (node, index), {}, node.val[index])

    def saved_item(self, node: Node, index: int, inside: Node) -> Node:
        """What a region keeps for its backward: named and placed as the value inside of it."""
        origin = replace(self.origin, location=inside.origin.location, op=inside.origin.op, effect=False)
        item = Node(self.name(inside.name), getitem, (node, index), {}, node.val[index], origin)
        self.nodes.append(item)
        return item

    def split_regions(self) -> tuple[Region, ...]:
        """The marked regions with a gradient, each once."""
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
        """Make the tensor the whole of a storage's current value."""
        setattr(tensor, TRACKED_ATTRIBUTE, Tracked(storage, (), storage.base, storage.version))

    def tracked(self, tensor: Any) -> Tracked:
        """What is known of a tensor; a real tensor becomes a constant."""
        record = getattr(tensor, TRACKED_ATTRIBUTE, None)
        if record is not None and getattr(record.storage, "base", None) is not None:
            return record
        if type(tensor) is not FakeTensor and hasattr(type(tensor), "__tensor_flatten__"):
            self.track(tensor, Storage(Node(self.name("wrapper"), None, (), {}, tensor, self.origin), tensor))
            return self.tracked(tensor)
        if type(tensor) is FakeTensor:
            raise unsupported("unexpected-fake", self.span)
        return self.tracked(self.constant(tensor))

    def node_of(self, tensor: Any) -> Node:
        """The node of a tensor's current value, looked up again after a write to its storage."""
        if self.current is not None and (tracked := self.tracked(tensor)).storage.inputs:
            self.current.note_access(tracked)
        return self.node_to_view(tensor)

    def node_to_view(self, tensor: Any) -> Node:
        """The same for what only takes a view of it, as autograd does by itself, and under a lock of its own,
        where it makes the history of a saved tensor anew: nothing may be asked of it then."""
        tracked = self.tracked(tensor)
        storage = tracked.storage
        if (
            storage.metadata_mutations
            and tensor._base is not None
            and tensor.requires_grad
            and torch.is_grad_enabled()
        ):
            check_view_is_valid(tensor, self.span)
            if not any(step is storage.last_metadata_step for step in tracked.chain):
                self.use_synthetic_base(storage)  # autograd has made its history anew, on the base
        if tracked.version != storage.version:
            tracked.node = self.replay(storage, tracked.chain)
            tracked.version = storage.version
        return tracked.node

    def replay(self, storage: Storage, chain: tuple[ViewStep, ...]) -> Node:
        if not chain:
            return storage.base
        known = storage.views.get(chain)
        if known is None:
            source, step = self._source(storage, chain)
            known = storage.views[chain] = step.apply(self, source)
        return known

    def _source(self, storage: Storage, chain: tuple[ViewStep, ...]) -> tuple[Node, ViewStep]:
        """What the last view of a chain is taken of, and that view."""
        if chain[-1].offset is not None and is_as_strided_chain(chain):
            return storage.base, from_base(storage, chain[-1])
        return self.replay(storage, chain[:-1]), chain[-1]

    def _path(self, tracked: Tracked, target: Any) -> tuple[ViewStep, ...]:
        """The views back through which a write goes: one, where a tensor on the way shows elements twice."""
        chain = tracked.chain
        ends = [end for end in range(1, len(chain)) if chain[end - 1].op in MAY_REPEAT]
        if any(overlaps_itself(self.replay(tracked.storage, chain[:end]).val) for end in ends):
            return as_strided_chain(chain, target, self.span)
        return chain

    def __call__(self, op: Any, *args: Any, **kwargs: Any) -> Node:
        """The recorder is the `Emit` of the view rules."""
        return self.emit(op, *args, **kwargs)

    def constant(self, tensor: Any) -> Any:
        known = self._constants.get(id(tensor))
        if known is not None and known[0].requires_grad and not self.in_backward:
            known = None  # a stand-in, past which autograd has got hold of the tensor itself
        if known is None:
            if not isinstance(tensor, torch.Tensor):
                raise unsupported("argument-type", self.span, type=type(tensor).__name__)
            fake = to_fake(self.fake_mode, tensor)
            with torch.no_grad():
                alias = fake.detach()
            if tensor.requires_grad:
                node = Node(self.name("outside"), None, (), {}, fake, self.origin)
                self.free_inputs.append((node, tensor))
            else:
                node = Node(self.name("constant"), None, (), {}, fake, self.origin, constant=tensor)
                self.nodes.insert(0, node)
            self.track(alias, Storage(node, alias))
            known = self._constants[id(tensor)] = (alias, tensor)
        return known[0]

    def constants_in(self, storages: set[int]) -> list[Any]:
        """Tensors that the function came with, in any of these storages, and that are no inputs."""
        constants = (
            tensor
            for alias, tensor in self._constants.values()
            if type(tensor) in REAL_MODULES and not self.tracked(alias).storage.inputs
        )
        return [tensor for tensor in constants if tensor.untyped_storage()._cdata in storages]

    def is_constant(self, tensor: Any) -> bool:
        """Whether it stands for a tensor that the function came with, and that no call gives."""
        return id(tensor) in self._constants

    def use_fake_for(self, tensor: Any, stand_in: Any) -> None:
        """Take `stand_in` for a tensor from outside where the function gets hold of the tensor itself."""
        self._constants[id(tensor)] = (stand_in, tensor)

    def argument(self, arg: Any) -> Any:
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
            known = arg if self.floats is None else self.floats.fixed(arg)
            return self.symbols.value(arg) if known is arg else known
        return arg

    def generator(self, generator: torch.Generator) -> Node:
        """The node of a generator: an argument's, or a constant of the function's own."""
        known = self.objects.get(id(generator))
        if generator in self.created_generators:
            return self.created_generators.node(self, generator)
        if known is None:
            known = Node(self.name("generator"), None, (), {}, None, self.origin, constant=generator)
            self.nodes.insert(0, known)
            self.objects[id(generator)] = known
        return known

    @property
    def in_user_backward(self) -> bool:
        """Whether code of the user's in a backward has called the operator that is recorded."""
        return False

    @property
    def call_count(self) -> int:
        """How many operators the user's code has called; a recorder counts them."""
        return 0

    def add_call(self, call: tuple[Any, ...]) -> None:
        """Keep what the user's code called and no operator tells of; a recorder keeps it among its calls."""

    def replace_calls(self, since: int, func: Any, call: Callable[[], tuple[Any, ...]]) -> None:
        """Keep this in place of what was noted since then, where that is one call of `func` and its reads."""

    def current_frames(self) -> Frames:
        """The user's expression that runs; a recorder looks for it on the stack."""
        return self.origin.location

    def keywords(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {key: self.argument(value) for key, value in kwargs.items()} if kwargs else {}

    def read_number(self, tensor: Any, number: Any) -> None:
        """Record that a tensor's one value is a number which a frontend knows as a symbol."""
        op = aten._local_scalar_dense.default
        self.symbols.define(number, self.add_node(op, (self.node_of(tensor),), {}, number))
        self.add_call((op, (tensor,), {}, number, self.origin))

    def new_write(self, chain: tuple[ViewStep, ...] = (), version: int = 0) -> Write:
        """A write that happens now, through a tensor that these views lead to."""
        grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        return Write(self.origin, grad, inference, chain, version)

    def use_synthetic_base(self, storage: Storage) -> None:
        """Turn overlapping graph inputs into views of their synthetic base, as if they had always been ones.

        The one place where a node changes: none of them is in a program yet, and whoever read one goes on
        reading the same node.
        """
        if storage.on_base or not storage.overlapping_inputs:
            return
        storage.on_base = True
        for chain, input_node in storage.overlapping_inputs.items():
            first = len(self.nodes)
            made = self.replay_uncached(storage.base, chain)
            views = self.nodes[first:]
            del self.nodes[first:]
            object.__setattr__(input_node, "op", made.op)
            object.__setattr__(input_node, "args", made.args)
            object.__setattr__(input_node, "kwargs", made.kwargs)
            object.__setattr__(input_node, "origin", made.origin)
            self.nodes[0:0] = [*views[:-1], input_node]

    def replay_uncached(self, source: Node, chain: tuple[ViewStep, ...]) -> Node:
        """A chain of views on a node, without the storage's memory of views."""
        with self.adding("capture", "an input that overlaps another, as a view of their synthetic base"):
            for step in chain:
                source = step.apply(self, source)
        return source

    def _any_gradient(self) -> bool:
        on_arguments = any(getattr(value, "requires_grad", False) for value in self.originals.values())
        return on_arguments or bool(self.free_inputs)

    def preserve_values(self, tensor: Any) -> None:
        """Before a tensor becomes another in place: the nodes that it is the value of keep what it was."""
        for node in self.nodes:
            if node.val is tensor:
                object.__setattr__(node, "val", tensor.detach())  # no program holds the node yet

    def write(self, target: Any, value: Node) -> None:
        """Give a tensor's storage the value that a write through this tensor leaves."""
        tracked = self.tracked(target)
        storage = tracked.storage
        if self.current is not None and storage.inputs:
            self.current.note_access(tracked, is_write=True)
        self.use_synthetic_base(storage)
        if storage.exceeds_view and self._any_gradient():
            check_as_strided_grad_fn(self.span)
        new = value = with_lazy_bits_of(self, target, value)
        chain = self._path(tracked, target)
        for end in range(len(chain), 0, -1):
            source, step = self._source(storage, chain[:end])
            new = inverse_write(self, source, step, new)
            if source is storage.base:
                break
        if storage.base_tensor.requires_grad and not target.requires_grad:
            self.has_hidden_changes = True
        storage.base = with_lazy_bits_of(self, storage.base.val, new)
        storage.version += 1
        storage.last_metadata_step = None
        storage.views = {tracked.chain: value} if tracked.chain else {}
        storage.writes.append(self.new_write(tracked.chain))
        tracked.node, tracked.version = value, storage.version
        if getattr(target, "constant", None) is not None:
            self.fake_mode.fake_tensor_converter.invalidate_constant_aliases(target.constant)
