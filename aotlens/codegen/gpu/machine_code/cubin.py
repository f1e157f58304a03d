"""Read each kernel's resources from a cubin (NVIDIA's ELF format for compiled kernels), without a driver.

Invariant: a file that is no cubin, or is truncated or damaged, raises a BackendError that says what is wrong;
nothing outside of the file's bytes is read.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from aotlens.errors import BackendError

EM_CUDA = 190
"""ELF's machine number of NVIDIA GPUs."""
SHT_SYMTAB, SHT_NOBITS = 2, 8

SIZED = 4
"""The format of an attribute whose payload follows it; other formats hold the value in the record."""
FRAME_SIZE, REGISTER_COUNT = 0x11, 0x2F
"""Attributes of the whole file: a symbol's number and a value."""
MAX_THREADS, REQUIRED_THREADS = 0x05, 0x10
"""Attributes of one kernel: the threads of a block along x, y and z (`.maxntid`, `.reqntid` in PTX)."""

RESERVED_SHARED_BYTES = 1024
"""From sm_90 on, the system's shared memory counts towards that of a kernel that uses any."""


@dataclass(frozen=True, slots=True)
class KernelResources:
    """The resources of one kernel, as the compiler states them."""

    name: str
    architecture: int
    """Of the code: 90 for sm_90."""
    registers: int = 0
    """Per thread."""
    frame_bytes: int = 0
    """Stack per thread, in memory: spilled registers, and the program's own arrays."""
    shared_bytes: int = 0
    """Static shared memory per block, without the system's; dynamic shared memory is not in a cubin."""
    threads: int | None = None
    """The block size for which the kernel was compiled; None where it has none."""
    code_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Section:
    """A section header of the ELF file."""

    name: str
    kind: int
    offset: int
    size: int
    link: int


def read_cubin(binary: bytes) -> dict[str, KernelResources]:
    """Return the kernels of a cubin by name; raises BackendError."""
    try:
        return _kernels(binary)
    except (struct.error, OverflowError) as error:  # an offset outside of the file or the address range
        raise BackendError(f"a cubin of {len(binary)} bytes is cut off or damaged: {error}") from error


def _kernels(binary: bytes) -> dict[str, KernelResources]:
    sections = _sections(binary)
    architecture = _architecture(binary)
    kernels = {
        name: KernelResources(name, architecture, code_bytes=section.size)
        for section in sections
        # functions that the compiler adds (`$__internal_0_$…`) are not kernels
        if (name := section.name.removeprefix(".text.")) != section.name and not name.startswith("$")
    }
    if not kernels:
        raise BackendError("a cubin without kernels: it has no section `.text.NAME`")
    symbols = _symbols(binary, sections)
    for section in sections:
        for name, facts in _kernel_facts(binary, section, symbols, architecture):
            if name in kernels:
                kernels[name] = replace(kernels[name], **facts)
    return kernels


def _architecture(binary: bytes) -> int:
    """Return the number after `sm_`; its position changed with version 8 of the format."""
    (version,) = struct.unpack_from("<B", binary, 8)
    (flags,) = struct.unpack_from("<I", binary, 0x30)
    return int(flags >> 8 & 0xFF if version >= 8 else flags & 0xFF)


def _sections(binary: bytes) -> tuple[_Section, ...]:
    """Return the sections of the file, each checked to be within it."""
    if binary[:4] != b"\x7fELF":
        raise BackendError(
            f"no cubin: {len(binary)} bytes that begin with {binary[:4]!r} instead of b'\\x7fELF'"
        )
    (machine,) = struct.unpack_from("<H", binary, 0x12)
    if binary[4:6] != b"\x02\x01" or machine != EM_CUDA:
        raise BackendError(f"no cubin: an ELF file for machine {machine} instead of {EM_CUDA}")
    (start,) = struct.unpack_from("<Q", binary, 0x28)
    width, count, names_at = struct.unpack_from("<HHH", binary, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", binary, start + index * width) for index in range(count)]
    if names_at >= count:
        raise BackendError(f"a damaged cubin: section {names_at} of {count} should hold the names")
    _, _, _, _, offset, size, *_ = headers[names_at]
    names = _Section("names", 0, offset, size, 0)
    parsed = (
        _Section(_text(binary, names, name), kind, offset, size, link)
        for name, kind, _, _, offset, size, link, *_ in headers
    )
    return tuple(_checked_bounds(binary, section) for section in parsed)


def _checked_bounds(binary: bytes, section: _Section) -> _Section:
    if section.kind != SHT_NOBITS and section.offset + section.size > len(binary):
        raise BackendError(
            f"a damaged cubin: section `{section.name}` ends at {section.offset + section.size},"
            f" the file at {len(binary)}"
        )
    return section


def _text(binary: bytes, table: _Section, name_offset: int) -> str:
    """Return the name at an offset in a string table."""
    start, last = table.offset + name_offset, table.offset + table.size
    end = binary.find(b"\0", start, last)
    if end < 0:
        raise BackendError(f"a damaged cubin: a name at byte {start} does not end inside of its table")
    return binary[start:end].decode("utf-8", "replace")


def _symbols(binary: bytes, sections: tuple[_Section, ...]) -> tuple[str, ...]:
    """Return the names of all symbols, by number."""
    table = next((section for section in sections if section.kind == SHT_SYMTAB), None)
    if table is None or table.link >= len(sections):
        raise BackendError("a damaged cubin: it has no table of symbols")
    width = struct.calcsize("<IBBHQQ")
    starts = range(table.offset, table.offset + table.size - width + 1, width)
    names = sections[table.link]
    return tuple(_text(binary, names, struct.unpack_from("<I", binary, start)[0]) for start in starts)


def _kernel_facts(
    binary: bytes, section: _Section, symbols: tuple[str, ...], architecture: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what a section states about kernels: the kernel's name, and fields of its record."""
    if section.name.startswith(".nv.shared."):
        reserved = RESERVED_SHARED_BYTES if architecture >= 90 else 0
        yield section.name.removeprefix(".nv.shared."), {"shared_bytes": max(section.size - reserved, 0)}
    elif section.name == ".nv.info":
        fields = {FRAME_SIZE: "frame_bytes", REGISTER_COUNT: "registers"}
        for attribute, payload in _attributes(binary, section):
            if attribute in fields:
                symbol, value = struct.unpack_from("<II", payload)
                if symbol >= len(symbols):
                    raise BackendError(f"a damaged cubin: attributes of symbol {symbol} of {len(symbols)}")
                yield symbols[symbol], {fields[attribute]: value}
    elif section.name.startswith(".nv.info."):
        for attribute, payload in _attributes(binary, section):
            if attribute in (MAX_THREADS, REQUIRED_THREADS):
                x, y, z = struct.unpack_from("<III", payload)
                yield section.name.removeprefix(".nv.info."), {"threads": x * y * z}


def _attributes(binary: bytes, section: _Section) -> Iterator[tuple[int, bytes]]:
    """Yield the attributes with a payload: number and payload."""
    position, end = section.offset, section.offset + section.size
    while position < end:
        form, attribute, size = struct.unpack_from("<BBH", binary, position)
        position += 4
        if form == SIZED:
            if position + size > end:
                raise BackendError(f"a damaged cubin: an attribute runs over the end of `{section.name}`")
            yield attribute, binary[position : position + size]
            position += size
