"""A fingerprint of everything on which Inductor's code for a program depends, as one text.

Invariant: programs with equal fingerprints get equal code. What the text cannot hold completely (symbolic
sizes, the user's own operators or arguments) raises `NoFingerprintError`, and the program is not cached.
"""

import builtins
import math
import operator
from collections.abc import Iterator
from typing import Any

import torch

from aotlens.disk_cache import digest
from aotlens.ir.fingerprint import NoFingerprintError, fingerprint_text
from aotlens.ir.program import Node, Program, TableIndex, getitem
from aotlens.partition.records import Partitioned
from aotlens.torch_api.inductor.compile import inductor_settings

NAMESPACES = frozenset({"aten", "prims", "rngprims", "higher_order", "inductor"})
"""Namespaces of operators whose meaning is fixed by torch's version."""

_MODULES = {operator.__name__: operator, math.__name__: math, "builtins": builtins}


def program_fingerprint(parts: Partitioned, config: dict[str, Any]) -> str:
    """Return one digest of forward, backward and every setting that code generation reads."""
    programs = (parts.forward, *(() if parts.backward is None else (parts.backward,)))
    lines = [line for program in programs for line in _program(program)]
    return digest(*lines, *_settings(config))


def _settings(config: dict[str, Any]) -> Iterator[str]:
    yield _argument_text(dict(sorted(config.items())))
    yield _argument_text(dict(sorted(inductor_settings().items())))
    yield _argument_text(torch_settings())


def torch_settings() -> list[Any]:
    """Return torch's own settings on which generated code depends."""
    return [
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
    ]


def _program(program: Program) -> Iterator[str]:
    yield f"program {program.name} {program.returns_single}"
    for program_input in program.inputs:
        node, slot = program_input.node, program_input.slot
        yield f"input {node.name} {type(slot).__name__} {_value(node.val)}"
    for node in program.nodes:
        yield from _node(node)
    for output in program.outputs:
        yield f"output {type(output.slot).__name__} {_argument_text(output.value)}"


def _node(node: Node) -> Iterator[str]:
    for body in node.subgraphs():
        yield from _program(body)
    if node.constant is not None:
        yield f"{node.name} constant {_value(node.val)} {_constant(node.constant)}"
        return
    call = f"{_operator(node.op)} {_argument_text(node.args)} {_argument_text(node.kwargs)}"
    yield f"{node.name} {call} {_value(node.val)} {node.origin.effect} {node.origin.backward}"


def _operator(op: Any) -> str:
    namespace = getattr(op, "namespace", None)
    if namespace in NAMESPACES:
        return str(op)
    if op is getitem:
        return "getitem"
    name = getattr(op, "__name__", "")
    if namespace is None and getattr(_MODULES.get(getattr(op, "__module__", "")), name, None) is op:
        return f"{op.__module__}.{name}"
    raise NoFingerprintError(f"operator {op}")


def _value(val: Any) -> str:
    """Return a value's metadata, without its data."""
    if isinstance(val, (list, tuple)):
        return f"({', '.join(map(_value, val))})"
    if type(val) is dict:
        return f"{{{', '.join(f'{key}: {_value(item)}' for key, item in val.items())}}}"
    if not isinstance(val, torch.Tensor):
        return _argument_text(val)
    sizes = (*val.shape, *val.stride(), val.storage_offset())
    if val.layout is not torch.strided or not all(type(size) is int for size in sizes):
        raise NoFingerprintError("a tensor with symbolic sizes or of no plain layout")
    flags = f"{val.requires_grad} {val.is_conj()} {val.is_neg()}"
    return f"{val.dtype}{list(val.shape)}{list(val.stride())}+{val.storage_offset()} {val.device} {flags}"


def _constant(value: Any) -> str:
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.device.type != "cpu":
        raise NoFingerprintError(f"a constant of type {type(value).__name__}")
    flat = value.detach().contiguous().flatten().view(torch.uint8)
    return digest(flat.numpy().tobytes())


def _argument_text(value: Any) -> str:
    """Return an argument as complete text."""
    return fingerprint_text(value, _program_value_text)


def _program_value_text(value: Any) -> str | None:
    if type(value) is Node:
        return f"%{value.name}"
    if type(value) is Program:
        return f"body {value.name}"
    if type(value) is TableIndex:
        raise NoFingerprintError("a Triton kernel of the user's")
    return None
