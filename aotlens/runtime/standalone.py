"""What a standalone module needs of the process that imports it, and how it checks that.

Invariant: code that was generated for another torch or another CPU is rejected at import, never run.
"""

import sys
from collections.abc import Mapping
from typing import Any

import torch

from aotlens.capture.records import Captured, Subject
from aotlens.codegen.graph_adapter import ADAPTER_HELPER
from aotlens.codegen.records import Generated
from aotlens.codegen.standalone_code import WAIT_FOR_KERNELS, StandaloneGraph
from aotlens.ir.program import TableIndex
from aotlens.runtime.module_text import TextBuilder
from aotlens.runtime.value_text import Bindings
from aotlens.torch_api.operators import pytree
from aotlens.unsupported import unsupported


def written_graphs(code: Generated) -> list[StandaloneGraph]:
    """Return the graphs whose compiled code is in the text."""
    graphs = (code.forward, code.backward)
    return [graph.standalone for graph in graphs if graph is not None and graph.standalone is not None]


def requirements_text(code: Generated, bindings: Bindings) -> str:
    """Return what the module needs, in words."""
    modules = bindings.value_writer.modules if bindings.value_writer is not None else {}
    others = "".join(
        f", and `{module}` for `{name}`"
        for module, name in modules.items()
        if module.partition(".")[0] not in sys.stdlib_module_names
    )
    graphs = written_graphs(code)
    if not graphs:
        return f"needs torch{others}" if others else "needs torch only"
    compiler = " and a C++ compiler" if any(graph.settings for graph in graphs) else ""
    return f"needs torch {_release()}{compiler}{others}"


def write_requirements(builder: TextBuilder, code: Generated) -> None:
    """Write what compiled graphs import, the checks of torch and CPU, and the constants that they read."""
    graphs = written_graphs(code)
    if not graphs:
        return
    release = _release()
    builder.add("")
    message = f"this module contains code of Inductor in torch {release}: export it again with torch "
    with builder.block(f"if not torch.__version__.startswith({release + '.'!r}):"):
        builder.add(f"raise ImportError({message!r} + torch.__version__)")
    settings = {name: value for graph in graphs for name, value in graph.settings.items()}
    shared = dict.fromkeys(line for graph in graphs for line in graph.shared)
    lines = [line for line in shared if line not in ("import torch", "import math")]
    builder.add("", *(line for line in lines if " = " not in line))
    if settings:
        _write_settings(builder, settings, max(graph.vector_bits for graph in graphs))
        lines = [line.replace("= AsyncCompile()", "= Kernels()") for line in lines]
    builder.add("", *(line for line in lines if " = " in line))
    if any("lies_beside" in line for graph in graphs for line in graph.lines):
        builder.add("", *ADAPTER_HELPER.splitlines())


def _write_settings(builder: TextBuilder, settings: Mapping[str, object], bits: int) -> None:
    """Write settings so that C++ kernels are compiled as where they were generated."""
    builder.add("from torch._inductor import config as inductor_config")
    if bits:
        builder.add("from torch._inductor.cpu_vec_isa import pick_vec_isa")
    builder.add("", f"KERNEL_SETTINGS = {dict(settings)!r}")
    if bits:
        with builder.block("with inductor_config.patch(KERNEL_SETTINGS):"):
            builder.add("vector_bits = pick_vec_isa().bit_width()")
        message = f"this module's kernels use vectors of {bits} bits, this CPU has vectors of "
        advice = " bits: export it again on such a machine"
        with builder.block(f"if vector_bits != {bits}:"):
            builder.add(f"raise ImportError({message!r} + str(vector_bits) + {advice!r})")
    builder.add(*KERNELS.splitlines())


KERNELS = """

class Kernels(AsyncCompile):
    # has them compiled as where they were generated
    def cpp_pybinding(self, *args, **kwargs):
        with inductor_config.patch(KERNEL_SETTINGS):
            return super().cpp_pybinding(*args, **kwargs)

"""


def write_graph_constants(builder: TextBuilder, code: Generated, bindings: Bindings) -> None:
    """Write the tensors that compiled graphs read."""
    for graph in written_graphs(code):
        for name, value in graph.constants.items():
            bindings.bind(builder, name, value, "a constant of the compiled graph")


