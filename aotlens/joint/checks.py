"""Sizes that only the data tells: what the function assumed of them is checked in the graph.

Invariant: a call on which such an assumption fails raises; it never gives results for sizes that the
recording did not allow.
"""

from typing import Any

import torch

from aotlens.analysis.records import Geometry, ViewAndMutationMeta
from aotlens.capture.records import Captured
from aotlens.ir.origin import NOWHERE, Origin

aten = torch.ops.aten


def sizes_for_wrapper(captured: Captured, meta: ViewAndMutationMeta) -> list[Any]:
    """The symbols that the wrapper reads when it makes an alias again, and that no input carries."""
    symbols = captured.recorder.symbols
    if not symbols.read_from_data:
        return []
    values: list[Any] = []
    for info in meta.outputs:
        values += [argument for step in info.chain for argument in step.args]
        values += _numbers(info.geometry)
    for given in meta.inputs:
        values += _numbers(given.new_geometry)
    return symbols.data_symbols(values)


def _numbers(geometry: Geometry | None) -> list[Any]:
    return [] if geometry is None else [geometry.size, geometry.stride, geometry.offset]


def check_sizes(captured: Captured) -> None:
    """Add one check for each relation that torch could not decide while it recorded (`torch._check`)."""
    recorder = captured.recorder
    environment = recorder.fake_mode.shape_env
    if environment is None or not recorder.symbols.read_from_data:
        return
    known = recorder.symbols.read_from_data
    for asserts in environment.deferred_runtime_asserts.values():
        for check in asserts:
            if not check.expr.free_symbols & known:
                continue
            value = environment.create_symboolnode(check.expr)
            condition = recorder.symbols.of_expression(check.expr, value)
            message = f"compiled `{captured.subject.name}`: sizes must satisfy {check.expr}"
            reason = "a size that depends on data must be as the recording assumed"
            late = any(
                recorder.symbols.of_symbol(symbol).origin.backward for symbol in check.expr.free_symbols
            )
            origin = Origin(
                NOWHERE, "aten._assert_scalar.default", late, stage="joint", reason=reason, effect=True
            )
            recorder.add_node(aten._assert_scalar.default, (condition, message), {}, None, origin)
