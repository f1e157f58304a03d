"""What a function of a higher-order operator draws: seen, kept, or given to it in place of drawing.

Invariant: a function that is given its draws computes what it computed when it made them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.capture.operators import QUERIES, Kind, Operator, describe
from aotlens.ir.program import is_higher_order
from aotlens.torch_api.hop import has_ordered_effect
from aotlens.torch_api.modes import TorchDispatchMode
from aotlens.torch_api.operators import call_composite, pytree

Again = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""Makes two of a call within such a function, the first of which only draws (`draws_first.py`)."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One tensor that a function draws."""

    like: Any
    """A fake tensor of its sizes, strides, type and device."""
    is_written: bool
    """Whether the function writes to it afterwards."""

    @property
    def kind(self) -> tuple[Any, ...]:
        """Equal for draws that fit in one place."""
        sizes = (tuple(map(str, self.like.shape)), tuple(map(str, self.like.stride())))
        return (*sizes, self.like.dtype, self.like.device)

    def zeros(self) -> Any:
        """What stands in its place where nothing was drawn."""
        like = self.like
        return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device).zero_()

    def apart(self, value: Any) -> Any:
        """The value as the function may have it: a copy where it writes to it."""
        return value.clone() if self.is_written else value.detach()


class Part:
    """A function of one of the two calls, whose draws are dealt with."""

    def __init__(self, function: Callable[..., Any], draws: int | None = None) -> None:
        self.function = function
        self.draws = draws
        """How many draws the call returns; None for the call that is given them."""

    def __call__(self, *operands: Any) -> Any:
        return self.function(*operands)


class Drawing(TorchDispatchMode):
    """Hands each random operator, and each call that only draws, to `draw`."""

    supports_higher_order_operators = True

    def __init__(self, again: Again, recorder: Any) -> None:
        super().__init__()
        self._again = again
        self.recorder = recorder
        """What records the function, or None."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in QUERIES:
            return func(*args, **kwargs)
        operator = describe(func)
        if is_higher_order(func):
            parts = [arg for arg in args if isinstance(arg, Part)]
            if not parts:
                with self:
                    result = self._again(func, args, kwargs)
                if result is not NotImplemented:
                    return result
            if any(part.draws is not None for part in parts):
                return self.draw(func, operator, args, kwargs)
        if operator.kind is Kind.COMPOSITE:
            with self:
                return call_composite(func, args, kwargs)
        self.note(func, _targets(operator, args, kwargs))
        if operator.random:
            return self.draw(func, operator, args, kwargs)
        return func(*args, **kwargs)

    def note(self, func: Any, targets: tuple[Any, ...]) -> None:
        """Any operator that is about to run, and what it writes to."""

    def draw(self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a random operator, or do something in its place."""
        result = func(*args, **kwargs)
        targets = _targets(operator, args, kwargs)
        results = () if operator.returned else pytree.tree_leaves(result)
        for drawn in (*targets, *(value for value in results if isinstance(value, torch.Tensor))):
            self.keep(drawn)
        return result

    def keep(self, drawn: Any) -> None:
        """One tensor that was just drawn."""


def _targets(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments that an operator writes to."""
    return tuple(kwargs[at] if isinstance(at, str) else args[at] for at in operator.written)


def is_only_seen(func: Any) -> bool:
    """Whether an operator has an effect and gives nothing, as a print."""
    gives_nothing = func.name() == "print" if is_higher_order(func) else not func._schema.returns
    return gives_nothing and has_ordered_effect(func)


class Noting(Drawing):
    """Says what a function draws, from a run on stand-ins."""

    def __init__(self, again: Again) -> None:
        super().__init__(again, None)
        self.has_effect = False
        self._drawn: list[Any] = []
        self._written: set[int] = set()

    def note(self, func: Any, targets: tuple[Any, ...]) -> None:
        self.has_effect |= has_ordered_effect(func) and not is_only_seen(func)
        for target in targets:  # by storage: a factory function gives its caller another object
            storage = target.untyped_storage()._cdata
            self._written |= {
                at for at, one in enumerate(self._drawn) if one.untyped_storage()._cdata == storage
            }

    def keep(self, drawn: Any) -> None:
        self._drawn.append(drawn.detach())

    def draws(self) -> tuple[Draw, ...]:
        return tuple(Draw(like, at in self._written) for at, like in enumerate(self._drawn))


class Collecting(Drawing):
    """Keeps what a function draws."""

    def __init__(self, again: Again, recorder: Any, draws: Sequence[Draw]) -> None:
        super().__init__(again, recorder)
        self._draws = draws
        self.drawn: list[Any] = []

    def keep(self, drawn: Any) -> None:
        self.drawn.append(self._draws[len(self.drawn)].apart(drawn))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if is_only_seen(func):  # the call that is given the draws does it
            return None
        return super().__torch_dispatch__(func, types, args, kwargs)


class Giving(Drawing):
    """Gives a function what it drew before."""

    def __init__(self, again: Again, recorder: Any, draws: Sequence[Draw], values: Sequence[Any]) -> None:
        super().__init__(again, recorder)
        self._values: Iterator[tuple[Draw, Any]] = zip(draws, values, strict=True)

    def draw(self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        targets = _targets(operator, args, kwargs)
        for target in targets:
            target.copy_(self._next())
        if operator.returned:
            return operator.given_back(targets)
        if is_higher_order(func):
            count = next(arg.draws for arg in args if isinstance(arg, Part) and arg.draws is not None)
            return tuple(self._next() for _ in range(count))
        returned = [self._next() for _ in func._schema.returns]
        return returned[0] if len(returned) == 1 else tuple(returned)

    def _next(self) -> Any:
        draw, value = next(self._values)
        return draw.apart(value)
