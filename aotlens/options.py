"""How a target is compiled.  Stdlib only, so that front ends can name options without torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Backend = Callable[[Any, Sequence[Any]], Callable[..., Any]]
"""Takes a `GraphModule` and example inputs, gives a callable over flat inputs."""

POLICIES = ("min-cut", "default")
BACKENDS = ("inductor", "eager")


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What one compilation is asked to do."""

    backend: str | Backend = "inductor"
    """`inductor`, `eager` (the graphs' own Python text), or any `Backend`."""
    dynamic: bool = False
    """Trace with symbolic sizes."""
    policy: str = "min-cut"
    """Which partition policy chooses the saved values: `min-cut` or `default`."""
    observe_variables: bool = False
    """Record the tensors that local variables are bound to; slows tracing."""
    inductor_config: tuple[tuple[str, object], ...] = ()
    """What the user gave as `torch.compile(options=...)`."""
    keep_input_mutations: bool = True
    """Let a mutation that autograd need not see stay inside the graph."""
    decompositions: dict[Any, Callable[..., Any]] | None = None
    """Operator decompositions; None takes what the backend asks for."""
