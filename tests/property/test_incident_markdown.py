"""An incident's page of Markdown: whatever names and notes hold, they open no markup."""

import re

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from alerts.judge.incident import advance
from api.data.inventory.work import Deed, Does
from api.oncall.cases.markdown import commanding, markdown_of, plain
from collector.contract.units import NS
from collector.contract.verdict import Culprit, RuledOut
from tests.worlds.incidents import slow_link

READERS = [MarkdownIt("commonmark"), MarkdownIt("gfm-like", {"linkify": False})]
"""What tickets and wikis read; both pass HTML on."""
START_NS = 1_794_733_200 * NS
HOSTILE = "_n_ `a` ``b`c```\n# <script>alert(1)</script> [x](javascript:1) &lt;b&gt; | ~~x~~ **y**"
texts = st.text(st.sampled_from("ab _*`<>[]()!#|~&;\\\n-+1.:") | st.characters(), max_size=40)


@pytest.mark.parametrize("reader", READERS, ids=["commonmark", "gfm"])
@given(text=texts)
@example(text=HOSTILE)
def test_text_from_outside_is_text(reader: MarkdownIt, text: str) -> None:
    """In a line of a list, as all of it stands; commands alone may become code."""
    for written, allowed in ((plain(text), {"ul", "li"}), (commanding(text), {"ul", "li", "code"})):
        html = reader.render(f"- Name: {written}")
        assert {*re.findall(r"<([^/\s>]+)", html)} <= allowed, html


@pytest.mark.parametrize("reader", READERS, ids=["commonmark", "gfm"])
@given(text=texts)
@example(text=HOSTILE)
@example(text="___a___")
@example(text="1. ")
@example(text="- [ ] ")
@example(text="--- ")
def test_an_incident_of_hostile_names_keeps_its_shape(reader: MarkdownIt, text: str) -> None:
    def page(name: str) -> str:
        said = slow_link(START_NS, job=name)
        said = msgspec.structs.replace(
            said,
            culprit=Culprit(host=name, device=name),
            summary=name,
            ruled_out=(RuledOut(what=name, why=name),),
            evidence=(msgspec.structs.replace(said.evidence[0], text=name),),
        )
        (incident,) = advance((), [said], START_NS).incidents
        deed = Deed(
            id="1", incident=incident.id, at_ns=START_NS, by=name,
            does=Does.ASSIGN, to=name, note=name,
        )  # fmt: skip
        return markdown_of(incident, [deed])

    shape, usual = (re.findall(r"<[^>]+>", reader.render(page(one))) for one in (f"{text}a", "a"))
    assert shape == usual
