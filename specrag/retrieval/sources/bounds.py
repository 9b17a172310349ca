"""How much of a file, a folder or an archive is read at most. Depends on nothing."""

from __future__ import annotations

MIB = 1024 * 1024

MAX_TEXT_FILE_BYTES = 32 * MIB
MAX_TABLE_FILE_BYTES = 128 * MIB  # CSV and JSON lines, which are read row by row
MAX_RICH_FILE_BYTES = 256 * MIB  # PDF and DOCX, most of which is pictures

MAX_LINE_CHARACTERS = 1_000_000
"""Of a text file: a longer line is data, and no citation could point into it."""
MAX_TEXT_CHARACTERS = 64_000_000
"""Of the text made of one file: some formats can say the same thing many times over."""
MAX_JSON_NESTING = 64
MAX_PDF_PAGES = 20_000
MAX_DOCX_UNPACKED_BYTES = 512 * MIB

MAX_ARCHIVE_UNPACKED_BYTES = 2048 * MIB
MAX_ARCHIVE_RATIO = 200
"""Of unpacked to packed bytes; looked at above ``MIN_BOMB_BYTES``, for small files vary."""
MIN_BOMB_BYTES = 16 * MIB
MAX_ARCHIVE_MEMBERS = 50_000
MAX_ZIP_DIRECTORY_BYTES = 16 * MIB
MAX_TAR_HEADER_BYTES = MIB

MAX_IGNORE_FILE_BYTES = MIB


def readable_size(num_bytes: int) -> str:
    """Returns a size for people, such as ``32 MiB``.

    Args:
        num_bytes: The size.
    """
    whole = num_bytes >= MIB and num_bytes % MIB == 0
    return f"{num_bytes // MIB} MiB" if whole else f"{num_bytes} bytes"
