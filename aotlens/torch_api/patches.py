"""What we change in torch: one table, in scopes.

Invariant: a row is in force only within `patching.patched(SCOPE)`, and importing aotlens changes nothing.
The code that emulates a GPU has rows of its own, which depend on that GPU (`codegen/gpu/offline.py`,
`pretend/`).  `docs/architecture/torch.md` is generated from this table.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from aotlens.torch_api.autograd import enter_enable_grad, set_grad_mode
from aotlens.torch_api.caches import load_with_key, prepare_key, trace_structured
from aotlens.torch_api.checkpoints import run_checkpoint_once, run_reentrant_checkpoint_once
from aotlens.torch_api.custom_functions import (
    call_custom_function,
    call_function_graphs,
    materialize_grads,
    run_custom_backward,
)
from aotlens.torch_api.dynamo import create_proxy, wrap_compiled
from aotlens.torch_api.dynamo_listener import DYNAMO_EVENTS, HOOKS
from aotlens.torch_api.fake_kernels import grouped_mm, own_random, own_results, view
from aotlens.torch_api.gpu import triton_target
from aotlens.torch_api.hop import (
    accept_any_device,
    compilation_env,
    compile_and_call,
    flex_attention_env,
    gradient_rule,
)
from aotlens.torch_api.inductor_lowerings import (
    codegen_comment,
    compute_dependencies,
    define_kernel,
    layout_of_bernoulli,
    lower_bernoulli,
    lower_effect,
    lower_storage_offset,
    set_python_kernel_name,
)
from aotlens.torch_api.inductor_output import cpp_pybinding
from aotlens.torch_api.objects import call_object_method
from aotlens.torch_api.operators import operator_name
from aotlens.torch_api.patch_targets import Attribute, Entry, HigherOrderRule
from aotlens.torch_api.patching import Current, Patch, Scope, constant, patched, routed
from aotlens.torch_api.rng import device_rng_state, generator_class, rng_state
from aotlens.torch_api.tensor_attributes import (
    assign_data,
    detach_in_place,
    grad_attribute,
    index_tensor,
    register_hook,
    require_grad,
    resize_storage,
)
from aotlens.torch_api.transforms import linearize_part

__all__ = [
    "BACKEND",
    "COMPILE",
    "CUSTOM_BACKWARD",
    "CUSTOM_FUNCTIONS",
    "FLEX_ON_CPU",
    "GRAD_MODE",
    "INDUCTOR",
    "INDUCTOR_GPU",
    "LISTEN",
    "NO_GPU",
    "PRECOMPILED_KERNELS",
    "RECURRENT_DROPOUT",
    "TRACE",
    "TRITON_TARGET",
    "WRAP_COMPILED",
    "TraceHandlers",
]


@dataclass(frozen=True, slots=True)
class TraceHandlers:
    """What happens in place of torch's functions on the thread that traces."""

    rng_state: Any
    """Has the methods of a generator, and those for `torch.cuda`."""
    note_generator: Callable[[Any], None]
    call_object_method: Callable[..., Any]
    """Takes the torchbind object, the name of the method, arguments and keyword arguments."""
    checkpoint_region: Callable[..., AbstractContextManager[None]]
    """Takes the `context_fn` and the arguments of a checkpoint; its function runs within the result."""
    note_undefined_tangents: Callable[[Any], None]
    """Takes the node of a custom function that wants None in place of zeros."""
    apply_graphs: Callable[[tuple[Any, Any], Any, dict[str, Any]], Any]
    """Calls a custom function that Dynamo made two graphs of: graphs, arguments, settings."""
    prepare_index: Callable[[Any], Any]
    gradient_rules: Mapping[str, Callable[..., Any]]
    """By name, what is asked before the rule of a higher-order operator; may return NotImplemented."""
    call_higher_order: Callable[..., Any]
    """Calls the function that `torch.cond` and its like would compile."""
    make_linear_map: Callable[..., Any]
    """Makes the linear map of `torch.func.linearize` from the derivative and tangents."""
    flex_attention_env: Callable[[], Any]
    batch_norm: Callable[..., Any]
    """As the three below: takes torch's own function first, then its arguments."""
    tensor_split: Callable[..., Any]
    launch_kernel: Callable[..., Any]


