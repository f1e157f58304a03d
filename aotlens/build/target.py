"""The report stage: the rows of one target, from the records of all other stages."""

from dataclasses import replace
from typing import Any

import torch

from aotlens.analysis.records import (
    ConstantBase,
    InputAliasInfo,
    InputBase,
    IntermediateBaseOf,
    OutputAliasInfo,
    OutputBase,
)
from aotlens.build.autograd_sites import requiring_sites
from aotlens.build.cuda_graphs import cuda_graph_of
from aotlens.build.guards import build_guards
from aotlens.build.memory import memory_of
from aotlens.build.operators import build_operators
from aotlens.build.partition import Alternatives, build_answered_partition, build_partition
from aotlens.build.plain_values import value_guards
from aotlens.build.side_effects import build_side_effects, first_side_effect
from aotlens.build.smaller_forms import with_spares
from aotlens.build.stages import build_stages
from aotlens.capture.records import AutogradChange, CapturedInput
from aotlens.codegen.gpu.offline.context import gpu_in_use
from aotlens.codegen.records import Generated
from aotlens.diagnostics.diagnose import diagnose
from aotlens.ir.origin import site_of
from aotlens.ir.program import Node
from aotlens.ir.tensor_text import describe_tensor
from aotlens.model import report as rows
from aotlens.partition.records import Partitioned
from aotlens.runtime.module_text import LoadedModule
from aotlens.view.kernels import line_costs, phase_costs, with_measured_times


def build_target(
    parts: Partitioned,
    code: Generated,
    module: LoadedModule,
    timings_ms: dict[str, float],
    others: Alternatives,
) -> rows.Target:
    """Return the rows of one target."""
    captured = parts.joint.captured
    graphs = (code.forward, *((code.backward,) if code.backward else ()))
    kernels = [kernel for graph in graphs for kernel in graph.kernels()]
    kernels += [kernel for graph in graphs for kernel in graph.gpu_kernels()]
    if code.gpu is not None and code.gpu == gpu_in_use():
        kernels = list(with_measured_times(kernels))
    outputs = build_outputs(parts)
    target = replace(
        _identified(parts),
        outputs=outputs,
        left=build_side_effects(captured),
        stages=build_stages(parts),
        partition=_spared(build_partition(parts, others), parts, others),
        wrapper=rows.Wrapper(module.text.source, module.text.steps, tuple(module.text.bound)),
        kernels=tuple(kernels),
        gpu_totals=phase_costs(kernels),
        gpu_lines=line_costs(kernels),
        gpu_assumptions=code.gpu_assumptions(),
        gpu_error=code.gpu_error(),
        gpu_name=code.gpu_name,
        cuda_graph=cuda_graph_of(parts, module.text.steps, code.gpu is not None),
        memory=replace(memory_of(parts), fused=bool(kernels)),
        variables=captured.variables,
        guards=(*build_guards(captured), *value_guards(captured)),
        operators=build_operators(parts),
        failing_backward=_failing(parts),
        timings_ms={name: round(elapsed, 3) for name, elapsed in timings_ms.items()},
    )
    return _with_diagnostics(target)


def build_answers(parts: Partitioned, others: Alternatives) -> rows.Target:
    """Return a target with the answers to what-ifs and its inputs, without stages, graphs and kernels."""
    return replace(_identified(parts), partition=build_answered_partition(parts, others))


def _identified(parts: Partitioned) -> rows.Target:
    """Return a target with its name, its location and its inputs alone."""
    subject = parts.joint.captured.subject
    return rows.Target(
        name=subject.name,
        qualname=subject.qualname,
        frontend=subject.frontend,
        mode="training" if parts.joint.training else "inference",
        span=subject.span,
        inputs=build_inputs(parts),
    )


def _failing(parts: Partitioned) -> rows.FailingBackward | None:
    failing = parts.joint.failing
    if failing is None:
        return None
    alone = parts.joint.failing_tangents.values()
    failing = next(iter(alone), failing)
    results = tuple(name for failure in alone for name in failure.results)
    return rows.FailingBackward(failing.message, site_of(failing.origin) if failing.origin else None, results)


def _spared(
    partition: rows.Partition | None, parts: Partitioned, others: Alternatives
) -> rows.Partition | None:
    return None if partition is None else with_spares(partition, parts, others.checked)


def _with_diagnostics(target: rows.Target) -> rows.Target:
    return replace(target, diagnostics=diagnose(target))


def build_inputs(parts: Partitioned) -> tuple[rows.Input, ...]:
    captured, meta = parts.joint.captured, parts.joint.meta
    return tuple(
        _input(index, captured_input, meta.inputs[index], captured.subject.span)
        for index, captured_input in enumerate(captured.flat_inputs)
    )


