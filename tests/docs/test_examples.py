"""The examples are ordinary scripts: they run with plain Python and print what they promise."""

from pathlib import Path

import pytest

from tests.command import forked

EXAMPLES = Path(__file__).parents[2] / "examples"

ALIASING = """\
mutated_input: total is now [1.0, 1.0, 1.0, 1.0]
MutatedBuffer: mean is now [0.1, 0.1, 0.1]
view_of_input: x sees a write to the result: 7.0
two_views_of_an_intermediate: one sees a write to the other: [2.0, 2.0, 2.0, 9.0]
mutation_with_gradient: state now needs a gradient: True
metadata_mutation: the shape of x is now [3, 2]
input_returned: the result is x: True
"""
ATTENTION = "most looked at: position 1\n"
KV_CACHE = """\
tokens in the cache: 8
the result is a view of the cache: True
norm of the last token: 0.957
"""


SAVED_VALUES = "result: (256, 128)\n"


PLAINLY = """\
import runpy, torch
torch.compiler.set_stance("force_eager")
runpy.run_path({path!r}, run_name="__main__")
"""
"""What the script computes, without waiting for Inductor."""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aliasing", ALIASING),
        ("attention", ATTENTION),
        ("kv_cache", KV_CACHE),
        ("saved_values", SAVED_VALUES),
    ],
)
def test_prints(name: str, expected: str) -> None:
    code = PLAINLY.format(path=str(EXAMPLES / f"{name}.py"))
    ended = forked("-c", code)
    assert (ended.out, ended.code) == (expected, 0), ended.err


def test_no_example_mentions_the_package_but_in_comments() -> None:
    code = [
        line.partition("#")[0] for path in EXAMPLES.glob("*.py") for line in path.read_text().splitlines()
    ]
    uses = [line for line in code if "import aotlens" in line or "from aotlens" in line]
    assert uses == []
