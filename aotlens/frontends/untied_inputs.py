"""Exported graphs take each argument, and each name of a module's tensors, as a separate input.

Invariant: the module is restored after the trace; repeated tensors become separate inputs only where the
graph does not mutate them, so that a call with one tensor for both does what the module does.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from aotlens.capture.inputs.module_tensors import module_tensors
from aotlens.joint.records import JointProgram
from aotlens.torch_api.operators import pytree
from aotlens.unsupported import unsupported


@dataclass
class UntiedInputs:
    """The copies that replace repeated tensors."""

    seen: set[int] = field(default_factory=set)
    originals: dict[int, Any] = field(default_factory=dict)
    """By a copy's identity, the tensor that it replaces."""
    replaced: list[tuple[Any, str, Any]] = field(default_factory=list)
    """Dictionaries of submodules, each with a key and its original value."""
    args: Any = ()
    kwargs: Any = None
    values: list[Any] = field(default_factory=list)
    """All inputs in order."""

    def copy_if_repeated(self, value: Any) -> Any:
        """Return a value itself the first time, and then copies with its properties, so that capture sees
        separate tensors; a sparse tensor or a subclass, which cannot be copied like this, stays one input."""
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self.seen:
            self.seen.add(id(value))
            return value
        if hasattr(value, "__tensor_flatten__") or value.layout != torch.strided:
            return value
        copied = value.detach().new_empty_strided(value.size(), value.stride())
        if isinstance(value, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, requires_grad=False)
        copied.requires_grad_(value.requires_grad)
        self.originals[id(copied)] = value
        return copied

    def untie(self, module: Any, seen: set[int]) -> None:
        """Replace repeated tensors and submodules of a module by copies."""
        for store in (module._parameters, module._buffers):
            for key, tensor in store.items():
                self._put(store, key, tensor, self.copy_if_repeated(tensor))
        for key, part in module._modules.items():
            if part is None:
                continue
            own = part
            if id(part) in seen:
                own = copy.copy(part)
                for name in ("_parameters", "_buffers", "_modules"):
                    vars(own)[name] = dict(vars(part)[name])
                self._put(module._modules, key, part, own)
            seen.add(id(part))
            self.untie(own, seen)

    def _put(self, store: Any, key: str, before: Any, now: Any) -> None:
        if now is not before:
            self.replaced.append((store, key, before))
            store[key] = now

    def written(self, joint: JointProgram) -> tuple[int, ...]:
        """Return the positions of inputs that are one tensor, of which one is mutated."""
        groups: dict[int, list[int]] = {}
        for index, value in enumerate(self.values):
            if isinstance(value, torch.Tensor):
                groups.setdefault(id(self.originals.get(id(value), value)), []).append(index)
        several = (tuple(group) for group in groups.values() if len(group) > 1)
        changed = (group for group in several if any(joint.meta.inputs[index].is_mutated for index in group))
        return next(changed, ())

    def reject_written(self, joint: JointProgram) -> None:
        """Reject mutations of a repeated tensor.

        Raises:
            RuntimeError: one of them is written to.
        """
        if group := self.written(joint):
            names = " and ".join(f"`{joint.captured.inputs[index].slot.name}`" for index in group)
            writes = [write for index in group for write in joint.meta.inputs[index].writes]
            span = writes[-1].origin.location.innermost if writes else joint.captured.subject.span
            raise unsupported("export-duplicated-inputs", span, inputs=names)


@contextmanager
def untied_inputs(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[UntiedInputs]:
    """Within the context, no tensor of the module has two names; yields the arguments without repetitions."""
    untied = UntiedInputs()
    try:
        if isinstance(function, torch.nn.Module):
            untied.untie(function, {id(function)})
        leaves, spec = pytree.tree_flatten((args, kwargs))
        leaves = [untied.copy_if_repeated(leaf) for leaf in leaves]
        untied.args, untied.kwargs = pytree.tree_unflatten(leaves, spec)
        untied.values = [*module_tensors(function).values(), *leaves]
        yield untied
    finally:
        for store, key, before in reversed(untied.replaced):
            store[key] = before
