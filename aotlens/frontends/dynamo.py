"""aotlens as a Dynamo backend: `torch.compile(fn, backend="aotlens")`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aotlens.compiled import Compiled
from aotlens.eager.fallback import EagerGraph, is_user_error
from aotlens.errors import UserError
from aotlens.frontends.call_signature import signature
from aotlens.frontends.recompilation import is_rejection
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_graph_module
from aotlens.policy import Policy
from aotlens.rng_state import same_random_state_on_failure
from aotlens.runtime.autograd.derivatives import hide_derivatives_from_dynamo
from aotlens.session.policy_function import with_policy_function
from aotlens.torch_api.dynamo.state import hide_backend_result, hide_from_dynamo, tracing
from aotlens.torch_api.patches.compilers import BACKEND
from aotlens.torch_api.patches.scopes import install
from aotlens.torch_api.transforms import is_functionalized

CHECK = "raise AssertionError"
"""How a check in the module text fails."""

OPTION_NAMES = ("backend", "policy", "memory_budget", "keep_input_mutations", "cache", "strict")
"""Keys of `torch.compile(options=...)` that are ours; all others go to Inductor."""


def dynamo_backend(options: CompileOptions) -> Callable[..., Any]:
    """Return a backend for `torch.compile` with these options, for Python callers.

    `backend="aotlens"` is `_aotlens_backend`.
    """
    install(BACKEND)

    # Dynamo's errors show this name.
    def aotlens(gm: Any, example_inputs: Any, **kwargs: Any) -> Callable[..., Any]:
        return compile_for_dynamo(gm, example_inputs, with_user_options(options, kwargs.get("options")))

    return aotlens


def __getattr__(name: str) -> Any:
    """Return `aotlens_backend`, which torch looks up here; torch is patched for it only then."""
    if name != "aotlens_backend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    install(BACKEND)
    return _aotlens_backend


def _aotlens_backend(gm: Any, example_inputs: Any, **kwargs: Any) -> Callable[..., Any]:
    """The registered backend; `options={"backend": …}` selects another code generator than Inductor.

    A graph that the engine does not support runs in eager; with `options={"strict": True}` it raises an
    error.
    """
    options = with_user_options(CompileOptions(strict=False), kwargs.get("options"))
    return compile_for_dynamo(gm, example_inputs, options)


def compile_for_dynamo(gm: Any, example_inputs: Any, options: CompileOptions) -> Callable[..., Any]:
    """Return the callable for Dynamo: the compiled graph, with further compilations for other ways to share
    storage.

    Dynamo does not guard on which inputs overlap; the module text checks it before anything runs. Dynamo
    leaves `torch.func.functionalize` to Python and captures the function under it: that runs uncompiled, on
    functional tensors, while it is called there, which Dynamo does guard on.
    """
    if is_functionalized():
        return gm.forward
    first = _compiled_or_eager(gm, example_inputs, options)
    if isinstance(first, EagerGraph):
        return first
    call, filename = _with_hidden_backward(first), first.module.filename
    if CHECK not in first.module.text.source:  # the text rejects no call: avoid the cost of another frame
        return hide_backend_result(call)
    others: dict[Any, Callable[..., Any]] = {}

    def compiled(*args: Any) -> Any:
        try:
            return call(*args)
        except AssertionError as error:
            if not is_rejection(error, filename):
                raise
        key = signature(gm, args, {})
        if key not in others:
            with tracing(None):  # the frame that Dynamo compiled has ended
                other = _compiled_or_eager(gm, args, options)
            others[key] = other if isinstance(other, EagerGraph) else _with_hidden_backward(other)
        return others[key](*args)

    return hide_backend_result(compiled)


def _compiled_or_eager(gm: Any, inputs: Any, options: CompileOptions) -> Compiled | EagerGraph:
    """Return the compiled graph, or the captured graph where the engine fails, unless that is an error."""
    if options.strict:
        return compile_graph_module(gm, inputs, options)
    try:
        with same_random_state_on_failure():
            return compile_graph_module(gm, inputs, options)
    except Exception as error:
        if is_user_error(error):
            raise
        eager = EagerGraph(gm, error)
    eager.announce()
    return eager


def _with_hidden_backward(compiled: Compiled) -> Callable[..., Any]:
    """Return the callable, with its backward hidden from Dynamo when user code around it is traced."""
    function = compiled.module.call.__globals__.get("CompiledFunction")
    if function is not None:
        function.backward = staticmethod(hide_from_dynamo(function.backward))
        hide_derivatives_from_dynamo()
    return compiled.call


def with_user_options(options: CompileOptions, user_options: dict[str, Any] | None) -> CompileOptions:
    """Return the options with what the user passed as `torch.compile(options=...)`."""
    ours = {key: value for key, value in (user_options or {}).items() if key in OPTION_NAMES}
    rest = {key: value for key, value in (user_options or {}).items() if key not in OPTION_NAMES}
    if "memory_budget" in ours:
        ours["policy"] = _with_budget(ours.get("policy", ""), ours.pop("memory_budget"))
    return with_policy_function(
        replace(options, **ours, inductor_config=(*options.inductor_config, *rest.items()))
    )


def _with_budget(policy: Any, budget: Any) -> Policy:
    """Return the policy with a budget, which is given as on the command line or as a number."""
    if not isinstance(policy, str):
        raise UserError(
            "`memory_budget` with a policy that is not a string: give the budget to that, as"
            " `Policy(budget=Budget(…))`"
        )
    return Policy.parse(policy.split(",") if policy else (), str(budget))
