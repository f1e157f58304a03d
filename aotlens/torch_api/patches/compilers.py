"""What we change in Dynamo, Inductor and Triton, and in fake kernels: rows of the table."""

from collections.abc import Callable
from typing import Any

from aotlens.torch_api.caches import aot_key_parts, load_with_key, prepare_key, trace_structured
from aotlens.torch_api.dynamo.calls import COMPILE_CALLS, wrap_calls
from aotlens.torch_api.dynamo.listener import DYNAMO_EVENTS, HOOKS
from aotlens.torch_api.dynamo.state import call_without_events, create_proxy, keep_hidden, wrap_compiled
from aotlens.torch_api.fake.kernels import grouped_mm, output_info, own_results, view
from aotlens.torch_api.gpu import triton_target
from aotlens.torch_api.inductor.kernel_groups import build_groups, queue_kernel
from aotlens.torch_api.inductor.linker import link_with_gold
from aotlens.torch_api.inductor.lowerings import (
    codegen_comment,
    compute_dependencies,
    define_kernel,
    is_alive_anyway,
    layout_of_bernoulli,
    lower_bernoulli,
    lower_effect,
    lower_storage_offset,
    set_python_kernel_name,
)
from aotlens.torch_api.inductor.output import cpp_pybinding
from aotlens.torch_api.patches.scopes import Patch, Scope, around, constant, patched
from aotlens.torch_api.patches.targets import Attribute, Entry

__all__ = [
    "BACKEND",
    "COUNT_CALLS",
    "DYNAMO",
    "FAKE_KERNELS",
    "INDUCTOR",
    "INDUCTOR_GPU",
    "LISTEN",
    "NO_GPU",
    "PRECOMPILED_KERNELS",
    "TRITON_TARGET",
    "WRAP_COMPILED",
]

FAKE_KERNELS = (
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
    Patch(
        Attribute("torch._subclasses.fake_tensor:FakeTensorMode", "_get_output_info_for_cache_entry"),
        output_info,
        "the cache forgets where in its memory a result begins",
        is_optional=True,
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
        Patch(
            Attribute("torch._dynamo.decorators", "disable"),
            keep_hidden,
            "it adds a Python frame to each call of what a backend returns, also where that hides itself",
        ),
        Patch(
            Attribute("torch._dynamo.codegen:PyCodegen", "make_call_generated_code"),
            call_without_events,
            "the events `Pregraph bytecode` cost each call of a graph of ours more than our wrapper does",
        ),
        *FAKE_KERNELS,
    ),
)


@around
def _convert_frame(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """How Dynamo compiles a frame: with the rows of `DYNAMO` in force."""
    with patched(DYNAMO):
        return original(self, *args, **kwargs)


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
        *(
            Patch(
                Attribute(module, "is_nonfreeable_buffers"),
                is_alive_anyway,
                "it reads from an input's name whether the caller keeps it, and ours have the user's names",
                is_optional=True,
            )
            for module in ("torch._inductor.memory", "torch._inductor.utils")
        ),
        Patch(
            Attribute("torch._inductor.ir:ExternKernel", "set_python_kernel_name"),
            set_python_kernel_name,
            "it writes a call of `aten.random.from`, whose name is a keyword, as no Python",
        ),
        Patch(
            Attribute("torch._inductor.cpp_builder", "run_compile_cmd"),
            link_with_gold,
            "the usual linker takes a third of the time that a kernel for the CPU takes to build",
            is_optional=True,
        ),
        Patch(
            Attribute("torch._inductor.async_compile:AsyncCompile", "cpp_pybinding"),
            queue_kernel,
            "a library for each kernel takes most of its time for what is the same in all",
        ),
        Patch(
            Attribute("torch._inductor.async_compile:AsyncCompile", "wait"),
            build_groups,
            "the kernels of a graph are built in groups",
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
        COMPILE_CALLS,
        Patch(
            Attribute("torch._logging", "trace_structured"),
            trace_structured,
            "lookups in caches are reported",
        ),
        Patch(
            Attribute("torch._functorch._aot_autograd.autograd_cache", "_get_debug_lines_for_cache_key"),
            aot_key_parts,
            "causes of misses are reported; from 2.13 on the parts of a key are not listed unless logged",
            needs_loaded=True,
            is_optional=True,
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

COUNT_CALLS = Scope(
    "calls of compiled functions",
    "a script runs whose calls of compiled functions are counted",
    (
        Patch(
            Attribute("torch._dynamo.eval_frame:_TorchDynamoContext", "__call__"),
            wrap_calls,
            "calls that run no graph are counted, also those of copies of a compiled module",
            needs_loaded=True,
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
