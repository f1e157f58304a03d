"""What a session has seen so far: the compiled targets, their calls, and what could not be compiled.

Invariant: a target is kept once per input signature, in the order of capture.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aotlens.observe import observing
from aotlens.worker.protocol import Failure

if TYPE_CHECKING:
    from aotlens.pipeline import Compiled

__all__ = ["REPEATS", "Collector", "StopScript"]

REPEATS = 3
"""Calls of one target without a new capture after which a trace has seen enough of a script."""


class StopScript(BaseException):
    """Ends a script whose targets only repeat; no `except Exception` of the user's catches it."""


@dataclass(eq=False, slots=True)
class Given:
    """One of what the script gave to `torch.compile`."""

    function: Any
    has_graph: bool = False
    """Whether Dynamo has captured one of it."""
    called: int = 0
    """The how manieth it was to be called first, from 1 on; noted of torch's own layers alone."""


class Collector:
    """Mutable: filled while the script runs."""

    def __init__(self, repeats: int | None = None) -> None:
        """`repeats` is after how many calls without news to stop the script; None lets it run to its end."""
        self.compiled: list[Compiled] = []
        self.refused: list[Failure] = []
        self.given: list[Given] = []
        self.stopped = False
        """Whether the script was ended because its targets only repeated."""
        self._repeats = repeats
        self._calls: Counter[int] = Counter()

    @contextmanager
    def listening(self, on_stage: Callable[[str], None] = lambda name: None) -> Iterator[None]:
        """Collect what the engine compiles within the block."""
        with observing(on_compiled=self._add, on_stage=on_stage):
            yield

    def _add(self, compiled: "Compiled") -> None:
        self.compiled.append(compiled)
        self._calls.clear()

    @contextmanager
    def not_listening(self) -> Iterator[None]:
        """What the engine compiles within the block is forgotten."""
        kept = len(self.compiled)
        yield
        del self.compiled[kept:]

    def noting(self, given: Given, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which notes that what was given is called."""

        def noted(*args: Any, **kwargs: Any) -> Any:
            given.called = given.called or 1 + max(one.called for one in self.given)
            return function(*args, **kwargs)

        return noted

    def refuse(self, failure: Failure) -> None:
        """Keep what the engine said of a target that it could not compile; the script goes on in eager."""
        self.refused.append(failure)
        self._calls.clear()

    def counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its calls counted where they matter; a call too many raises StopScript."""
        if self._repeats is None:
            return function

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.called(id(counted))
            return function(*args, **kwargs)

        if getattr(function, "_boxed_call", False):  # Dynamo then passes one list, which the callee empties
            counted._boxed_call = True  # type: ignore[attr-defined]
        return counted

    def run_on(self) -> None:
        """Stop counting: the script has ended."""
        self._repeats = None

    def called(self, key: int) -> None:
        """Count one call; the first one after a capture is the call that the capture was made for."""
        self._calls[key] += 1
        if self._repeats is not None and self._calls[key] > self._repeats:
            self.stopped = True
            raise StopScript
