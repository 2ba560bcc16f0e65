"""Variables are put into queries as Grafana's Prometheus data source does."""

import pytest

from dashboards.grafana.substitute import UnknownVariableError, substituted, variables_in


@pytest.mark.parametrize(
    ("expr", "sent"),
    [
        ('up{host="$host"}', 'up{host="n1"}'),
        ('up{host="${host}"}', 'up{host="n1"}'),
        ('up{host="[[host]]"}', 'up{host="n1"}'),
        ('up{host=~"$many"}', 'up{host=~"(n1|n2\\\\.x)"}'),
        ('up{host=~"${many:regex}"}', 'up{host=~"(n1|n2\\.x)"}'),
        ('up{host=~"${many:pipe}"}', 'up{host=~"n1|n2.x"}'),
        ('up{host=~"$single"}', 'up{host=~"a\\\\+b"}'),
        ("rate(a[$__rate_interval])", "rate(a[1m])"),
        ("increase(a[$__range]) / ${__range_s}", "increase(a[1h]) / 3600"),
        ('label_replace(a, "b", "$1", "c", "(.+)")', 'label_replace(a, "b", "$1", "c", "(.+)")'),
        ("/d/x?${many:queryparam}", "/d/x?var-many=n1&var-many=n2.x"),
    ],
)
def test_every_way_to_write_a_variable(expr: str, sent: str) -> None:
    variables = {"host": "n1", "many": ["n1", "n2.x"], "single": ["a+b"]}
    assert substituted(expr, variables) == sent


def test_a_single_choice_goes_in_as_it_is_and_cannot_leave_its_quotes() -> None:
    """Grafana quotes the backslash of a single choice and leaves the rest: dots stay dots."""
    assert substituted('a{b="$c"}', {"c": "x.y\\z"}) == 'a{b="x.y\\\\z"}'


def test_lengths_of_time_can_be_given() -> None:
    assert substituted("rate(a[$__rate_interval])", {}, {"__rate_interval": "5m"}) == "rate(a[5m])"


def test_a_variable_without_a_value_is_named() -> None:
    with pytest.raises(UnknownVariableError, match=r"\$host"):
        substituted('up{host="$host"}', {"hosts": "n1"})


def test_the_names_of_variables_without_grafana_s_own() -> None:
    expr = 'rate(a{b="$one", c=~"${two:regex}", d="[[three]]"}[$__rate_interval])'
    assert variables_in(expr) == {"one", "two", "three"}
