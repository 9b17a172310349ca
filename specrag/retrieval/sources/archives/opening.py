"""Opens an archive by its name. Depends on the kinds of archives."""

from __future__ import annotations

from pathlib import Path

from specrag.retrieval.sources.archives.archive import Archive
from specrag.retrieval.sources.archives.tar_archive import TarArchive
from specrag.retrieval.sources.archives.zip_archive import ZipArchive
from specrag.retrieval.sources.files import open_regular


def open_archive(path: Path) -> Archive:
    """Opens an archive.

    Args:
        path: The file; its suffix tells the kind.

    Raises:
        UnreadableError: It is no archive of that kind.
        OSError: It cannot be opened.
    """
    file = open_regular(path)
    try:
        return (
            ZipArchive(file) if path.name.lower().endswith(".zip") else TarArchive(file, path.name)
        )
    except BaseException:
        file.close()
        raise
