"""What torch's own analysis says of a program, in our words, for the agreement test.

The peer's metadata pass runs on fake tensors of its own; a case that it refuses has no answer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._functorch._aot_autograd.collect_metadata_analysis import (
    run_functionalized_fw_and_collect_metadata,
)
from torch._functorch._aot_autograd.descriptors import PlainAOTInput

from aotlens.analysis.records import AliasBase, InputBase, IntermediateBaseOf, OutputBase
from aotlens.capture.inputs.module_tensors import module_tensors
from aotlens.compiled import Compiled
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.torch_api.fake.tensors import FakeTensorMode
from aotlens.torch_api.operators import pytree
from aotlens.verify.tensors.prepared_call import PreparedCall

Facts = dict[str, Any]
"""By what is asked: `x mutates_data`, `out[0] output_type`, `intermediate bases`."""


@dataclass(frozen=True, slots=True)
class Flat:
    """A program's callable over its flat inputs: parameters, buffers, then the leaves of the arguments."""

    call: Callable[..., list[Any]]
    values: list[Any]


def flat_call(given: PreparedCall) -> Flat:
    owned = module_tensors(given.fn)
    leaves, spec = pytree.tree_flatten((given.args, dict(given.kwargs)))

    def call(*flat: Any) -> list[Any]:
        args, kwargs = pytree.tree_unflatten(flat[len(owned) :], spec)
        if isinstance(given.fn, torch.nn.Module):
            result = torch.func.functional_call(given.fn, dict(zip(owned, flat, strict=False)), args, kwargs)
        else:
            result = given.fn(*args, **kwargs)
        return list(pytree.tree_leaves(result, is_leaf=lambda leaf: leaf is None))

    return Flat(call, [*owned.values(), *leaves])


def peer_metadata(given: PreparedCall) -> Any:
    """The peer's `ViewAndMutationMeta`; raises what the peer raises."""
    flat = flat_call(given)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes: dict[int, Any] = {}
    for value in flat.values:
        if isinstance(value, torch.Tensor):
            fakes.setdefault(id(value), mode.from_tensor(value))
    arguments = [fakes.get(id(value), value) for value in flat.values]
    collect = run_functionalized_fw_and_collect_metadata(
        flat.call,
        flat_args_descs=[PlainAOTInput(index) for index in range(len(arguments))],
        keep_input_mutations=True,
    )
    with torch.set_grad_enabled(torch.is_grad_enabled()), mode:
        return collect(*arguments)


def our_analysis(given: PreparedCall) -> Compiled:
    return compile_direct(given.fn, given.args, dict(given.kwargs), CompileOptions(backend="eager"))


def peer_facts(meta: Any, names: list[str], tensors: list[bool]) -> Facts:
    """The peer's answers under our names of inputs and results."""
    found: Facts = {}
    for name, info in zip(names, meta.input_info, strict=True):
        found[f"{name} mutation_type"] = info.mutation_type.name.lower()
        found[f"{name} mutates_data"] = info.mutates_data
        found[f"{name} mutates_metadata"] = info.mutates_metadata
        if info.mutates_data:
            found[f"{name} hidden_from_autograd"] = info.mutations_hidden_from_autograd
            found[f"{name} under_no_grad"] = info.mutations_under_no_grad_or_inference_mode
    for index, (info, is_tensor) in enumerate(zip(meta.output_info, tensors, strict=True)):
        found[f"out {index} output_type"] = info.output_type.name
        found[f"out {index} base"] = info.base_idx
        found[f"out {index} requires_grad"] = is_tensor and info.requires_grad
    found["intermediate bases"] = meta.num_intermediate_bases
    return found


def our_facts(compiled: Compiled) -> tuple[Facts, list[str], list[bool]]:
    """Our answers to the same questions; a repeated input has the answers of the first."""
    inputs = compiled.captured.inputs
    names = [f"input {index} `{given.slot.name}`" for index, given in enumerate(inputs)]
    found: Facts = {}
    for index, name in enumerate(names):
        first = inputs[index].duplicate_of
        info = compiled.meta.inputs[index if first is None else first]
        found[f"{name} mutation_type"] = info.mutation_type.value
        found[f"{name} mutates_data"] = info.mutates_data
        found[f"{name} mutates_metadata"] = info.mutates_metadata
        if info.mutates_data:
            found[f"{name} hidden_from_autograd"] = info.hidden_from_autograd
            found[f"{name} under_no_grad"] = info.under_no_grad
    for output in compiled.meta.outputs:
        found[f"out {output.index} output_type"] = output.output_type.value
        found[f"out {output.index} base"] = _base_index(output.base)
        found[f"out {output.index} requires_grad"] = output.requires_grad
    found["intermediate bases"] = len(compiled.meta.bases)
    return found, names, [isinstance(output.tensor, torch.Tensor) for output in compiled.meta.outputs]


def _base_index(base: AliasBase | None) -> int | None:
    match base:
        case InputBase(index=index) | IntermediateBaseOf(index=index) | OutputBase(index=index):
            return index
        case _:
            return None
