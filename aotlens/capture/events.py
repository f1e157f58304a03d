"""The operators that the user's code called, and the event log: what happened to tensors and no node shows.

Invariant: the log only grows, and is a value: a snapshot of the recording shares it, and lacks later events.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

from aotlens.capture.views import ViewStep
from aotlens.ir.origin import Origin
from aotlens.model.report import Span


class Call(NamedTuple):
    """One operator as the user's code ran it."""

    func: Any
    """The overload; for what no operator represents, the function of torch."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    origin: Origin


class EventKind(Enum):
    """What happened to the tensor."""

    STORAGE_SWAP = auto()
    """It got another storage: `set_`, `.data =`, `resize_`."""
    DATA_OF_OTHER_SIZES = auto()
    """It is a leaf or has no gradient, and got data of other sizes (`.data =`)."""
    NEW_EDGE = auto()
    """`set_` replaced its gradient edge: earlier uses lead to the old one."""
    VIEW_SET_TO_OTHER_GEOMETRY = auto()
    """It is a view that got a storage by `set_`, with other sizes, strides or offset than its view operators
    give."""
    GRADIENT_AT_NEW_EDGE = auto()
    """In the backward, a gradient arrived at that new edge."""
    INFERENCE_DATA = auto()
    """It is an inference tensor that got other data: since then it has no version counter."""
    HIDDEN_CHANGE = auto()
    """Its values changed without autograd's knowledge, although it or its base requires grad.  Noted once."""
    DETACH = auto()
    """It was detached in place: `detach_()`, `requires_grad_(False)`."""
    VIEW_BEFORE_DETACH = auto()
    """It is a view that requires grad, and its base was detached in place afterwards."""


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """One event."""

    kind: EventKind
    tensor: Any
    span: Span | None
    """The user's expression."""
    call: int
    """How many operators the user's code had called."""
    chain: tuple[ViewStep, ...]
    """The views that led from its storage's base to the tensor; empty for a tensor that is not recorded."""


@dataclass(frozen=True, slots=True)
class Events:
    """The events so far, in order."""

    log: tuple[Event, ...] = ()

    def with_event(self, event: Event) -> "Events":
        """Return the log with one more event."""
        return Events((*self.log, event))

    def of(self, kind: EventKind) -> Iterator[Event]:
        """Yield the events of one kind."""
        return (event for event in self.log if event.kind is kind)

    def last(self, kind: EventKind, tensor: Any) -> Event | None:
        """Return the last event of this kind that happened to the tensor; None if there is none."""
        return next(
            (event for event in reversed(self.log) if event.kind is kind and event.tensor is tensor), None
        )

    def has(self, kind: EventKind, tensor: Any = None) -> bool:
        """Return True if there is an event of this kind, of this tensor if one is given."""
        return any(tensor is None or event.tensor is tensor for event in self.of(kind))

    def span(self, kind: EventKind, tensor: Any) -> Span | None:
        """Return the user's expression of the last such event; None if there is none."""
        event = self.last(kind, tensor)
        return event.span if event is not None else None
