"""Ids that the gateway makes. Pure: time and randomness are given."""

from uuid import UUID


def uuid7(now_ms: int, random: bytes) -> UUID:
    """A version 7 UUID of a Unix time in milliseconds and 10 random bytes; ids of later milliseconds sort higher."""
    value = (now_ms & (2**48 - 1)) << 80 | int.from_bytes(random[:10])
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return UUID(int=value)
