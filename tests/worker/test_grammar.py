"""Examples: what is read, and what a mistake says."""

import pytest

from aotlens.errors import ExampleError
from aotlens.model.report import Span
from aotlens.worker.grammar import Example, ExampleText, Literal, Size, TensorSpec, parse_example


def parse(text: str, col: int = 19) -> Example:
    return parse_example(ExampleText(text, Span("model.py", 7, col, 7, col + len(text.encode()))))


def tensor(dtype: str, *sizes: int | Size, strides: tuple[int, ...] | None = None) -> TensorSpec:
    return TensorSpec(dtype, sizes, strides, "cpu", grad=False)


def test_tensors_with_everything_that_they_may_say() -> None:
    expected = (
        tensor("f32", 8, 16),
        TensorSpec("bf16", (16, 4), None, "cpu", grad=True),
        TensorSpec("f32", (8, 16), (1, 8), "cuda:1", grad=True),
        tensor("i64"),
        tensor("f32", Size("s0", None), Size("s1", 64), 3),
    )
    text = "f32[8, 16], bf16[16, 4] grad, f32[8, 16][1, 8]cuda:1 grad, i64[], f32[s0, s1=64, 3]"
    assert parse(text) == Example(expected, {}, None)


def test_literals_containers_and_names() -> None:
    example = parse("-3, 0.5, 'a, b', [f32[2], None], (f32[2],), {\"x\": f32[2]}, scale=1e-3, flag=True")
    assert example == Example(
        (
            Literal(-3),
            Literal(0.5),
            Literal("a, b"),
            [tensor("f32", 2), Literal(None)],
            (tensor("f32", 2),),
            {"x": tensor("f32", 2)},
        ),
        {"scale": Literal(0.001), "flag": Literal(True)},
        None,
    )


def test_construction_of_a_module() -> None:
    example = parse("Block(64, heads={'a': [1]}): f32[2, 64]")
    assert (example.construction, example.arguments) == (
        "Block(64, heads={'a': [1]})",
        (tensor("f32", 2, 64),),
    )


def test_no_arguments() -> None:
    assert parse("  ") == Example((), {}, None)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("f33[3]", 20, "unknown dtype `f33`; known: f64, f32, f16, bf16"),
        ("f32[3", 25, "found the end, expected `,` or `]` after a size"),
        ("f32[x]", 24, "found `x`, expected a size: a number, or `s0`, `s1`, … if dynamic"),
        ("f32[s0=x]", 27, "found `x`, expected the number to trace `s0` with"),
        ("f32[3] gradd", 27, "unknown word `gradd`; after a tensor: a device or `grad`"),
        ("i64[3] grad", 20, "`grad` needs a floating or complex dtype, found `i64`"),
        ("f32[3][1, 2]", 26, "2 strides for 1 sizes"),
        ("f32[3][a]", 27, "found `a`, expected a stride, which is a number"),
        ("tensor", 20, "found `tensor`, expected a tensor such as `f32[8, 16]`, or a Python literal"),
        ("M(3) f32[3]", 21, "a construction such as `Block(64, heads=4)` needs a `:` after it"),
        ("x=f32[3], f32[2]", 36, "an argument without a name after one with a name"),
        ("[f32[3]", 27, "found the end, expected `,` or `]`"),
        ("{f32[3]: 1}", 21, "a key must be a Python literal"),
        ("f32[3], @", 28, "found `@`, expected a tensor such as `f32[8, 16]`, or a Python literal"),
        ("'é', f33[3]", 26, "unknown dtype `f33`"),
    ],
)
def test_a_mistake_names_its_place_and_what_is_allowed(text: str, column: int, message: str) -> None:
    with pytest.raises(ExampleError) as caught:
        parse(text)
    assert str(caught.value).startswith(f"model.py:7:{column}: bad example `{text}`: {message}")
    assert caught.value.span is not None
    assert caught.value.span.col == column - 1
