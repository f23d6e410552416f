#!/usr/bin/env python3
"""Prints what a Mach-O program needs of the system: its architecture, the minimum version and the dynamic libraries."""

import struct
import sys

ARCHITECTURES = {0x0100000C: "arm64", 0x01000007: "x86_64"}
LOAD_DYLIB = {0xC, 0x80000018, 0x8000001F, 0x80000023, 0x20}
BUILD_VERSION = 0x32
VERSION_MIN_MACOSX = 0x24
CODE_SIGNATURE = 0x1D
EXECUTE = 2


def version(number):
    return f"{number >> 16}.{number >> 8 & 255}"


def facts(data):
    magic, cpu, _, kind, n_commands, _, _, _ = struct.unpack_from("<8I", data)
    if magic != 0xFEEDFACF or kind != EXECUTE:
        sys.exit("not a 64-bit Mach-O program")
    yield f"architecture {ARCHITECTURES.get(cpu, hex(cpu))}"
    at = 32
    libraries = []
    is_signed = False
    for _ in range(n_commands):
        command, size = struct.unpack_from("<2I", data, at)
        if command in LOAD_DYLIB:
            name = at + struct.unpack_from("<I", data, at + 8)[0]
            libraries.append(data[name : at + size].split(b"\0")[0].decode())
        elif command == BUILD_VERSION:
            yield f"minimum {version(struct.unpack_from('<I', data, at + 12)[0])}"
        elif command == VERSION_MIN_MACOSX:
            yield f"minimum {version(struct.unpack_from('<I', data, at + 8)[0])}"
        is_signed |= command == CODE_SIGNATURE
        at += size
    yield from (f"library {name}" for name in sorted(libraries))
    yield f"signature {'yes' if is_signed else 'no'}"


with open(sys.argv[1], "rb") as file:
    print("\n".join(facts(file.read())))
