"""Columns from the text of a line and an operator's name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotlens.trace.source.columns import base_name, columns_of

RESIDUAL = "x = x + self.attention(self.norm1(x))"


def _text(code: str, operator: str, layer: str = "", *, is_written: bool = True) -> str | None:
    columns = columns_of(code, operator, layer, is_written=is_written)
    return None if columns is None else code.encode()[columns.start : columns.end].decode()


@pytest.mark.parametrize(
    ("code", "operator", "layer", "expected"),
    [
        (RESIDUAL, "aten.add.Tensor", "", "x + self.attention(self.norm1(x))"),
        (RESIDUAL, "aten.native_layer_norm.default", "blocks.0.norm1", "self.norm1(x)"),
        ("x = self.first(x)", "aten.addmm.default", "", "self.first(x)"),
        ("hidden = Swish.apply(self.first(x))", "torch._C._nn.linear", "first", "self.first(x)"),
        ("return self.down(hidden.sin())", "aten.sin.default", "", "hidden.sin()"),
        (
            "return self.out(m.transpose(1, 2).reshape(b, t, w))",
            "aten.transpose.int",
            "",
            "m.transpose(1, 2)",
        ),
        ("total.add_(x.detach().sum(0))", "add_", "", "total.add_(x.detach().sum(0))"),
        ("total.add_(x.detach().sum(0))", "aten.sum.dim_IntList", "", "x.detach().sum(0)"),
        ("partial = hidden @ down", "aten.mm.default", "", "hidden @ down"),
        ("if x.sum() > 0:", "aten.gt.Scalar", "", "x.sum() > 0"),
        ("for row in x.unbind(0):", "aten.unbind.int", "", "x.unbind(0)"),
        ("x += y", "operator.iadd", "", "x += y"),
        ("y = -x[0]", "aten.select.int", "", "x[0]"),
        ("    y = größe.exp() * 2", "aten.exp.default", "", "größe.exp()"),
        (
            "return F.cross_entropy(logits.flatten(0, 1), t)",
            "aten.nll_loss_forward.default",
            "",
            "F.cross_entropy(logits.flatten(0, 1), t)",
        ),
        ("return cross_entropy(logits, t)", "aten.nll_loss_forward.default", "", "cross_entropy(logits, t)"),
    ],
)
def test_one_expression_can_run_the_operator(code: str, operator: str, layer: str, expected: str) -> None:
    assert _text(code, operator, layer) == expected


@pytest.mark.parametrize(
    ("code", "operator", "layer"),
    [
        (RESIDUAL, "aten.native_layer_norm.default", ""),  # either module may be a norm
        ("return grad * (s * (1 + x * (1 - s)))", "aten.mul.Tensor", ""),  # three products
        ("x = self.a(x) + self.a(y)", "aten.addmm.default", "a"),  # the same layer twice
        ("dim=1, keepdim=True)", "aten.sum.dim_IntList", ""),  # the end of a call over several lines
        ("else:", "aten.add.Tensor", ""),
        ("", "aten.add.Tensor", ""),
        ("y = x", "aten.add.Tensor", ""),
        ("q, k = self.qkv(x).chunk(2)", "getitem[0]", ""),  # unpacking is no expression
        ("y = F.linear(self.inner(x), w)", "aten.addmm.default", ""),  # `inner` may be a linear layer too
    ],
)
def test_several_or_no_expressions_give_no_column(code: str, operator: str, layer: str) -> None:
    assert columns_of(code, operator, layer, is_written=False) is None


@pytest.mark.parametrize("code", [RESIDUAL, "return x + F.gelu(x)", "y = F.layer_norm(x, (8,)) + x"])
def test_a_part_of_a_decomposed_operator_has_no_column_where_the_user_wrote_it_too(code: str) -> None:
    assert columns_of(code, "aten.add.Tensor", is_written=False) is None
    assert columns_of(code, "aten.add.Tensor") is not None


@pytest.mark.parametrize("operator", ["aten.expand.default", "aten.div.Scalar", "aten.view.default"])
def test_what_a_gradient_of_any_operator_may_run_has_no_column_among_several(operator: str) -> None:
    assert columns_of("return self.head(x.mean((2, 3)))", operator, is_written=False) is None
    assert _text("y = x.mean()", operator, is_written=False) == "x.mean()"  # all that the line runs


def test_a_gradient_stands_at_its_operator() -> None:
    assert _text("y = F.relu(x + 1)", "aten.threshold_backward.default") == "F.relu(x + 1)"
    assert _text("y = F.silu(x + 1)", "aten.silu_backward.default") == "F.silu(x + 1)"


def test_a_call_that_ends_on_a_later_line_has_no_column_but_its_arguments_have() -> None:
    assert _text("x = torch.cat([a.sin(),", "aten.cat.default") is None
    assert _text("x = torch.cat([a.sin(),", "aten.cat.default", is_written=False) is None
    assert _text("x = torch.cat([a.sin(),", "aten.sin.default") == "a.sin()"


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("aten.add.Tensor", "add"),
        ("torch.ops.aten.add.Tensor", "add"),
        ("torch.ops._c10d_functional.all_reduce.default", "all_reduce"),
        ("torch._C._nn.linear", "linear"),
        ("torch.nn.functional.layer_norm", "layer_norm"),
        ("operator.matmul", "matmul"),
        ("add_", "add"),
        ("sin", "sin"),
    ],
)
def test_base_names(operator: str, expected: str) -> None:
    assert base_name(operator) == expected


@given(st.text(max_size=60), st.sampled_from(["aten.add.Tensor", "sum", "linear"]))
def test_any_text_is_survived_and_columns_lie_within_it(code: str, operator: str) -> None:
    columns = columns_of(code, operator)
    if columns is not None:
        assert 0 <= columns.start < columns.end <= len(code.encode())
