"""Module text of the graphs: operators, constants, functions."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import CellType, MappingProxyType
from typing import Any

import torch
from torch import fx

from aotlens.analysis.records import ConstantBase
from aotlens.capture.records import Captured, CapturedInput
from aotlens.capture.storage import Geometry
from aotlens.capture.views import ViewStep
from aotlens.codegen.graph_calls import UnchangedGraph
from aotlens.codegen.records import GraphCode
from aotlens.ir.program import Node, Program, TableIndex
from aotlens.ir.render import Names, function_lines, function_path, literal, subgraph_lines
from aotlens.ir.slots import FreeTensor
from aotlens.ir.tensor_text import constant_text
from aotlens.partition.records import Partitioned
from aotlens.partition.saved_tensor_hooks import is_of_hook
from aotlens.runtime.module_text import ModuleText, TextBuilder
from aotlens.runtime.value_text import Bindings, write_captured_tensors
from aotlens.torch_api.autograd import in_callers_context
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.modes import user_function_mode_types
from aotlens.torch_api.operators import attribute_text
from aotlens.torch_api.python_functions import SOME_TENSOR

CONTAINERS = (list, dict, deque, CellType)
NO_NOTES: Mapping[str, str] = MappingProxyType({})
OF_TORCH = (
    None,
    "aten",
    "prims",
    "prim",
    "inductor",
    "quantized",
    "_quantized",
    "quantized_decomposed",
    "mkldnn",
    "mkl",
    "onednn",
    "rngprims",
    "higher_order",
    "debugprims",
    "fsdp",
    "streams",
    "symm_mem",
    "c10d",
    "_c10d_functional",
    "_c10d_functional_autograd",
    "_dtensor",
)
"""Operator namespaces that exist once torch is imported."""


def graph_name(program: Program) -> str:
    return f"{program.name}_graph"


def write_graph(
    builder: TextBuilder,
    code: GraphCode,
    names: Names,
    bound: dict[str, Any],
    notes: Mapping[str, str] = NO_NOTES,
) -> None:
    """Write one graph as a function of the module, or as a name that code generation binds."""
    name = graph_name(code.program)
    if code.standalone is not None:
        builder.add(*code.standalone.lines)
        return
    if code.compile is None:
        lines = function_lines(code.program, name, names, boxed=code.boxed, notes=notes)
        builder.add("", "", *subgraph_lines(code.program, names), *lines)
        return
    count = len(code.program.nodes)
    if not code.lazy:
        bound[name] = runnable_graph(code.compile())
        builder.add("", "", f"# {name}: {count} nodes, compiled by the backend; takes one list of inputs")
        return
    compile_graph = code.compile
    bound[f"compile_{name}"] = in_callers_context(lambda: runnable_graph(compile_graph()))
    builder.add("", "")
    with builder.block(f"def {name}(inputs):"):
        builder.add(
            f"# {count} nodes, compiled by the backend at the first call",
            f"global {name}",
            f"{name} = compile_{name}()",
            f"return {name}(inputs)",
        )


def view_text(step: ViewStep, source: str, names: Names) -> str:
    """Return one view of an expression, as an expression."""
    arguments = [source, *(literal(arg, names) for arg in step.args)]
    arguments += [f"{key}={literal(value, names)}" for key, value in step.kwargs]
    name = names.operator(step.op, (SOME_TENSOR, *step.args), dict(step.kwargs))
    text = f"{name}({', '.join(arguments)})"
    return text if step.result is None else f"{text}[{step.result}]"


def chain_text(text: str, chain: tuple[ViewStep, ...], names: Names) -> str:
    """Return a chain of views of an expression, as an expression."""
    for step in chain:
        text = view_text(step, text, names)
    return text


def geometry_text(geometry: Geometry, names: Names) -> str:
    """Return the arguments of `as_strided`."""
    parts = (geometry.size, geometry.stride, geometry.offset)
    return ", ".join(literal(part, names) for part in parts)


def import_text(value: Any, name: str) -> str | None:
    """Return the line that imports a class of torch's; None for a class of the user's program."""
    module = getattr(value, "__module__", "")
    if not isinstance(value, type) or module.split(".")[0] != "torch" or value.__qualname__ != value.__name__:
        return None
    return f"from {module} import {value.__name__}" + (f" as {name}" if name != value.__name__ else "")


def write_header(builder: TextBuilder, names: Names, parts: Partitioned, bindings: Bindings) -> None:
    """Write operators and constants under the names that the graphs use."""
    programs = [parts.forward] if parts.backward is None else [parts.forward, parts.backward]
    captured = parts.joint.captured
    returned = [out.base.node for out in parts.joint.meta.outputs if isinstance(out.base, ConstantBase)]
    bound_ids = {id(binding.value) for binding in captured.reachable.bindings}
    write_operators(builder, names, bindings)
    write_objects(builder, names, bindings)
    constants = {node.name: node for program in programs for node in program.constants()}
    saved = [item.node for item in parts.saved_inputs if item.node.constant is not None]
    constants |= {node.name: node for node in (*returned, *saved)}  # the forward may not contain them
    stay = [
        *returned,
        *(node for node in constants.values() if id(node.constant) in bound_ids or is_of_hook(node)),
    ]
    write_constants(builder, list(constants.values()), names, bindings, stay)
    captured_tensors = list(captured_tensor_names(captured, names))
    if bindings.value_writer is not None:
        write_captured_tensors(builder, bindings, captured_tensors)
        return
    for name, captured_input in captured_tensors:
        text = _value_text(captured_input)
        if text is None:
            note = f"`{captured_input.slot.name}`, a free variable"
            bindings.bind(builder, name, captured_input.free_tensor, note)
        else:
            builder.add(
                f"# {name}: `{captured_input.slot.name}` as it was, bound to the tensor itself by aotlens"
            )
            builder.add(f"{name} = {text}")


def captured_tensor_names(captured: Captured, names: Names) -> Iterator[tuple[str, CapturedInput]]:
    """Yield the captured tensors, by their names in the text."""
    for captured_input in captured.inputs:
        if isinstance(captured_input.slot, FreeTensor) and captured_input.node is not None:
            yield names.node(captured_input.node), captured_input


def _value_text(captured_input: CapturedInput) -> str | None:
    """Return the tensor's value; None if it requires grad or shares storage: the value is not enough."""
    shares_storage = captured_input.shares_storage_with or captured_input.base is not None
    if captured_input.requires_grad or shares_storage or type(captured_input.free_tensor) is FakeTensor:
        return None
    return constant_text(captured_input.free_tensor)


