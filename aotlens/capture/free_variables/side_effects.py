"""Side effects of a function: attributes, globals, closure variables and items that it binds anew.

Invariant: the state is compared before and after the recording, and is afterwards as before.  Each changed
binding is an output of the graph, which the wrapper binds at each call; every other change is unsupported, as
is a value that would differ at each call: a counter, and a tensor that one call leaves for the next.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from types import CellType, FunctionType, ModuleType
from typing import Any

import torch

from aotlens.capture.free_variables.changes import (
    PLAIN,
    Change,
    changed_contents,
    changes_in,
    contains_fake,
)
from aotlens.capture.free_variables.mentions import user_name, write_span
from aotlens.capture.free_variables.state import (
    Binding,
    Contents,
    OutputWithUpdates,
    ReachableState,
    Rebinding,
    path_of,
    read_of_rebound,
    rebound_tensors,
)
from aotlens.capture.free_variables.stores import MISSING, base_of
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import Captured, Subject
from aotlens.errors import UnsupportedError
from aotlens.ir.slots import OuterObject
from aotlens.model.report import Span
from aotlens.options import SideEffects
from aotlens.unsupported import unsupported

KEYS = (str, int, float, bool, type(None))
BOUND_KEYS = (Enum, torch.nn.Module, FunctionType, type, torch.dtype, torch.device)
"""Types of keys that the module text references by name instead of writing them out."""
VALUES = (
    torch.Tensor,
    torch.SymInt,
    torch.SymFloat,
    torch.SymBool,
    torch.dtype,
    torch.device,
    type(None),
    *PLAIN,
)
"""Types of values that each call can bind."""


class SideEffectReplay:
    """The rebindings that repeat the changes of one recording."""

    def __init__(self, state: ReachableState, subject: Subject, effects: SideEffects) -> None:
        self._state = state
        self._subject = subject
        self._effects = effects
        self._left_as_recorded: list[Change] = []
        self.single_use_reason = ""
        """The change that a later call would not repeat, and that stays as the recording left it."""

    def with_updates(
        self,
        result: Any,
        changes: Sequence[Change],
        arguments: Sequence[Contents],
        rebound: Sequence[tuple[str, Any]],
    ) -> OutputWithUpdates:
        """Return the output together with what the wrapper binds.

        Raises:
            UnsupportedError: a compiled call would not repeat a change.
        """
        self._check_hidden_state()
        every = (*changed_contents(arguments), *changes)
        pairs = [pair for change in every for pair in self._rebindings_of(change)]
        for change in self._left_as_recorded:
            change.source.set(change.now)
        known = {
            id(item.store): OuterObject(_box_name(item), None if item.expression else item.store)
            for item in (*arguments, *(self._state.contents if changes else ()))
        }
        return OutputWithUpdates(
            result,
            tuple(rebinding for rebinding, _ in pairs),
            (*((rebinding.user_name, value) for rebinding, value in pairs), *rebound),
            tuple(fqn for fqn, _ in rebound),
            tuple(_existing_containers(result, known)),
        )

    def _check_hidden_state(self) -> None:
        """Reject an iterator or generator that the recording advanced, or let the next call recompile."""
        advanced = [hidden for hidden in self._state.hidden_states if hidden.is_advanced]
        for hidden in advanced:
            owner = hidden.owner
            name = owner.__name__ if isinstance(owner, ModuleType) else self._state.name_of(owner)
            if self._effects is SideEffects.REPLAYED:
                for generator in advanced:
                    generator.restore()
                case = "iterator" if hidden.is_iterator else "python-random"
                raise unsupported(case, self._subject.span, name=name)
            self.single_use_reason = f"the state of `{name}`"

    def _rebindings_of(self, change: Change) -> list[tuple[Rebinding, Any]]:
        """Return the rebindings that repeat a change, with their values; none if it stays as recorded."""
        source = change.source
        if self._effects is not SideEffects.TRACED:
            try:
                return list(self._repeated(source, change.now))
            except UnsupportedError:
                is_argument = isinstance(source, Contents) and source.expression
                if self._effects is SideEffects.REPLAYED or is_argument or contains_fake(change.now):
                    raise
                self.single_use_reason = source.description
        elif contains_fake(change.now):
            raise unsupported("export-side-effect", self._span_of(source), binding=source.description)
        self._left_as_recorded.append(change)
        return []

    def _repeated(self, source: Binding | Contents, now: Any) -> Iterator[tuple[Rebinding, Any]]:
        """Yield the rebindings of one change, each with its value.

        Raises:
            UnsupportedError: a call could not repeat it, or each call would need another value.
        """
        span, is_item = self._span_of(source), isinstance(source, Contents)
        items = _changed_items(source, now)
        if items is None:
            raise unsupported("side-effect", span, binding=source.description)
        is_argument = isinstance(source, Contents) and source.expression
        name = self._user_name(source, span)
        for key, before, value in items:
            _check_key(key, source.description, span)
            _check_value(value, source.description, span)
            differs = not is_argument and _differs_at_each_call(before, value)
            if differs and (isinstance(source, Contents) or source.is_read):
                raise unsupported("side-effect", span, binding=source.description)
            rebinding = Rebinding(
                expression=_box_name(source),
                store=None if is_argument else source.store,
                key=key,
                before=before,
                is_item=is_item,
                description=source.description,
                user_name=f"{name}[{key!r}]" if is_item else name,
                span=self._span_of(source, key),
            )
            yield rebinding, value

    def _user_name(self, source: Binding | Contents, span: Span | None) -> str:
        first, *keys = source.keys
        owner = source.owner if isinstance(source, Contents) else source.store
        return path_of((user_name(self._subject.function, owner, first, span), *keys))

    def _span_of(self, source: Binding | Contents, key: Any = None) -> Span | None:
        first = source.keys[0].partition("[")[0]
        return write_span(self._state.codes, first, key) or self._subject.span


def _changed_items(source: Binding | Contents, now: Any) -> list[tuple[Any, Any, Any]] | None:
    """Return the key, the former and the new value of each item that was set; for a name, of the name itself.

    None if the name is not bound any more, or if items were removed, inserted or reordered.
    """
    if isinstance(source, Binding):
        return [(source.name, source.value, now)] if now is not MISSING else None
    base = base_of(source.store)
    if base is dict:
        before, after = source.before, now
        is_extended = list(after)[: len(before)] == list(before)
    else:
        is_extended = base is list and len(now) == len(source.before)
        before, after = dict(enumerate(source.before)), dict(enumerate(now))
    if not is_extended:
        return None
    return [
        (key, before.get(key, MISSING), value)
        for key, value in after.items()
        if before.get(key, MISSING) is not value
    ]


def _check_key(key: Any, description: str, span: Span | None) -> None:
    """Check that the module text can express a key.

    Raises:
        UnsupportedError: the key is a tensor, or an object of this call only.
    """
    for part in key if type(key) is tuple else (key,):
        if not isinstance(part, (*KEYS, *BOUND_KEYS)):
            raise unsupported("container-key", span, type=type(part).__name__, container=description)


def _check_value(value: Any, description: str, span: Span | None) -> None:
    """Check that a call can make a value that the function stores.

    Raises:
        UnsupportedError: it is a new container or object.
    """
    if not isinstance(value, VALUES):
        name = "new-layer-side-effect" if isinstance(value, torch.nn.Module) else "new-object-side-effect"
        raise unsupported(name, span, type=type(value).__name__, binding=description)


def _differs_at_each_call(before: Any, now: Any) -> bool:
    """Return True for a number or string that replaces another one; a flag has few values."""
    is_first = before is MISSING or before is None or isinstance(before, (bool, torch.Tensor))
    return not is_first and not isinstance(now, torch.Tensor)


def _box_name(source: Binding | Contents) -> str:
    """Return a name in the module text for the store, or the expression for a part of an argument."""
    if isinstance(source, Contents):
        return source.expression or f"outer_{source.keys[0]}"
    if isinstance(source.store, CellType):
        return f"cell_of_{source.name}"
    if isinstance(source.store, type):
        return f"class_{source.store.__name__}"
    return "outer_globals" if source.kind_text == "the global" else "outer_attributes"


def _existing_containers(
    value: Any, known: dict[int, OuterObject], path: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], OuterObject]]:
    """Yield the known containers in an output, each with the positions that lead to it."""
    if id(value) in known:
        yield path, known[id(value)]
    elif known and type(value) in (tuple, list, dict):
        for index, item in enumerate(value.values() if type(value) is dict else value):
            yield from _existing_containers(item, known, (*path, index))


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
        change.source.restore()
    if changes:
        source = changes[0].source
        span = write_span(captured.reachable.codes, source.keys[0]) or captured.subject.span
        raise unsupported("side-effect-in-backward", span, binding=source.description)
    rebound = rebound_tensors(captured.structure.rebindings)
    constants = (node.constant for read in recorder.nodes for node in read.inputs()) if rebound else ()
    for constant in constants:
        if id(constant) in rebound:
            raise read_of_rebound(rebound[id(constant)])
