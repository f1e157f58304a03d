"""The programs of each stage as rows, with the identity of every node kept from stage to stage."""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from aotlens.capture.recorder import Call
from aotlens.capture.tape import TRACK
from aotlens.ir.program import Node, Program, nodes_in, op_name
from aotlens.ir.render import Names, function_lines, type_text
from aotlens.partition.records import Partitioned
from aotlens.report.describe import describe_tensor
from aotlens.report.places import text_of
from aotlens.report.records import Stage, StageNode, Tensor

Ancestors = Callable[[Node], tuple[str, ...]]
"""The names, in the parent stage, of what a node came from."""


def build_stages(parts: Partitioned) -> tuple[Stage, ...]:
    """Captured, functional, then joint, forward and backward; or inference."""
    captured, by_call = _captured(parts)
    functional = _functional(parts)
    from_call = lambda node: by_call.get(id(node.origin), ())
    stages = [captured, _stage(functional, "functional", "captured", from_call)]
    if parts.backward is None:
        return (*stages, _stage(parts.forward, "inference", "functional", _same_name(functional)))
    joint = parts.joint.program
    stages.append(_stage(joint, "joint", "functional", _from_forward(functional)))
    stages.append(_stage(parts.forward, "forward", "joint", _same_name(joint)))
    stages.append(_stage(parts.backward, "backward", "joint", _same_name(joint)))
    return tuple(stages)


def _same_name(parent: Program) -> Ancestors:
    """Stages share nodes, so a node is its own ancestor wherever the parent has it."""
    known = {id(node) for node in parent.nodes} | {id(given.node) for given in parent.inputs}
    return lambda node: (node.name,) if id(node) in known else ()


def _from_forward(functional: Program) -> Ancestors:
    """A backward node comes from the forward nodes whose gradient it computes."""
    same = _same_name(functional)
    by_origin: dict[int, tuple[str, ...]] = {}
    for node in functional.nodes:
        by_origin[id(node.origin)] = (*by_origin.get(id(node.origin), ()), node.name)

    def ancestors(node: Node) -> tuple[str, ...]:
        return same(node) or by_origin.get(id(node.origin.differentiates), ())

    return ancestors


def _functional(parts: Partitioned) -> Program:
    """What the forward became before anything was known of its backward."""
    joint = parts.joint
    inputs = tuple(given for given in joint.program.inputs if not given.node.origin.backward)
    nodes = tuple(node for node in joint.captured.recorder.nodes if not node.origin.backward)
    return Program("functional", inputs, nodes, joint.forward_outputs)


def _stage(program: Program, name: str, parent: str, ancestors: Ancestors) -> Stage:
    names = Names()
    rows = [
        StageNode(
            given.node.name,
            "placeholder",
            given.slot.name,
            (),
            _tensor(given.node.val),
            (),
            ancestors(given.node),
            _role(given.slot),
        )
        for given in program.inputs
    ]
    rows += [_row(node, ancestors(node)) for node in program.nodes]
    results = tuple(node.name for node in nodes_in(out.value for out in program.outputs))
    rows.append(StageNode("output", "output", "output", results, None, (), (), "the graph's results"))
    return Stage(name, parent, tuple(rows), "\n".join(function_lines(program, f"{name}_graph", names)) + "\n")


def _role(slot: Any) -> str:
    return f"{type(slot).__name__} `{slot.name}`"


def _row(node: Node, ancestors: tuple[str, ...]) -> StageNode:
    reason = node.origin.reason
    if not reason and node.origin.differentiates is not None:
        reason = f"part of the gradient of `{node.origin.differentiates.op}`"
    if not reason and not node.origin.place.spans:
        reason = f"added by the stage {node.origin.stage}"
    return StageNode(
        name=node.name,
        op="get_attr" if node.constant is not None else "call_function",
        target="constant" if node.constant is not None else node.target,
        inputs=tuple(dict.fromkeys(source.name for source in node.inputs())),
        tensor=_tensor(node.val),
        spans=node.origin.place.spans,
        from_=ancestors,
        reason=reason,
    )


