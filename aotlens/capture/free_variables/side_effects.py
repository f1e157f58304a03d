"""Side effects of a function: changed attributes, globals, closure variables, and containers in these.

Invariant: afterwards all state is as before the recording; each change is an output of the graph, which the
wrapper writes back at each call.  Two kinds of change would differ at each call and are unsupported: a value
that is not a tensor and that the function may read later (a counter), and a tensor that one call leaves for
the next.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from types import CellType
from typing import Any

import torch

from aotlens.capture.free_variables.changes import Change, changes_in, contains_fake, rebind, restore
from aotlens.capture.free_variables.containers import (
    MISSING_ITEM,
    ContainerUpdate,
    Item,
    NewLeaves,
    OutputWithUpdates,
    list_items,
    new_items,
)
from aotlens.capture.free_variables.guards import ANY_VALUE, PLAIN
from aotlens.capture.free_variables.hidden_state import changed_state_name, check_hidden_state
from aotlens.capture.free_variables.members import base_of
from aotlens.capture.free_variables.name_uses import NameUses, combined_uses, name_uses
from aotlens.capture.free_variables.namespaces import MISSING, namespace, path_to
from aotlens.capture.free_variables.reachable import Binding, Instance, ReachableState
from aotlens.capture.free_variables.user_names import user_name_of
from aotlens.capture.records import Captured, CapturedTensor, Subject
from aotlens.errors import UnsupportedError
from aotlens.ir.slots import OuterObject
from aotlens.model.report import Span
from aotlens.options import SideEffects
from aotlens.unsupported import unsupported

ALLOWED_TYPES = (
    torch.Tensor,
    torch.SymInt,
    torch.SymFloat,
    torch.SymBool,
    torch.dtype,
    torch.device,
    type(None),
)
"""Types of values, besides numbers and strings, that a side effect may leave."""


class SideEffectChanges:
    """The side effects of one recording on free variables."""

    def __init__(
        self,
        reachable: ReachableState,
        free_tensors: Sequence[tuple[CapturedTensor, Any]],
        subject: Subject,
        effects: SideEffects = SideEffects.REPLAYED,
    ) -> None:
        self._reachable = reachable
        self._effects = effects
        self._left_as_recorded: list[Change] = []
        self.single_use_reason = ""
        """The change that a later call would not repeat, and that stays as the recording left it."""
        self._free_tensors = {id(free_tensor.tensor): free_tensor for free_tensor, _ in free_tensors}
        self._originals_by_fake = {id(fake): free_tensor.tensor for free_tensor, fake in free_tensors}
        self._function, self._span = subject.function, subject.span
        self._changes = list(changes_in(reachable))
        for change in self._changes:
            restore(change)

    def with_updates(self, result: Any) -> Any:
        """Return the output together with the wrapper's updates, if there are any.

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
        known = {
            id(binding.value): OuterObject(_outer_name(binding), binding.value)
            for binding in self._reachable.bindings
            if not isinstance(binding.value, (*ALLOWED_TYPES, *PLAIN, tuple))
        }
        leaves = NewLeaves(known, self._span)
        refills = tuple(
            update for change in self._changes if (update := self._update_or_none(change, leaves))
        )
        for change in self._left_as_recorded:
            rebind(change)
        own = leaves.result(output.result)
        standing = (*output.existing_containers, *leaves.existing_containers)
        first = len(output.leaves) - len(output.rebound)
        flat = (*output.leaves[:first], *leaves.leaves, *output.leaves[first:])
        return OutputWithUpdates(own, (*output.container_updates, *refills), flat, output.rebound, standing)

    def _update_or_none(self, change: Change, leaves: NewLeaves) -> ContainerUpdate | None:
        """Return the update that repeats a change; None for one that stays as recorded."""
        is_traced = self._effects is SideEffects.TRACED
        if not is_traced:
            before = leaves.count()
            try:
                return self._update_of(change, leaves)
            except UnsupportedError:
                if self._effects is SideEffects.REPLAYED or contains_fake(change.now):
                    raise
                leaves.truncate(before)
                self.single_use_reason = change.description
        elif contains_fake(change.now):
            raise unsupported(
                "export-side-effect", self._uses_of(change).span or self._span, binding=change.description
            )
        self._left_as_recorded.append(change)
        return None

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

    def _update_of(self, change: Change, leaves: NewLeaves) -> ContainerUpdate:
        uses = self._uses_of(change)
        before = len(leaves.leaves)
        name = user_name_of(self._reachable, self._function, change.binding, uses.writes)
        change = replace(change, user_name=name)
        update = (
            self._rebinding(change, leaves)
            if change.old_items is None
            else self._refilling(change, leaves, uses)
        )
        self._reject_values(change, [value for _, value in leaves.leaves[before:]])
        may_read = uses.reads or (change.old_items is not None and _depends_on_contents(change, update, uses))
        if may_read:
            carried = self._carried(change, update)
            if carried is None and not _changes_once(change, update, uses):
                raise self._unsupported(change, uses.span)
            update = replace(
                update, required_items=_required_items(change, carried or ()), carried=carried or ()
            )
        span = uses.span or self._span
        return replace(update, description=change.description, user_name=name, writes=uses.writes, span=span)

    def _uses_of(self, change: Change) -> NameUses:
        """Return the uses of all names of a container."""
        bindings = [change.binding]
        if change.old_items is not None:
            value = change.binding.value
            bindings = [binding for binding in self._reachable.bindings if binding.value is value] or bindings
        return combined_uses([name_uses(self._reachable, binding) for binding in bindings])

    def _rebinding(self, change: Change, leaves: NewLeaves) -> ContainerUpdate:
        binding, location = change.binding, _outer_object(change.binding)
        box = OuterObject(_store_name(binding), binding.store)
        if change.now is MISSING:
            return ContainerUpdate(box.name, True, (), (binding.name,), binding.store, binds_names=True)
        item = Item(binding.name, None, leaves.add(change.user_name, change.now, location))
        return ContainerUpdate(box.name, True, (item,), (), binding.store, binds_names=True)

    def _refilling(self, change: Change, leaves: NewLeaves, uses: NameUses) -> ContainerUpdate:
        binding, container = change.binding, change.binding.value
        location = OuterObject(_outer_name(binding), container)
        base = base_of(container)
        if base is dict:
            items, removed = new_items(change.user_name, change.now, change.old_items, leaves, location)
            cleared = (
                bool(change.old_items)
                and change.old_items.keys() == set(removed)
                and "clear" in uses.write_kinds
            )
            if not _keeps_order(change.now, change.old_items):
                raise self._unsupported(change, uses.span)
            return ContainerUpdate(
                location.name, True, items, () if cleared else removed, container, cleared=cleared
            )
        if base not in (list, deque):
            raise self._unsupported(change, uses.span)
        before = list(change.old_items)
        now = [self._as_before(value, before) for value in change.now]
        list_updates = list_items(change.user_name, now, before, leaves, location)
        old_positions = [item.old_index for item in list_updates if item.old_index is not None]
        grows = _appends_only(
            list_updates, old_positions, len(before), getattr(container, "maxlen", None) is not None
        )
        cleared = bool(before) and not old_positions and "clear" in uses.write_kinds
        return ContainerUpdate(
            location.name, False, list_updates, (), container, appends=grows and not cleared, cleared=cleared
        )

    def _as_before(self, value: Any, before: list[Any]) -> Any:
        """Return the real tensor for a fake that moved within its list."""
        real = self._originals_by_fake.get(id(value), value)
        return real if any(real is item for item in before) else value

    def _carried(self, change: Change, update: ContainerUpdate) -> tuple[tuple[Any, Any], ...] | None:
        """Return the tensors, by key, that one call leaves for the next; None if there are other values."""
        if change.old_items is None:
            carried = [(change.binding.name, change.binding.value)]
        elif update.keyed:
            carried = [
                (item.key, change.old_items[item.key])
                for item in update.items
                if item.key in change.old_items
            ]
        elif all(item.old_index in (None, index) for index, item in enumerate(update.items)):
            carried = [
                (index, change.old_items[index])
                for index, item in enumerate(update.items[: len(change.old_items)])
                if item.spec
            ]
        else:
            return None
        is_same_size = update.keyed or len(update.items) == len(change.old_items)
        is_carried = (
            is_same_size and not update.removed and all(self._has_one_binding(value) for _, value in carried)
        )
        return tuple(carried) if carried and is_carried else None

    def _has_one_binding(self, value: Any) -> bool:
        """Return True if a tensor has one binding and shares no memory with another tensor."""
        free_tensor = self._free_tensors.get(id(value))
        return (
            free_tensor is not None
            and free_tensor.shares_no_memory
            and len({(id(store), key) for store, key in free_tensor.bindings}) == 1
        )

    def _reject_values(self, change: Change, values: list[Any]) -> None:
        for value in values:
            if isinstance(value, torch.nn.Module):
                raise unsupported(
                    "new-layer-side-effect", self._span, type=type(value).__name__, binding=change.description
                )
            if not isinstance(value, (*ALLOWED_TYPES, *PLAIN, OuterObject)):
                raise unsupported(
                    "new-object-side-effect",
                    self._span,
                    type=type(value).__name__,
                    binding=change.description,
                )

    def _unsupported(self, change: Change, span: Span | None) -> UnsupportedError:
        return unsupported("side-effect", span or self._span, binding=change.description)


