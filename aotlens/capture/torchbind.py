"""Torchbind objects (C++ classes bound with `torch::class_`) in a recording.

Invariant: a recording never calls a method of the caller's own object; the user's registered fake class
replaces it, and each call becomes a node with an effect, since it may change the object.
"""

from typing import Any

import torch

from aotlens.capture.graph import Recording
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node
from aotlens.torch_api.objects import (
    FakeScriptObject,
    ScriptObject,
    call_torchbind,
    to_fake_object,
    torchbind_class_name,
)
from aotlens.torch_api.operators import tensor_leaves
from aotlens.unsupported import unsupported

OBJECTS = (FakeScriptObject, ScriptObject)
SCRIPTED = "__torch__."
"""Begins the name of a class that `torch.jit.script` made; `torchbind_class_name` removes it from others."""


class FakeObjects:
    """The fake objects of one recording's torchbind objects."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._known: dict[int, tuple[Any, Any]] = {}

    def graph_input(self, base: str, real: Any) -> tuple[Node, Any]:
        """Return the graph input for the caller's object, and the function's argument for it."""
        return self._make_fake(base, real, Origin(NO_ORIGIN, ""))

    def fake_of(self, value: Any) -> Any:
        """Return the fake of an object; other values unchanged."""
        if not isinstance(value, ScriptObject):
            return value
        if id(value) not in self._known:
            node, _ = self._make_fake("object", value, self._recording.origin, constant=value)
            self._recording.nodes.insert(0, node)
        return self._known[id(value)][0]

    def with_fakes(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return an operator's arguments with a fake for each object.

        An object may store a tensor with its grad_fn, or return one that it received: gradients through it
        are unsupported.
        """
        args = tuple([self.fake_of(arg) for arg in args])
        if not torch.is_grad_enabled() or not any(isinstance(arg, OBJECTS) for arg in args):
            return args
        if any(tensor.requires_grad for tensor in tensor_leaves(args)):
            raise unsupported("torchbind-grad", self._recording.span)
        return args

    def checked_result(self, args: tuple[Any, ...], result: Any) -> Any:
        """Return the operator's result; reject a number, which may differ at another call."""
        if isinstance(result, (int, float, str)) and any(isinstance(arg, OBJECTS) for arg in args):
            raise unsupported("torchbind-number", self._recording.span)
        return result

    def _make_fake(self, base: str, real: Any, origin: Origin, constant: Any = None) -> tuple[Node, Any]:
        """Return the node and the fake: of the registered class, or the object if its operators accept it."""
        fake = to_fake_object(self._recording.fake_mode, real)
        self._known[id(real)] = (fake, real)
        node = Node(self._recording.name(base), None, (), {}, fake, origin, constant=constant)
        self._recording.objects[id(fake)] = node
        return node, fake

    def call(self, owner: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a method call on a free object."""
        fake, span = self.fake_of(owner), self._recording.current_frames().innermost
        if not isinstance(fake, FakeScriptObject):
            kind = torchbind_class_name(owner)
            if kind.startswith(SCRIPTED):
                raise unsupported("torchscript-module", span, module=f"`{kind.removeprefix(SCRIPTED)}`")
            raise unsupported("torchbind-class", span, method=method, type=kind)
        if not hasattr(fake.wrapped_obj, method):
            raise unsupported("torchbind-method", span, method=method)
        return call_torchbind(fake, method, *args, **kwargs)
