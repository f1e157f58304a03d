"""Whether CUDA graphs can record a target's graphs: every blocker, from our programs alone.

Invariant: needs neither a GPU nor Inductor. Where no tensor of the target is on a GPU, all count as being on
one, as for the kernels of a GPU target.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from aotlens.capture.operators import aten
from aotlens.ir.origin import Origin, site_of
from aotlens.ir.program import Node, Program, ProgramInput, is_higher_order, is_random_op, writes_input
from aotlens.ir.slots import Buffer, Parameter, SavedInput, stays_in_place
from aotlens.ir.symbols import symbolic_numbers_of
from aotlens.model.cuda_graphs import BlockerKind, CudaGraph, CudaGraphBlocker, CudaGraphVerdict
from aotlens.model.report import Phase, Site, Span, WrapperStep
from aotlens.partition.records import Partitioned
from aotlens.torch_api.symbolic import unbacked_symbols
from aotlens.view.cuda_graphs import (
    BESIDE,
    BRANCHES,
    HOST_CHECKS,
    HOST_READS,
    LOOPS,
    MASK_WRITES,
    OF_INPUTS,
    UNRECORDABLE,
    WAITING,
    WHY,
)

RANDOM_STATE = ("torch.random", "torch.cuda.random")
"""Modules whose functions read and set the RNG state of generators."""
MASKS = (torch.bool, torch.uint8)
BEST_FIRST: tuple[CudaGraphVerdict, ...] = ("recorded", "in_parts", "not_recorded")
"""From the best to the worst."""


def cuda_graph_of(parts: Partitioned, steps: tuple[WrapperStep, ...], for_gpu: bool) -> CudaGraph | None:
    """Return the verdict; None for a target without a GPU."""
    on_gpu = any(
        tensor.device.type == "cuda" for program in _programs(parts) for tensor in _all_tensors(program)
    )
    if not (on_gpu or for_gpu):
        return None
    blockers: list[CudaGraphBlocker] = []
    phases: dict[str, CudaGraphVerdict] = {}
    for phase, program in _phases(parts):
        phase_blockers = tuple(_by_expression(_Finder(parts, program, phase, on_gpu).blockers()))
        phases[phase] = _verdict(phase_blockers)
        blockers += phase_blockers
    first = next(iter(phases))
    blockers += _wrapper_blockers(steps, "forward" if first == "forward" else "inference")
    return CudaGraph(max(phases.values(), key=BEST_FIRST.index), phases, tuple(blockers))


def _phases(parts: Partitioned) -> Iterator[tuple[Phase, Program]]:
    yield "inference" if parts.backward is None else "forward", parts.forward
    if parts.backward is not None:
        yield "backward", parts.backward


def _programs(parts: Partitioned) -> Iterator[Program]:
    yield from (program for _, program in _phases(parts))


def _all_tensors(program: Program) -> Iterator[torch.Tensor]:
    """Every tensor of a program."""
    for node in (*(program_input.node for program_input in program.inputs), *program.nodes):
        yield from _tensors(node)


def _tensors(node: Node) -> Iterator[torch.Tensor]:
    return (value for value in node.results if isinstance(value, torch.Tensor))


def _verdict(blockers: tuple[CudaGraphBlocker, ...]) -> CudaGraphVerdict:
    effects = {blocker.effect for blocker in blockers}
    return "not_recorded" if "prevents" in effects else "in_parts" if "splits" in effects else "recorded"


def _by_expression(blockers: Iterable[CudaGraphBlocker]) -> Iterator[CudaGraphBlocker]:
    """Each once; operators that one expression becomes are one blocker, which counts them."""
    groups: dict[tuple[BlockerKind, tuple[Span, ...], str], list[CudaGraphBlocker]] = {}
    for blocker in blockers:
        name = blocker.what if blocker.kind in OF_INPUTS or not blocker.sites else ""
        spans = tuple(site.span for site in blocker.sites)
        groups.setdefault((blocker.kind, spans, name), []).append(blocker)
    for (_, _, name), same in groups.items():
        yield replace(same[0], operators=1 if name else len(same))


def _wrapper_blockers(steps: tuple[WrapperStep, ...], phase: Phase) -> Iterator[CudaGraphBlocker]:
    why = WHY["wrapper_step"]
    for step in steps:
        if step.applied and step.name in BESIDE:
            yield CudaGraphBlocker("wrapper_step", why.effect, phase, step.name, why.reason, "", step.sites)


@dataclass(frozen=True)
class _Finder:
    """Looks through one graph."""

    parts: Partitioned
    program: Program
    phase: Phase
    on_gpu: bool
    """True if some tensor of the target is on a GPU, so that one on the CPU is there on purpose."""

    def blockers(self) -> Iterator[CudaGraphBlocker]:
        yield from self._input_blockers()
        yield from self._node_blockers(self.program)

    def _input_blockers(self) -> Iterator[CudaGraphBlocker]:
        read = {id(source) for node in self.program.nodes for source in node.inputs()}
        symbolic = [
            program_input for program_input in self.program.inputs if self._varies(program_input.node)
        ]
        if symbolic:
            names = ", ".join(program_input.slot.name for program_input in symbolic[:3])
            of_data = "data-dependent sizes and numbers"
            yield self._blocker("symbolic_size", of_data if self.phase == "backward" else names, ())
        for program_input in self.program.inputs:
            value = program_input.node.val
            if not isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat, int, float, bool)):
                is_generator = isinstance(program_input.node.constant, torch.Generator) or value is None
                yield self._blocker(
                    "generator" if is_generator else "object_input", program_input.slot.name, ()
                )
            elif self._is_on_cpu(program_input.node) and id(program_input.node) in read:
                yield self._blocker("cpu_input", program_input.slot.name, self._readers(program_input.node))
        devices = {tensor.device for tensor in _all_tensors(self.program) if tensor.device.type == "cuda"}
        if len(devices) > 1:
            names = ", ".join(sorted(map(str, devices)))
            yield self._blocker("second_device", names, ())

    def _readers(self, input_node: Node) -> tuple[Site, ...]:
        readers = (
            node for node in self.program.nodes if any(source is input_node for source in node.inputs())
        )
        return _sites(node.origin for node in readers)

    def _node_blockers(self, program: Program) -> Iterator[CudaGraphBlocker]:
        known = set[Any]()
        for program_input in program.inputs:
            known |= self._data_symbols(program_input.node)
        for node in program.nodes:
            fresh = self._data_symbols(node) - known
            known |= fresh
            kind = self._kind_of_write(node) if writes_input(node) else self._kind(node, bool(fresh))
            if kind is not None:
                yield self._node_blocker(node, kind)
            if kind is None or node.target not in BRANCHES | LOOPS:
                for subgraph in node.subgraphs():
                    yield from self._node_blockers(subgraph)

    def _node_blocker(self, node: Node, kind: BlockerKind) -> CudaGraphBlocker:
        if not writes_input(node):
            return self._blocker(kind, node.target, _sites([node.origin]))
        program_input = self._inputs[id(node.args[0])]
        index = getattr(program_input.slot, "index", None)
        meta = self.parts.joint.meta.inputs
        writes = meta[index].writes if index is not None and index < len(meta) else ()
        origins = [write.origin for write in writes] or [node.origin]
        return self._blocker(kind, program_input.slot.name, _sites(origins))

    @cached_property
    def _inputs(self) -> dict[int, ProgramInput]:
        return {id(program_input.node): program_input for program_input in self.program.inputs}

    @cached_property
    def _unbacked(self) -> set[Any]:
        environment = self.parts.joint.captured.fake_mode.shape_env
        return set() if environment is None else unbacked_symbols(environment)

    def _data_symbols(self, node: Node) -> set[Any]:
        """Return the unbacked symbols in its value."""
        if not self._unbacked:
            return set()
        sizes = [size for tensor in _tensors(node) for size in tensor.shape]
        numbers = (*sizes, *node.results)
        return {
            symbol
            for number in numbers
            if isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool))
            for symbol in number.node.expr.free_symbols & self._unbacked
        }

    def _varies(self, input_node: Node) -> bool:
        """Return True if its size is symbolic; of the backward's sizes only those that the forward does not
        have count."""
        return (
            bool(self._data_symbols(input_node))
            if self.phase == "backward"
            else bool(symbolic_numbers_of(input_node.val))
        )

    def _kind_of_write(self, node: Node) -> BlockerKind | None:
        """Return why a write to an input cannot be recorded; None if its address never changes."""
        program_input = self._inputs.get(id(node.args[0]))
        if program_input is None or stays_in_place(program_input.slot):
            return None
        names = {slot.fqn for slot in self._parameters_and_buffers}
        if isinstance(program_input.slot, SavedInput) and program_input.slot.name in names:
            return None
        return "written_argument"

    @cached_property
    def _parameters_and_buffers(self) -> tuple[Parameter | Buffer, ...]:
        slots = (program_input.slot for program_input in self.parts.forward.inputs)
        return tuple(slot for slot in slots if isinstance(slot, (Parameter, Buffer)))

    def _kind(self, node: Node, brings_number: bool) -> BlockerKind | None:
        """Return why a node cannot be recorded; None where it can."""
        op, name = node.op, node.target.rsplit(".", 1)[0] if "." in node.target else node.target
        tags = getattr(op, "tags", ())
        checks: tuple[tuple[bool, BlockerKind], ...] = (
            (getattr(op, "__module__", "") in RANDOM_STATE, "generator"),
            (is_higher_order(op) and node.target in BRANCHES, "branch"),
            (is_higher_order(op) and node.target in LOOPS, "loop"),
            (name in HOST_READS, "host_read"),
            (name in HOST_CHECKS, "host_check"),
            (name in WAITING, "waiting_kernel"),
            (name in UNRECORDABLE or torch.Tag.cudagraph_unsafe in tags, "unsupported_operator"),
            (name in MASK_WRITES and _writes_by_mask(node), "mask_write"),
            (brings_number, "data_size"),
            (any(tensor.layout is not torch.strided for tensor in _tensors(node)), "sparse"),
            (_resizes(name), "resized_storage"),
            (node.origin.effect and node.origin.stage == "captured", "effect"),
            (self._copies(node) and not self._is_made_on_gpu(node.args[0]), "device_copy"),
            (self._runs_on_cpu(node), "cpu_operator"),
        )
        return next((kind for holds, kind in checks if holds), None)

    def _is_on_cpu(self, node: Node) -> bool:
        return self.on_gpu and any(tensor.device.type == "cpu" for tensor in _tensors(node))

    def _runs_on_cpu(self, node: Node) -> bool:
        """Return True if it runs on the CPU; a constant does not run, and its number goes into the
        kernels."""
        if node.op is None or not self._is_on_cpu(node) or node.op is aten.lift_fresh_copy.default:
            return False
        return not self._is_made_on_gpu(node)

    def _is_made_on_gpu(self, node: Node) -> bool:
        """Return True if all users copy it to the GPU, and it could be created there."""
        if node.op is None or any(True for _ in node.inputs()) or is_random_op(node.op):
            return False
        readers = [other for other in self.program.nodes if any(source is node for source in other.inputs())]
        results = (output.value for output in self.program.outputs)
        return all(map(self._copies, readers)) and all(result is not node for result in results)

    def _copies(self, node: Node) -> bool:
        """Return True if its operands and its result are on different devices; a 0-d operand may be on
        either."""
        if not self.on_gpu or node.op is None:
            return False
        operand_devices = {
            tensor.device.type for source in node.inputs() for tensor in _tensors(source) if tensor.dim()
        }
        result_devices = {tensor.device.type for tensor in _tensors(node)}
        return len(operand_devices) == 1 and len(result_devices) == 1 and operand_devices != result_devices

    def _blocker(self, kind: BlockerKind, what: str, sites: tuple[Site, ...]) -> CudaGraphBlocker:
        why = WHY[kind]
        return CudaGraphBlocker(kind, why.effect, self.phase, what, why.reason, why.advice, sites)


def _sites(origins: Any) -> tuple[Site, ...]:
    sites = (site_of(origin) for origin in origins if isinstance(origin, Origin))
    return tuple(dict.fromkeys(site for site in sites if site is not None))


def _writes_by_mask(node: Node) -> bool:
    """Return True if a mask selects the elements, unless one value is written to all, which is a `where`."""
    indices, values = node.args[1], node.args[2]
    masks = [index for index in indices if isinstance(index, Node) and index.val.dtype in MASKS]
    alone = len(indices) == 1 and isinstance(values, Node) and _is_one(values.val)
    return bool(masks) and not alone


def _is_one(value: torch.Tensor) -> bool:
    return all(isinstance(size, int) and size == 1 for size in value.shape)


def _resizes(name: str) -> bool:
    return name in ("aten.set_", "aten.resize_", "inductor.resize_storage_bytes_")