_FAKE = "torch._subclasses.fake_tensor:FakeTensor"
_NO_OPERATOR = "the trace must know, and no operator reports it"
_RNG = (
    "the function's random numbers must not depend on, or change, the caller's generator while it is traced"
)

TRACE = Scope(
    "trace",
    "a function, or the backward of a trace, is traced (per thread)",
    (
        Patch(Attribute(_FAKE, "data"), assign_data, f"`x.data = y`: {_NO_OPERATOR}"),
        Patch(Attribute(_FAKE, "detach_"), detach_in_place, f"`x.detach_()`: {_NO_OPERATOR}"),
        Patch(Attribute(_FAKE, "requires_grad_"), require_grad, f"`x.requires_grad_(False)`: {_NO_OPERATOR}"),
        Patch(
            Attribute("torch:UntypedStorage", "resize_"),
            resize_storage,
            "a fake storage has no memory, and the trace must know its size",
        ),
        Patch(Attribute("torch:Tensor", "grad"), grad_attribute, f"`x.grad`: {_NO_OPERATOR}"),
        Patch(
            Attribute("torch:Tensor", "register_hook"), register_hook, f"`x.register_hook(f)`: {_NO_OPERATOR}"
        ),
        Patch(Attribute(_FAKE, "__getitem__"), index_tensor, "an index must not read a tensor's value"),
        Patch(Attribute(_FAKE, "__setitem__"), index_tensor, "an index must not read a tensor's value"),
        Patch(
            Attribute("torch._functorch.autograd_function:AutogradFunctionApply", "__call__"),
            call_function_graphs,
            "custom functions that Dynamo captured are traced, forward and backward",
            needs_loaded=True,
        ),
        Patch(
            Attribute("torch.autograd.function:FunctionCtx", "set_materialize_grads"),
            materialize_grads,
            "which custom functions want None in place of zeros is decided here, and not told afterwards",
        ),
        Patch(Attribute("torch.random", "default_generator"), rng_state, _RNG),
        Patch(Attribute("torch.cuda", "get_rng_state"), device_rng_state("get_device_state"), _RNG),
        Patch(Attribute("torch.cuda", "set_rng_state"), device_rng_state("set_device_state"), _RNG),
        Patch(Attribute("torch.cuda", "manual_seed"), device_rng_state("seed_devices"), _RNG),
        Patch(Attribute("torch.cuda", "manual_seed_all"), device_rng_state("seed_devices"), _RNG),
        Patch(
            Attribute("torch", "Generator"),
            generator_class,
            "a generator made in the function is part of the trace",
        ),
        Patch(
            Attribute("torch:ScriptMethod", "__call__"),
            call_object_method,
            "methods of torchbind objects are recorded, and not run on the user's object",
        ),
        Patch(
            Attribute("torch.utils.checkpoint", "_checkpoint_without_reentrant_generator"),
            run_checkpoint_once,
            "a checkpointed function is traced once; the partition decides what is recomputed",
        ),
        Patch(
            Attribute("torch.utils.checkpoint", "_checkpoint_without_reentrant_generator_impl"),
            run_checkpoint_once,
            "the same, from torch 2.14 on",
            is_optional=True,
        ),
        Patch(
            Attribute("torch.utils.checkpoint:CheckpointFunction", "apply"),
            run_reentrant_checkpoint_once,
            "the same, with `use_reentrant=True`",
        ),
        Patch(
            Attribute("torch._functorch.eager_transforms", "lazy_dynamo_disallow"),
            linearize_part,
            "`torch.func.linearize` would trace the derivative with a tracer of its own",
        ),
        *(
            Patch(HigherOrderRule(name), gradient_rule(name), reason)
            for name, reason in (
                ("invoke_subgraph", "a marked region is traced and divided once"),
                ("cond", "random numbers of its functions are generated before it, for the backward too"),
                ("map_impl", "random numbers of its functions are generated before it, for the backward too"),
                (
                    "while_loop",
                    "random numbers of its functions are generated before it, for the backward too",
                ),
            )
        ),
        Patch(
            Attribute("torch._higher_order_ops.utils", "_hop_compile_and_call"),
            compile_and_call,
            "`torch.cond` and its like would start Dynamo within the trace",
            is_optional=True,
        ),
        Patch(
            Attribute("torch._higher_order_ops.utils", "setup_compilation_env"),
            compilation_env,
            "the same, in torch 2.11",
        ),
        Patch(
            Attribute("torch.nn.attention.flex_attention", "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"),
            constant(True),
            "`flex_attention` would compile itself within the trace",
            needs_loaded=True,
        ),
        Patch(
            Attribute("torch.nn.attention.flex_attention", "setup_compilation_env"),
            flex_attention_env,
            "its operator is recorded",
            needs_loaded=True,
        ),
        Patch(
            Attribute("torch.nn.modules.batchnorm:_BatchNorm", "forward"),
            routed("batch_norm"),
            "with `momentum=None`, it reads the count of batches as a Python number",
        ),
        Patch(
            Attribute("torch", "tensor_split"),
            routed("tensor_split"),
            "its kernel reads a tensor of indices from memory",
        ),
        Patch(Attribute("torch:Tensor", "tensor_split"), routed("tensor_split"), "the same, as a method"),
        Patch(
            Attribute("triton.runtime.jit:JITFunction", "run"),
            routed("launch_kernel"),
            "a launch of the user's Triton kernel is recorded as an operator",
            needs_loaded=True,
        ),
        Patch(
            Attribute("triton.runtime.autotuner:Autotuner", "run"),
            routed("launch_kernel"),
            "the same, of an autotuned kernel",
            needs_loaded=True,
        ),
    ),
)
"""Its handler is a `TraceHandlers`."""

