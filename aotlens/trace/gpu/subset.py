"""The subset of Triton in which a logged kernel may be written; any other name is unsupported.

Invariant: no name here loads a file, prints, or returns a Python module or a class with other members.  Names
of a newer Triton are unsupported until they are added.
"""

import re
from collections.abc import Mapping

__all__ = [
    "BUILTINS",
    "DECORATORS",
    "GRID_TYPES",
    "INSTRUCTION",
    "LANGUAGE",
    "LAUNCH_SETTINGS",
    "MODULES",
    "TENSOR_ATTRIBUTES",
]

_TYPES = """bfloat16 float16 float32 float64 float8e4b15 float8e4b8 float8e4nv float8e5 float8e5b16 int1 int16
int32 int64 int8 uint16 uint32 uint64 uint8 constexpr"""
_FUNCTIONS = """abs add advance arange argmax argmin associative_scan assume atomic_add atomic_and atomic_cas
atomic_max atomic_min atomic_or atomic_xchg atomic_xor broadcast broadcast_to cast cat cdiv ceil
clamp cos cumprod cumsum debug_barrier device_assert div_rn dot dot_scaled erf exp exp2 expand_dims
fdiv flip floor fma full gather histogram interleave join load load_tensor_descriptor log log2
make_block_ptr make_tensor_descriptor max max_constancy max_contiguous maximum min minimum
multiple_of num_programs permute philox pointer_type program_id rand rand4x randint randint4x randn
randn4x range ravel reduce reshape rsqrt sigmoid sin softmax sort split sqrt sqrt_rn squeeze
static_assert static_range store store_tensor_descriptor sum swizzle2d trans umulhi unsqueeze view
where xor_sum zeros zeros_like"""
_MATH = "abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi"
_HELPERS = """any bucketize_binary_search constexpr_next_power_of_2 device_assert_then div_floor_integer
exclusive_scan_decoupled_lookback exclusive_scan_decoupled_lookback_64 exp fp8e4m3fn_to_float32
frexp if_mask is_floating max2 max_with_index maximum maximum_with_index min2 min_with_index minimum
minimum_with_index online_softmax_combine online_softmax_combine_with_sum online_softmax_reduce
pack_value_flag pow_integer prod promote_to_tensor rand4x rand_eager_kernel randint64 randn4x
remainder_integer select_one sort_with_index unpack_flag unpack_value welford welford_combine
welford_reduce x_grid_barrier"""
_DEVICE_MATH = """
abs acos acosh asin asinh atan atan2 atanh cbrt ceil clz copysign cos cosh cospi cyl_bessel_i0
cyl_bessel_i1 double_as_longlong erf erfc erfcinv erfcx erfinv exp exp10 exp2 expm1 fast_cosf
fast_dividef fast_exp10f fast_expf fast_log10f fast_log2f fast_logf fast_powf fast_sinf fast_tanf
fast_tanhf fdim ffs finitef float_as_int float_as_uint floor fma fmod hypot ilogb int_as_float
isfinited isinf isnan j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2 logb
longlong_as_double mulhi nearbyint nextafter normcdf normcdfinv popc pow rcbrt remainder rint round
rsqrt scalbn signbit sin sinh sinpi sqrt tan tanh tgamma trunc uint_as_float y0 y1 yn add_rn div_rn
fma_rn mul_rn sqrt_rn sub_rn"""

_VALUE = (
    "T broadcast_to cast dtype element_ty expand_dims max min permute reshape shape sum to trans type view"
)

LANGUAGE = frozenset((_TYPES + " " + _FUNCTIONS).split())
"""Members of `tl`."""
MODULES: Mapping[str, frozenset[str]] = {
    "tl": LANGUAGE,
    "tl.math": frozenset(_MATH.split()),
    "tl_math": frozenset(_MATH.split()),
    "libdevice": frozenset(_DEVICE_MATH.split()),
    "triton_helpers": frozenset(_HELPERS.split()),
    "triton": frozenset({"cdiv", "next_power_of_2"}),
}
"""The modules that a kernel may name, each with the members that it may use."""

BUILTINS = frozenset({"abs", "float", "int", "len", "max", "min", "range"})
"""Python's functions that Triton knows in a kernel."""

TENSOR_ATTRIBUTES = frozenset(_VALUE.split())
"""Members of values."""

DECORATORS = frozenset(
    {
        "cooperative_reduction",
        "foreach",
        "persistent_reduction",
        "pointwise",
        "reduction",
        "split_scan",
        "template",
        "user_autotune",
    }
)
"""Inductor's decorators in `triton_heuristics`."""

GRID_TYPES = frozenset(
    {
        "BatchMatmulGrid3D",
        "CooperativeReductionGrid",
        "Grid1D",
        "Grid2D",
        "Grid2DWithYZOverflow",
        "Grid3D",
        "MixOrderReductionGrid",
        "SplitScanGrid",
    }
)
"""Grids that Inductor computes from sizes and block sizes; all others are Python text in the log."""

INSTRUCTION = re.compile(r"(?:[a-z][a-z0-9_.]{0,60} \$\d(?:, ?\$\d){0,5}; ?){1,4}")
"""Machine code as text that a kernel may hold: plain instructions on numbered registers."""

LAUNCH_SETTINGS = frozenset(
    {
        "RSPLIT_SIZE",
        "add_persistent_rblock",
        "are_deterministic_algorithms_enabled",
        "assert_indirect_indexing",
        "atomic_add_found",
        "autotune_hints",
        "autotune_pointwise",
        "batch_invariant",
        "config_args",
        "deterministic",
        "dynamic_disable_pipelining",
        "dynamic_scale_rblock",
        "force_filter_reduction_configs",
        "has_loadstore_with_contiguous_rdim",
        "is_hip",
        "kernel_name",
        "max_autotune",
        "max_autotune_pointwise",
        "max_persistent_rblock",
        "min_rblock",
        "min_split_scan_rblock",
        "min_xblock",
        "mix_order_reduction_allow_multi_stages",
        "mutated_arg_names",
        "native_matmul_persistent_rblock",
        "no_x_dim",
        "num_load",
        "num_reduction",
        "num_store",
        "optimize_mem",
        "persistent_reduction",
        "reduction_hint",
        "spill_threshold",
        "tiling_scores",
        "tma_min_block_sizes",
    }
)
"""The keys of `inductor_meta` that decide on block sizes and code; the others are dropped."""
