"""Every private name of torch that aotlens uses, imported in this package and nowhere else.

Invariant: a new torch release is this one package's work.  Checked with torch 2.13; each name says what for.
Everybody else imports from the package itself, whose modules go by concern.
"""

import torch.utils._pytree as pytree
from torch._guards import TracingContext, detect_fake_mode, tracing
from torch._higher_order_ops.auto_functionalize import auto_functionalized, can_auto_functionalize
from torch._higher_order_ops.effects import with_effects
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, UnsupportedOperatorException
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from aotlens.torch_api.autograd import (
    checkpoints_run_once,
    current_autograd_node,
    next_sequence_number,
    without_compiled_autograd,
    without_saved_tensor_hooks,
)
from aotlens.torch_api.dispatch import (
    below_views,
    has_composite_kernel,
    python_dispatcher,
    random_state_handled_by,
    without_autocast,
    without_modes,
    without_onednn,
)
from aotlens.torch_api.dynamo import (
    dynamo_knows,
    hide_from_dynamo,
    leave_to_python,
    record_dynamo_spans,
)
from aotlens.torch_api.fakes import (
    DATA_DEPENDENT_ERRORS,
    first_expression,
    known_number,
    make_shape_env,
    mark_symbolic,
    print_expression,
    quiet_fake_tensors,
    symbolic_sizes,
    tell_of_silent_changes,
    with_ragged_sizes,
)
from aotlens.torch_api.graphs import (
    get_decompositions,
    optimised_script,
    set_joint_signature,
    strip_overloads,
    tensor_metadata,
    trace_above_autograd,
)
from aotlens.torch_api.higher_order import (
    has_ordered_effect,
    indexing_by_tensors,
    make_token,
    replace_compilation_in_higher_order,
    sink_tokens,
    uncompiled_flex_attention,
)
from aotlens.torch_api.inductor import compile_with_inductor, inductor_config_patch, inductor_decompositions
from aotlens.torch_api.settings import debug_assert, functionalizes_rng, is_any_autocast_enabled

__all__ = [
    "DATA_DEPENDENT_ERRORS",
    "FakeTensor",
    "FakeTensorMode",
    "OpOverload",
    "TorchDispatchMode",
    "TorchFunctionMode",
    "TracingContext",
    "UnsupportedOperatorException",
    "auto_functionalized",
    "below_views",
    "can_auto_functionalize",
    "checkpoints_run_once",
    "compile_with_inductor",
    "current_autograd_node",
    "debug_assert",
    "detect_fake_mode",
    "dynamo_knows",
    "first_expression",
    "functionalizes_rng",
    "get_decompositions",
    "has_composite_kernel",
    "has_ordered_effect",
    "hide_from_dynamo",
    "indexing_by_tensors",
    "inductor_config_patch",
    "inductor_decompositions",
    "is_any_autocast_enabled",
    "is_traceable_wrapper_subclass",
    "known_number",
    "leave_to_python",
    "make_shape_env",
    "make_token",
    "mark_symbolic",
    "next_sequence_number",
    "optimised_script",
    "print_expression",
    "python_dispatcher",
    "pytree",
    "quiet_fake_tensors",
    "random_state_handled_by",
    "record_dynamo_spans",
    "replace_compilation_in_higher_order",
    "set_joint_signature",
    "sink_tokens",
    "strip_overloads",
    "symbolic_sizes",
    "tell_of_silent_changes",
    "tensor_metadata",
    "trace_above_autograd",
    "tracing",
    "uncompiled_flex_attention",
    "with_effects",
    "with_ragged_sizes",
    "without_autocast",
    "without_compiled_autograd",
    "without_modes",
    "without_onednn",
    "without_saved_tensor_hooks",
]
