"""Module text that checks what the compilation assumed of the arguments.

Invariant: a call that does not fit raises and names the argument; it never computes with the wrong code.
Dynamo has its own guards, so behind it only the sizes that the text reads are bound.
"""

from contextlib import AbstractContextManager, nullcontext
from itertools import product
from typing import Any

import torch

from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.capture.inputs.constant_arguments import is_compared_by_repr, is_value, plain_attributes
from aotlens.capture.records import Captured, CapturedInput
from aotlens.capture.storage import has_symbols, storage_range_of
from aotlens.capture.subclasses import inner_tensors
from aotlens.capture.symbols.int_inputs import IntSymbol
from aotlens.ir.names import node_name
from aotlens.ir.render import Names, context_text, literal
from aotlens.ir.slots import UserInput, inner_slot
from aotlens.ir.subclasses import Wrapped, is_plain
from aotlens.ir.symbols import is_ragged
from aotlens.runtime.module_text import TextBuilder
from aotlens.runtime.tensor_guards import (
    comparable_tensors,
    device_differs,
    is_functorch_tensor,
    lazy_bits_differ,
    lazy_bits_text,
    not_plain,
    shape_differs,
    strides_differ,
    symbolic_strides,
    write_remember,
)
from aotlens.torch_api.symbolic import print_expression
from aotlens.unsupported import unsupported

SHARED_MEMORY = "which arguments share memory is built into the graph"

INFERENCE_TENSORS = "which of the arguments that are written to are inference tensors is built in"

WRITTEN_CHECK = (int, float, complex, str, bytes, range, slice)
"""Types of values that the text contains as literals."""

OVERLAP_HELPER = """
def refuse_overlap(target, tensors, written):
    def ends(tensor):
        steps = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
        first = tensor.storage_offset() * tensor.element_size()
        return first, first + (steps + 1) * tensor.element_size()

    for name in written:
        for other, tensor in tensors.items():
            if other == name or tensor.untyped_storage()._cdata != tensors[name].untyped_storage()._cdata:
                continue
            (first, last), (start, end) = ends(tensors[name]), ends(tensor)
            if first < end and start < last:
                raise AssertionError(
                    f"compiled `{target}` writes to `{name}`, which did not share memory with `{other}` when "
                    "it was compiled, and now does: clone one of them before the call"
                )
"""
"""Module text of the slow path of the check."""


