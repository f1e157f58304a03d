"""torch's caches of compiled code: lookups, counts, entries on disk."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from aotlens.torch_api.dynamo.events import CacheEvent, DynamoListener, log_exceptions
from aotlens.torch_api.dynamo.frames import current_compile
from aotlens.torch_api.patches.scopes import handled, static

__all__ = ["aot_key_parts", "dynamo_cache_counts", "load_with_key", "prepare_key", "trace_structured"]

_AOT_CACHE = "aotautograd_cache_"
"""How the names begin of what torch logs of its cache of AOT results."""


@handled
def trace_structured(
    listener: DynamoListener,
    original: Callable[..., Any],
    name: str,
    metadata_fn: Any = dict,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """torch's structured log, from which lookups in the AOT layer's cache are reported."""
    if name == "artifact":
        with log_exceptions():
            kind = str(metadata_fn().get("name", ""))
            if kind.startswith(_AOT_CACHE) and "payload_fn" in kwargs:
                info = json.loads(kwargs["payload_fn"]())
                listener.looks_up(_cache_event("AOTAutograd", info))
    return original(name, metadata_fn, *args, **kwargs)


@handled
def aot_key_parts(
    listener: DynamoListener, original: Callable[..., Any], pickler: Any, details: Any, key: str
) -> Any:
    """The parts of a key of the AOT layer's cache, which torch lists only when it logs them."""
    parts = original(pickler, details, key)
    if not parts:
        with log_exceptions():
            parts = pickler.debug_lines(details)
    return parts


@static
@handled
def prepare_key(listener: DynamoListener, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """How Inductor's cache makes a key: graphs without one are reported."""
    key, info = original(*args, **kwargs)
    if key is None:
        with log_exceptions():
            listener.looks_up(_cache_event("Inductor", info))
    return key, info


@static
@handled
def load_with_key(listener: DynamoListener, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A lookup in Inductor's cache, which is reported."""
    graph, info = original(*args, **kwargs)
    with log_exceptions():
        listener.looks_up(_cache_event("Inductor", info))
    return graph, info


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
