"""Side effects of a function: attributes, globals, closure variables and items that it binds anew.

Invariant: the state is compared before and after the recording, and is afterwards as before.  Each changed
binding is an output of the graph, which the wrapper binds at each call; every other change is unsupported, as
is a value that would differ at each call: a counter, and a tensor that one call leaves for the next.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from types import CellType
from typing import Any

import torch

from aotlens.capture.free_variables.changes import Change, changes_in, contains_fake, rebind, restore
from aotlens.capture.free_variables.containers import (
    OutputWithUpdates,
    Rebinding,
    changed_items,
    check_value,
    existing_containers,
    read_of_rebound,
    rebound_tensors,
)
from aotlens.capture.free_variables.guards import TensorKind
from aotlens.capture.free_variables.hidden_state import changed_state_name, check_hidden_state
from aotlens.capture.free_variables.namespaces import MISSING
from aotlens.capture.free_variables.state import Binding, ReachableState
from aotlens.capture.free_variables.user_names import user_name, write_span
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import Captured, OpenInput, Subject
from aotlens.errors import UnsupportedError
from aotlens.ir.slots import OuterObject
from aotlens.model.report import Span
from aotlens.options import SideEffects
from aotlens.unsupported import unsupported


class SideEffectChanges:
    """The side effects of one recording on free variables."""

    def __init__(
        self, reachable: ReachableState, subject: Subject, effects: SideEffects, inputs: Sequence[OpenInput]
    ) -> None:
        self._reachable = reachable
        self._effects = effects
        self._left_as_recorded: list[Change] = []
        self.single_use_reason = ""
        """The change that a later call would not repeat, and that stays as the recording left it."""
        self._function, self._span = subject.function, subject.span
        changes = list(changes_in(reachable))
        for change in changes:
            restore(change)
        arguments = {id(captured_input.argument) for captured_input in inputs}
        self._changes = [change for change in changes if not _caches_arguments(change, arguments)]

    def with_updates(self, result: Any) -> Any:
        """Return the output together with what the wrapper binds, if there is anything.

        Raises:
            UnsupportedError: a compiled call would not repeat the change.
        """
        if self._effects is SideEffects.REPLAYED:
            check_hidden_state(self._reachable.hidden_states, self._reachable.name_of, self._span)
        else:
            self.single_use_reason = changed_state_name(
                self._reachable.hidden_states, self._reachable.name_of
            )
        if not self._changes:
            return result
        output = result if isinstance(result, OutputWithUpdates) else OutputWithUpdates(result, (), ())
        pairs = [pair for change in self._changes for pair in self._rebindings_of(change)]
        for change in self._left_as_recorded:
            rebind(change)
        outer = {
            id(binding.value): OuterObject(_outer_name(binding), binding.value)
            for binding in self._reachable.bindings
            if binding.content is not None
        }
        existing = (*output.existing_containers, *existing_containers(output.result, outer))
        first = len(output.rebindings)
        named = ((rebinding.user_name, value) for rebinding, value in pairs)
        leaves = (*output.leaves[:first], *named, *output.leaves[first:])
        rebindings = (*output.rebindings, *(rebinding for rebinding, _ in pairs))
        return OutputWithUpdates(output.result, rebindings, leaves, output.rebound, existing)

    def _rebindings_of(self, change: Change) -> list[tuple[Rebinding, Any]]:
        """Return the rebindings that repeat a change, with their values; none if it stays as recorded."""
        if self._effects is not SideEffects.TRACED:
            try:
                return self._repeated(change)
            except UnsupportedError:
                if self._effects is SideEffects.REPLAYED or contains_fake(change.now):
                    raise
                self.single_use_reason = change.description
        elif contains_fake(change.now):
            raise unsupported("export-side-effect", self._span_of(change), binding=change.description)
        self._left_as_recorded.append(change)
        return []

    def _repeated(self, change: Change) -> list[tuple[Rebinding, Any]]:
        binding, description = change.binding, change.description
        span, (name, *keys) = self._span_of(change), binding.keys
        name = user_name(self._function, binding.store, str(name), span)
        name += "".join(f"[{key!r}]" for key in keys)
        if change.old_items is not None:
            store, box, is_item = binding.value, _outer_name(binding), True
            items = changed_items(change.now, change.old_items, description, span)
        else:
            store, box, is_item = binding.store, _store_name(binding), False
            if change.now is MISSING:
                raise unsupported("side-effect", span, binding=description)
            check_value(change.now, description, span)
            items = [(binding.name, binding.value, change.now)]
        for _, before, now in items:
            if _differs_at_each_call(before, now) and (is_item or binding.is_read):
                raise unsupported("side-effect", span, binding=description)
        pairs: list[tuple[Rebinding, Any]] = []
        for key, before, now in items:
            own_name = f"{name}[{key!r}]" if is_item else name
            own_span = self._span_of(change, key) if is_item else span
            own = Rebinding(box, store, key, before, is_item, description, own_name, own_span)
            pairs.append((own, now))
        return pairs

    def _span_of(self, change: Change, key: Any = None) -> Span | None:
        return write_span(self._reachable.codes, str(change.binding.keys[0]), key) or self._span

    def remaining_state(self) -> ReachableState:
        """Return the reachable state without what stays as the recording left it."""
        names = {(id(change.binding.store), change.binding.name) for change in self._left_as_recorded}
        container_ids = {
            id(change.binding.value) for change in self._left_as_recorded if change.old_items is not None
        }
        bindings = [
            binding
            for binding in self._reachable.bindings
            if (id(binding.store), binding.name) not in names and id(binding.value) not in container_ids
        ]
        instances = (
            replace(instance, before=dict(instance.store))
            if any(id(instance.store) == store for store, _ in names)
            else instance
            for instance in self._reachable.instances
        )
        return replace(self._reachable, bindings=tuple(bindings), instances=tuple(instances))


def _caches_arguments(change: Change, arguments: Container[int]) -> bool:
    """Return True for a list of its weights that a package's layer makes again, since the call swaps them."""
    return change.binding.foreign and not contains_fake(change.now, arguments)


