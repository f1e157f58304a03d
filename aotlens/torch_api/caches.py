"""torch's caches of compiled code: lookups, counts, entries on disk."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from aotlens.torch_api.dynamo import current_compile
from aotlens.torch_api.dynamo_events import CacheEvent, DynamoListener, log_exceptions

__all__ = ["dynamo_cache_counts", "listen_to_caches"]

_AOT_CACHE = "aotautograd_cache_"
"""How the names begin of what torch logs of its cache of AOT results."""


@contextmanager
def listen_to_caches(listener: DynamoListener) -> Iterator[None]:
    """Report lookups: those of the AOT layer from its log, Inductor's once its module is loaded."""
    logs: Any = torch._logging
    from torch._dynamo.utils import ChromiumEventLogger

    original_log, begin = logs.trace_structured, ChromiumEventLogger.log_event_start
    undo: list[Callable[[], None]] = []

    def trace_structured(name: str, metadata_fn: Any = dict, *args: Any, **kwargs: Any) -> Any:
        if name == "artifact":
            with log_exceptions():
                kind = str(metadata_fn().get("name", ""))
                if kind.startswith(_AOT_CACHE) and "payload_fn" in kwargs:
                    info = json.loads(kwargs["payload_fn"]())
                    listener.looks_up(_cache_event("AOTAutograd", info))
        return original_log(name, metadata_fn, *args, **kwargs)

    def log_event_start(*args: Any, **kwargs: Any) -> None:
        codecache = sys.modules.get("torch._inductor.codecache")
        if not undo and hasattr(codecache, "FxGraphCache"):
            undo.append(_hook_inductor_cache(codecache, listener))
        begin(*args, **kwargs)

    logs.trace_structured = trace_structured
    ChromiumEventLogger.log_event_start = log_event_start
    try:
        yield
    finally:
        logs.trace_structured = original_log
        ChromiumEventLogger.log_event_start = begin
        for put_back in undo:
            put_back()


def _hook_inductor_cache(codecache: Any, listener: DynamoListener) -> Callable[[], None]:
    """Report each lookup, until the answer is called."""
    owner = codecache.FxGraphCache
    prepare, load = owner.prepare_key, owner.load_with_key

    def prepare_key(*args: Any, **kwargs: Any) -> Any:
        key, info = prepare(*args, **kwargs)
        if key is None:
            with log_exceptions():
                listener.looks_up(_cache_event("Inductor", info))
        return key, info

    def load_with_key(*args: Any, **kwargs: Any) -> Any:
        graph, info = load(*args, **kwargs)
        with log_exceptions():
            listener.looks_up(_cache_event("Inductor", info))
        return graph, info

    owner.prepare_key, owner.load_with_key = staticmethod(prepare_key), staticmethod(load_with_key)

    def put_back() -> None:
        owner.prepare_key, owner.load_with_key = staticmethod(prepare), staticmethod(load)

    return put_back


def _cache_event(cache: str, info: Any) -> CacheEvent:
    outcome: Any = info.get("cache_state") or "bypass"
    reason = str(info.get("cache_bypass_reason") or "")
    if outcome == "miss" and info.get("cache_status_detailed") == "guard_miss":
        reason = f"an entry is there, but its sizes must satisfy {info.get('cache_status_guard_expr')}"
    return CacheEvent(cache, outcome, tuple(info.get("components") or ()), reason, current_compile())


def dynamo_cache_counts() -> Iterator[tuple[str, int, int, int]]:
    """Of torch's caches of compiled code: the name, hits, misses, and graphs that cannot be cached."""
    from torch._dynamo.utils import counters

    for name, group, prefix in (
        ("AOTAutograd", "aot_autograd", "autograd_cache"),
        ("Inductor", "inductor", "fxgraph_cache"),
    ):
        counted = counters.get(group, {})
        hits, misses, bypasses = (
            int(counted.get(f"{prefix}_{what}", 0)) for what in ("hit", "miss", "bypass")
        )
        yield name, hits, misses, bypasses