def allows_functions() -> bool:
    """Return True if a text that runs here may call `torch.sin`: a user's mode would see that call."""
    return not user_function_mode_types()


def write_operators(builder: TextBuilder, names: Names, bindings: Bindings) -> None:
    """Write the operators that the graphs call, under the names that they use."""
    if not names.operators:
        return
    builder.add("")
    user_operators: list[str] = []
    for path, name in sorted(names.operators.items(), key=lambda item: item[1]):
        if bindings.stands_alone and operator_namespace(path) not in OF_TORCH:
            user_operators.append(f"    {name} = {attribute_text(path)}")
        else:
            function = function_path(names.calls[path]) if names.with_functions else None
            builder.add(f"{name} = {function or attribute_text(path)}")
    if user_operators:
        namespaces = sorted({operator_namespace(line.partition(" = ")[2]) or "" for line in user_operators})
        message = f"operators of your own ({', '.join(namespaces)}): import first what registers them"
        builder.add("try:", *user_operators, "except AttributeError as error:")
        builder.add(f"    raise ImportError({message!r}) from error")


def operator_namespace(path: str) -> str | None:
    """Return `aten` of `torch.ops.aten.mm.default._op`; None for what is no operator of a library."""
    words = path.split(".")
    return words[2] if words[:2] == ["torch", "ops"] else None


