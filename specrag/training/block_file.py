"""A file of JSON lines that grows by whole blocks, so that a run that was cut off can go on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from specrag.errors import InputError
from specrag.training.lines import read_objects


class BlockFile:
    """Rows that are added a block at a time, and kept a block at a time.

    Rows of a block are decoded together, and rounding makes a row depend a little on the others
    of its pass. A block is therefore repeated as a whole: a run that was cut off and resumed
    writes the file of a run that was not.

    Args:
        path: Of the file.
        block_rows: Rows of each block but the last.
    """

    def __init__(self, path: Path, block_rows: int) -> None:
        self.path = path
        self.block_rows = block_rows

    def resume(self, total: int | None = None) -> int:
        """Cuts off what a killed run left behind the last whole block.

        Args:
            total: Rows of the complete file, whose last block may be a short one; None when all
                blocks are whole.

        Returns:
            Rows that stay.

        Raises:
            InputError: The file cannot be read or written.
        """
        try:
            ends = [0]  # after each row that is complete, the place in the file
            with self.path.open("rb") as file:
                for line in file:
                    if line.endswith(b"\n"):
                        ends.append(ends[-1] + len(line))
            num_rows = len(ends) - 1
            if total is None or num_rows < total:
                num_rows -= num_rows % self.block_rows
            if ends[num_rows] < self.path.stat().st_size:
                os.truncate(self.path, ends[num_rows])
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise InputError(
                f"cannot go on with {str(self.path)!r}: {error.strerror}",
                hint="it must be a file that can be read and written",
            ) from error
        return num_rows

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the rows with their places, such as ``line 3 of 'a.jsonl'``.

        Raises:
            InputError: A line is damaged.
        """
        return read_objects(self.path) if self.path.exists() else iter(())

    def append(self, lines: Sequence[str]) -> None:
        """Adds a block and waits until it lies on the disk.

        Args:
            lines: One JSON object each, without line breaks.

        Raises:
            InputError: The file cannot be written.
        """
        try:
            with self.path.open("ab") as file:
                file.write("".join(f"{line}\n" for line in lines).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(
                f"cannot write {str(self.path)!r}: {error.strerror}",
                hint="make room and run the command again: it goes on where it was",
            ) from error
