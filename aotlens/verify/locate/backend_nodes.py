"""Find the first node of a graph for which a backend computes another value than torch.

The graph is compiled once more with every value as an output.  If that hides the fault, as it may for a fault
in a fusion, prefixes of the graph are compiled, and the smallest one that differs is searched for.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from aotlens.compiled import Compiled, compile_part
from aotlens.ir.program import Node, Program, ProgramOutput, ancestors, has_effect
from aotlens.ir.slots import UserOutput
from aotlens.options import CompileOptions
from aotlens.rng_state import same_random_state
from aotlens.torch_api.modes import below_views
from aotlens.verify.locate.nodes import WrongNode, differs


def first_wrong_backend_node(
    compiled: Compiled, options: CompileOptions, program: Program, known: tuple[list[Any], Mapping[str, Any]]
) -> WrongNode | None:
    """Return the first wrong node; `known` holds the program's arguments and torch's values of its nodes."""
    arguments, expected = known
    nodes = [node for node in program.nodes if _has_value(node, expected)]
    run = lambda wanted: _run(compiled, options, _subprogram(program, wanted), arguments)
    wrong = _first(nodes, run(nodes), expected)
    if wrong is not None:
        return wrong
    low, high = 0, len(nodes) - 1
    first: WrongNode | None = None
    while low <= high:
        middle = (low + high) // 2
        wrong = _first([nodes[middle]], run([nodes[middle]]), expected)
        if wrong is None:
            low = middle + 1
        else:
            first, high = wrong, middle - 1
    return first


def _first(nodes: list[Node], values: list[Any], expected: Mapping[str, Any]) -> WrongNode | None:
    for node, value in zip(nodes, values, strict=True):
        if differs(value, expected[node.name]):
            return WrongNode(node, value, expected[node.name])
    return None


def _has_value(node: Node, expected: Mapping[str, Any]) -> bool:
    """Return True if the node computes a tensor; a write to an input repeats another node's value."""
    return isinstance(expected.get(node.name), Tensor) and not has_effect(node)


def _subprogram(program: Program, values: list[Node]) -> Program:
    """Return the part of a program that computes these values, with them as its outputs."""
    needed = ancestors(values, program.nodes)
    nodes = tuple(node for node in program.nodes if id(node) in needed)
    outputs = tuple(ProgramOutput(node, UserOutput(node.name, index)) for index, node in enumerate(values))
    return replace(program, nodes=nodes, outputs=outputs)


def _run(compiled: Compiled, options: CompileOptions, program: Program, arguments: list[Any]) -> list[Any]:
    """Compile the program as a whole graph with the backend, and return its outputs."""
    function = compile_part(compiled, options, program)
    if function is None:
        return [None] * len(program.outputs)
    copied = [value.detach().clone() if isinstance(value, Tensor) else value for value in arguments]
    with same_random_state(), torch.no_grad(), below_views():
        return list(function(copied))
