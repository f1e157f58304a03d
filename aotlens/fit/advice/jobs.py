"""The jobs of the trial server, and their outcomes.  Stdlib only."""

from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "EIGHT_BIT_MODULE",
    "OUTCOME",
    "NameFact",
    "NamesJob",
    "NamesOutcome",
    "TrainingJob",
    "TrainingOutcome",
]

OUTCOME = "outcome.json"
EIGHT_BIT_MODULE = "torchao.optim"
"""The module with Adam's 8-bit state, which an edit uses where it is installed."""


@dataclass(frozen=True, slots=True)
class NamesJob:
    """Run a script until its first backward, and describe the names that are visible there."""

    path: str
    argv: tuple[str, ...] = ()
    gpu: str | None = None
    is_real: bool = False


@dataclass(frozen=True, slots=True)
class NameFact:
    """A name at the backward, and its value."""

    name: str
    kind: Literal["tensor", "tensors", "number", "numbers", "module", "optimizer"]
    """`tensors` is a dict, list or tuple of tensors with the same first size; `numbers` is a dict of floats,
    or of tensors without dimensions."""
    type_name: str
    """The class: `Sequential`, `AdamW`; of `numbers` that of a value."""
    shape: tuple[int, ...] = ()
    """Of a tensor, or of the first of several."""
    requires_grad: bool = False
    first: str = ""
    """The subscript of the first of several tensors: `[0]`, `['input_ids']`."""
    length: int = 0
    """Of a module that contains a sequence, its items."""
    is_compiled: bool = False
    """Whether a module was passed to `torch.compile`."""
    has_submodules: bool = False
    """Whether a module contains others, and so may save more than its input."""
    options: tuple[str, ...] = ()
    """The names of an optimizer's options: `lr`, `foreach`."""


@dataclass(frozen=True, slots=True)
class NamesOutcome:
    """The line that calls the backward, and the names there; no line if there is no backward."""

    file: str = ""
    line: int = 0
    names: tuple[NameFact, ...] = ()
    libraries: tuple[str, ...] = ()
    """The modules of installed packages that the script imports until then, in their order."""
    has_eight_bit: bool = False
    """Whether the script can import `EIGHT_BIT_MODULE`."""


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """Run a script on real tensors for some steps, and compare its training with a reference."""

    path: str
    argv: tuple[str, ...]
    gpu: str | None
    calls: int
    """Stop after so many calls of an optimizer's `step`; 0 to run to the end."""
    reference: str
    """The file with the parameters of the reference."""
    is_reference: bool = False
    """Run in eager and write that file, instead of comparing with it."""
    texts: dict[str, str] = field(default_factory=dict)
    """Edited files."""
    is_double: bool = False
    """Whether the default dtype is float64."""


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """How a training compares with the reference."""

    failure: str = ""
    calls: int = 0
    """Calls of an optimizer's `step` that were made."""
    parameters: int = 0
    """Parameters that were compared; 0 if there are none, or not the same."""
    distance: float = 0.0
    """The largest distance of the parameters from the reference, as a fraction of how far the reference moved
    them."""
    printed: tuple[str, ...] = ()
    """Set by the parent."""
    buffer_distance: float = 0.0
    """The same distance for the buffers of modules."""
