"""The intermediate languages of a GPU kernel, for options, which need no records of kernels."""

KERNEL_LANGUAGES = ("ttir", "ttgir", "llir", "ptx", "sass")
"""The intermediate languages of a kernel after Triton's, down to machine code."""
