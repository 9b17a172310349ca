"""Lets ``python -m specrag`` do what ``specrag`` does."""

from __future__ import annotations

from specrag.cli.main import console

if __name__ == "__main__":
    console()
