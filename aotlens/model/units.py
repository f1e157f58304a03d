"""Bytes and FLOP as text, for front ends (`aotlens.view.quantities`) and comments of generated modules."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def human_bytes(size: int | None) -> str:
    """`34.1 MiB`; `unknown size` for a symbolic one."""
    if size is None:
        return "unknown size"
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{size} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def human_flops(flops: int) -> str:
    """`10.2 kFLOP`."""
    value = float(flops)
    for unit in ("", "k", "M", "G", "T"):
        if value < 1000:
            return f"{value:.1f} {unit}FLOP" if unit else f"{flops} FLOP"
        value /= 1000
    return f"{value:.1f} PFLOP"
