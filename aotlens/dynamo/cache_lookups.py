"""Lookups in torch's caches of compiled code, and why they miss.

Invariant: a cause names the difference between this lookup's key and the nearest known key, of this run or of
earlier runs of the same script; where none is near, the graph is new.

| lookup | cause |
|---|---|
| not made | torch's own reason why the graph cannot be cached |
| an entry is there, for other sizes | the condition on sizes that does not hold |
| a key with the same graph is known | the parts of the key that differ: a setting, an input |
| a key with every part equal is known | its entry is gone: the folder is another one, or was cleared |
| neither | the graph is new |
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aotlens.model.dynamo import CacheLookup
from aotlens.torch_api.dynamo_events import CacheEvent

__all__ = ["CacheLog", "CachedKey", "parts_of"]

_LINE = re.compile(r"\[(?P<hash>\w+)\] (?P<name>[^:]+): (?P<value>.*)", re.DOTALL)
_GRAPH = "gm"
MOST_KEYS = 200
"""The most keys of a script that are remembered between runs."""
MOST_PARTS = 3
LONGEST_VALUE = 60
NEW_GRAPH = "no such graph was compiled before"
NO_PARTS = "torch names no parts of this key; the lookups of its graphs say more"


@dataclass(frozen=True, slots=True)
class CachedKey:
    """The parts of a key that was looked up."""

    cache: str
    parts: dict[str, tuple[str, str]]
    """By name, the digest of a part and the beginning of its text."""


@dataclass(slots=True)
class CacheLog:
    """Mutable: grows while the script runs."""

    known: list[CachedKey] = field(default_factory=list)
    """Keys of earlier runs first."""
    lookups: list[CacheLookup] = field(default_factory=list)

    def note(self, event: CacheEvent) -> None:
        """Record a lookup, with its cause if it missed."""
        parts = parts_of(event.components)
        before = [entry.parts for entry in self.known if entry.cache == event.cache]
        cause = "" if event.outcome == "hit" else cause_of(event, parts, before)
        self.lookups.append(CacheLookup(event.cache, event.outcome, event.compile_id, cause))
        if parts and parts not in before:
            self.known.append(CachedKey(event.cache, parts))
            del self.known[:-MOST_KEYS]


def parts_of(lines: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Parse the parts of a key as torch prints them."""
    matches = (_LINE.fullmatch(line) for line in lines)
    return {
        match["name"]: (match["hash"], " ".join(match["value"].split())[:LONGEST_VALUE])
        for match in matches
        if match is not None
    }


def cause_of(
    event: CacheEvent, parts: Mapping[str, tuple[str, str]], known: Sequence[Mapping[str, tuple[str, str]]]
) -> str:
    """Return why a lookup missed, in one sentence."""
    if event.reason:
        return event.reason
    if not parts:
        return NO_PARTS
    alike = [entry for entry in known if entry.get(_GRAPH, ("",))[0] == parts.get(_GRAPH, ("-",))[0]]
    if not alike:
        return NEW_GRAPH
    different = min((_different(parts, entry) for entry in alike), key=len)
    if not different:
        return "the same was compiled before, but its entry is gone: another folder, or it was cleared"
    nearest = next(entry for entry in alike if _different(parts, entry) == different)
    words = [_part_words(name, nearest.get(name), parts.get(name)) for name in different[:MOST_PARTS]]
    more = f" and {len(different) - MOST_PARTS} more" if len(different) > MOST_PARTS else ""
    return f"the same graph was compiled with another {', '.join(words)}{more}"


def _different(
    first: Mapping[str, tuple[str, str]], second: Mapping[str, tuple[str, str]]
) -> tuple[str, ...]:
    """Return the names of the parts that differ."""
    names = dict.fromkeys((*first, *second))
    return tuple(name for name in names if first.get(name, ("",))[0] != second.get(name, ("",))[0])


def _part_words(name: str, old: tuple[str, str] | None, new: tuple[str, str] | None) -> str:
    """`setting max_autotune (False, now True)`."""
    match = re.fullmatch(r"(?P<group>\w+)\[(?P<entry>.*)\]", name)
    words = name.replace("_", " ")
    if match is not None:
        groups = {"inductor_config": "setting", "example_inputs": "input", "fx_kwargs": "option"}
        words = f"{groups.get(match['group'], match['group'].replace('_', ' '))} {match['entry']}"
    if old is None or new is None or old[1] == new[1]:
        return words
    return f"{words} ({old[1]}, now {new[1]})"
