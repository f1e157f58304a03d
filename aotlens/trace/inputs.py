"""Build the tables of inputs and outputs from Dynamo's descriptions and AOTAutograd's metadata."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import get_args

from aotlens.dynamo.user_names import user_name
from aotlens.model.report import Base, Input, MutationTypeName, Output, OutputTypeName, Site, Tensor
from aotlens.trace.facts import CompilationFacts, GraphSet
from aotlens.trace.graphs.metadata import InputInfo, Metadata
from aotlens.trace.graphs.records import Argument, Graph, base_slot
from aotlens.trace.graphs.tensor_text import tensor_of
from aotlens.trace.source.lines import Locate, site_of

__all__ = ["inputs_of", "outputs_of"]

_PLAIN = re.compile(r"(?:Plain|Param|Buffer)AOTInput\(idx=(\d{1,9})\)")
_PLAIN_OUTPUT = re.compile(r"PlainAOTOutput\(idx=(\d{1,9})\)")
_OUTPUT_TYPES = frozenset(get_args(OutputTypeName))
_REASONS = {
    "mutated_in_graph": "the graph writes to it, as torch's metadata says",
    "mutated_out_graph": "torch's wrapper copies the new values back after the graph",
}


class _Described:
    """The `describe_tensor` and `describe_source` records of Dynamo's arguments, by the name in the graph."""

    def __init__(self, facts: CompilationFacts) -> None:
        tensors = {_key(value): value for value in _values(facts, "describe_tensor")}
        self.sources: dict[str, str] = {}
        self.tensors: dict[str, dict[str, object]] = {}
        for value in _values(facts, "describe_source"):
            source = str(value.get("source", ""))
            name = _folded(source)
            self.sources[name] = source
            self.tensors[name] = tensors.get(_key(value), {})


def _values(facts: CompilationFacts, kind: str) -> Iterable[dict[str, object]]:
    return (facts.value(record) for record in facts.every(kind))


def _key(value: dict[str, object]) -> tuple[str, str]:
    return str(value.get("describer_id")), str(value.get("id"))


def _folded(name: str) -> str:
    """Return the name that Dynamo derives from an argument's source: every other character becomes `_`."""
    return re.sub(r"[^0-9a-z]+", "_", name.lower()).strip("_")


def inputs_of(graphs: GraphSet, metadata: Metadata | None, locate: Locate) -> tuple[Input, ...]:
    """Return a row for each argument of Dynamo's graph, or of the AOT graph if that is not logged."""
    graph = graphs.captured or graphs.first or graphs.joint
    if graph is None:
        return ()
    described = _Described(graphs.facts)
    infos = _infos(graphs, metadata)
    storages: dict[object, list[int]] = defaultdict(list)
    for index, argument in enumerate(graph.arguments):
        tensor = described.tensors.get(_folded(argument.name), {})
        if tensor.get("storage") is not None:
            storages[str(tensor.get("describer_id")), str(tensor["storage"])].append(index)
    rows = []
    for index, argument in enumerate(graph.arguments):
        row = _input(index, argument, described, graphs)
        sharing = next((group for group in storages.values() if index in group and len(group) > 1), [])
        info = infos.get(index)
        sites = (
            _write_sites(graphs.captured, argument.name, locate) if info and info.has("mutates_data") else ()
        )
        rows.append(_with_effects(row, info, tuple(other for other in sharing if other != index), sites))
    return tuple(rows)


def _infos(graphs: GraphSet, metadata: Metadata | None) -> dict[int, InputInfo]:
    """Return the metadata by position among Dynamo's arguments; empty if it does not fit them."""
    graph = graphs.first or graphs.joint
    if metadata is None or graph is None:
        return {}
    texts = dict.fromkeys(base_slot(argument.slot)[0] for argument in graph.arguments if argument.slot)
    slots = [_PLAIN.fullmatch(text) for text in texts]
    positions = [int(slot[1]) if slot else None for slot in slots]
    if not any(argument.slot for argument in graph.arguments):
        positions = list(range(len(metadata.inputs)))
    positions = positions[: len(metadata.inputs)]
    return {
        position: info
        for position, info in zip(positions, metadata.inputs[: len(positions)], strict=True)
        if position is not None
    }


def _input(index: int, argument: Argument, described: _Described, graphs: GraphSet) -> Input:
    name = _folded(argument.name)
    source, tensor = described.sources.get(name, ""), described.tensors.get(name, {})
    requires_grad = tensor.get("requires_grad") is True
    shown = user_name(source) if source else _name_of_argument(argument.name)
    return Input(
        index,
        shown,
        _kind(argument, source, tensor),
        _fqn(source),
        tensor_of(argument.type, graphs.facts.hints, requires_grad),
        requires_grad=requires_grad,
        is_leaf=tensor.get("is_leaf") is True or not tensor,
    )


def _kind(argument: Argument, source: str, tensor: dict[str, object]) -> str:
    if argument.type.startswith("Sym("):
        return "SymInt"
    if tensor.get("is_parameter") is True or "_parameters[" in source:
        return "Parameter"
    if "_buffers[" in source:
        return "Buffer"
    name = argument.name.lower()
    for word, kind in (("_parameters_", "Parameter"), ("_buffers_", "Buffer")):
        if not source and word in name:
            return kind
    return "UserInput"


