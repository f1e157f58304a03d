"""The GPU that a user names: by its name, an alias, or its architecture alone."""

import difflib
import re

from aotlens.errors import UserError
from aotlens.model.gpus.architectures import ARCHITECTURES, BY_CAPABILITY
from aotlens.model.gpus.gpu_target import GpuTarget
from aotlens.model.gpus.targets import TARGETS

DEFAULTS = {target.compute_capability: target.name for target in reversed(TARGETS)}
"""The GPU for a target that names only an architecture: its first row in the table."""

_CLOSEST = {
    ("sm_103", "B200 (sm_100)"): ("sm103", "b300", "gb300"),
    ("sm_110", "B200 (sm_100)"): ("sm110", "sm101", "thor", "jetsonthor"),
    ("sm_121", "RTX 5090 (sm_120)"): ("sm121", "gb10", "dgxspark"),
}
"""Architectures that Triton supports but the table lacks: the closest GPU in the table, and their names."""
_WITHOUT_SOURCE = {name: closest for closest, names in _CLOSEST.items() for name in names}

_MAKER = re.compile("nvidia|geforce|tesla")
_SM = re.compile(r"(?:sm|compute|cuda)?(\d{2,3})[af]?")
_AMD = re.compile(r"amd|instinct|radeon|gfx\d|mi\d|rx\d")


def find_target(wanted: str) -> GpuTarget:
    """Return the GPU of that name (`h100`, `RTX-4090`), or the default of an architecture (`sm_90`).

    Raises UserError with the nearest names for an unknown GPU, and for AMD GPUs.
    """
    name = _plain(wanted)
    target = _by_name().get(name)
    if target is not None:
        return target
    if _AMD.match(name):
        raise UserError(
            f"GPU '{wanted}' is AMD's: code is generated for NVIDIA GPUs only, such as"
            f" {', '.join(_common())}; Inductor takes AMD's side when a build of torch for ROCm imports it"
        )
    if name in _WITHOUT_SOURCE:
        sm, closest = _WITHOUT_SOURCE[name]
        raise UserError(
            f"GPU '{wanted}' ({sm}) is not in the table, because its multiprocessors, clock and rates are"
            f" not published; the closest is {closest}"
        )
    near = difflib.get_close_matches(name, _by_name(), n=4, cutoff=0.5)
    offered = dict.fromkeys(_display_name(key) for key in near)
    names = f"nearest: {', '.join(offered)}" if offered else f"there is {', '.join(_common())}"
    raise UserError(f"unknown GPU '{wanted}'; {names} (`aotlens doctor` lists every name)")


def target_names() -> dict[str, tuple[str, ...]]:
    """Return the names of all GPUs by architecture, its default first: `sm_90` -> (`H100 SXM`, `H100 PCIe`,
    …)."""
    return {
        architecture.sm: tuple(target.name for target in TARGETS if target.architecture is architecture)
        for architecture in ARCHITECTURES
    }


def _by_name() -> dict[str, GpuTarget]:
    """Map every normalised name to its row."""
    named = {_plain(name): target for target in TARGETS for name in (target.name, *target.aliases)}
    for capability, default in DEFAULTS.items():
        named[BY_CAPABILITY[capability].sm.replace("_", "")] = named[_plain(default)]
    return named


def _plain(name: str) -> str:
    """Normalise a name: without case, separators and vendor words; an architecture (`sm_90a`, `9.0`, `90`) as
    `sm90`."""
    plain = _MAKER.sub("", re.sub(r"[^a-z0-9]", "", name.lower()))
    number = _SM.fullmatch(plain)
    return f"sm{number[1]}" if number is not None else plain


def _display_name(plain: str) -> str:
    """Return a normalised name as it is printed: `sm_90`, `H100 SXM`."""
    return f"sm_{plain[2:]}" if re.fullmatch(r"sm\d+", plain) else _by_name()[plain].name


def _common() -> tuple[str, ...]:
    return tuple(DEFAULTS[architecture.compute_capability] for architecture in ARCHITECTURES)
