"""Restore a cache entry as a module text, with its names bound in this process.

Invariant: an entry that cannot be loaded counts as a cache miss; load errors never reach the user.
"""

import logging
from collections.abc import Callable
from typing import Any, Protocol

from torch import fx

from aotlens.clock import Clock
from aotlens.codegen.records import Generated
from aotlens.codegen.serialized_code import load_code
from aotlens.compile_cache.entry import CacheEntry
from aotlens.compile_cache.graph_key import attribute_at
from aotlens.compile_cache.lookup import graphs_of
from aotlens.runtime.autograd.double_backward import DIFFERENTIABLE_BACKWARD
from aotlens.runtime.autograd.undefined_tangents import BACKWARD_OF_SOME
from aotlens.runtime.module_text import LoadedModule, ModuleText
from aotlens.torch_api.autograd import in_callers_context

__all__ = ["restored_text"]

_LOG = logging.getLogger(__name__)

Code = Callable[[list[Any]], Any]


class FullyCompiled(Protocol):
    """A target that was compiled in this process."""

    @property
    def code(self) -> Generated: ...
    @property
    def module(self) -> LoadedModule: ...


def restored_text(
    cache_entry: CacheEntry,
    gm: fx.GraphModule,
    compile_in_full: Callable[[], FullyCompiled],
    inductor_config: dict[str, Any],
    clock: Clock,
) -> ModuleText | None:
    """Return the text of a cache entry; None where the code of a graph is missing. `compile_in_full` provides
    what entries lack."""
    result = cache_entry.result
    assert result is not None  # checked by the caller
    bound: dict[str, Any] = {}
    for name in result.compiled:
        code = _loaded(cache_entry, name, inductor_config)
        if code is None:
            cache_entry.hit = False
            return None
        bound[name] = code
    for name in result.lazy:
        bound[f"compile_{name}"] = in_callers_context(
            _loaded_at_first_call(cache_entry, name, compile_in_full, inductor_config, clock)
        )
    for name, path in result.constants.items():
        bound[name] = attribute_at(gm, path)

    def differentiable_backward(*args: Any) -> Any:
        return compile_in_full().module.text.late[DIFFERENTIABLE_BACKWARD](*args)

    def partial_backward(defined: Any) -> Any:
        return compile_in_full().module.text.late[BACKWARD_OF_SOME](defined)

    late: dict[str, Any] = {DIFFERENTIABLE_BACKWARD: differentiable_backward} if result.differentiable else {}
    late |= {BACKWARD_OF_SOME: partial_backward} if result.partial_backward else {}
    return ModuleText(result.source, (), bound, late)


def _loaded_at_first_call(
    cache_entry: CacheEntry,
    name: str,
    compile_in_full: Callable[[], FullyCompiled],
    inductor_config: dict[str, Any],
    clock: Clock,
) -> Callable[[], Code]:
    """Return a function that loads a graph's code, or compiles it where it is not stored."""

    def load() -> Code:
        with clock.stage("code of the backward"):
            code = _loaded(cache_entry, name, inductor_config)
        if code is not None:
            return code
        with clock.stage("codegen of the backward"):
            graph = dict(graphs_of(compile_in_full().code))[name]
            return cache_entry.compile_late(name, graph)

    return load


def _loaded(cache_entry: CacheEntry, name: str, inductor_config: dict[str, Any]) -> Code | None:
    """Return the code of a graph; None where it cannot be loaded or is not stored (a backward that never
    ran)."""
    serialized = cache_entry.code(name)
    if serialized is None:
        return None
    try:
        code = load_code(serialized, inductor_config)
    except Exception as error:  # noqa: BLE001 (a pickle may raise anything; the graph is compiled instead)
        _LOG.debug("the code of `%s` cannot be loaded: %s: %s", name, type(error).__name__, error)
        return None
    cache_entry.loaded.add(name)
    return code
