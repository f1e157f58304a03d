"""Memory that operators' kernels allocate while they run, beside operands and outputs: packed operands,
copies."""

from collections.abc import Callable
from math import ceil, prod
from typing import Any

import torch

from aotlens.ir.program import Node
from aotlens.torch_api.operators import packs_products


def number(size: Any) -> int:
    """Return a size as a number; 0 for an unbacked one."""
    return int(size.node.hint or 0) if isinstance(size, torch.SymInt) else int(size)


def dense_bytes(tensor: Any) -> int:
    """Bytes of the elements, laid out without gaps."""
    count = int(tensor.element_size())
    for size in tensor.shape:
        count *= number(size)
    return count


def convolution_bytes(node: Node) -> int:
    """Packed operands and result, then the packed result beside the one in the caller's layout."""
    activation, weight = node.args[0].val, node.args[1].val
    made = dense_bytes(node.val)
    if _keeps_layout(activation):
        return dense_bytes(weight)
    if not _packs(node, activation, weight):
        return _columns(activation, weight, node.val, node.args[3:6])
    if node.args[6]:  # transposed: copied in two steps
        return 2 * made
    packed = _packed(node.val)
    operands = _packed_input(activation, weight) + _packed_weight(activation, weight)
    return max(operands + packed - made, packed)


def convolution_backward_bytes(node: Node) -> int:
    """Return the most memory of two steps: the input's gradient; then, with that alive, the weight's."""
    gradient, activation, weight = (source.val for source in node.args[:3])
    if _keeps_layout(activation):
        return dense_bytes(weight)
    copied = 0 if gradient.is_contiguous() else dense_bytes(gradient)
    if not _packs(node, activation, weight, first=4):
        return copied + _columns(activation, weight, gradient, node.args[4:7])
    for_input, for_weight = node.args[10][:2]
    inner, outer, weights = (dense_bytes(item) for item in (activation, gradient, weight))
    results = (inner if for_input else 0) + (weights if for_weight else 0)
    strided = any(number(step) != 1 for step in node.args[4])
    steps = [0]
    if for_input:
        copies = strided and not node.args[7] and not _is_depthwise(activation, weight)
        again = 3 * inner if copies else _packed(activation) + inner
        packed = 0 if node.args[7] else _packed(gradient)
        steps += [packed + _packed_weight(activation, weight, fills=True) + _packed(activation), again]
    if for_weight:
        packed = outer if node.args[7] else _packed(gradient)
        inputs = inner if node.args[7] else _packed_input(activation, weight)
        steps.append((inner if for_input else 0) + packed + inputs + _packed_weight(activation, weight))
    return max(0, copied + max(steps) - results)


HALF_BLOCK = 8
MOST_PLAIN = 3
"""Channels of an input that oneDNN does not pack, unless each element of the result reads one position."""


def _block() -> int:
    """Channels in a block of oneDNN's."""
    return 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8


def _packed(tensor: Any) -> int:
    return _filled(dense_bytes(tensor), number(tensor.shape[1]))


def _input_block(activation: Any, weight: Any) -> int:
    """Return the channels in a block of a packed input; 0 if the input is not packed.

    Measured with torch 2.13: an input of few channels has blocks of 8, or none, unless the window is one
    position.
    """
    channels = number(activation.shape[1])
    is_one_position = all(number(size) == 1 for size in weight.shape[2:])
    if is_one_position or _is_depthwise(activation, weight) or channels > HALF_BLOCK:
        return _block()
    return HALF_BLOCK if channels > MOST_PLAIN else 0


def _is_depthwise(activation: Any, weight: Any) -> bool:
    return number(weight.shape[1]) == 1 < number(activation.shape[1])


def _packed_input(activation: Any, weight: Any) -> int:
    channels, block = number(activation.shape[1]), _input_block(activation, weight)
    return _filled(dense_bytes(activation), channels, block) if block else 0


def _packed_weight(activation: Any, weight: Any, fills: bool = False) -> int:
    """Return the bytes of a packed weight, its input channels in the input's blocks.

    `fills`: in whole blocks whatever the input's are, as for the gradient of the input.
    """
    outer, inner = (number(size) for size in weight.shape[:2])
    filled = _filled(dense_bytes(weight), outer)
    if inner < number(activation.shape[1]):  # groups
        return filled if inner == 1 else _filled(filled, inner)
    block = _block() if fills else _input_block(activation, weight)
    return _filled(filled, inner, block) if block else filled


def _filled(size_bytes: int, channels: int, block: int | None = None) -> int:
    """Return the bytes with the last block of channels filled up."""
    block = block or _block()
    return size_bytes * ceil(channels / block) * block // max(channels, 1)