def _differs_at_each_call(before: Any, now: Any) -> bool:
    """Return True for a number or string that replaces another one; a flag has few values."""
    is_first = before is MISSING or before is None or isinstance(before, (bool, torch.Tensor))
    return not is_first and not isinstance(now, torch.Tensor)


def _outer_name(binding: Binding) -> str:
    return f"outer_{binding.keys[0]}"


def _store_name(binding: Binding) -> str:
    """Return a name in the module text for the binding's store."""
    if isinstance(binding.store, CellType):
        return f"cell_of_{binding.name}"
    if isinstance(binding.store, type):
        return f"class_{binding.store.__name__}"
    if binding.outer_keys:
        return f"outer_{binding.outer_keys[0]}"
    return "outer_globals" if binding.kind_text == "the global" else "outer_attributes"


def check_backward_side_effects(captured: Captured, recorder: Recorder) -> None:
    """Check that the backward has no side effects, after it was recorded, and reads no rebound tensor.

    Raises:
        UnsupportedError: a hook, or the backward of a custom function, changes a free variable, or reads one
            that the function binds to another tensor.
    """
    changes = list(changes_in(captured.reachable))
    if captured.side_effects is not SideEffects.REPLAYED:
        changes = [change for change in changes if contains_fake(change.now)]
    for change in changes:
        restore(change)
    if changes:
        span = write_span(captured.reachable.codes, str(changes[0].binding.keys[0]))
        raise unsupported(
            "side-effect-in-backward", span or captured.subject.span, binding=changes[0].description
        )
    rebound = rebound_tensors(captured.structure.rebindings)
    constants = (node.constant for read in recorder.nodes for node in read.inputs()) if rebound else ()
    for constant in constants:
        if id(constant) in rebound:
            raise read_of_rebound(rebound[id(constant)])


def guarded_state(captured: Captured) -> ReachableState:
    """Return the state that a later call requires: of a tensor that each call replaces, only its kind."""
    rebindings = captured.structure.rebindings
    kinds = {
        (id(rebinding.store), rebinding.key): TensorKind(rebinding.before)
        for rebinding in rebindings
        if isinstance(rebinding.before, torch.Tensor)
    }
    absent = {id(rebinding.store) for rebinding in rebindings if rebinding.before is MISSING}
    bindings = (_with_kinds(binding, kinds) for binding in captured.reachable.bindings)
    instances = (
        replace(instance, is_read=instance.is_read or id(instance.store) in absent)
        for instance in captured.reachable.instances
    )
    return replace(captured.reachable, bindings=tuple(bindings), instances=tuple(instances))


def _with_kinds(binding: Binding, kinds: Mapping[tuple[int, Any], TensorKind]) -> Binding:
    if binding.content is None:
        return replace(binding, value=kinds.get((id(binding.store), binding.name), binding.value))
    own = {key: kind for (store, key), kind in kinds.items() if store == id(binding.value)}
    if not own:
        return binding
    if isinstance(binding.content, dict):
        return replace(binding, content={**binding.content, **own})
    return replace(binding, content=[own.get(index, item) for index, item in enumerate(binding.content)])
