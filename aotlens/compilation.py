"""What the stages of one compilation share besides their records: options, clock, cache entry.

Invariant: nothing here runs a stage; `pipeline.py` alone decides which stages run, and in which order.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from torch import fx

from aotlens.capture.dynamo import GraphCall
from aotlens.capture.inputs.module_tensors import module_tensors
from aotlens.capture.modes import Settings, SplitRegion
from aotlens.capture.operators import Decompositions
from aotlens.capture.records import Captured, Subject
from aotlens.capture.symbols.numbers import fake_mode_for, has_ragged
from aotlens.clock import Clock
from aotlens.codegen.decompositions import decompositions_for
from aotlens.codegen.records import Generated
from aotlens.compile_cache.entry import CacheEntry
from aotlens.compile_cache.lookup import (
    NO_GRAPH,
    graph_entry,
    is_cache_enabled,
    module_constants,
    store_result,
)
from aotlens.compile_cache.replay import Replay
from aotlens.eager.fallback import with_eager_backward
from aotlens.options import CompileOptions, Compilers
from aotlens.partition.regions import split_region
from aotlens.policy import Policy
from aotlens.runtime.module_call import bind_module
from aotlens.runtime.module_text import LoadedModule, ModuleText
from aotlens.torch_api.patches.scopes import patched
from aotlens.torch_api.patches.table import COMPILE, FLEX_ON_CPU


class DirectCall(NamedTuple):
    """A function or module, and the arguments that it is compiled for."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str | None = None

    @property
    def inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self.args, self.kwargs


@dataclass(frozen=True, slots=True)
class Compilation:
    """One run of the stages."""

    options: CompileOptions
    clock: Clock = field(default_factory=Clock)
    cache_entry: CacheEntry | None = None
    """The entry in the on-disk cache; None if the cache is off."""

    @property
    def uses_cache(self) -> bool:
        return is_cache_enabled(self.options)

    @property
    def runs_joint_passes(self) -> bool:
        """Return True if Inductor's passes over the joint graph run before a built-in partition policy."""
        return self.options.for_inductor and isinstance(self.options.partition, Policy)

    @property
    def puts_aliases_in_graph(self) -> bool:
        """Return True if the user's compilers or partition function expect aliases as graph outputs."""
        return isinstance(self.options.backend, Compilers) or not isinstance(self.options.partition, Policy)

    @property
    def split_region(self) -> SplitRegion:
        """The function that splits a marked region by the partition policy of the whole graph."""
        return partial(split_region, policy=self.options.partition)

    @property
    def decompositions(self) -> Decompositions:
        return decompositions_for(self.options)

    @contextmanager
    def capture_context(self) -> Iterator[None]:
        """Let capture accept what the options' GPU supports and the CPU does not."""
        with patched(COMPILE), patched(FLEX_ON_CPU) if self.options.gpu is not None else nullcontext():
            yield

    def look_up(self, call: GraphCall) -> tuple["Compilation", Replay | None]:
        """Return the compilation with the graph's cache entry and, on a cache hit, the call to restore."""
        entry, fake_values = graph_entry(call, self.options)
        replay = Replay.from_call(call, fake_values) if entry.find() is not None else None
        return replace(self, cache_entry=entry), replay

    def store(self, text: ModuleText, code: Generated, gm: fx.GraphModule) -> None:
        """Store the result in the on-disk cache."""
        assert self.cache_entry is not None  # by `look_up`
        with self.clock.stage("cache"):
            compile_ms = sum(self.clock.timings_ms.values())
            store_result(self.cache_entry, text, code, module_constants(gm), compile_ms)

    def without_cache(self, name: str) -> "Compilation":
        """Return the compilation with an empty cache entry: a result of the direct frontend is not cached."""
        if not self.uses_cache:
            return self
        return replace(self, cache_entry=CacheEntry.uncacheable(name, NO_GRAPH))

    def direct_settings(self, call: DirectCall, int_symbols: bool) -> Settings:
        """Return the capture settings for a direct call; `int_symbols` makes its integers symbolic."""
        options = self.options
        ragged = has_ragged(call.inputs)
        mode = fake_mode_for((*call.inputs, module_tensors(call.fn)), options.dynamic or ragged)
        return Settings(
            fake_mode=mode,
            decompositions=self.decompositions,
            dynamic=options.dynamic or (mode.shape_env is not None and not ragged),
            symbolic_numbers=int_symbols,
            observe_variables=options.observe_variables,
            side_effects=options.side_effects,
            split_region=self.split_region,
        )

    def with_output_structure(self, captured: Captured) -> Captured:
        """Return the captured function with a flat tuple as output, if the options ask for it."""
        if not self.options.flat_result:
            return captured
        return replace(captured, structure=captured.structure.flat())

    def with_late_backward(self, code: Generated, subject: Subject) -> Generated:
        """Return the code with a backward that, when it is compiled later, is cached, timed and falls back.

        Without `strict`, a backward that cannot be compiled runs in eager.
        """
        if self.cache_entry is not None:
            code = self.cache_entry.storing_backward(code)
        code = _with_timed_backward(code, self.clock)
        return code if self.options.strict else with_eager_backward(code, subject)


def _with_timed_backward(code: Generated, clock: Clock) -> Generated:
    backward = code.backward
    if backward is None or backward.compile is None:
        return code
    compile_graph = backward.compile

    def compile_backward() -> Callable[[list[Any]], Any]:
        with clock.stage("codegen of the backward"):
            return compile_graph()

    return replace(code, backward=replace(backward, compile=compile_backward))


def bound_call(module: LoadedModule, owner: Any, captured: Captured) -> Callable[..., Any]:
    """Return the loaded module's `call`; for a user module `owner`, its tensors are read at each call."""
    if module_tensors(owner):
        return bind_module(owner, module.call, captured.structure.rebound)
    return module.call
