"""What programs of Windows print, as text: in UTF-16, UTF-8, or the code page of their console. Pure."""

from __future__ import annotations

import codecs
import re

UTF8 = 65001
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_PAGE = re.compile(r"(\d{3,5})\D*\Z", re.ASCII)


def code_page_of(answer: str) -> int | None:
    """The number at the end of what chcp prints, in any language; None if there is none that Python knows."""
    match = _PAGE.search(answer)
    page = int(match[1]) if match else 0
    return page if page and _codec(page) is not None else None


def encoding_of(data: bytes, page: int | None = None) -> str:
    """The codec that reads all of it: what its first bytes say, UTF-8 if it is that, otherwise the code page's."""
    for bom, name in _BOMS:
        if data.startswith(bom):
            return name
    if _is_utf16(data):
        return "utf-16-le"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return (_codec(page) if page is not None else None) or "cp1252"
    return "utf-8"


def decoded(data: bytes | bytearray, page: int | None = None) -> str:
    """The text, its lines ended by newlines alone; what its encoding does not have becomes U+FFFD."""
    data = bytes(data)
    name = encoding_of(data, page)
    bom = next((bom for bom, _ in _BOMS if data.startswith(bom)), b"")
    text = data[len(bom) :].decode(name, errors="replace")
    return text.replace("\r\r\n", "\n").replace("\r\n", "\n").replace("\r", "\n")


def _codec(page: int) -> str | None:
    name = "utf-8" if page == UTF8 else f"cp{page}"
    try:
        return codecs.lookup(name).name
    except LookupError:
        return None


def _is_utf16(data: bytes) -> bool:
    """Without a mark: every second byte of the beginning is 0, and no other one; so wmic prints to a pipe."""
    start = data[: min(len(data), 64) // 2 * 2]
    return len(start) >= 4 and not any(start[1::2]) and all(start[::2])
