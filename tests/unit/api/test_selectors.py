"""Selectors: what is one, what is refused, and that no text of a user becomes SQL."""

import pytest

from api.base.errors import Problem
from api.data.selectors import Condition, Matcher, parse_selector

HOSTILE = "' OR 1=1; DROP TABLE samples; -- {x:String}"


def test_matchers_are_read() -> None:
    selector = parse_selector('up{a="1",b!="2",c=~"3.*",d!~"4"}')
    assert set(selector.matchers) == {
        Matcher("__name__", "=", "up"),
        Matcher("a", "=", "1"),
        Matcher("b", "!=", "2"),
        Matcher("c", "=~", "3.*"),
        Matcher("d", "!~", "4"),
    }
    assert selector.metric == "up"


@pytest.mark.parametrize(
    ("text", "metric"),
    [
        ("up", "up"),
        ('{__name__="up"}', "up"),
        ('{__name__=~"up"}', None),
        ('{__name__!="up",a="b"}', None),
        ('{"up"}', "up"),
        ('{"a.b", "c/d"="e"}', "a.b"),
    ],
)
def test_the_metric_is_known_when_there_is_one(text: str, metric: str | None) -> None:
    assert parse_selector(text).metric == metric


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "{}", "up{", "up{a}", "up{a=b}", '{a=""}', '{a=~".*"}', "1", '"text"', "up[5m]"),
        *("sum(up)", "up + up", "up offset 5m", "up @ 1", "(up)", '{a="b" or c="d"}', "-up"),
        *('up{a=~"("}', 'up{a=~"\\0"}', "u" * 3000, "é" * 1025, "\0", "up{a='\\xZZ'}"),
    ],
)
def test_what_is_no_selector_is_a_problem(text: str) -> None:
    with pytest.raises(Problem) as caught:
        parse_selector(text)
    assert caught.value.body.status == 400
    assert len(caught.value.body.detail) < 1000


def test_text_of_users_never_enters_the_sql() -> None:
    condition = Condition()
    matchers = ", ".join(
        f'"{HOSTILE}"{operator}"{HOSTILE}"' for operator in ("=", "!=", "=~", "!~")
    )
    matchers = matchers.replace('!="', '!="').replace("=~", "=~")
    sql = condition.matches(parse_selector(f'{{"{HOSTILE}", {matchers}}}'))
    assert "DROP" not in sql
    assert "'" not in sql
    assert [value for value in condition.parameters.values() if HOSTILE not in str(value)] == []


def test_patterns_are_anchored_as_in_prometheus() -> None:
    condition = Condition()
    condition.matches(parse_selector('up{a=~"x|y"}'))
    assert "^(?s:x|y)$" in condition.parameters.values()