class Guards:
    """Writes the guards of one target."""

    def __init__(
        self,
        builder: TextBuilder,
        captured: Captured,
        meta: ViewAndMutationMeta,
        arguments: list[str],
        names: Names,
    ) -> None:
        self._builder = builder
        self._captured = captured
        self._meta = meta
        self._names = arguments
        self._text_names = names
        self._target = captured.subject.name
        self._sizes: dict[str, str] = {}
        """The expression that each bound symbol was read from."""
        self.behind_dynamo = captured.subject.frontend == "dynamo"
        """Whether Dynamo's own guards ensure that a call fits."""
        self._seen_requires_grad = ""
        """Condition that a seen tensor requires grad and did not at compilation."""
        self._seen = [] if self.behind_dynamo else comparable_tensors(captured, self._checked_tensors())
        """Tensors whose checks are skipped if `seen` accepts them."""
        self.has_seen = bool(self._seen)
        """Whether the text has the variable `is_new`."""
        self.needs_helper = False
        """Whether the written text calls `refuse_overlap`."""

    def write(self) -> None:
        if self.behind_dynamo:
            self._bind_sizes(checked=False)
            with self._builder.step("check shared memory", SHARED_MEMORY):
                self._aliases()
            if not self._captured.grad_enabled:  # Dynamo's guards do not tell inference tensors apart then
                with self._builder.step("check inference tensors", INFERENCE_TENSORS):
                    self._inference_tensors()
            return
        with self._builder.step("check plain values", "numbers and flags are built into the graph"):
            self._plain_values()
        with self._builder.step("check tensors", "sizes and types are built into the graph"):
            self._tensors()
            self._bind_sizes(checked=True)
            self._bind_strides()
            self._size_relations()
        with self._builder.step("check inference tensors", INFERENCE_TENSORS):
            self._inference_tensors()
        with self._builder.step("check gradients", "whether a gradient is needed is built into the graph"):
            self._gradients()
        self._remember_tensors()
        with self._builder.step(
            "check shared memory", "which arguments are one tensor is built into the graph"
        ):
            self._duplicates()
            self._aliases()

    def _check(self, condition: str, error: str, message: str, actual: str | None = None) -> None:
        with self._builder.block(f"if {condition}:"):
            text = repr(f"compiled `{self._target}`: {message}")
            self._builder.add(f"raise {error}({text}{f' + repr({actual})' if actual else ''})")

    def _inputs(self) -> list[tuple[str, CapturedInput]]:
        return list(zip(self._names, self._captured.flat_inputs, strict=False))

    def _plain_values(self) -> None:
        for name, captured_input in self._inputs():
            if isinstance(captured_input.argument, IntSymbol):
                message = f"`{captured_input.slot.name}` must be an integer, got "
                self._check(f"type({name}) is not int", "ValueError", message, name)
            if captured_input.is_tensor or captured_input.node is not None:
                continue
            value, wanted = (
                captured_input.argument,
                f"`{captured_input.slot.name}` is built in as {captured_input.argument!r}, got ",
            )
            if other := self._other_value(name, value, node_name(captured_input.slot.name)):
                self._check(other, "ValueError", wanted, name)
            elif isinstance(value, torch.nn.Module):
                known = self._text_names.object(value, node_name(captured_input.slot.name))
                message = f"`{captured_input.slot.name}` must be the module that it was compiled for, got "
                self._check(f"{name} is not {known}", "ValueError", message, f"type({name}).__name__")
            elif self._is_written_through(value):
                known = self._text_names.object(value, node_name(captured_input.slot.name))
                message = f"`{captured_input.slot.name}` must be the object that it was compiled for, got "
                self._check(f"{name} is not {known}", "ValueError", message, f"type({name}).__name__")
            elif held := plain_attributes(value):
                actual = f"{{key: getattr({name}, key, None) for key in {tuple(held)!r}}}"
                message = f"attributes of `{captured_input.slot.name}` are built in as {held!r}, got "
                differs = f"{actual} != {held!r}"
                if any(map(is_compared_by_repr, held.values())):
                    differs = f"repr({actual}) != {repr(held)!r}"
                other = f"type({name}).__qualname__ != {type(value).__qualname__!r} or {differs}"
                self._check(other, "ValueError", message, actual)

    def _other_value(self, name: str, value: Any, base: str) -> str:
        """Return the condition that an argument differs from the built-in value; empty if it is no value."""
        if value is None or value is ... or isinstance(value, bool):
            return f"{name} is not {value!r}"
        if isinstance(value, (torch.dtype, torch.device)):
            return f"{name} != {literal(value, Names())}"
        if isinstance(value, (set, frozenset)):
            return f"{name} != {self._text_names.object(type(value)(value), base)}"
        if isinstance(value, (torch.nn.Module, torch.SymInt)) or not is_value(value):
            return ""
        kind = type(value).__name__
        if isinstance(value, WRITTEN_CHECK):
            if type(value) not in WRITTEN_CHECK:  # a member of an enum, a NumPy number
                kind = self._text_names.object(type(value), node_name(kind))
            other = f"repr({name}) != {repr(value)!r}" if is_compared_by_repr(value) else ""
            return f"type({name}) is not {kind} or {other or f'{name} != {literal(value, Names())}'}"
        known = self._text_names.object(value, base)
        return f"type({name}) is not type({known}) or {name} != {known}"

    def _is_written_through(self, value: Any) -> bool:
        """Return True if an object among the arguments may hold what the function changes."""
        refills = self._captured.structure.container_updates
        return hasattr(value, "__dict__") and any(refill.store is not None for refill in refills)

    def _checked_tensors(self) -> list[tuple[str, CapturedInput]]:
        """Return the tensor arguments, and the module's own tensors whose layout a call may change."""
        return [
            (name, captured_input)
            for index, (name, captured_input) in enumerate(self._inputs())
            if captured_input.is_tensor
            and (isinstance(captured_input.slot, UserInput) or self._may_change_layout(index, captured_input))
            and captured_input.duplicate_of is None  # else it is the same tensor as a checked one
        ]

    def _tensors(self) -> None:
        if self._seen:
            self._builder.add("global seen", f"is_new = not seen({', '.join(self._seen)})")
        for name, captured_input in self._checked_tensors():
            if captured_input.wrapped is not None:
                self._wrapper(name, captured_input, captured_input.wrapped)
        with self._if_new():
            self._plain_tensors()

    def _if_new(self) -> AbstractContextManager[None]:
        """Open a block that is skipped for tensors like those of an earlier call."""
        return self._builder.block("if is_new:") if self._seen else nullcontext()

    def _plain_tensors(self) -> None:
        for name, captured_input in self._checked_tensors():
            fake = captured_input.fake
            if captured_input.wrapped is not None:
                continue
            order = "contiguous" if fake.is_contiguous() else f"with strides {tuple(fake.stride())}"
            wanted = f"{fake.dtype} {list(fake.shape)} {order} on {fake.device}{lazy_bits_text(fake)}"
            message = f"`{captured_input.slot.name}` must be a tensor like {wanted}, got another"
            conditions = [
                f"type({name}) is not torch.Tensor and {not_plain(name)}",
                shape_differs(name, fake),
                f"{name}.dtype is not {fake.dtype}",
                strides_differ(name, fake),
                device_differs(name, fake),
                *lazy_bits_differ(name, fake),
            ]
            self._check(" or ".join(conditions), "TypeError", message)

    def _inference_tensors(self) -> None:
        """Check which written inputs are inference tensors: eager allows writes and counts versions
        accordingly.

        Autograd itself checks a write that it sees.
        """
        error = "AssertionError" if self.behind_dynamo else "TypeError"
        for info, (_, captured_input) in zip(self._meta.inputs, self._inputs(), strict=False):
            asked = info.is_mutated and not info.seen_by_autograd and captured_input.duplicate_of is None
            if not asked or (
                captured_input.storage is not None and captured_input.storage.is_inference_tensor
            ):
                continue
            other = "not " if captured_input.argument.is_inference() else ""
            message = f"`{captured_input.slot.name}`, which is written to, is {other}an inference tensor"
            self._check(f"{other}{self._names[info.index]}.is_inference()", error, message)

    def _may_change_layout(self, index: int, captured_input: CapturedInput) -> bool:
        """Return True if it is the module's own tensor and a call may change its storage or geometry."""
        rebound = captured_input.slot.name in self._captured.structure.rebound
        return rebound or (
            index < len(self._meta.inputs) and self._meta.inputs[index].mutates_metadata_or_storage
        )

    def _wrapper(self, name: str, captured_input: CapturedInput, wrapped: Wrapped) -> None:
        """Check for the same subclass, with the same metadata, around tensors of the same sizes."""
        kind = self._text_names.object(wrapped.meta.kind, wrapped.meta.name)
        message = f"`{captured_input.slot.name}` must be a `{wrapped.meta.name}`, got a "
        self._check(f"type({name}) is not {kind}", "TypeError", message, f"type({name}).__name__")
        attributes = [part for part, _ in wrapped.parts]
        message = f"`{captured_input.slot.name}` must hold {attributes}, got "
        actual = f"list({name}.__tensor_flatten__()[0])"
        self._check(f"{actual} != {attributes}", "TypeError", message, actual)
        has_known_sizes = all(isinstance(size, int) for size in wrapped.meta.size)
        if wrapped.meta.context is not None and (has_known_sizes or is_plain(wrapped.meta.context)):
            condition = (
                f"{name}.__tensor_flatten__()[1] != {context_text(wrapped.meta.context, self._text_names)}"
            )
            message = f"`{captured_input.slot.name}` must have the metadata that it was compiled for, got "
            self._check(condition, "TypeError", message, f"{name}.__tensor_flatten__()[1]")
        for path, node in wrapped.leaves():
            inner, wanted = ".".join((name, *path)), node.val
            shape = tuple(wanted.shape)
            same = all(isinstance(size, int) for size in shape)
            different = f"{inner}.shape != {shape}" if same else f"{inner}.dim() != {len(shape)}"
            inside = ".".join((captured_input.slot.name, *path))
            message = f"`{inside}` must be a tensor like {wanted.dtype} {list(shape)}, got another"
            self._check(f"{different} or {inner}.dtype is not {wanted.dtype}", "TypeError", message)

    def _bind_sizes(self, checked: bool) -> None:
        """Bind the symbols that the text reads, and check sizes that must equal another."""
        for name, captured_input in self._inputs():
            if isinstance(captured_input.argument, torch.SymInt):
                self._bind(captured_input.argument, name, captured_input, checked, what="number")
            if not captured_input.is_tensor or captured_input.duplicate_of is not None:
                continue
            for dim, size in enumerate(captured_input.fake.shape):
                if isinstance(size, torch.SymInt):
                    self._bind(size, f"{name}.size({dim})", captured_input, checked)
            for path, node in captured_input.wrapped.leaves() if captured_input.wrapped is not None else ():
                for dim, size in enumerate(node.val.shape):
                    if isinstance(size, torch.SymInt):
                        self._bind(size, f"{'.'.join((name, *path))}.size({dim})", captured_input, checked)

    def _bind_strides(self) -> None:
        """Bind the symbols of strides, and check strides that follow from sizes and other strides."""
        for name, captured_input in self._inputs():
            if (
                not captured_input.is_tensor
                or captured_input.duplicate_of is not None
                or captured_input.wrapped is not None
            ):
                continue
            for dim, step in symbolic_strides(captured_input.fake):
                source = f"{name}.stride({dim})"
                if isinstance(step, torch.SymInt):
                    self._bind(step, source, captured_input, checked=True, what="stride")
                else:
                    message = f"a stride of `{captured_input.slot.name}` must be {step}, got "
                    self._check(f"{source} != {step}", "ValueError", message, source)

    def _bind(
        self, size: Any, source: str, captured_input: CapturedInput, checked: bool, what: str = "size"
    ) -> None:
        if is_ragged(size):
            self._text_names.ragged.setdefault(str(size), source)
            return
        expression = size.node.expr
        if expression.is_symbol and str(expression) not in self._sizes:
            self._sizes[str(expression)] = source
            self._builder.add(f"{expression} = {source}")
        elif checked and {str(symbol) for symbol in expression.free_symbols} <= self._sizes.keys():
            symbols = sorted(str(symbol) for symbol in expression.free_symbols)
            where = "".join(f" ({name} is `{self._sizes[name]}`)" for name in symbols)
            what = (
                f"`{captured_input.slot.name}`"
                if what == "number"
                else f"a {what} of `{captured_input.slot.name}`"
            )
            message = f"{what} must be {expression}{where}, got "
            self._check(f"{source} != {_expression_text(expression)}", "ValueError", message, source)

    def _size_relations(self) -> None:
        """Check the symbols' ranges, and the comparisons that tracing decided."""
        environment = self._captured.fake_mode.shape_env
        if environment is None:
            return
        for name in sorted(self._sizes):
            symbol = next(
                (candidate for candidate in environment.var_to_range if str(candidate) == name), None
            )
            if symbol is None:  # a ragged size of a jagged tensor
                raise unsupported("ragged-and-symbolic-sizes", name=name)
            lower = environment.var_to_range[symbol].lower
            if lower.is_number and lower > 0:
                self._check(
                    f"{name} < {int(lower)}",
                    "ValueError",
                    f"a size must be at least {int(lower)}, got ",
                    name,
                )
        for guard in environment.guards:
            if {
                str(symbol) for symbol in guard.expr.free_symbols
            } <= self._sizes.keys() and not guard.expr.is_number:
                self._check(
                    f"not ({_expression_text(guard.expr)})", "ValueError", f"sizes must satisfy {guard.expr}"
                )

    def _gradients(self) -> None:
        grad_enabled, fixed = self._captured.grad_enabled, self._captured.fixed_modes
        if fixed is not None:
            actual = "(torch.is_grad_enabled(), torch.is_inference_mode_enabled())"
            message = (
                f"it turns grad mode on itself, for a call in grad mode and inference mode {fixed}, got "
            )
            self._check(f"{actual} != {fixed}", "ValueError", message, actual)
        fresh = [
            (index, name, captured_input)
            for index, (name, captured_input) in enumerate(self._inputs())
            if captured_input.is_tensor
            and captured_input.fake.dtype.is_floating_point | captured_input.fake.dtype.is_complex
            and captured_input.duplicate_of is None
            and not (captured_input.requires_grad and (grad_enabled or fixed is not None))
        ]
        if fresh:
            spared = [
                name
                for _, name, captured_input in fresh
                if name in self._seen and not captured_input.requires_grad
            ]
            asked = [f"{name}.requires_grad" for _, name, _ in fresh if name not in spared]
            if spared:
                self._seen_requires_grad = " or ".join(f"{name}.requires_grad" for name in spared)
                asked.append(f"is_new and ({self._seen_requires_grad})")
            modes = "torch.is_grad_enabled() and " if fixed is None else ""
            condition = f"{modes}({' or '.join(asked)})"
            if len(asked) == 1 and spared:
                condition = f"is_new and {modes}({self._seen_requires_grad})"
            with self._builder.block(f"if {condition}:"):
                named = ", ".join(
                    f"({index}, {captured_input.slot.name!r}, {name})"
                    for index, name, captured_input in fresh
                )
                self._builder.add(
                    f"at, name = next((at, name) for at, name, tensor in ({named},) if tensor.requires_grad)",
                    'raise AssertionError(f"'
                    + _assumption("{at} would not require grad", "`{name}` does")
                    + '")',
                )

    def _remember_tensors(self) -> None:
        """Remember tensors, except those accepted without a gradient only because grad mode is off."""
        if self._seen:
            fits = f"is_new and not ({self._seen_requires_grad})" if self._seen_requires_grad else "is_new"
            with self._builder.block(f"if {fits} and not {is_functorch_tensor(self._seen)}:"):
                self._builder.add(write_remember(self._seen))

    def _duplicates(self) -> None:
        for index, (name, captured_input) in enumerate(self._inputs()):
            if captured_input.duplicate_of is not None:
                other = self._captured.inputs[captured_input.duplicate_of]
                message = f"`{captured_input.slot.name}` was the same tensor as `{other.slot.name}`"
                if self._meta.inputs[captured_input.duplicate_of].is_mutated:  # else torch accepts it
                    message = _assumption(
                        f"{index} would be a duplicate of input {captured_input.duplicate_of}", message
                    )
                self._check(
                    f"{name} is not {self._names[captured_input.duplicate_of]}", "AssertionError", message
                )

    def _aliases(self) -> None:
        """Check that a written argument overlaps no argument that it did not overlap at compilation."""
        arguments = [
            (".".join((name, *path)), inner_slot(captured_input.slot, path), tensor)
            for name, captured_input in self._inputs()
            if isinstance(captured_input.slot, UserInput)
            and captured_input.is_tensor
            and captured_input.duplicate_of is None
            for path, tensor in inner_tensors(captured_input.fake)
        ]
        changed = {
            info.index
            for info in self._meta.inputs
            if (info.mutates_data or info.mutates_metadata)
            and not self._captured.inputs[info.index].shares_storage_with
        }
        self._shared_storages()
        written = [name for name, slot, _ in arguments if slot.index in changed]
        if not written or len(arguments) < 2:
            return
        storages = len({tensor.untyped_storage()._cdata for _, _, tensor in arguments})
        tensors = ", ".join(name for name, _, _ in arguments)
        self.needs_helper = True
        several = f"len({{tensor.untyped_storage() for tensor in ({tensors})}}) != {storages}"
        if len(written) == 1 and len(arguments) == storages:  # without a set, in half the time
            self._builder.add(f"storage = {written[0]}.untyped_storage()")
            others = [name for name, _, _ in arguments if name != written[0]]
            several = " or ".join(f"{name}.untyped_storage() is storage" for name in others)
        with self._builder.block(f"if {several}:"):
            named = ", ".join(f"{slot.name!r}: {name}" for name, slot, _ in arguments)
            slots = [slot.name for name, slot, _ in arguments if name in written]
            self._builder.add(f"refuse_overlap({self._target!r}, {{{named}}}, {tuple(slots)!r})")

    def _shared_storages(self) -> None:
        """Check that inputs on one storage, of which one is written to, keep their distance."""
        inputs = self._captured.inputs
        written = {
            near
            for info in self._meta.inputs
            if info.mutates_data or info.mutates_metadata_or_storage
            for near in (info.index, *inputs[info.index].shares_storage_with)
        }
        for index in sorted(written):
            captured_input = inputs[index]
            for other in captured_input.shares_storage_with:
                near = inputs[other]
                if other < index or (captured_input.base is not None and captured_input.base == near.base):
                    continue
                message = (
                    f"`{captured_input.slot.name}` and `{near.slot.name}` lie otherwise on their storage"
                )
                for left, right in product(self._inner_tensors(index), self._inner_tensors(other)):
                    if left[1].untyped_storage()._cdata == right[1].untyped_storage()._cdata:
                        same = f"{left[0]}.untyped_storage() is {right[0]}.untyped_storage()"
                        self._check(f"{_offset_differs(left, right)} and {same}", "AssertionError", message)

    def _inner_tensors(self, index: int) -> list[tuple[str, Any]]:
        """Return the text and tensor of a flat input; for a subclass, of its inner tensors."""
        name, fake = self._names[index], self._captured.inputs[index].fake
        return [(".".join((name, *path)), tensor) for path, tensor in inner_tensors(fake)]