def write_objects(builder: TextBuilder, names: Names, bindings: Bindings) -> None:
    """Write classes and other objects that the text names: imported from torch, or bound at load."""
    for name, value in names.objects.items():
        line = import_text(value, name)
        builder.add("")
        if line is not None:
            builder.add(line)
            continue
        owner = "this process" if isinstance(value, TableIndex) else "a tensor subclass"
        owner = "the caller's hooks on saved tensors" if isinstance(value, fx.GraphModule) else owner
        owner = "the user's, which the function reaches" if isinstance(value, CONTAINERS) else owner
        bindings.bind(builder, name, value, f"{type(value).__name__} of {owner}")


def write_constants(
    builder: TextBuilder, constants: list[Node], names: Names, bindings: Bindings, stay: list[Node]
) -> None:
    """Write each constant as text, or a note if the user's own tensor is bound.

    A tensor is bound if it is large, or if it must `stay` the same tensor.
    """
    if constants:
        builder.add("")
    for node in constants:
        stays = node in stay or not isinstance(node.constant, torch.Tensor)
        text = None if stays else constant_text(node.constant)
        if text is None:
            bindings.bind(builder, names.node(node), node.constant, "a constant of the user's")
        else:
            builder.add(f"{names.node(node)} = {text}")


AFTER_A_CHANGE = """
def run_changed(inputs):
    return run_module(inputs)
"""
"""Replaces a graph's own text."""


def runnable_graph(run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Return the function to bind for a graph: for an unchanged graph module of a backend, the program's own
    text.

    The function's code is replaced when that module changes, so that a call pays nothing for the check.
    """
    if not isinstance(run, UnchangedGraph):
        return run
    function: Any = load_program(run.program, boxed=True)
    namespace = function.__globals__
    namespace["run_module"] = run.run_module
    exec(AFTER_A_CHANGE, namespace)  # noqa: S102 (our own text)
    run.notify_of_change(lambda: setattr(function, "__code__", namespace["run_changed"].__code__))
    return function


PROGRAM_FILE = "<eval_with_key>.aotlens"
"""Starts like the file names of torch's graph modules, so that an operator's error there is the user's."""


def load_program(
    program: Program, bound: Callable[[Any], Any] | None = None, boxed: bool = False
) -> Callable[..., Any]:
    """Return the function that the program's own text defines.

    It takes the inputs one by one or, if `boxed`, in one list that it empties.  `bound` maps each object that
    the text does not make to what its name is bound to.
    """
    text = _program_text(program, Names(_is_as_called(program), allows_functions()), NO_NOTES, boxed)
    bindings = text.bound if bound is None else {name: bound(value) for name, value in text.bound.items()}
    namespace: dict[str, Any] = {"__name__": "aotlens_program", **bindings}
    exec(compile(text.source, PROGRAM_FILE, "exec"), namespace)  # noqa: S102 (our own text)
    return namespace[graph_name(program)]


def write_program(program: Program, notes: Mapping[str, str] = NO_NOTES) -> ModuleText:
    """Write one program as a module that needs torch alone, with the function `NAME_graph`."""
    return _program_text(program, Names(_is_as_called(program)), notes, boxed=False)


def _is_as_called(program: Program) -> bool:
    return program.name in ("captured", "desugared")


def _program_text(program: Program, names: Names, notes: Mapping[str, str], boxed: bool) -> ModuleText:
    bindings = Bindings()
    lines = function_lines(program, graph_name(program), names, boxed=boxed, notes=notes)
    function = [*subgraph_lines(program, names), *lines]
    builder = TextBuilder()
    builder.add(*(["import math"] if any("math." in line for line in function) else []), "import torch")
    write_operators(builder, names, bindings)
    write_objects(builder, names, bindings)
    results = [out.value for out in program.outputs]
    returned = [node for node in program.constants() if any(node is value for value in results)]
    write_constants(builder, list(program.constants()), names, bindings, returned)
    builder.add("", "", *function)
    return ModuleText(builder.text(), (), bindings.bound, {})
