# SPDX-License-Identifier: Apache-2.0
"""What a shared library asks for and offers: its name, the libraries and symbols that it needs, the
symbols that it defines. Reads 64-bit ELF files by their section headers; no tool is needed."""
import collections
import struct

Import = collections.namedtuple("Import", "name library node")  # library, node: None if unversioned

SHT_STRTAB, SHT_DYNAMIC, SHT_DYNSYM = 3, 6, 11
SHT_GNU_VERNEED, SHT_GNU_VERSYM = 0x6FFFFFFE, 0x6FFFFFFF
DT_NEEDED, DT_SONAME = 1, 14
STB_WEAK = 2


class NotElf(Exception):
    """The file is no 64-bit ELF library, or a damaged one."""


class Library:
    def __init__(self, path):
        """Reads `path`; raises NotElf, or OSError."""
        self.path = path
        self.soname = None
        self.needed = []
        self.imports = []
        self.exports = set()
        with open(path, "rb") as file:
            self._file = file
            try:
                self._read()
            except (struct.error, IndexError, UnicodeDecodeError) as error:
                raise NotElf(f"{path}: damaged ELF file ({error})") from None
            finally:
                del self._file

    def _bytes(self, offset, size):
        self._file.seek(offset)
        return self._file.read(size)

    def _read(self):
        head = self._bytes(0, 64)
        if head[:5] != b"\x7fELF\x02":
            raise NotElf(f"{self.path}: not a 64-bit ELF file")
        self._order = "<" if head[5] == 1 else ">"
        self._machine, = struct.unpack_from(self._order + "H", head, 18)
        table, = struct.unpack_from(self._order + "Q", head, 40)
        size, count = struct.unpack_from(self._order + "HH", head, 58)
        entry = struct.Struct(self._order + "IIQQQQIIQQ")
        # name, type, flags, address, offset, size, link, info, align, entry size
        raw = self._bytes(table, size * count)
        sections = [entry.unpack_from(raw, index * size) for index in range(count)]
        by_type = {section[1]: section for section in sections}
        if SHT_DYNSYM not in by_type or SHT_DYNAMIC not in by_type:
            raise NotElf(f"{self.path}: not a shared library")
        symbols = by_type[SHT_DYNSYM]
        text = sections[symbols[6]]
        self._text = self._bytes(text[4], text[5])
        self._read_dynamic(by_type[SHT_DYNAMIC])
        self._read_symbols(symbols, by_type.get(SHT_GNU_VERSYM),
                           self._read_versions(by_type.get(SHT_GNU_VERNEED)))

    def _string(self, offset):
        return self._text[offset:self._text.index(b"\0", offset)].decode()

    def _read_dynamic(self, section):
        for tag, value in struct.iter_unpack(self._order + "qQ",
                                             self._bytes(section[4], section[5] // 16 * 16)):
            if tag == DT_NEEDED:
                self.needed.append(self._string(value))
            elif tag == DT_SONAME:
                self.soname = self._string(value)

    def _read_versions(self, section):
        """Number of a version -> (library, node)."""
        versions = {}
        if section is None:
            return versions
        raw, at = self._bytes(section[4], section[5]), 0
        for _ in range(section[7]):
            _, count, file, first, following = struct.unpack_from(self._order + "HHIII", raw, at)
            node = at + first
            for _ in range(count):
                _, _, number, name, next_node = struct.unpack_from(self._order + "IHHII", raw, node)
                versions[number & 0x7FFF] = (self._string(file), self._string(name))
                node += next_node
            at += following
        return versions

    def _read_symbols(self, section, numbers, versions):
        raw = self._bytes(section[4], section[5])
        index = self._bytes(numbers[4], numbers[5]) if numbers is not None else None
        symbol = struct.Struct(self._order + "IBBHQQ")
        for position, (name, info, _, where, _, _) in enumerate(symbol.iter_unpack(raw)):
            if name == 0:
                continue
            text = self._string(name)
            if where != 0:
                self.exports.add(text)
                continue
            number = 0
            if index is not None:
                number, = struct.unpack_from(self._order + "H", index, 2 * position)
            library, node = versions.get(number & 0x7FFF, (None, None))
            self.imports.append(Import(text, library, node))
