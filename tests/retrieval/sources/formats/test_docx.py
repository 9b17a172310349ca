from __future__ import annotations

import io
import zipfile

import docx
import pytest
from docx.opc.packuri import PackURI
from docx.opc.part import Part

from specrag.retrieval.sources.formats import docx as reader
from specrag.retrieval.sources.source import UnreadableError
from specrag.retrieval.splitter import Splitter
from tests.retrieval.sources.samples import docx_of, read_one, saved, zip_of

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def with_body(body: str) -> bytes:
    """Replaces the body of an empty file."""
    stream = io.BytesIO()
    xml = f'<?xml version="1.0"?><w:document {W}><w:body>{body}</w:body></w:document>'
    with zipfile.ZipFile(io.BytesIO(docx_of())) as old, zipfile.ZipFile(stream, "w") as new:
        for info in old.infolist():
            is_body = info.filename == "word/document.xml"
            new.writestr(info, xml if is_body else old.read(info))
    return stream.getvalue()


def test_a_file_becomes_markdown() -> None:
    document = docx.Document()
    document.core_properties.title = "Plan"
    document.add_heading("Report", 0)
    document.add_heading("Part", 1)
    document.add_paragraph("One line.\nAnd\tmore.")
    document.add_paragraph("item", style="List Bullet")
    document.add_paragraph("next", style="List Number")
    table = document.add_table(2, 2)
    for number, word in enumerate(["a", "b", "c", "d|e"]):
        table.cell(number // 2, number % 2).text = word
    document.add_paragraph("end")
    read = read_one(saved(document.save), "a.docx")
    assert read.text == (
        "# Report\n\n# Part\n\nOne line.\nAnd more.\n\n- item\n- next\n\n"
        "| a | b |\n| c | d\\|e |\n\nend"
    )
    assert (read.title, read.syntax) == ("Report", "markdown")
    assert read.metadata == {"title": "Plan", "suffix": ".docx"}
    passages = Splitter(50, 0, lambda texts: [len(text.split()) for text in texts]).split(read)
    assert [(passage.heading, passage.line) for passage in passages] == [("Part", None)]


def test_own_styles_inherit_what_they_are() -> None:
    document = docx.Document()
    style = document.styles.add_style("Chapter", 1)
    style.base_style = document.styles["Heading 2"]
    document.add_paragraph("Own", style="Chapter")
    assert read_one(saved(document.save), "a.docx").text == "## Own"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<w:p><w:ins><w:r><w:t>new</w:t></w:r></w:ins></w:p>", "new"),
        ("<w:p><w:del><w:r><w:t>old</w:t></w:r></w:del><w:r><w:t>kept</w:t></w:r></w:p>", "kept"),
        ("<w:p><w:hyperlink><w:r><w:t>link</w:t></w:r></w:hyperlink></w:p>", "link"),
        (
            "<w:sdt><w:sdtContent><w:p><w:r><w:t>form</w:t></w:r></w:p></w:sdtContent></w:sdt>",
            "form",
        ),
        ("<w:p><w:pPr><w:outlineLvl w:val='1'/></w:pPr><w:r><w:t>H</w:t></w:r></w:p>", "## H"),
        (
            "<w:p><w:pPr><w:numPr><w:ilvl w:val='1'/></w:numPr></w:pPr>"
            "<w:r><w:t>i</w:t></w:r></w:p>",
            "  - i",
        ),
        ("<w:p><w:r><w:t>a</w:t><w:br/><w:t>b</w:t></w:r></w:p>", "a\nb"),
        (
            "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>x</w:t></w:r></w:p><w:p><w:r><w:t>y</w:t></w:r></w:p>"
            "</w:tc></w:tr></w:tbl>",
            "| x y |",
        ),
    ],
)
def test_text_is_found_wherever_it_stands(body: str, text: str) -> None:
    assert read_one(with_body(body), "a.docx").text == text


def test_footnotes_follow_the_text() -> None:
    note = "<w:footnote><w:p><w:r><w:t>A note.</w:t></w:r></w:p></w:footnote>"
    notes = f"<w:footnotes {W}>{note}</w:footnotes>"
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"
    media = "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"
    document = docx.Document()
    document.add_paragraph("Text.")
    part = Part(
        PackURI("/word/footnotes.xml"),
        media,
        notes.encode(),
        document.part.package,
    )
    document.part.relate_to(part, kind)
    assert read_one(saved(document.save), "a.docx").text == "Text.\n\nA note."


def test_what_it_unpacks_to_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_DOCX_UNPACKED_BYTES", 1024 * 1024)
    bomb = zip_of({"word/document.xml": b" " * 1_100_000})
    assert len(bomb) < 5000
    with pytest.raises(UnreadableError, match="unpacks to more than 1 MiB; save it without"):
        read_one(bomb, "a.docx")
    monkeypatch.setattr(reader, "MAX_TEXT_CHARACTERS", 10)
    with pytest.raises(UnreadableError, match="holds more than 10 characters of text"):
        read_one(docx_of("12345", "12345", "12345"), "a.docx")


def test_entities_are_not_expanded() -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9)
    )
    body = "<w:body><w:p><w:r><w:t>&j;</w:t></w:r></w:p></w:body>"
    xml = f"{bomb}]><w:document {W}>{body}</w:document>"
    data = with_body("")
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w") as new:
        for info in old.infolist():
            new.writestr(info, xml if info.filename == "word/document.xml" else old.read(info))
    with pytest.raises(UnreadableError):
        read_one(stream.getvalue(), "a.docx")
