"""Store the keys that earlier runs of a script looked up in torch's caches, in the cache of aotlens.

Invariant: without a cache folder nothing is stored, and nothing fails.
"""

from pathlib import Path

from aotlens.disk_cache import digest, open_store
from aotlens.dynamo.cache_lookups import CachedKey
from aotlens.model.codec import decode_record, encode_record

__all__ = ["load_keys", "save_keys"]

KIND = "cache-keys"


def load_keys(script: str) -> list[CachedKey]:
    """Return the keys of the last run; empty if unknown."""
    store = open_store()
    entries = None if store is None else store.get(KIND, _key(script))
    if not isinstance(entries, list):
        return []
    try:
        return [decode_record(CachedKey, entry) for entry in entries]
    except (KeyError, TypeError, ValueError):
        return []  # written by an earlier release


def save_keys(script: str, keys: list[CachedKey]) -> None:
    """Store the keys for the next run."""
    store = open_store()
    if store is not None and keys:
        store.put(KIND, _key(script), [encode_record(key) for key in keys])


def _key(script: str) -> str:
    return digest(str(Path(script).resolve()))
