"""What we change in torch: one table, in scopes.

Invariant: a row is in force only within `patched(SCOPE)`, and importing aotlens changes nothing.
The code that emulates a GPU has rows of its own, which depend on that GPU (`codegen/gpu/offline/`,
`gpu_emulation/`).  `docs/architecture/torch.md` is generated from this table.
"""

from dataclasses import dataclass

from aotlens.torch_api.autograd import enter_enable_grad, set_grad_mode
from aotlens.torch_api.checkpoints import run_checkpoint_once, run_reentrant_checkpoint_once
from aotlens.torch_api.custom_functions import (
    call_custom_function,
    call_function_graphs,
    materialize_grads,
    run_custom_backward,
)
from aotlens.torch_api.fake.kernels import own_random
from aotlens.torch_api.hop import (
    accept_any_device,
    compilation_env,
    compile_and_call,
    flex_attention_env,
    gradient_rule,
)
from aotlens.torch_api.objects import call_object_method
from aotlens.torch_api.operators import operator_name
from aotlens.torch_api.patches.compilers import (
    BACKEND,
    COUNT_CALLS,
    DYNAMO,
    FAKE_KERNELS,
    INDUCTOR,
    INDUCTOR_GPU,
    LISTEN,
    NO_GPU,
    PRECOMPILED_KERNELS,
    TRITON_TARGET,
    WRAP_COMPILED,
)
from aotlens.torch_api.patches.scopes import Patch, Scope, constant, routed
from aotlens.torch_api.patches.targets import Attribute, HigherOrderRule
from aotlens.torch_api.rng import device_rng_state, generator_class, rng_state
from aotlens.torch_api.tensor_attributes import (
    announced,
    assign_data,
    data_pointer,
    detach_in_place,
    grad_attribute,
    index_tensor,
    require_grad,
    resize_storage,
)
from aotlens.torch_api.transforms import linearize_part

__all__ = [
    "COMPILE",
    "CUSTOM_BACKWARD",
    "CUSTOM_FUNCTIONS",
    "FLEX_ON_CPU",
    "GRAD_MODE",
    "GRAPH_TEXT",
    "RECURRENT_DROPOUT",
    "TRACE",
]


_FAKE = "torch._subclasses.fake_tensor:FakeTensor"
_NO_OPERATOR = "the trace must know, and no operator reports it"
_NO_MEMORY = "a fake tensor has no memory: its address would be 0 in the graph"
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
        Patch(Attribute(_FAKE, "data_ptr"), data_pointer, _NO_MEMORY),
        Patch(Attribute("torch:UntypedStorage", "data_ptr"), data_pointer, _NO_MEMORY),
        Patch(Attribute(_FAKE, "__dlpack__"), announced("on_memory_read"), _NO_MEMORY),
        Patch(Attribute("torch.utils.dlpack", "to_dlpack"), announced("on_memory_read"), _NO_MEMORY),
        Patch(Attribute("torch:Tensor", "grad"), grad_attribute, f"`x.grad`: {_NO_OPERATOR}"),
        Patch(
            Attribute("torch:Tensor", "register_hook"),
            announced("on_hook_registration"),
            f"`x.register_hook(f)`: {_NO_OPERATOR}",
        ),
        Patch(
            Attribute("torch:Tensor", "__deepcopy__"),
            announced("on_deepcopy"),
            "a copy of a tensor's attributes would include what the trace keeps there",
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
            "which custom functions want None in place of zeros is decided here, and not reported later",
        ),
        Patch(Attribute("torch.random", "default_generator"), rng_state, _RNG),
        Patch(Attribute("torch.cuda", "get_rng_state"), device_rng_state("get_device_state"), _RNG),
        Patch(Attribute("torch.cuda", "set_rng_state"), device_rng_state("set_device_state"), _RNG),
        Patch(Attribute("torch.cuda", "manual_seed"), device_rng_state("seed_devices"), _RNG),
        Patch(Attribute("torch.cuda", "manual_seed_all"), device_rng_state("seed_devices"), _RNG),
        Patch(
            Attribute("torch", "Generator"),
            generator_class,
            "a generator that the function creates is rejected by name",
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
            Patch(HigherOrderRule(f"torch:ops.higher_order.{name}"), gradient_rule(name), reason)
            for name, reason in (
                ("invoke_subgraph", "a marked region is traced and divided once"),
                ("while_loop", "numbers that it carries become tensors"),
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

_OPERATOR_NAME = Patch(
    Attribute("torch.fx.graph", "_get_qualified_name"),
    operator_name,
    "fx writes a call of `aten.random.from`, whose name is a keyword, as no Python",
)

COMPILE = Scope(
    "compile",
    "a stage of a compilation runs",
    (
        *FAKE_KERNELS,
        Patch(
            Attribute("torch.distributed._meta_registrations", "random"),
            own_random,
            "fake kernels of collectives take ids from the user's generator",
            needs_loaded=True,
            is_optional=True,
        ),
        _OPERATOR_NAME,
    ),
)

GRAPH_TEXT = Scope("graph text", "fx writes the text of one of our graphs, at any time", (_OPERATOR_NAME,))

SCOPES: tuple[Scope, ...] = (
    COMPILE,
    GRAPH_TEXT,
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
    COUNT_CALLS,
    NO_GPU,
)
"""Every change, in the order of a compilation."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What is added to a table of torch at first use, and stays there; nothing that torch has changes."""

    what: str
    where: str
    """Our function that adds it."""
    when: str
    """Completes the sentence "it is added when …"."""
    reason: str
    """Why it stays."""


REGISTRATIONS: tuple[Registration, ...] = (
    Registration(
        "the operators of `torch._inductor.inductor_prims`",
        "inductor.compile.register_inductor_operators",
        "the log of another program names one of them",
        "torch registers them with Inductor, and has no call that removes them",
    ),
    Registration(
        "a substitute for `torch.compile` in code that Dynamo traces",
        "dynamo.state.substitute_while_tracing",
        "a session runs a script that calls `torch.compile`, in the session's own process",
        "Dynamo has no call that removes a substitute; this one is for a function of ours",
    ),
    Registration(
        "the paths of Triton's assembler and library",
        "triton.use_bundled_triton_tools",
        "a kernel is built for a GPU that is not there, in a process of its own",
        "the process builds one kernel and ends",
    ),
    Registration(
        "kernels of the CPU for operators that only CUDA has",
        "codegen/gpu/interpreter/cpu_kernels.py",
        "Triton's interpreter checks code for a GPU, in a process of its own",
        "the process ends with that code; GPU emulation removes them when the script ends",
    ),
)
"""What stays, beside the scopes that say so."""
