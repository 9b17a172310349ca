"""Reads pictures: what stands in them, and how large they are."""

from __future__ import annotations

import io
import struct
import xml.etree.ElementTree as ElementTree
from typing import Any

from specrag.evaluation.plots.canvas import as_svg


def letters(figure: Any) -> list[str]:
    """Returns the texts of a picture as its SVG holds them."""
    root = ElementTree.fromstring(as_svg(figure))
    return ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]


def png_size(content: bytes) -> tuple[int, int]:
    """Returns width and height in pixels."""
    width, height = struct.unpack(">II", io.BytesIO(content[16:24]).read())
    return width, height


def labels(figure: Any) -> list[str]:
    """Returns the entries of the legend."""
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]
