"""Shorter forms of names for a narrow column: the part that distinguishes a row stays.

Invariant: a result has at most the requested number of characters. Each form of a name loses another part:
a dotted path its outer modules, a generated name its middle, a file its folders, and an expression or a
sentence its end.
"""

import re

ELLIPSIS = "…"

_COUNT = re.compile(r"(?:[×x]\d+|[├╰●]) +")
"""What comes before a name: the number of identical layers, or the branch of a tree."""
_IN_LAYER = re.compile(r"(?P<layer>[\w.–,\[\]]+): (?P<label>\S.*)")
"""A value in a layer, `blocks.0–11: self.mlp(x)`."""
_WITH_NODE = re.compile(r"(?P<name>.*\S) \((?P<node>\w+)\)")
"""A name that several values have, with the node that distinguishes them: `q @ k (clone_1)`."""
_LEAST_WITH_NODE = 12
"""The room in which both parts of such a name can be recognised."""
_FILE_LINE = re.compile(r"[\w./\\~-]+:\d+")
_DOTTED = re.compile(r"[\w–,*\[\]$-]+(?:\.[\w–,*\[\]$-]+)+")
_OPERATOR = re.compile(r"(?:aten|prims|torch\.ops\.\w+)\.(?P<name>[\w.]+)")
"""An operator with its namespace, which nearly all rows share: `aten.sum.dim_IntList`."""
_GENERATED = re.compile(r"(?=.*[_\d])[\w–*]+")
_TAIL_SHARE = 2 / 3
"""The share of a generated name's room that its end gets: its number tells it from the others."""


def shortened(text: str, width: int) -> str:
    """Return the text in at most `width` characters.

    `blocks.0.attention.qkv.weight` becomes `…attention.qkv.weight`, `×12 blocks.0–11: self.mlp(x)` becomes
    `×12 …0–11: self.mlp(x)`, `scores.softmax(-1) (clone_1)` becomes `scores.s… (clone_1)`, and
    `convert_element_type_12` becomes `conver…type_12`.
    """
    if len(text) <= width:
        return text
    if width <= 1:
        return ELLIPSIS[:width]
    count = _COUNT.match(text)
    if count is not None and count.end() < width - 1:
        return count.group() + shortened(text[count.end() :], width - count.end())
    with_node = _WITH_NODE.fullmatch(text)
    if with_node is not None and width >= _LEAST_WITH_NODE:
        node = f" ({middle_cut(with_node['node'], width // 2 - len(' ()'))})"
        return shortened(with_node["name"], width - len(node)) + node
    in_layer = _IN_LAYER.fullmatch(text)
    if in_layer is not None:
        return _layer_cut(in_layer["layer"], in_layer["label"], width)
    if _FILE_LINE.fullmatch(text) or ("/" in text and " " not in text):
        return start_cut(text, width)
    operator = _OPERATOR.fullmatch(text)
    if operator is not None:
        return end_cut(ELLIPSIS + operator["name"], width)
    if _DOTTED.fullmatch(text):
        return _path_cut(text, width)
    if _GENERATED.fullmatch(text):
        return middle_cut(text, width)
    return end_cut(text, width)


def end_cut(text: str, width: int) -> str:
    """Return the start of a text, with an ellipsis for the rest."""
    return text if len(text) <= width else text[: max(0, width - 1)].rstrip() + ELLIPSIS


def start_cut(text: str, width: int) -> str:
    """Return the end of a text."""
    return text if len(text) <= width else ELLIPSIS + text[len(text) - width + 1 :]


def middle_cut(text: str, width: int) -> str:
    """Return both ends of a generated name; the end begins with a whole word if one fits."""
    if len(text) <= width:
        return text
    room = width - 1
    tail = text[len(text) - max(1, round(room * _TAIL_SHARE)) :]
    words = tail.split("_", 1)
    if len(words) == 2 and words[1] and not text.endswith(f"_{tail}"):
        tail = words[1] if len(words[1]) > 1 else tail
    return text[: room - len(tail)] + ELLIPSIS + tail


def _layer_cut(layer: str, label: str, width: int) -> str:
    """Return a value in a layer: the layer loses its outer modules first, then the label its end."""
    for short in (layer, _path_cut(layer, len(layer) - 1), ELLIPSIS):
        if len(short) + 2 + len(label) <= width:
            return f"{short}: {label}"
    return shortened(label, width)


def _path_cut(text: str, width: int) -> str:
    """Return the last names of a dotted path that fit; of the last name alone, both ends."""
    parts = text.split(".")
    for first in range(1, len(parts)):
        end = ELLIPSIS + ".".join(parts[first:])
        if len(end) <= width:
            return end
    return middle_cut(parts[-1], width)
