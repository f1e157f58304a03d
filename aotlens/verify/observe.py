"""Record the effects of one call that its caller can see as plain facts.

Promise: two observations of the same program are equal exactly when no later code could distinguish the calls
by values, gradients, mutations, aliasing, `requires_grad`, strides, errors or the random state.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from aotlens.capture.free_variables.stores import flatten_with_path
from aotlens.rng_state import random_states, same_random_state
from aotlens.torch_api.autograd import has_version_counter, shares_version_counter
from aotlens.torch_api.operators import pytree
from aotlens.verify.gradients import Gradients, backward
from aotlens.verify.tensors.free_variables import copy_gradients, restoring_tensors
from aotlens.verify.tensors.prepared_call import Named, PreparedCall, distinct_names, path_text
from aotlens.verify.tensors.retained import new_tensors, retained_tensors
from aotlens.verify.tensors.storage_sharing import Write, storage_sharing, try_writes
from aotlens.verify.tensors.values import class_name, copied, is_leaf, metadata, same_values


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """An exception that the call or its backward raised."""

    kind: type[BaseException]
    message: str

    def __str__(self) -> str:
        first = (self.message.splitlines() or [""])[0]
        return f"{self.kind.__name__}: {first[:300]}"


@dataclass(frozen=True, slots=True, eq=False)
class TensorFacts:
    """One tensor after the call."""

    name: str
    value: Tensor
    """A detached copy."""
    stride: tuple[int, ...]
    offset: int
    """Storage offset, in elements."""
    requires_grad: bool
    is_leaf: bool
    kind: str
    """The tensor's class (`Tensor`, `Parameter`, a subclass), and whether it is an inference tensor."""
    metadata: str
    """The attributes of a wrapper subclass; empty for a plain tensor."""
    same_as: str | None
    """The first input or output that is the same object; None if this is the first."""
    view_of: str | None
    """The input that autograd knows as the base of this view; None if there is none."""
    aliases: frozenset[str]
    """Names of all other inputs and outputs on the same storage."""
    owns_storage: bool = False
    """Whether all names on its storage are this very tensor."""
    owns_version_counter: bool = False
    """Whether it shares storage but not the version counter, as after `.data`."""
    is_version_bumped: bool = False
    """Whether the call bumped the version counter (inputs only)."""
    is_mutated: bool = False
    """Whether the call changed values, sizes or strides (inputs only)."""


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """All visible effects of one call."""

    failure: Failure | None
    structure: str = ""
    """The structure of the result."""
    outputs: tuple[TensorFacts | object, ...] = ()
    """In the order of the flattened result, then the tensors that the call stores in attributes and closures;
    other objects stand for themselves.
    """
    output_names: tuple[str, ...] = ()
    inputs: tuple[TensorFacts, ...] = ()
    argument_structure: str = ""
    """The structure of the arguments after the call."""
    grad_enabled: bool = True
    """The grad mode after the call."""
    accumulated: int = 0
    """How many outputs, the last ones, are gradients that the call wrote to `.grad`."""
    random_state: Tensor | None = None
    """After the call."""
    uses_random: bool = False
    """Whether the call used random numbers."""
    gradients: Gradients | None = None
    """None if nothing requires grad."""
    backward_failure: Failure | None = None
    inputs_after_backward: tuple[Tensor, ...] = ()
    writes: tuple[Write, ...] = ()
    """The effect of an in-place change of each output, in order."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Which effects to observe after the call."""

    backward: bool = True
    writes: bool = True
    """Change each output in place at the end and see which other tensors change."""
    write_first: int | None = None
    """Double this output in place, seen by autograd, before the backward; None for no such write."""
    only_root: int | None = None
    """Run the backward from this root alone, so that the other tangents are undefined; None for all."""


EVERYTHING = Probe()


def observe(
    prepared: PreparedCall, probe: Probe = EVERYTHING, call: Callable[..., Any] | None = None
) -> Observation:
    """Make the call and record its visible effects; `call` replaces the callable; used up afterwards."""
    versions = [_version(item.tensor) for item in prepared.inputs]
    mode = torch.is_grad_enabled()
    states = random_states()
    retained = retained_tensors(prepared)
    gradients = copy_gradients([item.tensor for item in prepared.inputs])
    try:
        result = (prepared.fn if call is None else call)(*prepared.args, **prepared.kwargs)
    except Exception as error:  # noqa: BLE001 - whatever the call raises is what eager must raise too
        return Observation(Failure(type(error), str(error)))
    finally:
        grad_enabled, states_after = torch.is_grad_enabled(), random_states()
        torch.set_grad_enabled(mode)
    bumped = [_version(item.tensor) != old for item, old in zip(prepared.inputs, versions, strict=True)]
    old = {id(item.tensor) for item in (*retained, *prepared.inputs)}
    accumulated = tuple(_accumulated(prepared.inputs, gradients))
    stored = (*new_tensors(prepared, old), *accumulated)
    observation = replace(_look(prepared, result, stored, bumped, probe), accumulated=len(accumulated))
    pairs = zip(states, states_after, strict=False)  # the call may initialise the GPU
    uses_random = not all(torch.equal(before, after) for before, after in pairs)
    return replace(observation, grad_enabled=grad_enabled, uses_random=uses_random)


def observe_alone(
    prepared: PreparedCall,
    probe: Probe = EVERYTHING,
    call: Callable[..., Any] | None = None,
    state: Sequence[Tensor] = (),
) -> Observation:
    """Observe one call and restore the random state and the state tensors afterwards."""
    with same_random_state(), restoring_tensors(state):
        return observe(prepared, probe, call)