def _input(
    index: int, captured_input: CapturedInput, info: InputAliasInfo, function: rows.Span | None
) -> rows.Input:
    slot: Any = captured_input.slot
    constant = not captured_input.is_tensor and captured_input.node is None
    tensor = None
    if captured_input.is_tensor:
        tensor = describe_tensor(captured_input.fake)
        tensor = _with_grad(tensor, captured_input.requires_grad)
    return rows.Input(
        index=index,
        name=slot.name,
        kind="Constant"
        if constant
        else "SymInt"
        if type(slot).__name__ == "SymIntInput"
        else type(slot).__name__,
        fqn=getattr(slot, "fqn", None),
        tensor=tensor,
        mutation_type=info.mutation_type.value,
        mutates_data=info.mutates_data,
        mutates_metadata=info.mutates_metadata,
        mutates_storage_metadata=info.mutates_storage,
        hidden_from_autograd=info.hidden_from_autograd,
        under_no_grad=info.under_no_grad,
        reason=_input_reason(captured_input, info),
        sites=_input_sites(captured_input, info, function),
        metadata_sites=_metadata_sites(captured_input, info),
        shares_storage_with=captured_input.shares_storage_with,
        duplicate_of=captured_input.duplicate_of,
        requires_grad=captured_input.requires_grad,
        is_leaf=captured_input.is_leaf,
        autograd_change=None if info.autograd is AutogradChange.NONE else info.autograd.value,
    )


def _input_sites(
    captured_input: CapturedInput, info: InputAliasInfo, function: rows.Span | None
) -> tuple[rows.Site, ...]:
    slot: Any = captured_input.slot
    turned = info.autograd in (AutogradChange.REQUIRES_GRAD, AutogradChange.NEW_LEAF)
    sites = [site for write in info.writes if (site := site_of(write.origin))]
    return tuple(dict.fromkeys((*sites, *(requiring_sites(function, slot.name) if turned else ()))))


def _metadata_sites(argument: CapturedInput, info: InputAliasInfo) -> tuple[rows.Site, ...]:
    """Return where its sizes, strides or storage change; empty for a subclass, whose inner tensors have
    storages."""
    if argument.storage is None or not (info.mutates_metadata or info.mutates_storage):
        return ()
    return tuple(
        dict.fromkeys(site for move in argument.storage.metadata_mutations if (site := site_of(move.origin)))
    )


def _with_grad(tensor: rows.Tensor, requires_grad: bool) -> rows.Tensor:
    return replace(tensor, requires_grad=requires_grad)


def _input_reason(captured_input: CapturedInput, info: InputAliasInfo) -> str:
    if captured_input.duplicate_of is not None:
        return f"the same tensor as input {captured_input.duplicate_of}: passed to the graph once"
    if not captured_input.is_tensor and captured_input.node is None:
        return f"a constant of the graph: {captured_input.argument!r}"
    return info.reason


def build_outputs(parts: Partitioned) -> tuple[rows.Output, ...]:
    captured, meta = parts.joint.captured, parts.joint.meta
    left = first_side_effect(captured)
    outputs = (_output(captured.output_names[info.index], info, parts) for info in meta.outputs)
    return tuple(replace(row, left=row.index >= left) for row in outputs)


def _output(name: str, info: OutputAliasInfo, parts: Partitioned) -> rows.Output:
    tensor = describe_tensor(info.tensor) if isinstance(info.tensor, torch.Tensor) else None
    return rows.Output(
        index=info.index,
        name=name,
        tensor=tensor,
        output_type=info.output_type.value,
        base=_base(info),
        reason=info.reason,
        sites=_output_sites(info, parts),
        requires_grad=info.requires_grad and not _is_without_grad(info, parts),
    )


def _is_without_grad(info: OutputAliasInfo, parts: Partitioned) -> bool:
    """Return True if it is a view taken without grad mode of a base without gradient."""
    if not info.viewed_without_grad or not isinstance(info.base, InputBase):
        return False
    return parts.joint.captured.inputs[info.base.index].is_leaf_view


def _base(info: OutputAliasInfo) -> rows.Base | None:
    """Return the base of the result."""
    if info.custom_function_input is not None:
        return rows.Base("input", info.custom_function_input)
    match info.base:
        case InputBase(index=index):
            return rows.Base("input", index)
        case IntermediateBaseOf(index=index):
            return rows.Base("intermediate", index)
        case OutputBase(index=index):
            return rows.Base("output", index)
        case None | ConstantBase():
            return None


def _output_sites(info: OutputAliasInfo, parts: Partitioned) -> tuple[rows.Site, ...]:
    """Return the expression that computed the result."""
    if not isinstance(info.tensor, torch.Tensor):
        return ()
    recorded = parts.joint.recorded
    node: Any = info.value if isinstance(info.value, Node) else recorded.tracked(info.tensor).node
    site = site_of(node.origin)
    return (site,) if site is not None else ()
