"""Route what a script passes to `torch.compile` and `aotlens.compile` to this session's engine.

Invariant: both names are restored after the context.  The user's own arguments (`fullgraph`, `dynamic`,
`options`) keep their meaning; only backend, policy and observation are the session's.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

import aotlens
from aotlens.eager.fallback import EagerGraph, eager_call, is_user_error
from aotlens.errors import AotlensError
from aotlens.frontends.call_signature import signature
from aotlens.frontends.compile import compile as compile_directly
from aotlens.frontends.compiled_module import compiled_module
from aotlens.frontends.dynamo import compile_for_dynamo, with_user_options
from aotlens.options import CompileOptions
from aotlens.session.collector import Collector
from aotlens.session.errors.attribution import attribute_errors, raise_eager_or_engine_error
from aotlens.session.errors.failures import failure_of
from aotlens.session.isolation import raised_by_caller
from aotlens.torch_api.dynamo.state import (
    compile_mode_settings,
    is_default_backend,
    skip_frame_in_dynamo,
    substitute_while_tracing,
)
from aotlens.torch_api.fake.tensors import mute_fake_tensor_log
from aotlens.torch_api.modes import is_recording
from aotlens.torch_api.patches.compilers import BACKEND, COUNT_CALLS
from aotlens.torch_api.patches.scopes import complete, install, patched

__all__ = ["AroundBackend", "BeforeDirect", "CompileRouter", "intercepting_compile", "is_routed_callable"]

AroundBackend = Callable[[Callable[..., Any], Any], Callable[..., Any]]
"""Takes Dynamo's compiled function and its graph; returns the function that Dynamo calls."""

BeforeDirect = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any], CompileOptions], None]
"""Called before `aotlens.compile` compiles a call."""

OURS = "aotlens"
"""The name of our backend: a script that asks for it gets this engine with the session's options."""

OF_DYNAMO = {"dynamic", "fullgraph"}
"""The arguments of `torch.compile` that are not for its backend."""

_ROUTED = "__aotlens_routed__"