def _keeps_layout(activation: Any) -> bool:
    """Return True if the channels are innermost, which oneDNN reads without a copy."""
    if activation.ndim != 4 or activation.is_contiguous():
        return False
    return bool(activation.is_contiguous(memory_format=torch.channels_last))


def _packs(node: Node, activation: Any, weight: Any, first: int = 3) -> bool:
    """Return True if torch uses oneDNN for the convolution; `first` is the position of stride, padding,
    dilation."""
    if activation.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return False
    if not torch.backends.mkldnn.is_available() or activation.ndim < 3:
        return False
    stride, dilation, groups = node.args[first], node.args[first + 2], node.args[first + 5]
    sizes, window = [number(size) for size in activation.shape], [number(size) for size in weight.shape[2:]]
    moves = any(number(step) != 1 for step in (*stride, *dilation))
    wide = moves or sizes[0] >= 16 or any(size != 1 for size in window) or torch.get_num_threads() > 1
    large = number(groups) > 1 or min(window) > 3 or sizes[0] > 1 or prod(sizes) > 20480
    return wide and large


def _columns(activation: Any, weight: Any, made: Any, steps: Any) -> int:
    """Every window of the input, one column per element of the result; a 1×1 kernel reads the input."""
    window = [number(size) for size in weight.shape[2:]]
    stride, padding, _ = ([number(item) for item in setting] for setting in steps)
    if all(size == 1 for size in (*window, *stride)) and not any(padding):
        return 0
    positions = prod(number(size) for size in made.shape[2:])
    return int(activation.element_size()) * prod(
        (number(activation.shape[0]), number(weight.shape[1]), *window, positions)
    )


Rule = Callable[[Node], int]

PROMOTING = frozenset(
    f"aten::{name}"
    for name in (
        *("add", "sub", "rsub", "mul", "div", "pow", "maximum", "minimum", "fmod", "remainder", "lerp"),
        *("atan2", "hypot", "logaddexp", "addcmul", "addcdiv", "eq", "ne", "lt", "le", "gt", "ge"),
    )
)
"""Pointwise operators that copy an operand of another dtype to the common one."""

LARGEST_PACKED = 1232 << 10
"""Bytes of a transposed left side that one thread packs at a time."""

LARGEST_ROWS, LARGEST_INNER, LARGEST_COLUMNS = 256, 512, 64
"""The largest part of a product of 16-bit numbers that oneDNN computes at a time, in rows of the left side,
columns of it, and columns of the right side: measured for float16, estimated for bfloat16 (see
`tests/fit/test_measured.py`)."""
LANES = 16
"""Numbers of f32 in a register of AVX-512; a part in f32 is a multiple of it wide."""
SMALLEST_PACKED = 16**3
"""A product of 16-bit numbers with at most so many multiplications does not use oneDNN."""

PRODUCTS = frozenset({"aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::addbmm"})

GRADIENT_COPIERS = frozenset(
    {
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
        "aten::adaptive_avg_pool2d_backward",
        "aten::_adaptive_avg_pool2d_backward",
        "aten::avg_pool2d_backward",
        "aten::avg_pool3d_backward",
        "aten::gelu_backward",
        "aten::max_pool2d_with_indices_backward",
        "aten::max_pool3d_with_indices_backward",
        "aten::upsample_bicubic2d_backward",
        "aten::upsample_bilinear2d_backward",
        "aten::upsample_linear1d_backward",
        "aten::upsample_nearest2d_backward",
        "aten::upsample_trilinear3d_backward",
    }
)
"""Backward kernels that want the gradient, their first operand, without gaps."""


def working_bytes(node: Node) -> int:
    """Bytes beside operands and results; symbols at their example."""
    schema = getattr(node.op, "_schema", None)
    if schema is None or not _on_cpu(node):
        return 0
    rule = RULES.get(schema.name)
    return rule(node) if rule is not None else 0


def _on_cpu(node: Node) -> bool:
    return any(isinstance(value, torch.Tensor) and value.device.type == "cpu" for value in node.results)


def _operands(node: Node) -> list[Any]:
    return [source.val for source in node.inputs() if isinstance(source.val, torch.Tensor)]


def _operand_bytes(node: Node) -> int:
    return dense_bytes(_operands(node)[0])


def _promoted(node: Node) -> int:
    """Return the bytes of copies of operands and result whose dtype differs from the computed one."""
    tensors = [operand for operand in _operands(node) if operand.ndim]
    if not tensors:
        return 0
    common = tensors[0].dtype
    for operand in tensors[1:]:
        common = torch.promote_types(common, operand.dtype)
    return sum(
        dense_bytes(operand) // operand.element_size() * common.itemsize
        for operand in tensors
        if operand.dtype is not common
    )