RECURRENT_DROPOUT = Scope(
    "recurrent dropout",
    "a function is traced with symbolic sizes",
    (
        Patch(
            Attribute("torch._decomp.decompositions", "_rnn_helper"),
            routed("__call__"),
            "torch's own loop over the layers of a recurrent module never drops anything",
        ),
    ),
)

GRAD_MODE = Scope(
    "grad mode",
    "the user's function runs in a trace",
    (
        Patch(
            Attribute("torch:enable_grad", "__enter__"),
            enter_enable_grad,
            "a function that turns grad mode on is guarded on it",
        ),
        Patch(
            Attribute("torch:set_grad_enabled", "__init__"),
            set_grad_mode,
            "a function that turns grad mode on is guarded on it",
        ),
    ),
)

CUSTOM_BACKWARD = Scope(
    "custom backward",
    "the backward is traced",
    (
        Patch(
            Attribute("torch.autograd.function:BackwardCFunction", "apply"),
            run_custom_backward,
            "which gradients a custom function leaves undefined is known only when it has run",
        ),
    ),
)

CUSTOM_FUNCTIONS = Scope(
    "custom functions",
    "the function of a higher-order operator is traced",
    (
        Patch(
            Attribute("torch.autograd:Function", "apply"),
            call_custom_function,
            "a tensor from outside is replaced by an operand, and no function mode sees these arguments",
        ),
    ),
)

FLEX_ON_CPU = Scope(
    "flex attention",
    "code for a GPU is made or checked on CPU tensors",
    (
        Patch(
            Attribute("torch.nn.attention.flex_attention", "_validate_device"),
            accept_any_device,
            "CPU tensors that require grad are rejected, although the unfused implementation has a gradient",
            needs_loaded=True,
        ),
    ),
)

