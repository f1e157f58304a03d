"""The stages of a report as graphs for Google's Model Explorer, in its JSON format.

Invariant: a node keeps its name, and nothing is drawn that the report does not have: operators in the group
of their layer, the source line, and what is saved or recomputed, by colour and with its reason.

Written after the format's public description:
https://github.com/google-ai-edge/model-explorer/wiki/4.-API-Guide
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from aotlens.model.report import RecomputedValue, Report, SavedValue, Span, Stage, StageNode, Target, Tensor
from aotlens.model.spans import location, source_line
from aotlens.view.quantities import human_bytes, human_flops

__all__ = ["model_explorer_text"]

DRAWN_STAGES = ("forward", "backward", "inference", "joint")
"""The drawn stages, those that run first."""

INPUTS = "inputs"
"""The group of a graph's inputs; its hundreds of parameters would hide the operators."""

SAVED_STYLE = {"backgroundColor": "#c8e6c9", "borderColor": "#2e7d32"}
RECOMPUTED_STYLE = {"backgroundColor": "#ffe0b2", "borderColor": "#ef6c00"}

Json = dict[str, Any]


def model_explorer_text(report: Report, label: str) -> str:
    """Return the file's text: one collection with a graph for each stage of each target."""
    labels = _labels(report.targets)
    graphs = [
        _graph(target, stage, f"{label} {name}")
        for target, label in zip(report.targets, labels, strict=True)
        for name in DRAWN_STAGES
        if (stage := target.stage(name)) is not None
    ]
    return json.dumps({"label": label, "graphs": graphs}, ensure_ascii=False) + "\n"


def _labels(targets: Sequence[Target]) -> list[str]:
    """Return the targets' names, each once: the second capture of a function is `step (2)`."""
    labels: list[str] = []
    for target in targets:
        number = sum(target.name == other.name for other in targets[: len(labels)])
        labels.append(f"{target.name} ({number + 1})" if number else target.name)
    return labels


def _graph(target: Target, stage: Stage, identifier: str) -> Json:
    choices = _Choices(target)
    known = {node.name for node in stage.nodes}
    nodes = [_node(node, choices, known) for node in stage.nodes]
    return {
        "id": identifier,
        "nodes": nodes,
        "groupNodeAttributes": {"": _graph_attributes(target, stage), **choices.by_layer()},
    }


class _Choices:
    """Saved and recomputed values, by the name of the node."""

    def __init__(self, target: Target) -> None:
        partition = target.partition
        self.saved = {row.node: row for row in partition.saved} if partition is not None else {}
        self.recomputed = {row.node: row for row in partition.recomputed} if partition is not None else {}

    def by_layer(self) -> dict[str, dict[str, str]]:
        """Return the bytes that each layer saves."""
        size_bytes: dict[str, int] = defaultdict(int)
        for row in self.saved.values():
            if row.layer is not None:
                size_bytes[_group(row.layer)] += row.bytes
        return {group: {"saved for backward": human_bytes(size)} for group, size in size_bytes.items()}


def _graph_attributes(target: Target, stage: Stage) -> dict[str, str]:
    rows = {"target": target.qualname, "mode": target.mode, "stage": stage.name}
    if target.span is not None:
        rows["source"] = location(target.span)
    if target.partition is not None:
        rows["policy"] = target.partition.policy
        rows["saved for backward"] = human_bytes(target.partition.saved_bytes)
    if target.memory is not None:
        rows["peak memory"] = human_bytes(target.memory.peak_bytes)
    return rows


def _node(node: StageNode, choices: _Choices, known: set[str]) -> Json:
    saved, recomputed = choices.saved.get(node.name), choices.recomputed.get(node.name)
    drawn: Json = {
        "id": node.name,
        "label": _label(node),
        "namespace": INPUTS if node.op == "placeholder" else _group(node.layer),
        "attrs": [{"key": key, "value": value} for key, value in _attributes(node, saved, recomputed)],
        "incomingEdges": [
            {"sourceNodeId": name, "sourceNodeOutputId": "0", "targetNodeInputId": str(index)}
            for index, name in enumerate(node.inputs)
            if name in known
        ],
    }
    if node.tensor is not None:
        attributes = [{"key": key, "value": value} for key, value in _tensor(node.tensor)]
        drawn["outputsMetadata"] = [{"id": "0", "attrs": attributes}]
    if saved is not None or recomputed is not None:
        drawn["style"] = SAVED_STYLE if saved is not None else RECOMPUTED_STYLE
    return drawn


def _label(node: StageNode) -> str:
    """`mm` for `aten.mm.default`; the user's name for an input."""
    if node.op == "placeholder":
        return node.target
    parts = node.target.split(".")
    return parts[1] if node.op == "call_function" and len(parts) == 3 else node.target


def _group(layer: str | None) -> str:
    return "" if layer is None else layer.replace(".", "/")


def _attributes(
    node: StageNode, saved: SavedValue | None, recomputed: RecomputedValue | None
) -> Iterator[tuple[str, str]]:
    yield "operator", node.target
    for number, span in enumerate(node.spans):
        yield f"source {number + 1}" if number else "source", _source(span)
    if node.layer is not None:
        yield "layer", node.layer
    if node.reason:
        yield "reason", node.reason
    if saved is not None:
        if saved.name is not None:
            yield "variable", saved.name
        yield "saved for backward", f"{human_bytes(saved.bytes)}: {saved.reason}"
        readers = dict.fromkeys(location(use.span) for use in saved.used_by if use.span is not None)
        if readers:
            yield "read by the backward of", ", ".join(readers)
    if recomputed is not None:
        cost = f"{human_flops(recomputed.flops)} instead of {human_bytes(recomputed.bytes)}"
        yield "recomputed in backward", f"{cost}: {recomputed.reason}"
    if node.from_ not in ((), (node.name,)):
        yield "comes from", ", ".join(node.from_)


def _source(span: Span) -> str:
    """`model.py:41:9  hidden = self.up(x)`."""
    return f"{location(span)}  {source_line(span.file, span.line).strip()}".rstrip()


def _tensor(tensor: Tensor) -> Iterator[tuple[str, str]]:
    yield "shape", tensor.short()  # the key that Model Explorer shows on edges
    yield "stride", ", ".join(map(str, tensor.stride))
    yield "device", tensor.device
    yield "bytes", human_bytes(tensor.bytes)
    yield "requires grad", "yes" if tensor.requires_grad else "no"
