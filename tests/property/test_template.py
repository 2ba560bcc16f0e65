"""Templates of any kind: they expand or raise the one error that says why."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from alerts.rulebook.model import Found
from alerts.rulebook.template import TemplateData, TemplateError, check, expand, expand_or_say
from alerts.rulebook.template.humanize import humanize
from alerts.rulebook.template.lex import quoted
from alerts.rulebook.template.literals import unquote
from alerts.rulebook.template.numbers import write_float
from tests.oracles.template_random import Maker

PIECES = st.sampled_from(
    ["{{", "}}", "{{-", "-}}", " ", "\n", "$labels", "$value", ".Labels.x", ".", "|", "(", ")",
     "printf", "humanize", "query", "first", "if", "else", "end", "range", "with", "define",
     "template", "block", "break", "`%s %d %v`", '"x"', "'c'", "1", "1.5", "-", ":=", "=", ",",
     "$x", "nil", "true", "text", "/*", "*/", "é", "len", "index", "args", "eq", "\\", '"', "`"]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=30).map(" ".join) | st.lists(PIECES, max_size=30).map("".join)


def data(value: float = 1.0) -> TemplateData:
    return TemplateData(labels={"x": "y"}, value=value, query=lambda _: [Found({"a": "b"}, 2.0)])


def error_of(text: str, given_data: TemplateData) -> TemplateError | None:
    """What is wrong with a template; any other exception is a bug."""
    try:
        expand(text, given_data)
    except TemplateError as error:
        return error
    return None


@given(TEXTS | st.text())
def test_any_text_expands_or_says_why_not(text: str) -> None:
    error = error_of(text, data())
    if error is None:
        return
    assert 1 <= error.line <= text.count("\n") + 1
    # Go's parser says no column.
    kind = "parsing" if error.column is None else "executing"
    assert expand_or_say(text, data()).startswith(f"<error expanding template: error {kind} ")


@given(st.integers(0, 2**32))
def test_templates_that_load_fail_with_the_place_or_not_at_all(seed: int) -> None:
    text = Maker(seed).template()
    check(text)
    error = error_of(text, TemplateData(labels={"job": "x"}, value=1.0, query=lambda _: []))
    assert error is None or (error.column is not None and error.at)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_quoted_reads_as_it_was(text: str) -> None:
    assert unquote(quoted(text)) == text
    assert expand(f"{{{{ {quoted(text)} }}}}", data()) == text


@given(st.floats())
def test_floats_are_written_so_that_they_read_as_they_were(value: float) -> None:
    written = write_float(value)
    assert repr(float(written.replace("Inf", "inf"))) == repr(value) or value != value  # noqa: PLR0124 - NaN
    assert expand("{{ $value }}", data(value)) == written


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_humanized_number_has_four_digits_at_most(value: float) -> None:
    digits = humanize(value).partition("e")[0]
    assert sum(one.isdigit() for one in digits.lstrip("-0.")) <= 4
