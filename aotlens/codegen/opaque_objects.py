"""Objects with hidden state, which Inductor cannot compile for any device."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import fx

from aotlens.capture.operators import aten
from aotlens.capture.records import Subject
from aotlens.errors import BackendError, with_location
from aotlens.ir.program import Node, Program
from aotlens.model.report import Phase
from aotlens.torch_api.fake.tensors import FakeTensorMode
from aotlens.torch_api.objects import FakeScriptObject, ScriptObject, to_fake_object

RANDOM_STATE = ("torch.random", "torch.cuda.random")
"""Modules whose functions read and set generators."""


@dataclass(frozen=True, slots=True)
class _Rejected:
    """An object that Inductor cannot compile."""

    what: str
    advice: str
    node: Node | None
    """The first node that uses the object; None where no node does."""


def reject_objects(program: Program, phase: Phase, subject: Subject) -> None:
    """Raise BackendError for objects that Inductor cannot compile; `_rejections` has the reason of each."""
    rejection = next(_rejections(program), None)
    if rejection is None:
        return
    span = rejection.node.origin.location.innermost if rejection.node is not None else None
    where = with_location(
        f"Inductor cannot compile {rejection.what} in the {phase} graph of `{subject.name}`", span
    )
    message = f"{where}; {rejection.advice}, or choose backend 'eager'"
    raise BackendError(message, span=subject.span if span is None else span)


def refresh_objects(module: fx.GraphModule, fake_mode: FakeTensorMode) -> None:
    """Rebuild fake torchbind objects from the current real ones, because Inductor calls their methods
    again."""
    for node in module.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, FakeScriptObject):
            node.meta["val"] = to_fake_object(fake_mode, value.real_obj)


def _rejections(program: Program) -> Iterator[_Rejected]:
    """Yield the objects in a program that Inductor cannot compile.

    - A torchbind object without a fake class: Inductor calls an object's methods while it compiles.
    - A captured torchbind object: it is a constant of the graph, so these calls would change the user's
      own object. The methods of an argument run on a fake object (`refresh_objects`).
    - Reads and writes of RNG states, and generators: Inductor's kernels have seeds of their own.
    - The storage offset of an input, as a symbol: Inductor has symbols for sizes and strides only.
    """
    nodes = [item.node for item in program.inputs] + list(program.constants())
    for node in nodes:
        if isinstance(node.val, ScriptObject):
            what = "a torchbind object without a class registered for tracing"
            yield _Rejected(what, "keep it out of the target", _reader(program, node))
    for node in program.constants():
        if isinstance(node.val, FakeScriptObject):
            what = "a torchbind object that is a free variable"
            yield _Rejected(what, "pass it as an argument", _reader(program, node))
    for node in program.nodes:
        if node.op is not None and getattr(node.op, "__module__", "") in RANDOM_STATE:
            yield _Rejected(f"`torch.{node.op.__name__}`", "call it outside of the target", node)
    for node in nodes:
        if node.val is None:
            advice = "use the default generator"
            yield _Rejected("a `torch.Generator`", advice, _reader(program, node))
    inputs = {id(item.node) for item in program.inputs}
    for node in program.nodes:
        if node.op is aten.sym_storage_offset.default and id(node.args[0]) in inputs:
            what = "a symbol for where an input starts on its storage"
            yield _Rejected(what, "pass a copy of that input", _reader(program, node))


def _reader(program: Program, value: Node) -> Node | None:
    return next((node for node in program.nodes if any(source is value for source in node.inputs())), None)