def _offset_differs(first: tuple[str, Any], second: tuple[str, Any]) -> str:
    """Return the condition that two tensors' distance differs; symbolic sizes are specialised."""
    (left, before), (right, after) = first, second
    ranges = storage_range_of(before), storage_range_of(after)
    if ranges[0] is None or ranges[1] is None:
        raise unsupported("write-on-data-dependent-storage", left=left, right=right)
    differs = f"{right}.storage_offset() - {left}.storage_offset() != {ranges[1].offset - ranges[0].offset}"
    if not has_symbols(before) and not has_symbols(after):
        return differs
    shapes = f"({left}.shape, {left}.stride(), {right}.shape, {right}.stride())"
    wanted = ", ".join(
        f"{storage_range.sizes}, {storage_range.strides}"
        for storage_range in ranges
        if storage_range is not None
    )
    return f"({differs} or {shapes} != ({wanted}))"


def _assumption(assumed: str, actual: str) -> str:
    """Return the message that programs for `functorch.compile` look for, with the argument's name."""
    return (
        f"At compilation time, graph 0 was compiled under the assumption that input {assumed}, "
        f"but at runtime this was not the case: {actual}"
    )


def _expression_text(expression: Any) -> str:
    return print_expression(expression, {str(symbol): str(symbol) for symbol in expression.free_symbols})