def _tensor(val: Any) -> Tensor | None:
    return describe_tensor(val) if isinstance(val, torch.Tensor) else None


def _captured(parts: Partitioned) -> tuple[Stage, dict[int, tuple[str, ...]]]:
    """The operators as the user's code ran them, and each one's row by the identity of its origin."""
    captured = parts.joint.captured
    names = _TensorNames()
    rows, by_call = [], dict[int, tuple[str, ...]]()
    for given in captured.flat_inputs:
        if given.is_tensor and given.node is not None:
            name = names.give(given.argument, given.node.name)
            by_call[id(given.node.origin)] = (name,)
            role, tensor = _role(given.slot), _tensor(given.fake)
            rows.append(StageNode(name, "placeholder", given.slot.name, (), tensor, (), (), role))
    lines = [f"def captured({', '.join(row.name for row in rows)}):"]
    group = None
    for call in captured.recorder.calls:
        row, line = _call_row(call, names)
        by_call[id(call[-1])] = (row.name,)
        span = next(iter(row.spans), None)
        heading = f"    # {span.file.rsplit('/', 1)[-1]}:{span.line}: {text_of(span)}" if span else None
        if heading and heading != group:
            lines.append(heading)
            group = heading
        rows.append(row)
        lines.append(f"    {line}")
    results = tuple(names.of(value) for value in captured.outputs if isinstance(value, torch.Tensor))
    rows.append(StageNode("output", "output", "output", results, None, (), (), "the function's results"))
    lines.append(f"    return ({', '.join(results)}{',' if len(results) == 1 else ''})")
    return Stage("captured", None, tuple(rows), "\n".join(lines) + "\n"), by_call


class _TensorNames:
    """A name for every tensor of a recording, by identity."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._counts: dict[str, int] = {}

    def give(self, value: Any, base: str) -> str:
        count = self._counts.get(base, 0)
        self._counts[base] = count + 1
        name = base if count == 0 else f"{base}_{count}"
        self._names[id(value)] = name
        return name

    def of(self, value: Any) -> str:
        if id(value) in self._names:
            return self._names[id(value)]
        tracked = getattr(value, TRACK, None)
        return tracked.node.name if tracked is not None else "constant"

    def known(self, value: Any) -> bool:
        return id(value) in self._names


def _call_row(call: Call, names: _TensorNames) -> tuple[StageNode, str]:
    func, args, kwargs, result, origin = call
    text = Names()
    arguments = [_argument(arg, names, text) for arg in args]
    arguments += [f"{key}={_argument(value, names, text)}" for key, value in kwargs.items()]
    reads = tuple(dict.fromkeys(names.of(value) for value in _tensors([*args, *kwargs.values()])))
    results = list(_tensors([result]))
    new = [value for value in results if not names.known(value)]
    base = op_name(func).split(".")[-2 if hasattr(func, "_schema") else -1].strip("_")
    given = [names.give(value, base) for value in new]
    name = given[0] if given else names.give(object(), base)
    called = f"{text.operator(func)}({', '.join(arguments)})"
    shape = type_text(result)
    line = f"{', '.join(given)} = {called}  # {shape}" if given else called
    tensor = _tensor(results[0]) if results else None
    reason = "" if origin.place.spans else f"runs while `{op_name(func)}` is captured"
    return StageNode(
        name, "call_function", op_name(func), reads, tensor, origin.place.spans, (), reason
    ), line


def _argument(value: Any, names: _TensorNames, text: Names) -> str:
    if isinstance(value, torch.Tensor):
        return names.of(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_argument(item, names, text) for item in value)}]"
    return type(value).__name__ if isinstance(value, fx.GraphModule) else repr(value)


def _tensors(values: Any) -> Any:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
