"""A kernel's name as a table shows it."""

LONGEST_NAME, SHORTEST_NAME = 34, 16
PREFIXES = ("torch.ops.", "extern_kernels.")
"""What the generated code calls a library's functions through."""


def short_name(name: str, longest: int = LONGEST_NAME) -> str:
    """Its own name without the middle: a kernel's kind is told at the front, its number at the end."""
    return without_middle(own_name(name), longest)


def own_name(name: str) -> str:
    """`aten.bernoulli.p` of `torch.ops.aten.bernoulli.p`."""
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


def without_middle(text: str, longest: int) -> str:
    """The text in at most so many characters: what stands at its front, and the last dozen."""
    end = max(0, min(12, longest // 2 - 2))
    return text if len(text) <= longest else f"{text[: longest - end - 1]}…{text[len(text) - end :]}"