def _outer_object(binding: Binding) -> OuterObject:
    """Return the wrapper's reference to a binding's value."""
    if binding.content is not None:
        return OuterObject(_outer_name(binding), binding.value)
    return OuterObject(_store_name(binding), binding.store, path_to(binding.store, binding.name))


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


def _keeps_order(now: dict[Any, Any], before: dict[Any, Any]) -> bool:
    """Return True if remaining keys retain their order and new ones follow them."""
    remaining = [key for key in before if key in now]
    return list(now)[: len(remaining)] == remaining


def _depends_on_contents(change: Change, update: ContainerUpdate, uses: NameUses) -> bool:
    """Return True if the new contents depend on the old ones."""
    if "clear" in uses.write_kinds and not update.cleared:
        return True
    if update.keyed:
        return bool(update.removed)
    if "STORE_SUBSCR" in uses.write_kinds:
        return True
    return not (update.appends or update.cleared)


def _appends_only(items: tuple[Item, ...], old_positions: list[Any], count: int, bounded: bool) -> bool:
    """Return True if new items follow the old ones; a bounded deque may drop its first items."""
    first = count - len(old_positions) if bounded else 0
    return old_positions == list(range(first, count)) and all(
        item.old_index is not None for item in items[: len(old_positions)]
    )


def _changes_once(change: Change, update: ContainerUpdate, uses: NameUses) -> bool:
    """Return True if a value that the function may read changes only in its first calls."""
    if change.old_items is None:
        before = change.binding.value
        return before is MISSING or before is None or isinstance(before, bool)
    if update.keyed:
        return not update.removed and all(item.key not in change.old_items for item in update.items)
    return not change.old_items and "clear" in uses.write_kinds and not uses.reads


