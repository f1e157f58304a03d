"""Observers of the engine, in a context variable so that they end with the session."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, Protocol


class Compiled(Protocol):
    """The interface of a compiled target for observers (`aotlens.compiled.Compiled`)."""

    @property
    def name(self) -> str: ...
    @property
    def qualname(self) -> str: ...
    @property
    def source(self) -> str: ...
    def target(self) -> Any: ...


class NotCompiled(Protocol):
    """The interface of a graph that runs in eager, for observers (`aotlens.eager.fallback`)."""

    error: Exception
    calls: int
    fails_in_eager: bool

    def record(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Observer:
    """The callbacks of one observer."""

    on_compiled: Callable[[Any], None]
    """Called once per compiled target, after its forward is ready."""
    on_stage: Callable[[str], None]
    """Called as each stage of the pipeline starts, with its name."""
    on_not_compiled: Callable[[Any], None]
    """Called once for each graph, or part of one, that runs in eager after the engine failed on it."""
    on_target: Callable[[str], None]
    """Called with the user's name of the target of the next stages."""
    on_busy: Callable[[bool], None]
    """Called with True as a stage starts and with False as it ends; stages may nest."""


_OBSERVERS: ContextVar[tuple[Observer, ...]] = ContextVar("aotlens_observers", default=())


def _ignore(_: object) -> None:
    """The default callback."""


@contextmanager
def observing(
    on_compiled: Callable[[Any], None] = _ignore,
    on_stage: Callable[[str], None] = _ignore,
    on_not_compiled: Callable[[Any], None] = _ignore,
    on_target: Callable[[str], None] = _ignore,
    on_busy: Callable[[bool], None] = _ignore,
) -> Iterator[None]:
    """Within the block, report every compiled target, every stage that starts and every fallback to eager."""
    observer = Observer(on_compiled, on_stage, on_not_compiled, on_target, on_busy)
    token = _OBSERVERS.set((*_OBSERVERS.get(), observer))
    try:
        yield
    finally:
        _OBSERVERS.reset(token)


@contextmanager
def observed_in_new_thread(observers: tuple[Observer, ...]) -> Iterator[None]:
    """Within the block, notify these observers if the thread has none of its own: a new thread, also one
    that a script starts, inherits no context.
    """
    if _OBSERVERS in copy_context():
        yield
        return
    token = _OBSERVERS.set(observers)
    try:
        yield
    finally:
        _OBSERVERS.reset(token)


@contextmanager
def unobserved() -> Iterator[None]:
    """Within the block, announce nothing: what is compiled there is not the user's."""
    token = _OBSERVERS.set(())
    try:
        yield
    finally:
        _OBSERVERS.reset(token)


def announce_stage(name: str) -> None:
    """Call the observers with the name of the stage that starts."""
    for observer in _OBSERVERS.get():
        observer.on_stage(name)


def announce_target(name: str) -> None:
    """Call the observers with the user's name of the target that follows."""
    for observer in _OBSERVERS.get():
        observer.on_target(name)


@contextmanager
def running_stage(stage: str) -> Iterator[None]:
    """Announce a stage, and its end when the block ends."""
    observers = _OBSERVERS.get()
    for observer in observers:
        observer.on_busy(True)
    announce_stage(stage)
    try:
        yield
    finally:
        for observer in observers:
            observer.on_busy(False)


def announce_compiled(compiled: Compiled) -> None:
    """Call the observers with a compiled target."""
    for observer in _OBSERVERS.get():
        observer.on_compiled(compiled)


def current_observers() -> tuple[Observer, ...]:
    """Return this context's observers; a backward on an autograd thread has none of its own."""
    return _OBSERVERS.get()


def announce_not_compiled(graph: NotCompiled, observers: tuple[Observer, ...]) -> None:
    """Call the observers with a graph that runs in eager."""
    for observer in observers:
        observer.on_not_compiled(graph)
