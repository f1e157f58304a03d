"""`torch.autocast("cuda")` on a machine without a GPU: CUDA's rules for recorded operators.

Torch's own kernels cast tensors whose C++ device is CUDA; these kernels replace them for fake CUDA tensors.
Real tensors, outside of compiled functions, follow the CPU's rules. Source of the rules: the lists in torch's
ATen/autocast_mode.h. Invariant: an operator is cast at its outermost call, as in torch, and a parameter once
per region.
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from aotlens.gpu_emulation.operator_kernels import overriding_kernels
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.modes import keys_without_cuda_autocast
from aotlens.torch_api.operators import pytree
from aotlens.torch_api.replacements import Replacement


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NARROW = _names(
    """_convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d
    conv_transpose2d.input conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv
    linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell
    _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell _scaled_dot_product_flash_attention
    scaled_dot_product_attention"""
)
"""Computed in autocast's dtype."""

WIDE = _names(
    """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
    pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm
    frobenius_norm.dim nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss
    cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss
    mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss
    multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d
    _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa
    upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa norm.Scalar norm.ScalarOpt_dim"""
)
"""Computed in float32."""

WIDE_BY_DTYPE = _names(
    """prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    linalg_matrix_norm.str_ord sum sum.dim_IntList"""
)
"""Called with `dtype=torch.float32`, where the call has no dtype."""

WIDEST = _names(
    """addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add"""
)
"""Computed in the widest dtype among the arguments."""

ASSUMED = (
    "autocast('cuda') casts by CUDA's rules in recorded targets; the script's other code follows the CPU's"
    " rules"
)

_casts: dict[int, tuple[Any, Any]] = {}
"""Casts of parameters in the current region: a weak reference to the parameter, and its cast."""


_regions: list[str] = []
"""The devices of the regions that the script has entered."""


def assumed_casts() -> tuple[str, ...]:
    """Return the report's assumption about autocast; empty for a script without it."""
    return (ASSUMED,) if "cuda" in _regions else ()


@contextmanager
def cuda_autocast() -> Iterator[None]:
    """Within the context, operators on fake CUDA tensors are cast as on a GPU."""
    _regions.clear()
    try:
        with overriding_kernels(_casting_kernels()):
            yield
    finally:
        _casts.clear()


def _casting_kernels() -> Iterator[tuple[str, Callable[..., Any], str]]:
    for names, rule in (
        (NARROW, _narrow),
        (WIDE, _wide),
        (WIDE_BY_DTYPE, _wide_by_dtype),
        (WIDEST, _widest),
    ):
        for name in names:
            packet, _, overload = name.partition(".")
            operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
            yield name, rule(operator), "AutocastCUDA"


def autocast_replacements(with_cpu: bool) -> Iterator[Replacement]:
    """Patches for entering and leaving a region; `with_cpu` sets the CPU's autocast, for real tensors."""
    region: Any = torch.amp.autocast_mode.autocast
    enter, leave = region.__enter__, region.__exit__

    def entered(self: Any) -> Any:
        result = enter(self)
        _regions.append(self.device)
        if with_cpu and self.device == "cuda":
            self.cpu_autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
            torch.set_autocast_enabled("cpu", torch.is_autocast_enabled("cuda"))
            torch.set_autocast_dtype("cpu", torch.get_autocast_dtype("cuda"))
        return result

    def exited(self: Any, *raised: Any) -> Any:
        _casts.clear()
        if with_cpu and self.device == "cuda":
            enabled, dtype = self.cpu_autocast
            torch.set_autocast_enabled("cpu", enabled)
            torch.set_autocast_dtype("cpu", dtype)
        return leave(self, *raised)

    why = "casts are cached per region, and real tensors follow the CPU's rules"
    yield Replacement(region, "__enter__", entered, why)
    yield Replacement(region, "__exit__", exited, why)


def _eligible(value: Any) -> bool:
    """Return True for the tensors that torch's kernels cast: floating-point CUDA tensors except float64."""
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.dtype is not torch.float64
        and value.device.type == "cuda"
    )


def _narrow(operator: Any) -> Callable[..., Any]:
    return _casting(operator, lambda leaves: torch.get_autocast_dtype("cuda"))


def _wide(operator: Any) -> Callable[..., Any]:
    return _casting(operator, lambda leaves: torch.float32)


def _widest(operator: Any) -> Callable[..., Any]:
    def dtype(leaves: list[Any]) -> torch.dtype:
        wide = any(_eligible(leaf) and leaf.dtype is torch.float32 for leaf in leaves)
        return torch.float32 if wide else torch.get_autocast_dtype("cuda")

    return _casting(operator, dtype)


def _wide_by_dtype(operator: Any) -> Callable[..., Any]:
    position = next(
        index for index, argument in enumerate(operator._schema.arguments) if argument.name == "dtype"
    )

    def kernel(*args: Any, **kwargs: Any) -> Any:
        unset = kwargs.get("dtype", args[position] if len(args) > position else None) is None
        if unset and _eligible(args[0]):
            args = args[:position]  # later arguments are keyword-only
            kwargs = {**kwargs, "dtype": torch.float32}
        with keys_without_cuda_autocast():
            return operator(*args, **kwargs)

    return kernel


def _casting(operator: Any, dtype_for: Callable[[list[Any]], torch.dtype]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with keys_without_cuda_autocast():
            dtype = dtype_for(pytree.tree_leaves((args, kwargs)))
            args, kwargs = pytree.tree_map(lambda value: _cast(value, dtype), (args, kwargs))
            return operator(*args, **kwargs)

    return kernel


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if not _eligible(value) or value.dtype is dtype:
        return value
    lasting = value.requires_grad and value.is_leaf and value.dtype is torch.float32
    if not lasting or dtype is torch.float32 or not torch.is_autocast_cache_enabled():
        return value.to(dtype)
    known = _casts.get(id(value))
    if known is not None and known[0]() is value and known[1].dtype is dtype:
        return known[1]
    cast = value.to(dtype)
    if isinstance(cast, FakeTensor):
        _casts[id(value)] = weakref.ref(value), cast
    return cast
