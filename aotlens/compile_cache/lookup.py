"""Compute the cache key of a compilation, and store its result under it."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from torch import fx

from aotlens.capture.dynamo import GraphCall
from aotlens.capture.records import Subject
from aotlens.codegen.records import Generated, GraphCode
from aotlens.compile_cache.entry import CacheEntry
from aotlens.compile_cache.environment import environment_lines, option_lines
from aotlens.compile_cache.graph_key import attribute_at, graph_lines, source_lines, spans_of_graph
from aotlens.compile_cache.records import StoredResult
from aotlens.compile_cache.size_guards import CallSizes, sizes_of
from aotlens.compile_cache.tensor_key import input_text, sharing_lines
from aotlens.disk_cache import Store, cache_folder, digest, open_store
from aotlens.ir.fingerprint import NoFingerprintError
from aotlens.model.report import Span
from aotlens.options import CompileOptions
from aotlens.runtime.autograd.double_backward import DIFFERENTIABLE_BACKWARD
from aotlens.runtime.autograd.undefined_tangents import BACKWARD_OF_SOME
from aotlens.runtime.graph_text import graph_name
from aotlens.runtime.module_text import ModuleText

__all__ = ["NO_GRAPH", "graph_entry", "graphs_of", "is_cache_enabled", "module_constants", "store_result"]


NO_GRAPH = "a Python function that runs while it is recorded; `torch.compile` gives a graph beforehand"
"""Why results of the direct frontend are not cached: the effects of its hooks and backward have no text."""


def is_cache_enabled(options: CompileOptions) -> bool:
    """Return True if results are cached: requested, and not disabled by an empty `AOTLENS_CACHE_DIR`."""
    return options.cache and cache_folder() is not None


def graph_entry(call: GraphCall, options: CompileOptions) -> tuple[CacheEntry, list[Any]]:
    """Return the cache entry of a graph, and its fake inputs."""
    store = shared_store()
    if store is None:
        return CacheEntry.uncacheable(call.subject.name, "there is no private folder to store it in"), []
    fakes: list[Any] = []
    try:
        options_text = [*option_lines(options), *environment_lines()]
        fakes = call.fakes()
        shared = sharing_lines(call.values)
        if shared and (call.dynamic or sharing_lines(fakes) != shared):
            raise NoFingerprintError("inputs that share memory in a way that their fake tensors do not")
        sizes = sizes_of(call.values, fakes, call.fake_mode.shape_env)
        described = zip(call.values, fakes, call.slots, strict=True)
        inputs = [f"{slot} {input_text(value, fake, slot.name)}" for value, fake, slot in described]
        spans = tuple(dict.fromkeys((*spans_of_graph(call.graph), *_spans_of(call.subject))))
        key = digest(
            *options_text,
            *_subject_lines(call.subject),
            *(sizes.lines() if sizes is not None else ()),
            *inputs,
            *shared,
            *graph_lines(call.graph),
            source_lines(spans),
        )
    except NoFingerprintError as error:
        return CacheEntry.uncacheable(call.subject.name, str(error)), fakes
    return CacheEntry(store, key, sizes, _digests(spans)), fakes


def shared_store() -> Store | None:
    """Return the user's store, opened once per folder because it tracks its size."""
    opened = open_store()
    return None if opened is None else _store_in(opened.folder)


@cache
def _store_in(folder: Path) -> Store:
    return Store(folder)


def _subject_lines(subject: Subject) -> Iterable[str]:
    return subject.name, subject.qualname, subject.frontend, str(subject.span), str(subject.called_at.spans)


def _spans_of(subject: Subject) -> Iterable[Span]:
    return (*((subject.span,) if subject.span is not None else ()), *subject.called_at.spans)


def _digests(spans: Iterable[Span]) -> tuple[str, ...]:
    """Return digests of the user's files: reports may quote lines that the graph does not name."""
    digests = []
    for file in sorted({span.file for span in spans}):
        try:
            digests.append(digest(file, Path(file).read_bytes()))
        except OSError:  # a cell of a notebook: the key already has the lines that the graph names
            digests.append(digest(file))
    return tuple(digests)


def store_result(
    cache_entry: CacheEntry, text: ModuleText, code: Generated, constants: dict[int, str], took_ms: float
) -> None:
    """Store a result, or note why it is not stored."""
    if cache_entry.reason:
        return
    compiled = [(name, graph) for name, graph in graphs_of(code) if graph.compile and not graph.lazy]
    try:
        cache_entry.put(_stored_result(text, code, constants, cache_entry.sizes, took_ms), compiled)
    except NoFingerprintError as error:
        cache_entry.disable(str(error))


def _stored_result(
    text: ModuleText, code: Generated, constants: dict[int, str], sizes: CallSizes | None, took_ms: float
) -> StoredResult:
    """Return the record of a result; `constants` maps tensors, by identity, to their paths in the captured
    graph.

    Raises:
        NoFingerprintError: the text is bound to what another process does not have.
    """
    graphs = dict(graphs_of(code))
    compiled, lazy = [], []
    stored_constants: dict[str, str] = {}
    for name, value in text.bound.items():
        if name in graphs:
            compiled.append(name)
        elif name.removeprefix("compile_") in graphs:
            lazy.append(name.removeprefix("compile_"))
        elif id(value) in constants:
            stored_constants[name] = constants[id(value)]
        else:
            raise NoFingerprintError(f"what `{name}` of the module text is bound to")
    partial_backward = text.late.get(BACKWARD_OF_SOME)
    if partial_backward is not None and partial_backward.records:
        raise NoFingerprintError(
            "a custom function or a hook whose backward depends on which tangents are defined"
        )
    if set(text.late) - {DIFFERENTIABLE_BACKWARD, BACKWARD_OF_SOME}:
        raise NoFingerprintError("a captured tensor")
    guards = sizes.guards() if sizes is not None else None
    return StoredResult(
        text.source,
        tuple(compiled),
        tuple(lazy),
        stored_constants,
        differentiable=DIFFERENTIABLE_BACKWARD in text.late,
        partial_backward=partial_backward is not None,
        guards=guards,
        cold_ms=took_ms,
    )


def graphs_of(code: Generated) -> Iterable[tuple[str, GraphCode]]:
    """Return the graphs by their names in the text."""
    both = (code.forward, *((code.backward,) if code.backward is not None else ()))
    return [(graph_name(graph.program), graph) for graph in both]


def module_constants(gm: fx.GraphModule) -> dict[int, str]:
    """Map the tensors that a graph module's nodes name, by identity, to their paths."""
    paths: dict[int, str] = {}
    for prefix, module in gm.named_modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.find_nodes(op="get_attr"):
                path = f"{prefix}.{node.target}" if prefix else str(node.target)
                paths[id(attribute_at(gm, path))] = path
    return paths
