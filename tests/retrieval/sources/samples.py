"""Small files of each format, made on the spot."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import docx
import pypdf

from specrag.retrieval.document import Document
from specrag.retrieval.sources.entry_reader import documents_of
from specrag.retrieval.sources.source import ReadOptions


def put(root: Path, name: str, content: str | bytes = "some text") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(data: str | bytes, name: str, options: ReadOptions | None = None) -> list[Document]:
    raw = data.encode() if isinstance(data, str) else data
    return list(documents_of(raw, name, name, options or ReadOptions()))


def read_one(data: str | bytes, name: str, options: ReadOptions | None = None) -> Document:
    (document,) = read(data, name, options)
    return document


def pdf_of(pages: Sequence[str], title: str = "") -> bytes:
    """Writes each line of each page in Helvetica."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, page in enumerate(pages):
        shown = " ".join(f"({line}) Tj T*" for line in page.split("\n"))
        stream = f"BT /F1 12 Tf 14 TL 72 720 Td {shown} ET" if page else ""
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * number} 0 R >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    objects.append(f"<< /Title ({title}) >>")
    body, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        places.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    count = len(objects) + 1
    end = (
        f"xref\n0 {count}\n0000000000 65535 f \n{table}"
        f"trailer << /Size {count} /Root 1 0 R /Info {count - 1} 0 R >>\n"
        f"startxref\n{len(body)}\n%%EOF\n"
    )
    return body + end.encode()


def encrypted_pdf(password: str = "secret") -> bytes:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf_of(["Hidden."])))
    writer.encrypt(password, algorithm="RC4-128")
    return saved(writer.write)


def docx_of(*paragraphs: tuple[str, str] | str) -> bytes:
    """Writes paragraphs, each a text or a style and a text."""
    document = docx.Document()
    for paragraph in paragraphs:
        style, text = ("Normal", paragraph) if isinstance(paragraph, str) else paragraph
        document.add_paragraph(text, style=style)
    return saved(document.save)


def saved(save: object) -> bytes:
    stream = io.BytesIO()
    assert callable(save)
    save(stream)
    return stream.getvalue()


def zip_of(members: Mapping[str, str | bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def tar_of(members: Mapping[str, str | bytes], mode: str = "w") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()
