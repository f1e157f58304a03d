"""What the script passed to `torch.compile` and ran in eager anyway. Standard library only."""

from dataclasses import dataclass
from typing import Literal

from aotlens.model.source import Span

__all__ = ["CODES", "NotCompiled", "NotCompiledCause"]

NotCompiledCause = Literal[
    "unsupported",  # the engine lacks the case; the graph runs in eager, as Dynamo captured it
    "internal",  # a stage of ours failed; the graph runs in eager, as Dynamo captured it
    "backend",  # code generation failed; the graph, or its backward, runs in eager
    "graph break",  # Dynamo split the function here; the expression itself runs in eager
    "rest of function",  # Dynamo could not resume: from here to the end the function runs in eager
    "whole function",  # Dynamo captured nothing of the function
    "some calls",  # other calls of it ran compiled; Dynamo left these to eager
    "skipped",  # a layer of torch's own with `compile()`, which compiles nothing up to torch 2.13
    "recompile limit",  # recompiled too often: calls that need yet another graph run in eager
    "no graph",  # it ran, and held no tensor operation to capture
    "not called",  # passed to torch.compile, and never called
    "other backend",  # the script chose another backend for it
]

CODES: dict[NotCompiledCause, str] = {
    "internal": "AL911",
    "unsupported": "AL402",
    "backend": "AL912",
    "whole function": "AL405",
    "rest of function": "AL405",
    "some calls": "AL405",
    "skipped": "AL409",
    "recompile limit": "AL405",
    "not called": "AL405",
    "no graph": "AL405",
    "other backend": "AL405",
    "graph break": "AL406",
}
"""The diagnostic that explains each cause; the most important causes come first."""

LOST: frozenset[NotCompiledCause] = frozenset(
    {"whole function", "rest of function", "some calls", "skipped", "recompile limit"}
)
"""The causes for which more than one expression runs in eager."""


@dataclass(frozen=True, slots=True)
class NotCompiled:
    """Code that was passed to `torch.compile` and did not run compiled, with the reason."""

    name: str
    """The user's function or module, named as its targets are: `Net`, `Block after line 14`."""
    qualname: str
    cause: NotCompiledCause
    reason: str
    """One sentence: what the compiler found, in the user's words."""
    code: str
    """The diagnostic that explains it: `AL402`."""
    span: Span | None = None
    """The expression that caused it; None where no line of the user's is known."""
    calls: int = 0
    """How often it ran in eager; 0 where that was not counted."""

    @property
    def is_loss(self) -> bool:
        """Return True if code runs in eager that the script meant to compile, beyond a single expression."""
        return self.is_graph or self.cause in LOST

    @property
    def is_graph(self) -> bool:
        """Return True if Dynamo captured a graph that our engine did not compile."""
        return self.cause in ("unsupported", "internal", "backend")
