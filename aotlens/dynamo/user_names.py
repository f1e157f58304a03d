"""The user's names for values that Dynamo guards.  Stdlib only: logs are read without torch.

Invariant: no `L[...]` and no dict of Dynamo's remains.
"""

import re
from typing import Any

__all__ = ["state_names", "user_name"]

_REWRITES: tuple[tuple[re.Pattern[str], Any], ...] = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"___(?:as_tensor|from_numpy|odict_getitem)\((?P<inner>[^()]*)\)", r"\g<inner>"),
        (r"(?:dict|list|tuple)\.__getitem__\((?P<of>[^(),]+), (?P<key>[^()]+?)\)", r"\g<of>[\g<key>]"),
        (r"getattr\((?P<of>[^(),]+), '(?P<name>\w+)'\)", r"\g<of>.\g<name>"),
        (r"(?<![\w'\"])[LG]\['(\w+)'\]", r"\1"),
        (r"\.__dict__\['(\w+)'\]", r".\1"),
        (r"\._(?:modules|parameters|buffers)\['(\d+)'\]", r"[\1]"),
        (r"\._(?:modules|parameters|buffers)\['(\w+)'\]", r".\1"),
        (r"\bkwargs\['(\w+)'\]", r"\1"),
        (r"\bargs\[(\d+)\]", r"argument \1"),
        (r"\.size\(\)\[(\d+)\]", r".shape[\1]"),
        (r"\.stride\(\)\[(\d+)\]", r".stride(\1)"),
        (r"\b(\w+)\.__closure__\[\d+\]\.cell_contents", r"a closure variable of \1"),
        (r"\b(\w+)\.__defaults__\[(\d+)\]", r"the default \2 of \1"),
        (r"\b(\w+)\.__kwdefaults__\['(\w+)'\]", r"the default of \2"),
        (r"__import_(\w+)", lambda match: match[1].replace("_dot_", ".")),
        (r"\bself\._orig_mod\b", "self"),
        (r"(\w)\.__code__\b", r"\1"),
    )
)
LONGEST_EXPRESSION = 40
"""The most characters of an expression within a name."""
_STACK = re.compile(r"___stack\d+")
_STACK_PART = re.compile(r"___stack\d+(?=[.\[])")


def user_name(source: str, broken: str = "") -> str:
    """Return `self.lin.weight` for Dynamo's `L['self']._modules['lin'].weight`.

    A value on the stack at a graph break is named after the expression `broken`, where that is known.
    """
    for pattern, text in _REWRITES:
        source = pattern.sub(text, source)
    if broken:
        short = broken if len(broken) <= LONGEST_EXPRESSION else f"{broken[:LONGEST_EXPRESSION]}…"
        return _STACK.sub(lambda _: f"the value of `{short}`", source)
    return _STACK.sub("a value at the graph break", _STACK_PART.sub("(a value at the graph break)", source))


_STATES = {
    "grad_mode": "grad mode",
    "deterministic_algorithms": "deterministic algorithms",
    "deterministic_algorithms_warn_only": "deterministic algorithms",
    "torch_function": "the torch function mode",
    "torch_function_all_disabled": "the torch function mode",
    "allow_tf32": "TF32",
    "num_threads": "the number of threads",
    "default_dtype": "the default dtype",
}
"""What users call the parts of torch's global state that guards check."""


def state_names(names: str) -> str:
    """Return `grad mode and autocast` for torch's `grad_mode autocast(cpu)_enabled`."""
    known = ("autocast" if name.startswith("autocast") else _STATES.get(name, name) for name in names.split())
    return " and ".join(dict.fromkeys(known))
