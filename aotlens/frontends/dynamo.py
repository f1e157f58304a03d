"""aotlens as a Dynamo backend: `torch.compile(fn, backend="aotlens")`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aotlens.options import CompileOptions
from aotlens.pipeline import Compiled, compile_graph_module
from aotlens.torch_api import hide_from_dynamo, record_dynamo_spans

record_dynamo_spans()

OPTION_NAMES = ("backend", "policy", "keep_input_mutations")
"""Keys of `torch.compile(options=...)` that are ours; all others go to Inductor."""


def dynamo_backend(options: CompileOptions) -> Callable[..., Any]:
    """A backend for `torch.compile` that compiles with these options."""

    def aotlens(gm: Any, example_inputs: Any, **given: Any) -> Callable[..., Any]:
        chosen = with_user_options(options, given.get("options"))
        return _shielded(compile_graph_module(gm, example_inputs, chosen))

    return aotlens


def aotlens_backend(gm: Any, example_inputs: Any, **given: Any) -> Callable[..., Any]:
    """The registered entry point; `options={"backend": …}` chooses another code generator than Inductor."""
    options = with_user_options(CompileOptions(), given.get("options"))
    return _shielded(compile_graph_module(gm, example_inputs, options))


def _shielded(compiled: Compiled) -> Callable[..., Any]:
    """The callable, with neither it nor its backward ever traced by Dynamo when user code around it is."""
    function = compiled.module.call.__globals__.get("CompiledFunction")
    if function is not None:
        function.backward = staticmethod(hide_from_dynamo(function.backward))
    return hide_from_dynamo(compiled.call)


def with_user_options(options: CompileOptions, given: dict[str, Any] | None) -> CompileOptions:
    """The options with what the user passed as `torch.compile(options=...)`."""
    ours = {key: value for key, value in (given or {}).items() if key in OPTION_NAMES}
    rest = {key: value for key, value in (given or {}).items() if key not in OPTION_NAMES}
    return replace(options, **ours, inductor_config=(*options.inductor_config, *rest.items()))
