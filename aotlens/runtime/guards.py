"""Module text that checks what the compilation assumed of the arguments.

Invariant: a call that does not fit raises and names the argument; it never computes with the wrong code.
Dynamo has its own guards, so behind it only the sizes that the text reads are bound.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.capture.inputs.constant_arguments import is_compared_by_repr, is_value, plain_attributes
from aotlens.capture.records import Captured, CapturedInput
from aotlens.capture.symbols.numbers import IntSymbol
from aotlens.ir.names import node_name
from aotlens.ir.render import Names, context_text, literal
from aotlens.ir.slots import UserInput
from aotlens.ir.subclasses import Wrapped, is_plain
from aotlens.ir.symbols import is_ragged
from aotlens.runtime.aliased_inputs import AliasGuards, assumption
from aotlens.runtime.module_text import TextBuilder
from aotlens.runtime.tensor_guards import (
    Checks,
    comparable_tensors,
    is_functorch_tensor,
    symbolic_strides,
    tensor_differs,
    wanted_text,
    write_remember,
)
from aotlens.torch_api.symbolic import print_expression
from aotlens.unsupported import unsupported

SHARED_MEMORY = "the graph is specialised for which arguments share memory"

INFERENCE_TENSORS = "the graph is specialised for which mutated arguments are inference tensors"

WRITTEN_CHECK = (int, float, complex, str, bytes, range, slice)
"""Types of values that the text contains as literals."""


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
        self._arguments = arguments
        self._names = names
        self._checks = Checks(builder, captured.subject.name)
        self._alias_guards = AliasGuards(self._checks, captured, meta, arguments)
        self._sizes: dict[str, str] = {}
        """The expression that each bound symbol was read from."""
        self._seen_requires_grad = ""
        """Condition that a seen tensor requires grad and did not at compilation."""
        is_of_dynamo = captured.subject.frontend == "dynamo"
        self._seen = [] if is_of_dynamo else comparable_tensors(captured, self._checked_tensors())
        """Tensors whose checks are skipped if `seen` accepts them."""
        self.has_seen = bool(self._seen)
        """Whether the text has the variable `is_new`."""

    def write(self, behind_dynamo: bool) -> None:
        """Write all checks; behind Dynamo, whose own guards ensure that a call fits, those that it lacks."""
        if behind_dynamo:
            self._bind_sizes(checked=False)
            with self._builder.step("check shared memory", SHARED_MEMORY):
                self._alias_guards.write_overlaps()
            if not self._captured.grad_enabled:  # Dynamo's guards do not tell inference tensors apart then
                with self._builder.step("check inference tensors", INFERENCE_TENSORS):
                    self._inference_tensors("AssertionError")
            return
        with self._builder.step("check plain values", "numbers and flags are constants of the graph"):
            self._plain_values()
        with self._builder.step("check tensors", "the graph is specialised for sizes and dtypes"):
            self._tensors()
            self._bind_sizes(checked=True)
            self._bind_strides()
            self._size_relations()
        with self._builder.step("check inference tensors", INFERENCE_TENSORS):
            self._inference_tensors("TypeError")
        with self._builder.step(
            "check gradients", ("the graph is specialised for which arguments require grad")
        ):
            self._gradients()
        self._remember_tensors()
        with self._builder.step(
            "check shared memory", "the graph is specialised for which arguments are the same tensor"
        ):
            self._alias_guards.write_duplicates()
            self._alias_guards.write_overlaps()

    def _inputs(self) -> list[tuple[str, CapturedInput]]:
        return list(zip(self._arguments, self._captured.flat_inputs, strict=False))

    def _plain_values(self) -> None:
        """Check the arguments that are no tensors: constants, and the types of numbers."""
        for name, captured_input in self._inputs():
            if isinstance(captured_input.argument, IntSymbol):
                message = f"`{captured_input.slot.name}` must be an integer, got "
                self._checks.raise_if(f"type({name}) is not int", "ValueError", message, name)
            if captured_input.is_tensor or captured_input.node is not None:
                continue
            value = captured_input.argument
            wanted = f"`{captured_input.slot.name}` is the constant {value!r}, got "
            is_module = isinstance(value, torch.nn.Module)
            if other := self._other_value(name, value, node_name(captured_input.slot.name)):
                self._checks.raise_if(other, "ValueError", wanted, name)
            elif is_module or self._is_written_through(value):
                known = self._names.object(value, node_name(captured_input.slot.name))
                what = "module" if is_module else "object"
                message = f"`{captured_input.slot.name}` must be the {what} that it was compiled for, got "
                self._checks.raise_if(
                    f"{name} is not {known}", "ValueError", message, f"type({name}).__name__"
                )
            elif attributes := plain_attributes(value):
                actual = f"{{key: getattr({name}, key, None) for key in {tuple(attributes)!r}}}"
                message = f"attributes of `{captured_input.slot.name}` are the constants {attributes!r}, got "
                differs = f"{actual} != {attributes!r}"
                if any(map(is_compared_by_repr, attributes.values())):
                    differs = f"repr({actual}) != {repr(attributes)!r}"
                other = f"type({name}).__qualname__ != {type(value).__qualname__!r} or {differs}"
                self._checks.raise_if(other, "ValueError", message, actual)

    def _other_value(self, name: str, value: Any, base: str) -> str:
        """Return the condition that an argument differs from the built-in value; empty if it is no value."""
        if value is None or value is ... or isinstance(value, bool):
            return f"{name} is not {value!r}"
        if isinstance(value, (torch.dtype, torch.device)):
            return f"{name} != {literal(value, Names())}"
        if isinstance(value, (set, frozenset)):
            return f"{name} != {self._names.object(type(value)(value), base)}"
        if isinstance(value, (torch.nn.Module, torch.SymInt)) or not is_value(value):
            return ""
        kind = type(value).__name__
        if isinstance(value, WRITTEN_CHECK):
            if type(value) not in WRITTEN_CHECK:  # a member of an enum, a NumPy number
                kind = self._names.object(type(value), node_name(kind))
            other = f"repr({name}) != {repr(value)!r}" if is_compared_by_repr(value) else ""
            return f"type({name}) is not {kind} or {other or f'{name} != {literal(value, Names())}'}"
        known = self._names.object(value, base)
        return f"type({name}) is not type({known}) or {name} != {known}"

    def _is_written_through(self, value: Any) -> bool:
        """Return True if an object among the arguments may hold what the function changes."""
        rebindings = self._captured.structure.rebindings
        return hasattr(value, "__dict__") and any(rebinding.store is not None for rebinding in rebindings)

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
            message = f"`{captured_input.slot.name}` must be a tensor like {wanted_text(fake)}, got another"
            self._checks.raise_if(tensor_differs(name, fake), "TypeError", message)

    def _inference_tensors(self, error: str) -> None:
        """Check which written inputs are inference tensors: eager allows writes and counts versions
        accordingly.

        Autograd itself checks a write that it sees.
        """
        for info, (_, captured_input) in zip(self._meta.inputs, self._inputs(), strict=False):
            asked = info.is_mutated and not info.seen_by_autograd and captured_input.duplicate_of is None
            if not asked or (
                captured_input.storage is not None and captured_input.storage.is_inference_tensor
            ):
                continue
            other = "not " if captured_input.argument.is_inference() else ""
            message = f"`{captured_input.slot.name}`, which is written to, is {other}an inference tensor"
            self._checks.raise_if(f"{other}{self._arguments[info.index]}.is_inference()", error, message)

    def _may_change_layout(self, index: int, captured_input: CapturedInput) -> bool:
        """Return True if it is the module's own tensor and a call may change its storage or geometry."""
        rebound = captured_input.slot.name in self._captured.structure.rebound
        return rebound or (
            index < len(self._meta.inputs) and self._meta.inputs[index].mutates_metadata_or_storage
        )

    def _wrapper(self, name: str, captured_input: CapturedInput, wrapped: Wrapped) -> None:
        """Check for the same subclass, with the same metadata, around tensors of the same sizes."""
        kind = self._names.object(wrapped.meta.kind, wrapped.meta.name)
        message = f"`{captured_input.slot.name}` must be a `{wrapped.meta.name}`, got a "
        self._checks.raise_if(f"type({name}) is not {kind}", "TypeError", message, f"type({name}).__name__")
        attributes = [part for part, _ in wrapped.parts]
        message = f"`{captured_input.slot.name}` must hold {attributes}, got "
        actual = f"list({name}.__tensor_flatten__()[0])"
        self._checks.raise_if(f"{actual} != {attributes}", "TypeError", message, actual)
        has_known_sizes = all(isinstance(size, int) for size in wrapped.meta.size)
        if wrapped.meta.context is not None and (has_known_sizes or is_plain(wrapped.meta.context)):
            condition = f"{name}.__tensor_flatten__()[1] != {context_text(wrapped.meta.context, self._names)}"
            message = f"`{captured_input.slot.name}` must have the metadata that it was compiled for, got "
            self._checks.raise_if(condition, "TypeError", message, f"{name}.__tensor_flatten__()[1]")
        for path, node in wrapped.leaves():
            inner, wanted = ".".join((name, *path)), node.val
            shape = tuple(wanted.shape)
            same = all(isinstance(size, int) for size in shape)
            different = f"{inner}.shape != {shape}" if same else f"{inner}.dim() != {len(shape)}"
            inside = ".".join((captured_input.slot.name, *path))
            message = f"`{inside}` must be a tensor like {wanted.dtype} {list(shape)}, got another"
            self._checks.raise_if(f"{different} or {inner}.dtype is not {wanted.dtype}", "TypeError", message)

    def _bind_sizes(self, checked: bool) -> None:
        """Bind the symbols that the text reads, and check sizes that must equal another."""
        for name, captured_input in self._inputs():
            if isinstance(captured_input.argument, torch.SymInt):
                self._bind(captured_input.argument, name, captured_input, checked, what="number")
            if not captured_input.is_tensor or captured_input.duplicate_of is not None:
                continue
            inner = captured_input.wrapped.leaves() if captured_input.wrapped is not None else ()
            tensors = [(name, captured_input.fake)]
            tensors += [(".".join((name, *path)), node.val) for path, node in inner]
            for source, tensor in tensors:
                for dim, size in enumerate(tensor.shape):
                    if isinstance(size, torch.SymInt):
                        self._bind(size, f"{source}.size({dim})", captured_input, checked)

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
                    self._checks.raise_if(f"{source} != {step}", "ValueError", message, source)

    def _bind(
        self, size: Any, source: str, captured_input: CapturedInput, checked: bool, what: str = "size"
    ) -> None:
        """Bind a new symbol to `source`, the text that reads it; else check the value, if `checked`.

        `what` names the value in the message: size, stride or number.
        """
        if is_ragged(size):
            self._names.ragged.setdefault(str(size), source)
            return
        expression = size.node.expr
        if expression.is_symbol and str(expression) not in self._sizes:
            self._sizes[str(expression)] = source
            self._builder.add(f"{expression} = {source}")
        elif checked and (symbols := set(map(str, expression.free_symbols))) <= self._sizes.keys():
            where = "".join(f" ({name} is `{self._sizes[name]}`)" for name in sorted(symbols))
            user_name = f"`{captured_input.slot.name}`"
            subject = user_name if what == "number" else f"a {what} of {user_name}"
            message = f"{subject} must be {expression}{where}, got "
            self._checks.raise_if(
                f"{source} != {_expression_text(expression)}", "ValueError", message, source
            )

    def _size_relations(self) -> None:
        """Check the symbols' ranges, and the comparisons that tracing decided."""
        environment = self._captured.fake_mode.shape_env
        if environment is None:
            return
        ranges = {str(symbol): symbol_range for symbol, symbol_range in environment.var_to_range.items()}
        for name in sorted(self._sizes):
            if name not in ranges:  # the ragged size of a fake jagged tensor, which is a plain symbol here
                raise unsupported("ragged-and-symbolic-sizes", name=name)
            lower = ranges[name].lower
            if lower.is_number and lower > 0:
                message = f"a size must be at least {int(lower)}, got "
                self._checks.raise_if(f"{name} < {int(lower)}", "ValueError", message, name)
        for guard in environment.guards:
            if set(map(str, guard.expr.free_symbols)) <= self._sizes.keys() and not guard.expr.is_number:
                violated = f"not ({_expression_text(guard.expr)})"
                self._checks.raise_if(violated, "ValueError", f"sizes must satisfy {guard.expr}")

    def _gradients(self) -> None:
        grad_enabled, fixed = self._captured.grad_enabled, self._captured.fixed_modes
        if fixed is not None:
            actual = "(torch.is_grad_enabled(), torch.is_inference_mode_enabled())"
            message = "it enables grad mode itself, and was compiled for grad mode and inference mode "
            self._checks.raise_if(f"{actual} != {fixed}", "ValueError", f"{message}{fixed}, got ", actual)
        fresh = [
            (index, name, captured_input)
            for index, (name, captured_input) in enumerate(self._inputs())
            if captured_input.is_tensor
            and captured_input.fake.dtype.is_floating_point | captured_input.fake.dtype.is_complex
            and captured_input.duplicate_of is None
            and not (captured_input.requires_grad and (grad_enabled or fixed is not None))
        ]
        if fresh:
            seen = [(name, item) for _, name, item in fresh if name in self._seen]
            exempt = [name for name, captured_input in seen if not captured_input.requires_grad]
            asked = [f"{name}.requires_grad" for _, name, _ in fresh if name not in exempt]
            if exempt:
                self._seen_requires_grad = " or ".join(f"{name}.requires_grad" for name in exempt)
                asked.append(f"is_new and ({self._seen_requires_grad})")
            modes = "torch.is_grad_enabled() and " if fixed is None else ""
            condition = f"{modes}({' or '.join(asked)})"
            if len(asked) == 1 and exempt:
                condition = f"is_new and {modes}({self._seen_requires_grad})"
            with self._builder.block(f"if {condition}:"):
                named = ", ".join(
                    f"({index}, {captured_input.slot.name!r}, {name})"
                    for index, name, captured_input in fresh
                )
                self._builder.add(
                    f"at, name = next((at, name) for at, name, tensor in ({named},) if tensor.requires_grad)",
                    'raise AssertionError(f"'
                    + assumption("{at} would not require grad", "`{name}` does")
                    + '")',
                )

    def _remember_tensors(self) -> None:
        """Remember tensors, except those accepted without a gradient only because grad mode is off."""
        if self._seen:
            fits = f"is_new and not ({self._seen_requires_grad})" if self._seen_requires_grad else "is_new"
            with self._builder.block(f"if {fits} and not {is_functorch_tensor(self._seen)}:"):
                self._builder.add(write_remember(self._seen))


def _expression_text(expression: Any) -> str:
    return print_expression(expression, {str(symbol): str(symbol) for symbol in expression.free_symbols})
