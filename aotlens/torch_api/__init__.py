"""Every private name of torch that aotlens uses: imported here and nowhere else.

Invariant: a new torch release is work for this package alone.  Where releases differ, the code looks at what
the installed one has.  `scripts/torch_versions.py` tries all of them.

    operators             operators, their kernels and decompositions
    python_functions      Python functions that call exactly one operator: `torch.sin`
    modes                 dispatch modes, function modes, dispatch keys
    autograd              nodes of the autograd graph, version counters, grad mode
    custom_functions      calls of `torch.autograd.Function`
    transforms            `torch.func`: vmap, grad, linearize, functionalize
    tensor_attributes     reads and writes that no operator reports: `.data`, `.grad`, hooks, indices
    saved_tensor_hooks    the caller's hooks on saved tensors
    checkpoints           `torch.utils.checkpoint` while a function is traced
    fake                  fake tensors and their mode
    fake_kernels          corrections of kernels that compute fake tensors
    symbolic              symbolic sizes and their environment
    rng                   RNG state and generators
    graph_text            the Python text of fx's graphs
    hop                   higher-order operators, flex attention
    objects               torchbind objects
    triton                the user's Triton kernels
    dynamo/               what Dynamo compiles now, callbacks for what it does, and how to hide code from it
    caches                torch's caches of compiled code
    aot                   settings and graph forms of ahead-of-time compilation
    inductor/             Inductor: its settings, its code for one graph, changes while it compiles
    gpu                   whether a GPU is there, and code for one that is not
    fake_gpu              fake tensors of a GPU that is not there
    patches               the one table of what is replaced in torch, when, and why
    compiler_patches      its rows for Dynamo, Inductor and Triton
    trace_handlers        what a trace does in place of torch's own functions
    patching              how a name of torch is replaced for a while
    patch_targets         the kinds of names that can be replaced
"""

import warnings

import torch

from aotlens.torch_versions import note_once

if note := note_once(torch.__version__):
    warnings.warn(note, stacklevel=2)