def _fqn(source: str) -> str | None:
    """Return `blocks.0.up.weight` for `L['self']._modules['blocks']._modules['0']…`; None for an argument."""
    parts = re.findall(r"\._(?:modules|parameters|buffers)\['([^']*)'\]", source)
    return ".".join(parts) if parts else None


def _name_of_argument(name: str) -> str:
    """Return `x` for Dynamo's `L_x_`, where the log has no source for it; `primals_1` stays."""
    match = re.fullmatch(r"[LG]_(\w+?)_", name)
    return match[1] if match else name


def _with_effects(
    row: Input, info: InputInfo | None, sharing: tuple[int, ...], sites: tuple[Site, ...]
) -> Input:
    if info is None:
        return replace(row, shares_storage_with=sharing)
    mutated = info.has("mutates_data") or info.has("mutates_metadata")
    in_graph = info.has("keep_input_mutations") and not info.has("mutates_metadata")
    mutation: MutationTypeName = (
        ("mutated_in_graph" if in_graph else "mutated_out_graph") if mutated else "not_mutated"
    )
    return replace(
        row,
        shares_storage_with=sharing,
        mutation_type=mutation,
        mutates_data=info.has("mutates_data"),
        mutates_metadata=info.has("mutates_metadata"),
        mutates_storage_metadata=info.has("mutates_storage_metadata"),
        hidden_from_autograd=mutated and info.has("mutations_hidden_from_autograd"),
        under_no_grad=info.has("mutations_under_no_grad_or_inference_mode"),
        reason=_REASONS.get(mutation, ""),
        requires_grad=info.flags.get("requires_grad", row.requires_grad),
        is_leaf=info.flags.get("is_leaf", row.is_leaf),
        sites=sites,
    )


def _write_sites(graph: Graph | None, name: str, locate: Locate) -> tuple[Site, ...]:
    """Return the in-place calls on the argument, or on a view of it, in Dynamo's graph."""
    if graph is None:
        return ()
    aliases = {name}
    sites: list[Site] = []
    for node in graph.nodes:
        if node.target == _BATCH_NORM and aliases.intersection(node.inputs[1:3]):
            sites += site_of(locate, node)
        if not node.inputs or node.inputs[0] not in aliases:
            continue
        method = node.target.removeprefix("Tensor.").rpartition(".")[2]
        if method.endswith("_") and not method.endswith("__"):
            sites += site_of(locate, node)
            aliases.add(node.name)
        elif node.target.startswith("Tensor.") and method in _VIEWS:
            aliases.add(node.name)
    return tuple(dict.fromkeys(sites))


_BATCH_NORM = "torch.nn.functional.batch_norm"
"""Mutates its running statistics, the second and the third argument."""
_VIEWS = frozenset(
    {"view", "t", "transpose", "permute", "select", "narrow", "squeeze", "unsqueeze", "expand", "detach", "T"}
)


def outputs_of(graphs: GraphSet, metadata: Metadata | None, locate: Locate) -> tuple[Output, ...]:
    """Return a row for each output of the user's function, in order."""
    graph = graphs.first
    source = graph if graph is not None else graphs.captured
    if source is None:
        return ()
    names = _output_names(graphs)
    rows = []
    for index, name in enumerate(_returned(source, metadata)):
        info = metadata.outputs[index] if metadata and index < len(metadata.outputs) else None
        node, argument = source.node(name), source.argument(name)
        type_ = node.type if node else argument.type if argument else ""
        requires_grad = bool(info and info.requires_grad)
        output_type = info.output_type if info else ""
        rows.append(
            Output(
                index,
                names[index] if index < len(names) else name,
                _tensor(type_, graphs, requires_grad),
                output_type if output_type in _OUTPUT_TYPES else "non_alias",  # type: ignore[arg-type]
                _base(output_type, info.base if info else None, metadata),
                "" if info else "how it aliases is unknown: the log has no metadata for it",
                site_of(locate, node) if node else (),
                requires_grad,
            )
        )
    return tuple(rows)


def _tensor(type_: str, graphs: GraphSet, requires_grad: bool) -> Tensor | None:
    return tensor_of(type_, graphs.facts.hints, requires_grad)


def _returned(graph: Graph, metadata: Metadata | None) -> list[str]:
    """Return the names of the results that are the user's outputs."""
    slotted = {
        int(slot[1]): result.name for result in graph.results if (slot := _PLAIN_OUTPUT.search(result.slot))
    }
    if slotted:
        return [slotted[index] for index in sorted(slotted)]
    if metadata is None:
        return [result.name for result in graph.results] if graph.name else []
    mutated = sum(
        info.has("mutates_data") and not info.has("keep_input_mutations") for info in metadata.inputs
    )
    return [result.name for result in graph.results[mutated : mutated + len(metadata.outputs)]]


def _output_names(graphs: GraphSet) -> list[str]:
    """Return the user's names, which Dynamo's graph gives its results if there are any."""
    if graphs.captured is None or graphs.first is None or len(graphs.facts.sets) > 1:
        return []
    return [result.name for result in graphs.captured.results]


def _base(output_type: str, base: int | None, metadata: Metadata | None) -> Base | None:
    if base is None or metadata is None:
        return None
    if output_type in ("alias_of_input", "is_input"):
        return Base("input", base)
    if output_type == "alias_of_intermediate_base_is_user_output":
        return Base("output", base)
    return Base("intermediate", base) if output_type.startswith("alias") else None