@dataclass(frozen=True, slots=True)
class CompileRouter:
    """Decides how the script's functions are compiled."""

    options: CompileOptions
    collector: Collector
    choose: Callable[[object], Any] = lambda function: function
    """Returns the function to compile in place of the script's; None leaves it unchanged."""
    around: AroundBackend = lambda compiled, graph: compiled
    before_direct: BeforeDirect = lambda function, args, kwargs, options: None
    any_backend: bool = False
    """Compile what `choose` returns also where the script chose another backend."""
    keep_going: bool = False
    """Continue the script in eager even after a mistake in the options (a policy that names no value)."""

    @classmethod
    def for_observation(cls, collector: Collector) -> "CompileRouter":
        """Return the router of a run whose operators are observed or compared: nothing is fused, nothing
        ends it.
        """
        return cls(CompileOptions(backend="eager", strict=False), collector, keep_going=True)

    def __deepcopy__(self, memo: dict[int, Any]) -> "CompileRouter":
        """Return itself: lightning copies what it passes to `torch.compile`, and a new backend recompiles."""
        return self

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        """Pickle a reference: `torch.save` of a compiled module pickles its backend too."""
        return session_router, ()

    def compile_graph(
        self, graph: Any, example_inputs: list[Any], **user_settings: Any
    ) -> Callable[..., Any]:
        """Compile a graph as the Dynamo backend; `user_settings` holds the script's `mode` and `options`.

        All calls of `torch.compile` share it, because Dynamo recompiles a function for each new backend.
        """
        self.collector.note_graph()
        chosen = {
            **compile_mode_settings(user_settings.get("mode"), user_settings.get("dynamic")),
            **(user_settings.get("options") or {}),
        }
        settings = {
            key: value for key, value in chosen.items() if key != "backend"
        }  # the session's backend applies
        with self.collector.listening_in_thread():
            compiled = self._compiled(graph, example_inputs, settings)
        if isinstance(compiled, EagerGraph):
            return self.collector.counting(compiled)
        return self.collector.counting(attribute_errors(self.around(compiled, graph), graph))

    def counting_calls(self, backend: Any, function: Any, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Count the calls of what `torch.compile` made for this session's backend."""
        is_ours = backend == self.compile_graph
        return self.collector.noting_calls(function, compiled) if is_ours else compiled

    def _compiled(self, graph: Any, inputs: list[Any], user_settings: dict[str, Any]) -> Callable[..., Any]:
        try:
            return compile_for_dynamo(graph, inputs, with_user_options(self.options, user_settings))
        except Exception as error:
            if not self.keep_going and isinstance(error, AotlensError):
                raise
            eager = EagerGraph(graph, error, is_error=not self.keep_going)
        eager.announce()
        return eager

    def direct(self, function: Any, user_options: CompileOptions | None) -> Callable[..., Any]:
        """Compile a function as `aotlens.compile(function, options=user_options)` does."""
        options = self._merged(user_options)
        compiled: Any = compile_directly(function, options=options)

        def routed(*args: Any, **kwargs: Any) -> Any:
            if is_recording():
                return function(*args, **kwargs)
            key = signature(function, args, kwargs)
            if key not in compiled.compiled:
                self.before_direct(function, args, kwargs, options)
            failed: Exception | None = None
            try:
                result = compiled(*args, **kwargs)
            except Exception as error:
                if raised_by_caller(error) or (key not in compiled.compiled and self._is_error(error)):
                    raise
                failed = error
            if failed is not None:
                # Outside of the handler, so that the function's own mistake is reported once.
                if key in compiled.compiled:  # it compiled, so the call itself failed
                    raise_eager_or_engine_error(failed, function, args, kwargs)
                result = self._uncompiled_result(failed, function, args, kwargs)
            self.collector.count_call(id(compiled))
            return result

        setattr(routed, _ROUTED, True)
        if isinstance(function, torch.nn.Module):
            return compiled_module(function, routed, partial(self.direct, user_options=user_options))
        return routed

    def _uncompiled_result(self, failed: Exception, function: Any, args: Any, kwargs: Any) -> Any:
        """Return eager's result of a call that could not be compiled; raise the error if it ends the script.

        Eager is called first, because its own error says more to the user than that of the engine.
        """
        result = function(*args, **kwargs)
        if self._is_error(failed):
            raise failed
        self.collector.add_failure(failure_of(failed, self.collector.script))
        self.collector.eager_calls.append(eager_call(function, failed))
        return result

    def _merged(self, user_options: CompileOptions | None) -> CompileOptions:
        """Return the user's options with the settings that the session decides."""
        ours = self.options
        return replace(
            user_options or ours,
            backend=ours.backend,
            policy=ours.policy,
            gpu=ours.gpu if user_options is None or ours.gpu is not None else user_options.gpu,
            dynamic=ours.dynamic or (user_options is not None and user_options.dynamic),
            observe_variables=ours.observe_variables,
        )

    def _is_error(self, error: Exception) -> bool:
        """Return True if the error ends the script instead of continuing in eager."""
        return not self.keep_going and (self.options.strict or is_user_error(error))


_SESSIONS: list[CompileRouter] = []
"""The routers of the sessions that run in this process, the innermost last."""


def session_router() -> CompileRouter:
    """Return the router of the running session; outside of one, a router with default options."""
    return _SESSIONS[-1] if _SESSIONS else CompileRouter(CompileOptions(), Collector())


def is_routed_callable(function: object) -> bool:
    """Return True if calling it compiles it: it was passed to `torch.compile` or `aotlens.compile`."""
    return any(hasattr(function, name) for name in (_ROUTED, "_torchdynamo_orig_callable", "_orig_mod"))


@contextmanager
def intercepting_compile(router: CompileRouter) -> Iterator[None]:
    """Route both ways to compile, as functions, decorators or methods, within the block."""
    saved = torch.compile, aotlens.compile
    torch.compile, aotlens.compile = _torch_compile(torch.compile, router), _aotlens_compile(router)
    _SESSIONS.append(router)
    try:
        with (
            patched(COUNT_CALLS, router.counting_calls),
            mute_fake_tensor_log(),
        ):  # our message covers what they say about the user's mistakes
            yield
    finally:
        _SESSIONS.pop()
        torch.compile, aotlens.compile = saved


def _torch_compile(original: Callable[..., Any], router: CompileRouter) -> Any:
    def compile(model: Any = None, /, **compile_options: Any) -> Any:
        """Replace `torch.compile`, with the backend of this session."""
        if "model" in compile_options:
            model = compile_options.pop("model")
        if model is None:
            return lambda decorated: compile(decorated, **compile_options)
        if compile_options.get("disable"):
            return original(model, **compile_options)
        if compile_options.get("backend") != OURS and not is_default_backend(compile_options.get("backend")):
            if not router.any_backend:
                router.collector.note_other_backend(model, compile_options["backend"])
                return original(model, **compile_options)
            compile_options = {name: compile_options[name] for name in OF_DYNAMO & compile_options.keys()}
        chosen = router.choose(model)
        if chosen is None:
            return model
        if not isinstance(chosen, type):  # of a class, Dynamo compiles the calls of its instances
            router.collector.add_callable(chosen)
        install(BACKEND)
        importlib.import_module("torch._dynamo.eval_frame")
        complete(COUNT_CALLS.name)
        substitute_while_tracing(compile, _traced_compile)
        return original(chosen, **{**compile_options, "backend": router.compile_graph})

    return skip_frame_in_dynamo(compile)


def _traced_compile(model: Any = None, /, **compile_options: Any) -> Any:
    """Replace `torch.compile` inside compiled code."""
    return (lambda decorated: decorated) if model is None else model


def _aotlens_compile(router: CompileRouter) -> Any:
    def compile(fn: Any = None, *, options: CompileOptions | None = None) -> Any:
        """Replace `aotlens.compile`, with the options of this session."""
        if fn is None:
            return lambda decorated: compile(decorated, options=options)
        chosen = router.choose(fn)
        return fn if chosen is None else router.direct(chosen, options)

    return skip_frame_in_dynamo(compile)
