"""Templates that want too much: each bound is met, and none of them hangs or overflows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from alerts.rulebook.model import Found
from alerts.rulebook.template import TemplateData, TemplateError, check, expand
from alerts.rulebook.template.bounds import (
    DEPTH_MAX,
    MATCHED_MAX,
    NESTING_MAX,
    NODES_MAX,
    OUTPUT_MAX,
    PATTERN_MAX,
    PRINT_DEPTH_MAX,
    QUERIES_MAX,
    ROWS_MAX,
    SHOWN_MAX,
    STEPS_MAX,
    TEXT_MAX,
)


def many(count: int) -> TemplateData:
    """Data whose queries find so many rows."""

    def answer(_expression: str) -> Sequence[Found]:
        return [Found({"row": str(number)}, 1.0) for number in range(count)]

    return TemplateData(labels={"long": "x" * 1000, "quotes": "'" * 9000}, value=1.0, query=answer)


def refuses(text: str, message: str, rows: int = 1) -> TemplateError:
    with pytest.raises(TemplateError, match=message) as caught:
        expand(text, many(rows))
    return caught.value


def test_long_templates_are_refused() -> None:
    refuses("{{ 1 }}" + "x" * TEXT_MAX, f"at most {TEXT_MAX}")


def test_templates_of_many_pieces_are_refused() -> None:
    refuses("{{ 1 }}" * NODES_MAX, f"more than {NODES_MAX} pieces")


@pytest.mark.parametrize(
    "nested",
    [
        lambda depth: "{{ " + "(" * depth + "1" + ")" * depth + " }}",
        lambda depth: "{{ if true }}" * depth + "x" + "{{ end }}" * depth,
        lambda depth: "{{ if false }}" + "{{ else if false }}" * depth + "{{ end }}",
        lambda depth: "{{ range $labels }}" * depth + "{{ end }}" * depth,
    ],
)
def test_deep_templates_are_refused_before_python_s_stack_ends(nested: object) -> None:
    assert callable(nested)
    check(nested(NESTING_MAX // 2 - 2))
    refuses(nested(NESTING_MAX + 1), f"more than {NESTING_MAX} blocks")
    refuses(nested(2000), f"more than {NESTING_MAX} blocks|at most {TEXT_MAX}")


def test_a_template_that_calls_itself_is_stopped() -> None:
    refuses(
        "{{ define `x` }}{{ template `x` }}{{ end }}{{ template `x` }}", f"more than {DEPTH_MAX}"
    )


def test_loops_inside_loops_are_stopped() -> None:
    loop = "{{ range query `up` }}" * 3 + "{{ end }}" * 3
    rows = "{{ $rows := query `up` }}" + loop.replace("query `up`", "$rows")
    refuses(rows, f"more than {STEPS_MAX} steps", rows=100)


@pytest.mark.parametrize(
    "work", ["$rows | sortByLabel `row`", "match `x` $labels.long", "print $rows", "html $long"]
)
def test_work_on_much_counts_for_more(work: str) -> None:
    text = (
        "{{ $rows := query `up` }}{{ $long := printf `%60000d` 1 }}"
        f"{{{{ range $rows }}}}{{{{ $x := {work} }}}}{{{{ end }}}}"
    )
    refuses(text, f"more than {STEPS_MAX} steps", rows=1500)


def test_long_output_is_stopped() -> None:
    refuses(
        "{{ range query `up` }}{{ $labels.long }}{{ end }}", f"more than {OUTPUT_MAX}", rows=100
    )


def test_texts_that_double_are_stopped() -> None:
    text = "{{ $x := `x` }}{{ range query `up` }}{{ $x = printf `%s%s` $x $x }}{{ end }}"
    refuses(text, f"more than {OUTPUT_MAX} characters", rows=64)


def test_escapes_that_make_texts_longer_are_stopped() -> None:
    text = "{{ $x := printf `%60000s` `&` | html }}{{ $x = printf `%q` $x | js | html }}"
    refuses(text.replace("`&`", "$labels.quotes"), f"html gives a text of more than {OUTPUT_MAX}")


@pytest.mark.parametrize("form", ["%70000d", "%070000d", "%-70000d", "%.70000f", "%.70000d"])
def test_wide_numbers_are_refused(form: str) -> None:
    number = "1.0" if form.endswith("f") else "1"
    refuses(f"{{{{ printf `{form}` {number} }}}}", f"{OUTPUT_MAX}")


def test_values_that_hold_each_other_twice_are_not_written_exponentially() -> None:
    text = "{{ $x := args 1 }}{{ range query `up` }}{{ $x = args $x $x }}{{ end }}{{ $x }}"
    refuses(text, f"more than {PRINT_DEPTH_MAX} values inside each other", rows=1000)
    refuses(text, f"more than {OUTPUT_MAX} characters", rows=PRINT_DEPTH_MAX - 2)


def test_queries_are_counted() -> None:
    text = "{{ range query `up` }}{{ query `x` | len }}{{ end }}"
    refuses(text, f"more than {QUERIES_MAX} queries", rows=QUERIES_MAX + 1)


def test_an_answer_of_too_many_rows_is_refused() -> None:
    refuses("{{ query `up` | len }}", f"at most {ROWS_MAX}", rows=ROWS_MAX + 1)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*)*x", "(a|aa)+$"])
def test_patterns_cannot_hang(pattern: str) -> None:
    """Engines that go back and try again need longer than the universe has been there."""
    text = f"printf `%0{MATCHED_MAX - 1}d!` 1 | reReplaceAll `[01]` `a` | match `{pattern}`"
    text = f"{{{{ {text} }}}}"
    assert expand(text, many(1)) == "false"


def test_long_patterns_and_texts_are_refused() -> None:
    refuses(f"{{{{ match `{'a' * (PATTERN_MAX + 1)}` `a` }}}}", f"at most {PATTERN_MAX}")
    refuses(f"{{{{ match `a` (printf `%{MATCHED_MAX + 1}d` 1) }}}}", f"at most {MATCHED_MAX}")
    refuses(f"{{{{ reReplaceAll `` `{'a' * (PATTERN_MAX + 1)}` `a` }}}}", f"at most {PATTERN_MAX}")


def test_replacements_that_make_texts_longer_are_stopped() -> None:
    text = f"{{{{ printf `%{MATCHED_MAX}d` 1 | reReplaceAll `` `{'a' * PATTERN_MAX}` | len }}}}"
    refuses(text, f"more than {OUTPUT_MAX} characters")


def test_comments_need_no_stack() -> None:
    assert expand("{{/* */}}" * 5000 + "x", many(1)) == "x"


def test_an_error_shows_a_piece_and_not_all_of_a_long_template() -> None:
    error = refuses(f"{{{{ toUpper (index `{'x' * 5000}` `a`) }}}}", "cannot index")
    assert len(error.at) == SHOWN_MAX
