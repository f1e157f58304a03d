"""The text around hooks on saved tensors that are parts of the graphs.

Invariant: they do not run a second time on what the graphs save, and a call under other hooks is refused.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from aotlens.ir.render import Names
from aotlens.partition.records import Partitioned
from aotlens.runtime.builder import TextBuilder

AUTOGRAD = "torch._C._autograd"


def check_hooks(builder: TextBuilder, parts: Partitioned, names: Names) -> None:
    """Dynamo has a guard of its own for this."""
    reason = "hooks on saved tensors that are graph modules are built into the graphs"
    captured = parts.joint.captured
    with builder.step("check hooks on saved tensors", reason):
        if captured.subject.frontend == "dynamo":
            return
        if parts.packing is None:
            if captured.recorder.hides_changes and not captured.has_hooks:
                _refuse_hooks(builder, captured.subject.name)
            return
        hooks = parts.packing.hooks
        pair = f"({names.object(hooks.pack, 'PACK')}, {names.object(hooks.unpack, 'UNPACK')})"
        with builder.block(f"if {AUTOGRAD}._top_saved_tensors_default_hooks(True) != {pair}:"):
            message = (
                f"compiled `{captured.subject.name}`: the hooks on saved tensors must be the two "
                "graph modules that it was compiled under, which are built in"
            )
            builder.add(f"raise ValueError({message!r})")


def _refuse_hooks(builder: TextBuilder, name: str) -> None:
    """The backward was recorded for saved tensors that show a change; a hook may have kept what they were."""
    with builder.block(f"if {AUTOGRAD}._top_saved_tensors_default_hooks(True) is not None:"):
        message = (
            f"compiled `{name}`: it changes a tensor that requires grad where autograd does not see it, and "
            "was compiled without hooks on saved tensors; compile it under the hooks, or call it without"
        )
        builder.add(f"raise ValueError({message!r})")


@contextmanager
def without_hooks(builder: TextBuilder, parts: Partitioned) -> Iterator[None]:
    """What is added within runs without the caller's hooks, where these are in the graphs."""
    if parts.packing is None:
        yield
        return
    builder.add(f"deferred = {AUTOGRAD}._saved_tensors_hooks_set_tracing(True)  # the graphs hold the hooks")
    with builder.block("try:"):
        yield
    with builder.block("finally:"):
        builder.add(f"{AUTOGRAD}._saved_tensors_hooks_set_tracing(deferred)")
