"""Make real tensors for examples.

Invariant: an example has the same values every time, and torch's random state is restored.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from aotlens.errors import ExampleError
from aotlens.model.report import Span
from aotlens.session.script.example_decorator import DecoratedExample
from aotlens.torch_api.symbolic import mark_symbolic
from aotlens.worker.grammar import (
    DTYPES,
    Example,
    ExampleText,
    Literal,
    Size,
    TensorSpec,
    Value,
    parse_example,
)

__all__ = ["Arguments", "decorated_arguments", "text_arguments"]

_SEED = 0
_HINTS = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43)
"""Sizes for symbols without a hint: primes, which are no products of other sizes."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call."""

    args: tuple[object, ...]
    kwargs: dict[str, object]
    construction: str | None
    dynamic: bool
    """Whether a size is a symbol."""
    span: Span


def text_arguments(source: ExampleText) -> Arguments:
    """Return the arguments of an example comment; raises ExampleError."""
    return _arguments(parse_example(source), source.span)


def decorated_arguments(decorated: DecoratedExample) -> Arguments:
    """Return the arguments of an `aotlens.example` decorator; raises ExampleError."""

    def value(argument: object) -> Value:
        if not isinstance(argument, str):
            return Literal(argument)
        parsed = parse_example(ExampleText(argument, decorated.span))
        if len(parsed.arguments) != 1 or parsed.keywords:
            location = f"{decorated.span.file}:{decorated.span.line}"
            count = len(parsed.arguments) + len(parsed.keywords)
            message = (
                f"{location}: example argument {argument!r} holds {count} values; give each its own string"
            )
            raise ExampleError(message, span=decorated.span)
        return parsed.arguments[0]

    arguments = tuple(value(argument) for argument in decorated.arguments)
    keywords = {name: value(argument) for name, argument in decorated.keywords.items()}
    return _arguments(Example(arguments, keywords, decorated.construct), decorated.span)


def _arguments(example: Example, span: Span) -> Arguments:
    values = (*example.arguments, *example.keywords.values())
    specs = [spec for value in values for spec in _tensors(value)]
    sizes = _hints(specs)
    generator = torch.Generator().manual_seed(_SEED)
    make = _Maker(sizes, generator, span).value
    return Arguments(
        args=tuple(make(value) for value in example.arguments),
        kwargs={name: make(value) for name, value in example.keywords.items()},
        construction=example.construction,
        dynamic=bool(sizes),
        span=span,
    )


def _tensors(value: Value) -> Iterator[TensorSpec]:
    match value:
        case TensorSpec():
            yield value
        case list() | tuple():
            for item in value:
                yield from _tensors(item)
        case dict():
            for item in value.values():
                yield from _tensors(item)


def _hints(specs: list[TensorSpec]) -> dict[str, int]:
    """Return a size for each symbol: its hint, or one that no other size of the example has."""
    sizes = [size for spec in specs for size in spec.sizes]
    hints = {size.symbol: size.hint for size in sizes if isinstance(size, Size) and size.hint is not None}
    used_sizes = {size for size in sizes if isinstance(size, int)} | set(hints.values())
    free = iter(hint for hint in _HINTS if hint not in used_sizes)
    for size in sizes:
        if isinstance(size, Size) and size.symbol not in hints:
            hints[size.symbol] = next(free, 2 * max(_HINTS) + 1 + len(hints))
    return hints


@dataclass(frozen=True, slots=True)
class _Maker:
    sizes: dict[str, int]
    generator: torch.Generator
    span: Span

    def value(self, value: Value) -> object:
        match value:
            case TensorSpec():
                return self._tensor(value)
            case Literal(value=literal):
                return literal
            case list():
                return [self.value(item) for item in value]
            case tuple():
                return tuple(self.value(item) for item in value)
        return {key: self.value(item) for key, item in value.items()}

    def _tensor(self, spec: TensorSpec) -> torch.Tensor:
        shape = [self.sizes[size.symbol] if isinstance(size, Size) else size for size in spec.sizes]
        dtype = getattr(torch, DTYPES[spec.dtype], None)
        if dtype is None:
            raise self._error(f"this torch ({torch.__version__}) has no dtype `{spec.dtype}`")
        try:
            tensor = self._values(shape, dtype)
            if spec.strides is not None:
                tensor = torch.empty_strided(shape, spec.strides, dtype=dtype).copy_(tensor)
            tensor = tensor.to(spec.device)
        except (
            RuntimeError,
            AssertionError,
        ) as error:  # no such device here, or sizes too large for the memory
            raise self._error(str(error).splitlines()[0]) from error
        if self.sizes:
            mark_symbolic(tensor, {dim for dim, size in enumerate(spec.sizes) if isinstance(size, Size)})
        return tensor.requires_grad_(spec.grad)

    def _values(self, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
        """Return values that are valid for nearly every operator.

        Narrow types are rounded from 32 bits, because torch has no random numbers of 8-bit floats.
        """
        if dtype.is_complex or dtype.is_floating_point:
            default = torch.complex64 if dtype.is_complex else torch.float32
            generated = dtype if dtype in (torch.float64, torch.complex128) else default
            return torch.randn(shape, dtype=generated, generator=self.generator).to(dtype)
        # 0 and 1 are valid as class labels, as token ids and as indices of nearly everything.
        return torch.randint(0, 2, shape, generator=self.generator).to(dtype)

    def _error(self, what: str) -> ExampleError:
        return ExampleError(
            f"{self.span.file}:{self.span.line}: cannot make the example: {what}", span=self.span
        )
