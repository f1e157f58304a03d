"""Names in too little room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotlens.view.kernels import short_name
from aotlens.view.shorten import shortened


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("blocks.0.attention.qkv.weight", 22, "…attention.qkv.weight"),
        ("×12 blocks.0–11.attention.qkv.weight", 22, "×12 …qkv.weight"),
        ("×2 blocks.0–1: self.mlp(self.norm_2(x))", 38, "×2 …0–1: self.mlp(self.norm_2(x))"),
        ("×2 blocks.0–1: self.mlp(self.norm_2(x))", 30, "×2 …: self.mlp(self.norm_2(x))"),
        ("×2 blocks.0–1: self.mlp(self.norm_2(x))", 20, "×2 self.mlp(self.no…"),
        ("convert_element_type_12", 14, "conver…type_12"),
        ("aten.convert_element_type", 22, "…convert_element_type"),
        ("aten.sum.dim_IntList", 14, "…sum.dim_IntL…"),
        ("modeling_llama.py:1234", 14, "…llama.py:1234"),
        ("self.mlp(self.norm_2(x))", 14, "self.mlp(self…"),
        ("├ (f32[16, 64], i64[16])", 14, "├ (f32[16, 64…"),
        ("×2 blocks.0–1: scores.softmax(-1) (clone_1)", 24, "×2 scores.sof… (clone_1)"),
        ("scores.softmax(-1) (native_layer_norm_12)", 24, "scores.soft… (native…12)"),
        ("weight", 6, "weight"),
        ("cheaper", 6, "cheap…"),
    ],
)
def test_a_short_name_keeps_what_distinguishes_it(text: str, width: int, short: str) -> None:
    assert shortened(text, width) == short


@given(st.text(alphabet="ab1_.: ×–/[(…"), st.integers(0, 12))
def test_a_short_name_never_exceeds_its_width(text: str, width: int) -> None:
    assert len(shortened(text, width)) <= max(width, 0)


def test_kernels_in_text_are_shortened_in_the_same_way() -> None:
    name = "triton_per_fused_add_convert_element_type_div_native_layer_norm_mean_view_8"
    assert short_name(name, 26) == shortened(name, 26) == "triton_pe…norm_mean_view_8"
