"""How a session hears of what the engine compiles: a context, so that nothing leaks out of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol


class Compiled(Protocol):
    """What an observer may ask of a compiled target (`aotlens.pipeline.Compiled`)."""

    @property
    def name(self) -> str: ...
    @property
    def qualname(self) -> str: ...
    @property
    def source(self) -> str: ...
    def target(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Observer:
    on_compiled: Callable[[Any], None]
    """Called once per compiled target, after its forward is ready."""
    on_stage: Callable[[str], None]
    """Called as each stage of the pipeline starts, with its name."""


_OBSERVERS: ContextVar[tuple[Observer, ...]] = ContextVar("aotlens_observers", default=())


def _ignore(_: object) -> None:
    """The callback of an observer that does not listen."""


@contextmanager
def observing(
    on_compiled: Callable[[Any], None] = _ignore, on_stage: Callable[[str], None] = _ignore
) -> Iterator[None]:
    """Within the block, report every compiled target and every stage that starts."""
    token = _OBSERVERS.set((*_OBSERVERS.get(), Observer(on_compiled, on_stage)))
    try:
        yield
    finally:
        _OBSERVERS.reset(token)


def announce_stage(name: str) -> None:
    for observer in _OBSERVERS.get():
        observer.on_stage(name)


def announce_compiled(compiled: Compiled) -> None:
    for observer in _OBSERVERS.get():
        observer.on_compiled(compiled)
