"""The notifier's file, Alertmanagers and matchers; the error for each mistake."""

from pathlib import Path

import pytest

from alerts.rulebook.notices import Matcher, Operator
from api.http.settings import load_service_settings
from api.oncall.notify.matching import Fitter, fits, meets_empty, parse_matcher
from api.oncall.notify.settings import read_alertmanagers, read_notify_file
from collector.contract.errors import SettingsError

HOOK = '[[receivers]]\nname = "a"\ntype = "webhook"\nurl = "http://127.0.0.1/geheim"\n'


def write(folder: Path, text: str) -> str:
    file = folder / "notify.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_without_routes_everybody_gets_what_is_critical(tmp_path: Path) -> None:
    more = '[[receivers]]\nname = "b"\ntype = "slack"\nurl = "https://hooks.example/x"\n'
    read = read_notify_file(write(tmp_path, HOOK + more))
    assert [route.receiver for route in read.routes] == ["a", "b"]
    assert all(route.goes_on for route in read.routes)
    assert read.routes[0].matchers == (Matcher("severity", Operator.IS, "critical"),)
    assert read.routes[0].group_by == ("alertname", "cluster")
    times = (
        read.routes[0].group_wait_s,
        read.routes[0].group_interval_s,
        read.routes[0].repeat_interval_s,
    )
    assert times == (10, 300, 14_400)


def test_a_route_that_names_severity_decides_itself(tmp_path: Path) -> None:
    route = """[[routes]]\nreceiver = "a"\nmatch = ['severity=~"critical|warning"', "x!=1"]\n"""
    read = read_notify_file(write(tmp_path, HOOK + route))
    assert read.routes[0].matchers == (
        Matcher("severity", Operator.FITS, "critical|warning"),
        Matcher("x", Operator.IS_NOT, "1"),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("receiver = 1", "unknown key 'receiver'; did you mean 'receivers'?"),
        ("receivers = 7", "receivers: must be tables"),
        ("", "receivers: there are none"),
        ('[[receivers]]\nname = "a"', "receivers[0].type: is missing"),
        ('[[receivers]]\nname = "a b"\ntype = "slack"\nurl = "https://x"', "name is 'a b'"),
        ('[[receivers]]\nname = "a"\ntype = "slak"', "unknown type 'slak'; did you mean 'slack'?"),
        ('[[receivers]]\nname = "a"\ntype = "slack"', "a slack receiver needs url or url_file"),
        ('[[receivers]]\nname = "a"\ntype = "pagerduty"', "needs key or key_file"),
        (HOOK + 'url_file = "/x"', "url or url_file, not both"),
        (HOOK + 'key_file = "/no/such"', "key_file is /no/such: No such file"),
        (HOOK + "timeout_s = 99", "timeout_s is 99; between 0.1 and 15 seconds"),
        (HOOK + 'urll = "x"', "unknown setting 'receivers[0].urll'; did you mean"),
        (HOOK + HOOK, "'a' is there twice"),
        (HOOK + '[[routes]]\nreceiver = "b"', "unknown receiver 'b'"),
        (HOOK + '[[routes]]\nreceiver = "a"\nmatch = ["nonsense"]', "'nonsense' is no matcher"),
        (HOOK + '[[routes]]\nreceiver = "a"\nmatch = ["a=~("]', "not a pattern of RE2's"),
        (HOOK + '[[routes]]\nreceiver = "a"\ngroup_interval_s = 0', "group_interval_s is 0"),
        (HOOK + '[[routes]]\nreceiver = "a"\nrepeat_interval_s = 5', "between 300 and"),
        (HOOK + '[[routes]]\nreceiver = "a"\ncontinue = 1', "continue: must be true or false"),
    ],
)
def test_a_mistake_names_the_key_and_what_to_do(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_notify_file(write(tmp_path, text))
    assert message in str(caught.value)
    assert "geheim" not in str(caught.value), "a secret went into an error"


@pytest.mark.parametrize("value", ["123", '"ftp://geheim"', '"geheim"', "['geheim']"])
def test_a_secret_that_cannot_be_is_not_shown(tmp_path: Path, value: str) -> None:
    text = f'[[receivers]]\nname = "a"\ntype = "webhook"\nurl = {value}\n'
    with pytest.raises(SettingsError) as caught:
        read_notify_file(write(tmp_path, text))
    assert "geheim" not in str(caught.value)
    assert "123" not in str(caught.value)


def test_alertmanagers_come_from_the_file_and_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    secret = tmp_path / "token"
    secret.write_text("geheim", "utf-8")
    file.write_text(
        'alertmanagers = ["http://a:9093", '
        f'{{url = "https://b/x/", bearer_token_file = "{secret}"}}]',
        "utf-8",
    )
    tables = read_alertmanagers(load_service_settings(file, {}, {}).alertmanagers)
    assert [(table.url, bool(table.bearer_token_file)) for table in tables] == [
        ("http://a:9093", False),
        ("https://b/x/", True),
    ]
    environment = {"FABRICSCOPE_ALERTMANAGERS": "http://c:1, http://d:2"}
    tables = read_alertmanagers(load_service_settings(file, {}, environment).alertmanagers)
    assert [table.url for table in tables] == ["http://c:1", "http://d:2"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a:9093", "alertmanagers[0].url is 'a:9093'; write http://HOST:PORT"),
        ("http://u:geheim@a", "has a user or password in it"),
        ("http://a,http://a/", "is listed twice"),
        ("http://a?x=1", "without ? and #"),
        (",".join(f"http://a{number}" for number in range(21)), "ALERTMANAGERS_MAX is 20"),
    ],
)
def test_an_alertmanager_that_cannot_be_is_named(given: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_alertmanagers(given)
    assert message in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_patterns_are_anchored_and_never_slow() -> None:
    assert fits("n1", "n1")
    assert not fits("n1", "n12")
    assert fits(".*", "a\nb")
    assert not fits("(a+)+$", "a" * 5_000 + "b")


def test_matchers_are_read_with_and_without_quotes() -> None:
    assert parse_matcher('a = "b\\"c"').value == 'b"c'
    assert parse_matcher("a=~b|c") == Matcher("a", Operator.FITS, "b|c")
    assert meets_empty([parse_matcher("a!=b")])
    assert not meets_empty([parse_matcher("a=b"), parse_matcher("c!=d")])


def test_what_was_learned_is_what_would_have_been_answered() -> None:
    fitter = Fitter()
    matchers = [parse_matcher('host=~"n[0-9]"'), parse_matcher('job!~"a.*"')]
    for values in (["n1", "x", "aa"], ["n2", "ab", "n1"]):
        labels = [(("host", value), ("job", value)) for value in values]
        fitter.learn(matchers, labels)
        for matcher in matchers:
            for value in ["", "unseen", "n1", "aa", *values]:
                assert fitter(matcher.value, value) == fits(matcher.value, value)
    fitter.learn([], [])
    assert fitter._known == {}
