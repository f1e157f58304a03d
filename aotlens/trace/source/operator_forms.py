"""How operators are written in Python: the tables that `columns` matches names with.

Invariant: a name is the base name of an operator, without namespace, overload and trailing underscore.
"""

__all__ = [
    "BINARY",
    "COMPARISONS",
    "GENERIC",
    "GRADIENT_OF",
    "IN_PLACE",
    "PARTS_OF",
    "SUBSCRIPTS",
    "UNARY",
    "WRITTEN",
]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


BINARY = {
    "Add": _names("add"),
    "Sub": _names("sub rsub"),
    "Mult": _names("mul"),
    "Div": _names("div truediv reciprocal"),
    "FloorDiv": _names("floor_divide floordiv div"),
    "Mod": _names("remainder mod"),
    "Pow": _names("pow"),
    "MatMult": _names("matmul mm bmm mv dot addmm"),
    "BitAnd": _names("bitwise_and and logical_and"),
    "BitOr": _names("bitwise_or or logical_or"),
    "BitXor": _names("bitwise_xor xor logical_xor"),
    "LShift": _names("lshift bitwise_left_shift"),
    "RShift": _names("rshift bitwise_right_shift"),
}
"""By the name of the syntax node."""

IN_PLACE = {
    name: operators | frozenset(f"i{operator}" for operator in operators)
    for name, operators in BINARY.items()
}
"""For `+=` and others: Dynamo's graph has `iadd`."""

UNARY = {"USub": _names("neg"), "Invert": _names("bitwise_not logical_not invert")}
COMPARISONS = {
    "Gt": _names("gt lt"),
    "GtE": _names("ge le"),
    "Lt": _names("lt gt"),
    "LtE": _names("le ge"),
    "Eq": _names("eq"),
    "NotEq": _names("ne"),
}
"""A comparison with a number on the left is reversed."""
SUBSCRIPTS = _names(
    "getitem select slice index unsqueeze setitem index_put copy slice_scatter select_scatter"
)

PARTS_OF = {
    "addmm": _names("linear"),
    "mm": _names("linear matmul einsum"),
    "bmm": _names("matmul einsum baddbmm"),
    "t": _names("linear matmul"),
    "native_layer_norm": _names("layer_norm"),
    "native_group_norm": _names("group_norm"),
    "native_batch_norm": _names("batch_norm"),
    "_native_batch_norm_legit_functional": _names("batch_norm"),
    "convolution": _names("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d"),
    "_softmax": _names("softmax"),
    "_log_softmax": _names("log_softmax cross_entropy"),
    "nll_loss_forward": _names("nll_loss cross_entropy"),
    "max_pool2d_with_indices": _names("max_pool2d"),
    "_adaptive_avg_pool2d": _names("adaptive_avg_pool2d"),
    "native_dropout": _names("dropout"),
    "_to_copy": _names("to float half bfloat16 double long int bool type"),
    "_unsafe_view": _names("linear matmul reshape"),
    "view": _names("reshape flatten unflatten"),
    "clone": _names("contiguous reshape"),
    "_fused_rms_norm": _names("rms_norm"),
    "_scaled_dot_product_flash_attention_for_cpu": _names("scaled_dot_product_attention"),
    "_scaled_dot_product_flash_attention": _names("scaled_dot_product_attention"),
    "_scaled_dot_product_efficient_attention": _names("scaled_dot_product_attention"),
    "_scaled_dot_product_cudnn_attention": _names("scaled_dot_product_attention"),
}
"""The user's operator, by the operator of an AOT graph that it becomes."""

GENERIC = _names(
    "abs add amax amin any bitwise_and bitwise_not bitwise_or cat clamp clamp_max clamp_min clone copy cos"
    " detach div empty eq erf exp expand expm1 fill full full_like gather ge gt le log log1p lt maximum mean"
    " minimum mul ne neg new_zeros ones permute pow reciprocal reshape rsqrt select sigmoid sign sin slice"
    " sqrt squeeze sub sum tanh transpose unsqueeze var var_mean view where zeros zeros_like _to_copy"
    " _unsafe_view iota as_strided select_scatter slice_scatter"
)
"""Operators that autograd and decompositions emit for many others, so that any on the line is possible."""

GRADIENT_OF = {"threshold_backward": "relu", "embedding_dense_backward": "embedding"}
"""Gradients that are not named after their operator."""

_FUNCTIONS = _names(
    "abs adaptive_avg_pool2d add addmm all all_gather all_reduce all_to_all amax amin any arange argmax"
    " argmin asin atan avg_pool2d baddbmm batch_norm bernoulli bfloat16 bmm bool broadcast broadcast_to"
    " cat ceil chunk clamp clip clone concat contiguous conv1d conv2d conv3d conv_transpose1d"
    " conv_transpose2d conv_transpose3d cos cosh cross_entropy cumprod cumsum detach diag diagonal div"
    " dot double dropout einsum elu embedding empty empty_like eq erf exp expand expm1 fill flatten flip"
    " float floor full full_like gather ge gelu group_norm gt half hardswish index_add index_copy"
    " index_put index_select int isnan item layer_norm le leaky_relu lerp linalg_norm linear log log1p"
    " log2 log_softmax logaddexp logical_and logical_not logical_or logsumexp long lt masked_fill"
    " masked_select matmul max max_pool1d max_pool2d max_pool3d mean median min mish mm movedim mse_loss"
    " mul multinomial narrow ne neg nll_loss nonzero norm normalize ones ones_like outer pad permute pow"
    " prod rand rand_like randn randn_like reciprocal reduce_scatter relu relu6 remainder repeat"
    " repeat_interleave reshape rms_norm roll round rsqrt scaled_dot_product_attention scatter"
    " scatter_add select selu sigmoid sign silu sin sinh slice softmax softplus sort split sqrt square"
    " squeeze stack std sub sum swapaxes t tan tanh tensor_split tile to topk transpose tril triu"
    " type_as unbind unflatten unfold unsqueeze var view view_as where zero zeros zeros_like"
)
WRITTEN = _FUNCTIONS.union(*BINARY.values(), *UNARY.values(), *COMPARISONS.values(), *PARTS_OF.values())
"""Names of torch's functions and methods: a call of any other name runs code that is not visible here."""
