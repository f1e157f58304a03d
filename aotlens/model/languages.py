"""The intermediate languages of a GPU kernel, apart from its records, which options need not load."""

KERNEL_LANGUAGES = ("ttir", "ttgir", "llir", "ptx", "sass")
"""The intermediate languages of a kernel after Triton's, down to machine code."""
