from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.retrieval.sources.formats.markdown_writer import MarkdownWriter
from specrag.retrieval.structure import blocks


def test_blocks_are_written_as_markdown() -> None:
    writer = MarkdownWriter()
    writer.heading(9, "Deep\nheading")
    writer.paragraph("  two \n \n lines  ")
    writer.item("-", "one")
    writer.item("1.", "nested", 3)
    writer.row(["a|b", "c\nd"])
    writer.row(["", ""])
    writer.row(["e", ""])
    writer.end_list()
    writer.row(["other", "table"])
    writer.code("\n  x = 1\n\n")
    writer.code("```\nfence\n```")
    writer.code("  \n")
    writer.heading(1, "  ")
    writer.paragraph("")
    assert writer.text == (
        "###### Deep heading\n\ntwo\nlines\n\n- one\n  1. nested\n\n| a\\|b | c d |\n| e |  |\n\n"
        "| other | table |\n\n```\n  x = 1\n```\n\n````\n```\nfence\n```\n````"
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["paragraph", "code", "heading"]),
            st.lists(
                st.sampled_from(
                    ["#", "# x", "```", "~~~", "---", "===", "word", "\n", " ", "|", "-"]
                )
            ).map("".join),
        )
    )
)
@settings(deadline=None, max_examples=300)
def test_text_is_never_taken_for_markup(written: list[tuple[str, str]]) -> None:
    writer = MarkdownWriter()
    for kind, text in written:
        if kind == "heading":
            writer.heading(1, text)
        else:
            getattr(writer, kind)(text)
    expected = [{"paragraph": "text"}.get(kind, kind) for kind, text in written if text.strip()]
    assert [block.kind for block in blocks(writer.text, "markdown")] == expected
