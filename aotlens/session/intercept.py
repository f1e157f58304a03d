"""Routes what a script gives to `torch.compile` and `aotlens.compile` to this session's engine.

Invariant: after the context both names are what they were; the user's own arguments (`fullgraph`,
`dynamic`, `options`) keep their meaning, only backend, policy and observation are the session's.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

import aotlens
from aotlens.errors import AotlensError
from aotlens.frontends.compiled_module import compiled_module
from aotlens.frontends.dynamo import dynamo_backend, with_user_options
from aotlens.frontends.signature import signature
from aotlens.options import CompileOptions
from aotlens.session.blame import blaming, eager_agrees, in_eager
from aotlens.session.collect import Collector, Given
from aotlens.session.failures import failure_of
from aotlens.session.left_out import is_own
from aotlens.torch_api import is_recorded, quiet_fake_tensors

__all__ = ["AroundBackend", "BeforeDirect", "Router", "intercepted", "is_routed"]

AroundBackend = Callable[[Callable[..., Any], Any], Callable[..., Any]]
"""Takes what Dynamo had compiled and the graph that it was made from; gives what Dynamo shall call."""

BeforeDirect = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any], CompileOptions], None]
"""Hears of a call that `aotlens.compile` is about to compile."""

_ROUTED = "__aotlens_routed__"


@dataclass(frozen=True, slots=True)
class Router:
    """How what the script compiles is compiled."""

    options: CompileOptions
    collector: Collector
    script: str
    """The path of the script, to tell the user's lines from ours."""
    choose: Callable[[object], Any] = lambda given: given
    """What to compile for what the script gave; None leaves that as it is."""
    around: AroundBackend = lambda compiled, graph: compiled
    before_direct: BeforeDirect = lambda function, args, kwargs, options: None
    refuse: bool = False
    """Let the script go on in eager where the engine refuses, and note it in the collector."""

    def backend(self, given: Given, asked: dict[str, object]) -> Callable[..., Any]:
        """A Dynamo backend for what was given; `asked` is what the user gave as `options=`."""
        kept = {key: value for key, value in asked.items() if key != "backend"}  # the session's is meant
        compile_graph = dynamo_backend(with_user_options(self.options, kept))

        def aotlens_session(graph: Any, example_inputs: list[Any]) -> Callable[..., Any]:
            given.has_graph = True
            try:
                compiled = self.around(compile_graph(graph, example_inputs), graph)
            except Exception as error:
                if not self.refuse and isinstance(error, AotlensError):
                    raise
                return self.collector.counting(in_eager(graph, partial(self._refuse, error)))
            return self.collector.counting(blaming(compiled, graph))

        return aotlens_session

    def direct(self, function: Any, asked: CompileOptions | None) -> Callable[..., Any]:
        """What stands for `aotlens.compile(function, options=asked)`."""
        options = self._merged(asked)
        compiled: Any = aotlens.frontends.compile.compile(function, options=options)

        def routed(*args: Any, **kwargs: Any) -> Any:
            if is_recorded():
                return function(*args, **kwargs)
            key = signature(function, args, kwargs)
            if key not in compiled.compiled:
                self.before_direct(function, args, kwargs, options)
            failed: Exception | None = None
            try:
                result = compiled(*args, **kwargs)
            except Exception as error:
                if key not in compiled.compiled and not self.refuse:
                    raise
                failed = error
            if failed is not None:
                # Outside of the handler: the function's own mistake is then told once.
                if key in compiled.compiled:  # it compiled, so the call itself failed
                    eager_agrees(failed, function, args, kwargs)
                result = function(*args, **kwargs)
                self._refuse(failed)
            self.collector.called(id(compiled))
            return result

        setattr(routed, _ROUTED, True)
        if isinstance(function, torch.nn.Module):
            return compiled_module(function, routed, partial(self.direct, asked=asked))
        return routed

    def _merged(self, asked: CompileOptions | None) -> CompileOptions:
        ours = self.options
        return replace(
            asked or ours,
            backend=ours.backend,
            policy=ours.policy,
            gpu=ours.gpu if asked is None or ours.gpu is not None else asked.gpu,
            dynamic=ours.dynamic or (asked is not None and asked.dynamic),
            observe_variables=ours.observe_variables,
        )

    def _refuse(self, error: Exception) -> None:
        if not self.refuse:
            raise error
        self.collector.refuse(failure_of(error, self.script))


def is_routed(function: object) -> bool:
    """Whether calling it compiles it: it was given to `torch.compile` or `aotlens.compile`."""
    return any(hasattr(function, name) for name in (_ROUTED, "_torchdynamo_orig_callable", "_orig_mod"))


@contextmanager
def intercepted(router: Router) -> Iterator[None]:
    """Within the block, both ways to compile, as functions, decorators or methods, are routed."""
    saved = torch.compile, aotlens.compile
    torch.compile, aotlens.compile = _torch_compile(torch.compile, router), _aotlens_compile(router)
    try:
        with quiet_fake_tensors():  # what they say of the user's mistakes, our message says
            yield
    finally:
        torch.compile, aotlens.compile = saved


def _torch_compile(original: Callable[..., Any], router: Router) -> Any:
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
        given = Given(chosen)
        router.collector.given.append(given)
        kept = {name: value for name, value in asked.items() if name not in ("backend", "mode", "options")}
        compiled = original(chosen, backend=router.backend(given, asked.get("options") or {}), **kept)
        if isinstance(chosen, torch.nn.Module) and not is_own(chosen):
            compiled.forward = router.collector.noting(given, compiled.forward)
        return compiled

    return compile


def _aotlens_compile(router: Router) -> Any:
    def compile(fn: Any = None, *, options: CompileOptions | None = None) -> Any:
        """Stands for `aotlens.compile`, with the options of this session."""
        if fn is None:
            return lambda decorated: compile(decorated, options=options)
        chosen = router.choose(fn)
        return fn if chosen is None else router.direct(chosen, options)

    return compile