def _accumulated(inputs: Sequence[Named], before: Sequence[Tensor | None]) -> Iterator[Named]:
    """Yield the `.grad` of each input that a backward inside the call wrote."""
    seen: set[int] = set()
    for item, old in zip(inputs, before, strict=True):
        gradient = item.tensor.grad if is_leaf(item.tensor) else None
        if gradient is None or id(gradient) in seen or (old is not None and same_values(gradient, old)):
            continue
        seen.add(id(gradient))
        yield Named(f"{item.name}.grad", gradient)


def _look(
    prepared: PreparedCall, result: Any, stored: tuple[Named, ...], bumped: list[bool], probe: Probe
) -> Observation:
    leaves, structure = flatten_with_path(result)
    texts = ["out" + path_text(path) for path, _ in leaves]
    texts += [item.name for item in stored]
    names = distinct_names(texts, [item.name for item in prepared.inputs])
    values = [*(leaf for _, leaf in leaves), *(item.tensor for item in stored)]
    pairs = zip(names, values, strict=True)
    outputs = tuple(Named(name, value) for name, value in pairs if isinstance(value, Tensor))
    facts = _facts(prepared, outputs, bumped)
    tensor_facts = iter(facts[len(prepared.inputs) :])
    facts_of_outputs = tuple(next(tensor_facts) if isinstance(leaf, Tensor) else leaf for _, leaf in leaves)
    facts_of_outputs += tuple(tensor_facts)
    random_state = torch.get_rng_state()
    gradients, failure = (None, None)
    if probe.backward:
        gradients, failure = _differentiate(prepared, outputs, bumped, probe)
    return Observation(
        failure=None,
        structure=" ".join((_shape_of(structure), *names[len(leaves) :])),
        outputs=facts_of_outputs,
        output_names=names,
        inputs=facts[: len(prepared.inputs)],
        argument_structure=_shape_of(pytree.tree_flatten((prepared.args, dict(prepared.kwargs)))[1]),
        random_state=random_state,
        gradients=gradients,
        backward_failure=failure,
        inputs_after_backward=tuple(copied(item.tensor) for item in prepared.inputs)
        if probe.backward
        else (),
        writes=try_writes(prepared.inputs, outputs) if probe.writes else (),
    )


def _shape_of(structure: object) -> str:
    return " ".join(str(structure).replace("TreeSpec", "").split())


def _facts(
    prepared: PreparedCall, outputs: Sequence[Named], bumped: Sequence[bool]
) -> tuple[TensorFacts, ...]:
    everything = (*prepared.inputs, *outputs)
    groups = storage_sharing(everything)
    by_name = {item.name: item.tensor for item in everything}
    changed = _changed(prepared, bumped)
    first: dict[int, str] = {}
    facts = []
    for index, item in enumerate(everything):
        tensor = item.tensor
        aliases = [by_name[name] for name in groups.get(item.name, ())]
        facts.append(
            TensorFacts(
                name=item.name,
                value=copied(tensor),
                stride=tuple(tensor.stride()) if tensor.layout == torch.strided else (),
                offset=int(tensor.storage_offset()) if tensor.layout == torch.strided else 0,
                requires_grad=tensor.requires_grad,
                is_leaf=is_leaf(tensor),
                kind=("inference " if tensor.is_inference() else "") + class_name(tensor),
                metadata=metadata(tensor),
                same_as=first.get(id(tensor)),
                view_of=_base_among_inputs(tensor, prepared.inputs),
                aliases=groups.get(item.name, frozenset()),
                owns_storage=all(other is tensor for other in aliases),
                owns_version_counter=bool(aliases)
                and not any(shares_version_counter(other, tensor) for other in aliases),
                is_version_bumped=index < len(bumped) and bumped[index],
                is_mutated=index < len(changed) and changed[index],
            )
        )
        first.setdefault(id(tensor), item.name)
    return tuple(facts)


def _changed(prepared: PreparedCall, bumped: Sequence[bool]) -> tuple[bool, ...]:
    """Compare values and layout, because batch norm bumps no version counter and views share their base's."""
    if prepared.before is None:
        return tuple(bumped)
    pairs = zip(prepared.inputs, prepared.before, strict=True)
    return tuple(
        not (_same_layout(item.tensor, old) and same_values(item.tensor, old)) for item, old in pairs
    )


def _same_layout(left: Tensor, right: Tensor) -> bool:
    return left.layout != torch.strided or left.layout != right.layout or left.stride() == right.stride()


def _base_among_inputs(tensor: Tensor, inputs: Sequence[Named]) -> str | None:
    if tensor.is_inference() or tensor._base is None:
        return None
    base = tensor._base
    return next((item.name for item in inputs if item.tensor is base or item.tensor._base is base), None)


def _differentiate(
    prepared: PreparedCall, outputs: Sequence[Named], bumped: Sequence[bool], probe: Probe
) -> tuple[Gradients | None, Failure | None]:
    try:
        if probe.write_first is not None:
            outputs[probe.write_first].tensor.mul_(2)
        return backward(prepared, outputs, bumped, probe.only_root), None
    except Exception as error:  # noqa: BLE001 - whatever the call raises is what eager must raise too
        return None, Failure(type(error), str(error))


def _version(tensor: Tensor) -> int:
    return tensor._version if has_version_counter(tensor) and not tensor.is_inference() else 0
