"""What of a graph Inductor cannot follow, for any device: objects that keep a state of their own."""

from aotlens.capture.operators import aten
from aotlens.capture.records import Subject
from aotlens.errors import BackendError
from aotlens.ir.program import Program
from aotlens.report.records import Phase
from aotlens.torch_api import FakeScriptObject, ScriptObject

RANDOM_STATE = ("torch.random", "torch.cuda.random")
"""Modules whose functions read and set generators."""


def refuse_objects(program: Program, phase: Phase, subject: Subject) -> None:
    """Raises BackendError.

    Inductor draws from its own seeds, and so cannot follow a generator or the random state.  Nor does it keep
    calls of a torchbind object's methods in order: each reads what another one wrote.  Its code knows the
    symbols of sizes and strides, not one for an input's place on its storage.
    """
    ops = [node.op for node in program.nodes if getattr(node.op, "__module__", "") in RANDOM_STATE]
    given = [item.node for item in program.inputs] + list(program.constants())
    what = f"`torch.{ops[0].__name__}`" if ops and ops[0] is not None else ""
    if any(node.val is None for node in given):
        what = what or "a `torch.Generator`"
    if any(isinstance(node.val, (FakeScriptObject, ScriptObject)) for node in given):
        what = "a torchbind object"
    inputs = {id(item.node) for item in program.inputs}
    places = (node for node in program.nodes if node.op is aten.sym_storage_offset.default)
    if any(id(node.args[0]) in inputs for node in places):
        what = what or "a symbol for where an input starts on its storage"
    if what:
        raise BackendError(
            f"Inductor cannot compile {what} in the {phase} graph of `{subject.name}`; "
            "choose backend 'eager'",
            span=subject.span,
        )