def write_end(builder: TextBuilder, code: Generated) -> None:
    """Write the wait for kernels, which are compiled in parallel, after the graphs."""
    if any(graph.compiles for graph in written_graphs(code)):
        builder.add("", "", WAIT_FOR_KERNELS)


BIND = """

def bind(module):
    # `call` with the tensors of a module like the one that was exported, {what}
    def call_module(*args, **kwargs):
        tensors = {{**dict(module.named_parameters()), **dict(module.named_buffers())}}
        if tensors.keys() != set(OWNED):  # a tensor that hangs at two names is listed once
            raise ValueError(f"the module's tensors are {{list(tensors)}}, exported were {{list(OWNED)}}")
{call}

    return call_module
"""

CALL = """\
        return call(*[tensors[name] for name in OWNED], *args, **kwargs)"""

CALL_AND_REBIND = """\
        result, rebound = call(*[tensors[name] for name in OWNED], *args, **kwargs)
        for name, tensor in rebound.items():
            owner, _, key = name.rpartition(".")
            setattr(module.get_submodule(owner), key, tensor)
        return result"""

BIND_INPUTS = """

def bind(module):
    # `call` with the tensors of a module like the one that was captured, read from it at each call
    def call_module(*args):
        tensors, arguments = {**dict(module.named_parameters()), **dict(module.named_buffers())}, iter(args)
        return call(*[next(arguments) if name is None else tensors[name] for name in INPUTS])

    return call_module
"""


def write_bind(builder: TextBuilder, captured: Captured) -> None:
    """Write `bind` for a target that is a module: it makes a callable of `call` and such a module."""
    if not module_tensor_names(captured):
        return
    if captured.structure.rebound:
        text = BIND.format(what="which gets its new buffers back", call=CALL_AND_REBIND)
    else:
        text = BIND.format(what="read from it at each call", call=CALL)
    builder.add(*(text if _owned_first(captured) else BIND_INPUTS).splitlines())


def order_lines(captured: Captured) -> list[str]:
    """Return the lines that name the module's tensors among the inputs; Dynamo mixes them with arguments."""
    if _owned_first(captured):
        listed = ", ".join(map(repr, module_tensor_names(captured)))
        return ["# `call` takes these first, in this order, and then the arguments", f"OWNED = ({listed},)"]
    listed = ", ".join(repr(getattr(item.slot, "fqn", None)) for item in captured.flat_inputs)
    return ["# `call` takes these tensors of a module; None means an argument", f"INPUTS = ({listed},)"]


def _owned_first(captured: Captured) -> bool:
    owned = [hasattr(captured_input.slot, "fqn") for captured_input in captured.flat_inputs]
    return captured.subject.frontend != "dynamo" or owned == sorted(owned, reverse=True)


def module_tensor_names(captured: Captured) -> list[str]:
    """Return the parameters and buffers that `call` takes before the arguments."""
    return [
        captured_input.slot.fqn for captured_input in captured.inputs if hasattr(captured_input.slot, "fqn")
    ]


def check_all_values_in_text(bound: Mapping[str, Any], subject: Subject) -> None:
    """Check that the text defines everything that it names.

    Raises:
        UnsupportedError: it needs an object that only this process has, with the user's line.
    """
    if not bound:
        return
    name, value = next(iter(bound.items()))
    what, hint = _unexportable(value)
    values = {"target": subject.name, "value": what, "name": name, "advice": hint}
    raise unsupported("export-of-process-value", subject.span, **values)


def _unexportable(value: Any) -> tuple[str, str]:
    """Return what a module cannot define, in words, and what to do."""
    kind = type(value).__qualname__
    if isinstance(value, TableIndex):
        return (
            "a Triton kernel of your own in a graph of torch's operators",
            "export with `--backend inductor`",
        )
    if isinstance(value, torch.nn.Module):
        return f"the very module `{kind}` that it was given", "make the module itself the target"
    if isinstance(value, torch.Tensor):
        return f"a tensor of the class `{kind}`, {value.layout}", "pass it as an argument"
    if isinstance(value, pytree.TreeSpec):
        return "containers of classes of your own", IMPORTABLE
    if isinstance(value, type):
        return f"your class `{kind}`", IMPORTABLE
    return f"an object of the class `{kind}`", "pass its attributes as arguments"


IMPORTABLE = "define them at the top of a module that can be imported, not in a script or a function"


def _release() -> str:
    return ".".join(torch.__version__.split(".")[:2])
