"""What a convolution allocates while it runs on the CPU.

oneDNN packs operands into blocks of channels and gives a packed result that is laid out again; where it is
not used (f64, small 1×1 kernels in one thread), windows of the input are unfolded into columns.  The order
in which these come and go is the kernels' own, as torch's profiler shows it.
"""

from math import ceil, prod
from typing import Any

import torch

from aotlens.ir.program import Node
from aotlens.report.memory_sizes import dense_bytes, number


def convolution_bytes(node: Node) -> int:
    """Packed operands and result, then the packed result beside the one in the caller's layout."""
    given, weight = node.args[0].val, node.args[1].val
    made = dense_bytes(node.val)
    if _keeps_layout(given):
        return dense_bytes(weight)
    if not _packs(node, given, weight):
        return _columns(given, weight, node.val, node.args[3:6])
    if node.args[6]:  # transposed: laid out again in two steps
        return 2 * made
    packed = _packed(node.val)
    operands = (dense_bytes(given) if number(given.shape[1]) % _block() == 0 else 0) + dense_bytes(weight)
    return max(operands + packed - made, packed)


def convolution_backward_bytes(node: Node) -> int:
    """First the gradient of the input, then with it alive the gradient of the weight."""
    gradient, given, weight = (source.val for source in node.args[:3])
    if _keeps_layout(given):
        return dense_bytes(weight)
    copied = 0 if gradient.is_contiguous() else dense_bytes(gradient)
    if not _packs(node, given, weight, first=4):
        return copied + _columns(given, weight, gradient, node.args[4:7])
    for_input, for_weight = node.args[10][:2]
    inner, outer, weights = (dense_bytes(item) for item in (given, gradient, weight))
    results = (inner if for_input else 0) + (weights if for_weight else 0)
    strided = any(number(step) != 1 for step in node.args[4])
    steps = [0]
    if for_input:
        again = 3 * inner if strided and not node.args[7] else 2 * inner
        packed = 0 if node.args[7] else _packed(gradient)
        steps += [packed + _packed_weight(weight) + _packed(given), again]
    if for_weight:
        steps.append((inner if for_input else 0) + outer + inner + weights)
    return max(0, copied + max(steps) - results)


def _block() -> int:
    """Channels in a block of oneDNN's."""
    return 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8


def _packed(tensor: Any) -> int:
    return _filled(dense_bytes(tensor), number(tensor.shape[1]))


def _packed_weight(weight: Any) -> int:
    outer, inner = (number(size) for size in weight.shape[:2])
    return dense_bytes(weight) if inner == 1 else _filled(_filled(dense_bytes(weight), outer), inner)


def _filled(size_bytes: int, channels: int) -> int:
    """The bytes with the last block of channels filled up."""
    return size_bytes * ceil(channels / _block()) * _block() // max(channels, 1)


def _keeps_layout(given: Any) -> bool:
    """Whether the channels lie innermost, which oneDNN takes as it is."""
    if given.ndim != 4 or given.is_contiguous():
        return False
    return bool(given.is_contiguous(memory_format=torch.channels_last))


def _packs(node: Node, given: Any, weight: Any, first: int = 3) -> bool:
    """Whether torch gives the convolution to oneDNN; `first` is where stride, padding, dilation start."""
    if given.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return False
    if not torch.backends.mkldnn.is_available() or given.ndim < 3:
        return False
    stride, dilation, groups = node.args[first], node.args[first + 2], node.args[first + 5]
    sizes, window = [number(size) for size in given.shape], [number(size) for size in weight.shape[2:]]
    moves = any(number(step) != 1 for step in (*stride, *dilation))
    wide = moves or sizes[0] >= 16 or any(size != 1 for size in window) or torch.get_num_threads() > 1
    large = number(groups) > 1 or min(window) > 3 or sizes[0] > 1 or prod(sizes) > 20480
    return wide and large


def _columns(given: Any, weight: Any, made: Any, steps: Any) -> int:
    """Every window of the input, one column per element of the result; a 1×1 kernel reads the input."""
    window = [number(size) for size in weight.shape[2:]]
    stride, padding, _ = ([number(item) for item in one] for one in steps)
    if all(size == 1 for size in (*window, *stride)) and not any(padding):
        return 0
    places = prod(number(size) for size in made.shape[2:])
    return int(given.element_size()) * prod(
        (number(given.shape[0]), number(weight.shape[1]), *window, places)
    )
