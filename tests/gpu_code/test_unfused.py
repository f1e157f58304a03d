"""Every reason that torch's scheduler can give has a place in our closed list."""

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from typing import get_args

import pytest
import torch

pytest.importorskip("triton", reason="code for a GPU needs Triton")

from torch._inductor import choices, scheduler
from torch._inductor.codegen import simd

from aotlens.codegen.gpu.cost_model.fusion import WORDS, code_of
from aotlens.model.kernels import UNFUSED_REASONS
from aotlens.model.report import UnfusedCode


@cache
def _sentences() -> frozenset[str]:
    return frozenset(_read())


def _read() -> Iterator[str]:
    """What the scheduler says, as its source has it: the texts given to `why(…)` and `WhyNoFuse(…)(…)`."""
    for module in (scheduler, choices, simd):
        for call in ast.walk(ast.parse(inspect.getsource(module))):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            asked = isinstance(call.func, ast.Name) and call.func.id == "why"
            made = isinstance(call.func, ast.Call) and ast.unparse(call.func.func).endswith("WhyNoFuse")
            if (asked or made) and isinstance(call.args[0], ast.Constant):
                yield str(call.args[0].value)


def test_each_sentence_of_torch_has_its_reason() -> None:
    found = _sentences()
    assert len(found) > 30
    assert sorted(sentence for sentence in found if code_of(sentence) == "other") == []


@pytest.mark.skipif(
    torch.__version__.startswith("2.11."), reason="seven of the sentences came with later releases"
)
def test_each_row_is_for_a_sentence() -> None:
    found = _sentences()
    unused = [begin for begin, _ in WORDS if not any(one.startswith(begin) for one in found)]
    assert unused == ["node1 is extern or nop"], "2.11 alone says this"


def test_each_code_has_its_words() -> None:
    assert set(UNFUSED_REASONS) == set(get_args(UnfusedCode))
