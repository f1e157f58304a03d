"""Targets as the text shows them."""

import pytest

from aotlens.worker.targets import find_targets

SOURCE = '''\
import re
import torch
import aotlens
from torch import compile as squeeze

re.compile("x")

# A comment.
# aotlens: example f32[2],
#    bf16[3] grad
# aotlens: example f32[4], bf16[5]
@torch.no_grad()
def add(x, y):
    """Says `# aotlens: example f32[1]` in its text."""
    return x + y

class Block(torch.nn.Module):
    # aotlens: example Block(): f32[8]
    def forward(self, x):
        def inner():
            pass
        return x

@aotlens.example("f32[3]")
def decorated(x): pass

@torch.compile(fullgraph=True)
def compiled(x): pass

def given(x): pass

faster = squeeze(given)
model = torch.compile(Block(), dynamic=True)
model.compile()
'''


def test_every_definition_and_compile_call_with_its_reason() -> None:
    rows = [
        (target.qualname, target.kind, target.how, target.span.line, target.body.line)
        for target in find_targets(SOURCE, "model.py")
    ]
    assert rows == [
        ("add", "function", "example", 13, 12),
        ("Block", "class", "definition", 17, 17),
        ("Block.forward", "method", "example", 19, 19),
        ("Block.forward.<locals>.inner", "function", "definition", 20, 20),
        ("decorated", "function", "example", 25, 24),
        ("compiled", "function", "compile", 28, 27),
        ("given", "function", "compile", 30, 30),
        ("", "call", "compile", 32, 32),
        ("", "call", "compile", 33, 33),
        ("", "call", "compile", 34, 34),
    ]


def test_examples_with_their_spans_and_continuation() -> None:
    (add,) = [target for target in find_targets(SOURCE, "model.py") if target.qualname == "add"]
    examples = [
        (example.text, example.span.line, example.span.col, example.span.end_line) for example in add.examples
    ]
    assert examples == [("f32[2], bf16[3] grad", 9, 19, 10), ("f32[4], bf16[5]", 11, 19, 11)]


def test_the_span_of_a_name_counts_bytes() -> None:
    (target,) = find_targets("class É:\n    pass\n", "model.py")
    assert (target.span.col, target.span.end_col) == (6, 8)


def test_a_script_that_does_not_parse() -> None:
    with pytest.raises(SyntaxError):
        find_targets("def f(:\n", "model.py")
