"""torch's caches of compiled code: lookups, counts, entries on disk."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from aotlens.torch_api.dynamo.events import CacheEvent, DynamoListener, log_exceptions
from aotlens.torch_api.dynamo.frames import current_compile
from aotlens.torch_api.patches.scopes import Current

__all__ = ["aot_key_parts", "dynamo_cache_counts", "load_with_key", "prepare_key", "trace_structured"]

_AOT_CACHE = "aotautograd_cache_"
"""How the names begin of what torch logs of its cache of AOT results."""


def trace_structured(original: Callable[..., Any], current: Current) -> Any:
    """torch's structured log, from which lookups in the AOT layer's cache are reported."""

    def log(name: str, metadata_fn: Any = dict, *args: Any, **kwargs: Any) -> Any:
        listener: DynamoListener | None = current()
        if name == "artifact" and listener is not None:
            with log_exceptions():
                kind = str(metadata_fn().get("name", ""))
                if kind.startswith(_AOT_CACHE) and "payload_fn" in kwargs:
                    info = json.loads(kwargs["payload_fn"]())
                    listener.looks_up(_cache_event("AOTAutograd", info))
        return original(name, metadata_fn, *args, **kwargs)

    return log


def aot_key_parts(original: Callable[..., Any], current: Current) -> Any:
    """The parts of a key of the AOT layer's cache, which torch lists only when it logs them."""

    def lines(pickler: Any, details: Any, key: str) -> Any:
        parts = original(pickler, details, key)
        if not parts and current() is not None:
            with log_exceptions():
                parts = pickler.debug_lines(details)
        return parts

    return lines


def prepare_key(original: Callable[..., Any], current: Current) -> Any:
    """How Inductor's cache makes a key: graphs without one are reported."""

    def prepare(*args: Any, **kwargs: Any) -> Any:
        key, info = original(*args, **kwargs)
        listener: DynamoListener | None = current()
        if key is None and listener is not None:
            with log_exceptions():
                listener.looks_up(_cache_event("Inductor", info))
        return key, info

    return staticmethod(prepare)


def load_with_key(original: Callable[..., Any], current: Current) -> Any:
    """A lookup in Inductor's cache, which is reported."""

    def load(*args: Any, **kwargs: Any) -> Any:
        graph, info = original(*args, **kwargs)
        listener: DynamoListener | None = current()
        if listener is not None:
            with log_exceptions():
                listener.looks_up(_cache_event("Inductor", info))
        return graph, info

    return staticmethod(load)


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
