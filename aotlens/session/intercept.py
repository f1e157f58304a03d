"""Routes what a script gives to `torch.compile` to our engine, for as long as the context is open.

Invariant: afterwards `torch.compile` is what it was; the user's own arguments (`fullgraph`, `dynamic`,
`options`) keep their meaning, only the backend is ours.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.frontends.dynamo import dynamo_backend, with_user_options
from aotlens.options import CompileOptions
from aotlens.session.collect import Collector
from aotlens.session.failures import failure_of

__all__ = ["Router", "intercepted"]

AroundBackend = Callable[[Callable[..., Any], Any], Callable[..., Any]]
"""Takes the compiled callable and the graph that it was made from; gives what Dynamo shall call."""


@dataclass(frozen=True, slots=True)
class Router:
    """How what the script compiles is compiled."""

    options: CompileOptions
    collector: Collector
    script: str
    """The path of the script, to tell the user's lines from ours."""
    choose: Callable[[object], object | None] = lambda given: given
    """What to compile for what the script gave; None leaves that as it is."""
    around: AroundBackend = lambda compiled, graph: compiled
    refuse: bool = False
    """Let the script go on in eager where the engine refuses a graph, and note it in the collector."""

    def backend(self, asked: dict[str, object]) -> Callable[..., Any]:
        """A Dynamo backend; `asked` is what the user gave as `options=`."""
        kept = {key: value for key, value in asked.items() if key != "backend"}  # the command's own is meant
        compile_graph = dynamo_backend(with_user_options(self.options, kept))

        def aotlens_session(graph: Any, example_inputs: list[Any]) -> Callable[..., Any]:
            try:
                compiled = compile_graph(graph, example_inputs)
            except Exception as error:
                if not self.refuse:
                    raise
                self.collector.refuse(failure_of(error, self.script))
                compiled = graph.forward
            return self.collector.counting(self.around(compiled, graph))

        return aotlens_session


@contextmanager
def intercepted(router: Router) -> Iterator[None]:
    """Within the block, `torch.compile`, as function, decorator or `module.compile()`, is routed."""
    original = torch.compile
    torch.compile = _routed(original, router)
    try:
        yield
    finally:
        torch.compile = original


def _routed(original: Callable[..., Any], router: Router) -> Callable[..., Any]:
    def compile(model: Any = None, /, **asked: Any) -> Any:
        """Stands for `torch.compile`, with the backend of this session."""
        if "model" in asked:
            model = asked.pop("model")
        if model is None:
            return lambda decorated: compile(decorated, **asked)
        if asked.get("disable"):
            return original(model, **asked)
        chosen = router.choose(model)
        if chosen is None:
            return model
        kept = {name: value for name, value in asked.items() if name not in ("backend", "mode", "options")}
        return original(chosen, backend=router.backend(asked.get("options") or {}), **kept)

    return compile
