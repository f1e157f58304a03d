"""A test program: one function or module that shows one case, with arguments to call it with.

Promise: making a program's callable and arguments twice under the same seed gives equal ones; under another
seed, others of the same sizes, strides and aliasing, so that a second call shows what was baked in.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Args = tuple[Any, ...]
Context = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Program:
    """One case, named by the field's term."""

    name: str
    """`file/function`."""
    function: Callable[..., Any]
    """As the list has it: the function itself, or what makes the module or closure."""
    make: Callable[[], Callable[..., Any]]
    """Makes the callable: the function itself, or a new module or closure."""
    make_args: Callable[[], Args]
    tags: frozenset[str]
    """`dynamo`: also through Dynamo; `dynamic`: also with symbolic sizes, which then grow, and Dynamo;
    `inductor`: also with that backend, and Dynamo; `grid`: one cell of a combination, one policy only."""
    context: Context
    """What the call stands in: grad mode, autocast."""
    unsupported: str | None
    """The case of `aotlens.unsupported` that it is, or a phrase of the error if eager fails too; None if it
    must work."""
    later: str | None
    """The case that it may be, by name; it is never wrong silently.  None where it must work."""
    tolerated: frozenset[str]
    """Kinds of difference that no caller is hurt by; the reason stands beside the program."""


class Cases:
    """The programs of one file; used as a decorator on each."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.programs: list[Program] = []

    def __call__(
        self,
        make_args: Callable[[], Args],
        *tags: str,
        context: Context = nullcontext,
        unsupported: str | None = None,
        later: str | None = None,
        tolerated: frozenset[str] = frozenset(),
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Registers a function, or what makes a module or closure; the decorator gives it back."""

        def register(fn: Callable[..., Any]) -> Callable[..., Any]:
            name = f"{self.file}/{fn.__name__}"
            made = fn if _is_factory(fn) else lambda: fn
            self.programs.append(
                Program(name, fn, made, make_args, frozenset(tags), context, unsupported, later, tolerated)
            )
            return fn

        return register


def _is_factory(fn: Callable[..., Any]) -> bool:
    """A module class, or a function that says it returns a module or another callable."""
    result = fn.__annotations__.get("return")
    made = getattr(result, "__origin__", result)
    return isinstance(fn, type) or (isinstance(made, type) and issubclass(made, nn.Module | Callable))


class Fixed(int):
    """A size that stays when the others grow: a module's feature dimension."""


_growth: ContextVar[int] = ContextVar("growth", default=0)


@contextmanager
def grown(by: int = 2) -> Iterator[None]:
    """Within it, arguments are made with every size from 3 up larger by `by`; equal sizes stay equal."""
    token = _growth.set(by)
    try:
        yield
    finally:
        _growth.reset(token)


def plain(*sizes: int) -> Tensor:
    """Random numbers that need no gradient."""
    return torch.randn(_sizes(sizes))


def leaf(*sizes: int) -> Tensor:
    """Random numbers that require grad."""
    return torch.randn(_sizes(sizes), requires_grad=True)


def tape(*sizes: int) -> Tensor:
    """A non-leaf tensor that requires grad, as the result of an earlier operation."""
    return leaf(*sizes) * 2


def ints(*sizes: int, below: int = 4) -> Tensor:
    """Random indices."""
    return torch.randint(below, _sizes(sizes))


def _sizes(sizes: tuple[int, ...]) -> tuple[int, ...]:
    by = _growth.get()
    return tuple(size if isinstance(size, Fixed) or size < 3 else size + by for size in sizes)
