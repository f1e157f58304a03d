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
from aotlens.torch_api.dynamo.events import CacheEvent

__all__ = ["CacheLog", "CachedKey", "parts_of"]

_LINE = re.compile(r"\[(?P<hash>\w+)\] (?P<name>[^:]+): (?P<value>.*)", re.DOTALL)
_GRAPH = "gm"
MOST_KEYS = 200
"""The most keys of a script that are remembered between runs."""
MOST_PARTS = 3
LONGEST_VALUE = 400
"""The characters of a value that are stored, so that the difference between two is within them."""
LONGEST_SHOWN = 60
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
        match["name"]: (match["hash"], _value_text(match["value"])) for match in matches if match is not None
    }


def _value_text(value: str) -> str:
    """Return the beginning of a value on one line; empty for settings that torch stores as bytes."""
    text = " ".join(value.split())[:LONGEST_VALUE]
    return text if text.isprintable() and "\ufffd" not in text else ""


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
    change = "" if old is None or new is None else _change(old[1], new[1])
    return f"{words} ({change})" if change else words


def _items(text: str) -> list[str]:
    """Split the text of a value at the commas of its outermost brackets."""
    items, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth <= 1:
            items.append("")
        elif depth or character != ")":
            items[-1] += character
    return [item.strip() for item in items] if len(items) > 1 else [text]


def _change(old: str, new: str) -> str:
    """`False, now True`: of long values the first item that differs; empty where none is known."""
    if old == new or not (old and new):
        return ""
    if max(len(old), len(new)) > LONGEST_SHOWN:
        first, second = _items(old), _items(new)
        pairs = zip(first, second, strict=True) if len(first) == len(second) else ()
        old, new = next((pair for pair in pairs if pair[0] != pair[1]), (old, new))
    if max(len(old), len(new)) > LONGEST_SHOWN:
        return ""
    return f"{old}, now {new}"