_FAKE_KERNELS = (
    Patch(
        Attribute("torch._meta_registrations", "_meta_grouped_mm_common"),
        grouped_mm,
        "it accepts bfloat16 alone, where the kernels accept float32 and float16 too",
        is_optional=True,
    ),
    Patch(
        Entry("torch._subclasses.fake_impls:op_implementations_dict", "torch:ops.aten.view.default"),
        view,
        "it computes other strides of dimensions of size 1 than the real kernel",
        is_optional=True,
    ),
    Patch(
        Attribute("torch._subclasses.fake_tensor:FakeTensorMode", "cache"),
        own_results,
        "results of these kernels and of torch's own must not mix",
    ),
)

COMPILE = Scope(
    "compile",
    "a stage of a compilation runs",
    (
        *_FAKE_KERNELS,
        Patch(
            Attribute("torch.distributed._meta_registrations", "random"),
            own_random,
            "fake kernels of collectives take ids from the user's generator",
            needs_loaded=True,
            is_optional=True,
        ),
        Patch(
            Attribute("torch.fx.graph", "_get_qualified_name"),
            operator_name,
            "fx writes a call of `aten.random.from`, whose name is a keyword, as no Python",
        ),
    ),
)

DYNAMO = Scope(
    "Dynamo frame",
    "Dynamo compiles a frame, once a program has asked for our backend",
    (
        Patch(
            Attribute("torch._dynamo.output_graph:SubgraphTracer", "create_proxy"),
            create_proxy,
            "reports name the exact source range of each node; Dynamo notes the line alone",
        ),
        *_FAKE_KERNELS,
    ),
)


def _convert_frame(original: Callable[..., Any], current: Current) -> Any:
    """How Dynamo compiles a frame: with the rows of `DYNAMO` in force."""

    def convert(self: Any, *args: Any, **kwargs: Any) -> Any:
        with patched(DYNAMO):
            return original(self, *args, **kwargs)

    return convert


BACKEND = Scope(
    "backend",
    "a program uses our backend of `torch.compile`: from the look-up of the backend on",
    (
        Patch(
            Attribute("torch._dynamo.convert_frame:ConvertFrameAssert", "__call__"),
            _convert_frame,
            "the rows of the scope `Dynamo frame` are needed before Dynamo calls a backend",
        ),
    ),
    stays="Dynamo traces a frame before it calls a backend, and never says that the backend is done",
)

INDUCTOR = Scope(
    "Inductor",
    "Inductor compiles one of our graphs",
    (
        Patch(
            Entry("torch._inductor.lowering:lowerings", "torch:ops.aten.bernoulli.p"),
            lower_bernoulli,
            "it lowers a mask to a write in place, and may fuse it so that a reader sees no random numbers",
        ),
        Patch(
            Entry(
                "torch._inductor.lowering:_maybe_layout_constraints",
                "torch:ops.aten.bernoulli.p",
                is_new=True,
            ),
            layout_of_bernoulli,
            "random numbers come in the order of the memory, which must be eager's",
        ),
        Patch(
            Entry("torch._inductor.lowering:lowerings", "torch._higher_order_ops.effects:with_effects"),
            lower_effect,
            "it notes the order of effects by buffer, and looks it up by operation",
        ),
        Patch(
            Entry(
                "torch._inductor.lowering:lowerings", "torch:ops.aten.sym_storage_offset.default", is_new=True
            ),
            lower_storage_offset,
            "it has no lowering for where a view starts",
        ),
        Patch(
            Attribute("torch._inductor.scheduler:Scheduler", "compute_dependencies"),
            compute_dependencies,
            "it reorders calls that take from a generator",
        ),
        Patch(
            Attribute("torch._inductor.ir:ExternKernel", "set_python_kernel_name"),
            set_python_kernel_name,
            "it writes a call of `aten.random.from`, whose name is a keyword, as no Python",
        ),
    ),
)

