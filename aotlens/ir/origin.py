"""Where a node comes from: the user's expression, the operator as the user's code ran it, and the stage.

Invariant: frames are stored as (code, instruction) pairs and become spans only on demand, so that recording a
location costs a walk over the stack and no text work.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from types import CodeType

from aotlens.model.report import Site, Span
from aotlens.model.spans import text_of


@dataclass(frozen=True, slots=True)
class Frames:
    """The user's frames at one moment, innermost first."""

    frames: tuple[tuple[CodeType, int], ...] = ()
    """Code objects with the byte offset of the running instruction."""
    known_spans: tuple[Span, ...] = ()
    """Spans from another frontend, used instead of frames."""

    @property
    def spans(self) -> tuple[Span, ...]:
        return self.known_spans or _spans(self.frames)

    @property
    def innermost(self) -> Span | None:
        return next(iter(self.spans), None)


def _spans(frames: tuple[tuple[CodeType, int], ...]) -> tuple[Span, ...]:
    return tuple([span for frame in frames if (span := span_of(*frame))])


NO_ORIGIN = Frames()


class CheckpointMark(Enum):
    """How the user's activation checkpointing marks a value that its region computes."""

    MUST_SAVE = "must_save"
    PREFER_SAVE = "prefer_save"
    PREFER_RECOMPUTE = "prefer_recompute"
    MUST_RECOMPUTE = "must_recompute"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The user's `torch.utils.checkpoint` around an operator."""

    region: int
    """Index among the function's outermost checkpoints."""
    mark: CheckpointMark


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Why a node exists."""

    location: Frames
    op: str
    """The operator as the user's code ran it, before decomposition: `aten.layer_norm`; empty for inputs."""
    backward: bool = False
    """Whether it was recorded while the backward ran."""
    stage: str = "captured"
    """The stage that added it."""
    reason: str = ""
    """Why that stage added it, if no expression of the user's asked for it."""
    effect: bool = False
    """Whether it runs exactly once and in order even if nothing reads it: it writes to an input, or prints.
    """
    differentiates: "Origin | None" = None
    """For a backward node, the forward operator whose gradient it computes; None if unknown."""
    checkpoint: Checkpoint | None = None
    """Set for operators inside an activation checkpoint."""


_POSITIONS: dict[int, tuple[CodeType, list[tuple[int | None, int | None, int | None, int | None]]]] = {}
_SPANS: dict[tuple[int, int], Span | None] = {}
"""By identity of the code, which `_POSITIONS` keeps alive: Dynamo's code has unhashable constants."""


def span_of(code: CodeType, instruction: int) -> Span | None:
    """Return the source range of one instruction; None if the compiler left no position."""
    key = (id(code), instruction)
    if key not in _SPANS:
        _SPANS[key] = _span(code, instruction)
    return _SPANS[key]


def _span(code: CodeType, instruction: int) -> Span | None:
    if id(code) not in _POSITIONS:
        _POSITIONS[id(code)] = code, list(code.co_positions())
    _, positions = _POSITIONS[id(code)]
    line, end_line, col, end_col = positions[instruction // 2] if instruction >= 0 else (None,) * 4
    if line is None:
        return None
    return Span(code.co_filename, line, col or 0, end_line or line, end_col or col or 0)


def sites_of(origins: Iterable[Origin]) -> tuple[Site, ...]:
    """Return where operators ran, each place once, without those for which the user has no line."""
    sites = map(site_of, origins)
    return tuple(dict.fromkeys(site for site in sites if site is not None))


def site_of(origin: Origin) -> Site | None:
    """Return where an operator ran; None if the user has no line for it."""
    span = origin.location.innermost
    return None if span is None else Site(span, text_of(span), origin.op or None)
