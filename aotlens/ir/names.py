"""Names of a module text: what the text's own lines use, and so no node may be called.

Invariant: a node's name, after `free_name`, is never one that a template of `aotlens.runtime` writes.
"""

import re

_NUMBERED = re.compile(r"(out|base|views|new|arrives|leaf|version|updated|saved|plain|same|part|s|u|zf)_?\d+")
"""Results, bases and other numbered names of the wrapper's lines; symbols of sizes."""

_FIXED = frozenset(
    {
        "ARGUMENT_SPEC",
        "CompiledFunction",
        "DoubleBackward",
        "OWNED",
        "PACK",
        "RESULT_SPEC",
        "UNPACK",
        "apply",
        "apply_compiled",
        "args",
        "backward_of_some",
        "below_views",
        "call",
        "ctx",
        "deferred",
        "differentiable_backward",
        "gradients",
        "graph",
        "increment_version",
        "inputs",
        "is_new",
        "kwargs",
        "leaves",
        "math",
        "memory",
        "refuse_overlap",
        "seen",
        "shared",
        "spec",
        "storage",
        "tensor",
        "tensors_like",
        "torch",
        "vector_bits",
        "version",
        "weakref",
        "without_autocast",
    }
)


def free_name(name: str) -> str:
    """The name itself, or one like it that the text does not use."""
    taken = name in _FIXED or _NUMBERED.fullmatch(name) is not None
    if taken or name.startswith(("aten_", "before_", "prims_", "compile_")) or name.endswith("_graph"):
        return f"x_{name}"
    return name


def node_name(name: str) -> str:
    """A Python identifier out of a user's name: `batch["ids"]` gives `batch_ids`."""
    kept = "".join(char if char.isalnum() or char == "_" else "_" for char in name)
    while "__" in kept:
        kept = kept.replace("__", "_")
    kept = kept.strip("_")
    return kept if kept and not kept[0].isdigit() else f"arg_{kept}" if kept else "arg"