def _required_items(change: Change, carried: tuple[tuple[Any, Any], ...]) -> tuple[tuple[Any, Any], ...]:
    """Return the items that a call requires; for carried tensors, only their presence."""
    binding, keys = change.binding, [key for key, _ in carried]
    if change.old_items is None:
        return () if keys else ((binding.name, MISSING_ITEM if binding.value is MISSING else binding.value),)
    items = change.old_items.items() if isinstance(change.old_items, dict) else enumerate(change.old_items)
    return tuple((key, ANY_VALUE if key in keys else value) for key, value in items)


def check_backward_side_effects(captured: Captured) -> None:
    """Check that the backward has no side effects, after it was recorded.

    Raises:
        UnsupportedError: a hook, or the backward of a custom function, changes a free variable.
    """
    changes = list(changes_in(captured.reachable))
    if captured.side_effects is not SideEffects.REPLAYED:
        changes = [change for change in changes if contains_fake(change.now)]
    for change in changes:
        restore(change)
    if changes:
        write_span = name_uses(captured.reachable, changes[0].binding).span
        raise unsupported(
            "side-effect-in-backward", write_span or captured.subject.span, binding=changes[0].description
        )


def unwritten_free_variables(captured: Captured) -> ReachableState:
    """Return the state that a later call requires: all except what the function only writes."""
    reachable = captured.reachable
    outside = [refill for refill in captured.structure.container_updates if refill.store is not None]
    if not outside:
        return reachable
    unread = [refill for refill in outside if refill.required_items is None]
    boxes: dict[int, Any] = {id(refill.store): None for refill in unread}
    for refill in outside:
        if refill.required_items and refill.carried:
            values = [value for _, value in refill.required_items]
            boxes[id(refill.store)] = dict(refill.required_items) if refill.keyed else values
    names = {(id(refill.store), item.key) for refill in unread for item in refill.items}
    names |= {(id(refill.store), key) for refill in unread for key in refill.removed}
    names |= {(id(refill.store), key) for refill in outside for key, _ in refill.carried}
    bindings = [binding for binding in reachable.bindings if (id(binding.store), binding.name) not in names]
    bindings = [
        replace(binding, content=boxes[id(binding.value)])
        if binding.content is not None and id(binding.value) in boxes
        else binding
        for binding in bindings
    ]
    absent = {
        id(refill.store)
        for refill in outside
        if any(value is MISSING_ITEM for _, value in refill.required_items or ())
    }
    instances = tuple(_without_names(instance, names, absent) for instance in reachable.instances)
    return replace(reachable, bindings=tuple(bindings), instances=instances)


def _without_names(instance: Instance, names: set[tuple[int, Any]], absent: set[int]) -> Instance:
    """Return the instance without `names`; one with `absent` names must still lack them."""
    written_names = frozenset(key for store, key in names if store == id(instance.store))
    is_read = instance.is_read or id(instance.store) in absent
    if not written_names and is_read is instance.is_read:
        return instance
    before = {name: value for name, value in instance.before.items() if name not in written_names}
    return replace(instance, before=before, bound_names=written_names, is_read=is_read)


def carried_bindings(captured: Captured) -> list[tuple[Any, Any]]:
    """Return the namespaces and keys of the tensors that one call leaves for the next."""
    return [
        (namespace(refill.store), key)
        for refill in captured.structure.container_updates
        for key, _ in refill.carried
    ]
