"""Every private name of torch that aotlens uses: imported here and nowhere else.

Invariant: a new torch release is work for this package alone.  Where releases differ, the code looks at what
the installed one has.  `scripts/release/torch_versions.py` tries all of them.

    operators             operators, their kernels and decompositions
    python_functions      Python functions that call exactly one operator: `torch.sin`
    modes                 dispatch modes, function modes, dispatch keys
    autograd              nodes of the autograd graph, version counters, grad mode
    custom_functions      calls of `torch.autograd.Function`
    transforms            `torch.func`: vmap, grad, linearize, functionalize
    tensor_attributes     reads and writes that no operator reports: `.data`, `.grad`, hooks, indices
    saved_tensor_hooks    the caller's hooks on saved tensors
    checkpoints           `torch.utils.checkpoint` while a function is traced
    fake/                 fake tensors, their kernels, a GPU that is not there, a fake process group
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
    patches/              what is replaced in torch, when and why: one table, and how it is applied
"""

import warnings

import torch

from aotlens.torch_versions import note_once

if note := note_once(torch.__version__):
    warnings.warn(note, stacklevel=2)