def _product(node: Node) -> int:
    """Return the bytes of copies of matrices without contiguous rows or columns, one of a batch at a time."""
    matrices = [operand for operand in _operands(node) if operand.ndim >= 2]
    dtype = matrices[-1].dtype
    if dtype in (torch.bfloat16, torch.float16) and packs_products(dtype):
        tiles = _tiles if dtype is torch.bfloat16 else _widened_tiles
        return tiles(*matrices[-2:])
    return sum(_matrix_bytes(operand) for operand in matrices if not _has_unit_stride(operand))


def _matrix_bytes(matrices: Any) -> int:
    """Bytes of one matrix of a batch."""
    return dense_bytes(matrices) // (number(matrices.shape[0]) or 1 if matrices.ndim == 3 else 1)


def _tiles(left: Any, right: Any) -> int:
    """Return oneDNN's memory: sums in f32, a packed part of the right side, and of a transposed left side."""
    (rows, inner), columns = map(number, left.shape[-2:]), number(right.shape[-1])
    if rows * inner * columns <= SMALLEST_PACKED:
        return 0
    rows, part = min(rows, LARGEST_ROWS), min(columns, LARGEST_COLUMNS)
    tiles = 4 * rows * part + 2 * min(inner, LARGEST_INNER) * part + 1024
    return tiles + (min(_matrix_bytes(left), LARGEST_PACKED) if number(left.stride(-1)) != 1 else 0)


def _widened_tiles(left: Any, right: Any) -> int:
    """Return oneDNN's memory for float16: parts of both sides and of the sums, in f32."""
    (rows, inner), columns = map(number, left.shape[-2:]), number(right.shape[-1])
    if rows * inner * columns <= SMALLEST_PACKED:
        return 0
    rows, inner = min(rows, LARGEST_ROWS), min(LANES * ceil(inner / LANES), LARGEST_INNER)
    step = inner + (LANES if inner == LARGEST_INNER else 0)  # a gap, so that rows share no cache set
    return 4 * (rows * step + LARGEST_COLUMNS * inner + rows * min(columns, LARGEST_COLUMNS)) + 1152


def _has_unit_stride(matrix: Any) -> bool:
    sizes, steps = [[number(item) for item in extents[-2:]] for extents in (matrix.shape, matrix.stride())]
    return any(step == 1 or size == 1 for size, step in zip(sizes, steps, strict=True))


def _gradient(node: Node) -> int:
    """Return the bytes of a copy of an expanded or non-dense gradient."""
    gradient = _operands(node)[0]
    return 0 if gradient.is_contiguous() or _channels_last(gradient) else dense_bytes(gradient)


def _channels_last(tensor: Any) -> bool:
    return tensor.ndim == 4 and bool(tensor.is_contiguous(memory_format=torch.channels_last))


def _layer_norm_backward(node: Node) -> int:
    """Return the bytes of the gradients of weight and bias, once per thread, in f32."""
    features = sum(dense_bytes(item) // item.element_size() for item in _node_values(node)[1:])
    return 4 * torch.get_num_threads() * features


def _node_values(node: Node) -> list[Any]:
    return [item for item in node.val if isinstance(item, torch.Tensor)]


def _batch_norm_backward(node: Node) -> int:
    """Another tensor like the input."""
    return dense_bytes(_operands(node)[1])


def _losses(node: Node) -> int:
    """Return the bytes of the losses of all elements, which the kernel reduces."""
    first, second = _operands(node)[:2]
    return (
        dense_bytes(first.expand(torch.broadcast_shapes(first.shape, second.shape)))
        if not node.val.ndim
        else 0
    )


RULES: dict[str, Rule] = {
    **dict.fromkeys(PROMOTING, _promoted),
    **dict.fromkeys(PRODUCTS, _product),
    **dict.fromkeys(GRADIENT_COPIERS, _gradient),
    "aten::abs": lambda node: dense_bytes(_operands(node)[0]) if _operands(node)[0].is_complex() else 0,
    "aten::binary_cross_entropy_with_logits": lambda node: 2 * _operand_bytes(node),
    "aten::convolution": convolution_bytes,
    "aten::convolution_backward": convolution_backward_bytes,
    "aten::huber_loss": _losses,
    "aten::linalg_inv_ex": _operand_bytes,
    "aten::_linalg_svd": lambda node: 2 * _operand_bytes(node),
    "aten::logsumexp": _operand_bytes,
    "aten::mse_loss": _losses,
    "aten::native_batch_norm_backward": _batch_norm_backward,
    "aten::native_layer_norm_backward": _layer_norm_backward,
    "aten::smooth_l1_loss": _losses,
    "prims::fma": lambda node: dense_bytes(node.val),  # the product, then its sum with the third operand
}
"""By the operator's schema name."""