_TRITON_SCHEDULING = "torch._inductor.codegen.triton:TritonScheduling"

INDUCTOR_GPU = Scope(
    "Inductor on a GPU",
    "Inductor compiles one of our graphs for a GPU",
    (
        Patch(
            Attribute(_TRITON_SCHEDULING, "define_kernel"),
            define_kernel,
            "the name of the last kernel is needed below",
        ),
        Patch(
            Attribute(_TRITON_SCHEDULING, "codegen_comment"),
            codegen_comment,
            "it does not note which nodes a reduction along both axes computes",
        ),
    ),
)
"""Its handler is a list, which gets the names of the kernels."""

PRECOMPILED_KERNELS = Scope(
    "kernels from the cache",
    "code of Inductor's is loaded from our cache",
    (
        Patch(
            Attribute("torch._inductor.async_compile:AsyncCompile", "cpp_pybinding"),
            cpp_pybinding,
            "C++ kernels come from our cache; Inductor would test the compiler first, for seconds",
        ),
    ),
    every_thread=True,
)

TRITON_TARGET = Scope(
    "Triton target",
    "Triton translates the user's kernel where no GPU is",
    (
        Patch(
            Attribute("triton.runtime:driver", "_active"),
            triton_target,
            "what a kernel writes to does not depend on the GPU, but Triton asks for one",
        ),
    ),
)

LISTEN = Scope(
    DYNAMO_EVENTS,
    "a session or `aotlens why` listens to Dynamo",
    (
        *HOOKS,
        Patch(
            Attribute("torch._logging", "trace_structured"),
            trace_structured,
            "lookups in caches are reported",
        ),
        Patch(
            Attribute("torch._inductor.codecache:FxGraphCache", "prepare_key"),
            prepare_key,
            "lookups in caches are reported",
            needs_loaded=True,
        ),
        Patch(
            Attribute("torch._inductor.codecache:FxGraphCache", "load_with_key"),
            load_with_key,
            "lookups in caches are reported",
            needs_loaded=True,
        ),
    ),
    every_thread=True,
)
"""Its handler is a `DynamoListener`."""

WRAP_COMPILED = Scope(
    "compiled functions",
    "a script runs whose calls of compiled functions are recorded or forecast",
    (
        Patch(
            Attribute("torch._dynamo.eval_frame:_TorchDynamoContext", "__call__"),
            wrap_compiled,
            "calls of what `torch.compile` returns are seen",
        ),
    ),
    every_thread=True,
)

NO_GPU = Scope(
    "no GPU",
    "the server of the editor warms up",
    (
        Patch(
            Attribute("torch:_C", "_cuda_getDeviceCount"),
            constant(lambda: 0),
            "to look for a GPU starts CUDA's driver, which a forked child cannot use then",
            is_optional=True,
        ),
        Patch(
            Attribute("torch:_C", "_ensureCUDADeviceGuardSet"),
            constant(lambda: None),
            "it looks for a GPU too",
            is_optional=True,
        ),
        Patch(
            Attribute("torch.cuda", "_nvml_based_avail"),
            constant(lambda: False),
            "it asks another library, which reports GPUs",
        ),
    ),
)

SCOPES: tuple[Scope, ...] = (
    COMPILE,
    TRACE,
    RECURRENT_DROPOUT,
    GRAD_MODE,
    CUSTOM_BACKWARD,
    CUSTOM_FUNCTIONS,
    FLEX_ON_CPU,
    BACKEND,
    DYNAMO,
    INDUCTOR,
    INDUCTOR_GPU,
    PRECOMPILED_KERNELS,
    TRITON_TARGET,
    LISTEN,
    WRAP_COMPILED,
    NO_GPU,
)
"""Every change, in the order of a compilation."""
