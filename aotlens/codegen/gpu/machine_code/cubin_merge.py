"""Merge several cubins into one ELF file: a disassembler takes 0.3 s to start, and almost nothing per kernel.

Invariant: code, constants and their relocations stay those of each cubin; sections about whole files (debug
lines, notes) are dropped. A damaged file raises BackendError.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from aotlens.errors import BackendError

SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_NOBITS, SHT_REL = 2, 3, 4, 8, 9
SHN_LORESERVE = 0xFF00
"""Section numbers from here on are reserved."""
GLOBAL_INFO = 0xFF000000
"""A text section's `info` holds its kernel's symbol number, and registers in the highest byte."""

_HEADER, _HEADER_BYTES = "<IIQQQQIIQQ", 64
_SYMBOL, _SYMBOL_BYTES = "<IBBHQQ", 24
_RELOCATION_BYTES = {SHT_RELA: 24, SHT_REL: 16}
_ALIGNMENT = 128
_KERNEL_SECTIONS = (".text.", ".rela.text.", ".rel.text.", ".nv.constant", ".nv.shared.", ".nv.global")
"""Prefixes of the names of sections that belong to kernels."""
_SHARED_SECTIONS = (".note.", ".nv.compat")
"""Prefixes of sections about the target of all kernels, which come from the first file."""


@dataclass(frozen=True, slots=True)
class _Section:
    """One section: its bytes, and the header fields that differ between files."""

    name: str
    kind: int
    flags: int
    address: int
    size: int
    link: int
    info: int
    alignment: int
    entry_bytes: int
    data: bytes = b""
    """Empty for a section without bytes in the file."""


@dataclass(frozen=True, slots=True)
class _Symbol:
    """A symbol of the ELF file."""

    name: bytes
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def is_local(self) -> bool:
        return self.info >> 4 == 0


def merge_cubins(cubins: Sequence[bytes]) -> bytes:
    """Return one file with all kernels, which must have one architecture and different names."""
    try:
        return _Merge().merge(cubins)
    except (struct.error, IndexError, KeyError, ValueError) as error:
        raise BackendError(f"cubins that cannot be read together: {error!r}") from error


class _Merge:
    """Mutable while sections are added."""

    def __init__(self) -> None:
        # in an ELF file the number 0 refers to nothing, so the first section and the first symbol are empty
        self._sections = [_Section("", 0, 0, 0, 0, 0, 0, 0, 0)]
        self._locals = [_Symbol(b"", 0, 0, 0, 0, 0)]
        self._globals: list[_Symbol] = []
        self._numbering: list[tuple[dict[int, int], dict[int, _Symbol]]] = []
        """For each file, its section numbers with ours, and its symbol numbers with our symbols."""

    def merge(self, cubins: Sequence[bytes]) -> bytes:
        for cubin in cubins:
            self._add(cubin)
        symbols = [*self._locals, *self._globals]
        numbers = {id(symbol): number for number, symbol in enumerate(symbols)}
        table = len(self._sections)
        for sections, known in self._numbering:
            own = {old: numbers[id(symbol)] for old, symbol in known.items()}
            for index in sections.values():
                self._sections[index] = _renumbered(self._sections[index], sections, own, table)
        return _file_bytes(cubins[0][:_HEADER_BYTES], [*self._sections, *self._tables(symbols)])

    def _add(self, cubin: bytes) -> None:
        """Take the kernels of a file, and the symbols that they use; shared sections come from the first."""
        file_sections = _sections(cubin)
        sections: dict[int, int] = {}
        for number, section in enumerate(file_sections):
            if section.name.startswith(
                _KERNEL_SECTIONS if self._numbering else (*_KERNEL_SECTIONS, *_SHARED_SECTIONS)
            ):
                sections[number] = len(self._sections)
                self._sections.append(section)
        table = next(section for section in file_sections if section.kind == SHT_SYMTAB)
        known = {0: self._locals[0]}
        for number, symbol in enumerate(_symbols(table.data, file_sections[table.link].data)):
            if number and (
                symbol.section == 0 or symbol.section >= SHN_LORESERVE or symbol.section in sections
            ):
                known[number] = replace(symbol, section=sections.get(symbol.section, symbol.section))
                (self._locals if symbol.is_local else self._globals).append(known[number])
        self._numbering.append((sections, known))

    def _tables(self, symbols: list[_Symbol]) -> Iterator[_Section]:
        names, rows = bytearray(b"\0"), bytearray()
        for symbol in symbols:
            row = (symbol.info, symbol.other, symbol.section, symbol.value, symbol.size)
            rows += struct.pack(_SYMBOL, len(names) if symbol.name else 0, *row)
            names += symbol.name + b"\0" if symbol.name else b""
        own, local = len(self._sections), len(self._locals)
        yield _Section(".symtab", SHT_SYMTAB, 0, 0, len(rows), own + 1, local, 8, _SYMBOL_BYTES, bytes(rows))
        yield _Section(".strtab", SHT_STRTAB, 0, 0, len(names), 0, 0, 1, 0, bytes(names))


def _sections(cubin: bytes) -> list[_Section]:
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    width, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from(_HEADER, cubin, start + index * width) for index in range(count)]
    table = headers[names][4]
    parsed = []
    for name, kind, flags, address, offset, size, link, info, alignment, entry in headers:
        end = cubin.index(b"\0", table + name)
        data = b"" if kind == SHT_NOBITS else cubin[offset : offset + size]
        text = cubin[table + name : end].decode()
        parsed.append(_Section(text, kind, flags, address, size, link, info, alignment, entry, data))
    return parsed


def _symbols(table: bytes, names: bytes) -> Iterator[_Symbol]:
    for name, info, other, section, value, size in struct.iter_unpack(_SYMBOL, table):
        yield _Symbol(names[name : names.index(b"\0", name)], info, other, section, value, size)


def _renumbered(section: _Section, sections: dict[int, int], symbols: dict[int, int], table: int) -> _Section:
    """Return the section with its references to sections and symbols renumbered."""
    if section.kind in _RELOCATION_BYTES:
        data = bytearray(section.data)
        for offset in range(8, len(data), _RELOCATION_BYTES[section.kind]):
            (info,) = struct.unpack_from("<Q", data, offset)
            struct.pack_into("<Q", data, offset, symbols[info >> 32] << 32 | info & 0xFFFFFFFF)
        return replace(section, link=table, info=sections[section.info], data=bytes(data))
    info = sections.get(section.info, section.info)
    if section.name.startswith(".text."):
        info = section.info & GLOBAL_INFO | symbols[section.info & ~GLOBAL_INFO]
    return replace(section, link=table if section.link else 0, info=info)


def _file_bytes(head: bytes, sections: list[_Section]) -> bytes:
    """Return the file: its header, each section, then the section headers."""
    body, headers, names = bytearray(head), bytearray(), bytearray()
    sections = [*sections, _Section(".shstrtab", SHT_STRTAB, 0, 0, 0, 0, 0, 1, 0)]
    name_offsets = []
    for section in sections:
        name_offsets.append(len(names))
        names += section.name.encode() + b"\0"
    sections[-1] = replace(sections[-1], size=len(names), data=bytes(names))
    for section, name in zip(sections, name_offsets, strict=True):
        body += bytes(-len(body) % _ALIGNMENT)
        offset = len(body) if section.kind else 0
        row = (section.kind, section.flags, section.address, offset, section.size)
        more = (section.link, section.info, section.alignment, section.entry_bytes)
        headers += struct.pack(_HEADER, name, *row, *more)
        body += section.data
    struct.pack_into("<QQ", body, 0x20, 0, len(body))
    struct.pack_into("<HHHHH", body, 0x36, 0, 0, _HEADER_BYTES, len(sections), len(sections) - 1)
    return bytes(body + headers)
