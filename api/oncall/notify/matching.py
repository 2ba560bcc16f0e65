"""Conditions on labels: written `severity=~"critical|warning"`, with patterns of RE2's."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Sequence

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from alerts.rulebook.notices import Matcher, Operator
from api.base.limits import PATTERN_CHARS_MAX
from collector.contract.errors import SettingsError
from collector.contract.identity import Labels

_MATCHER = re.compile(r"\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*(.*?)\s*", re.DOTALL)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

VALUES_KEPT_MAX = 100_000
"""Label values whose answer to one pattern is remembered: twice the alerts that there can be."""


def fits(pattern: str, text: str) -> bool:
    """Whether all of a text matches a pattern, which must have been checked.

    Arrow brings RE2 along: whatever the pattern, the time is linear in the text.

    >>> fits("node-.*", "node-7"), fits("ode", "node-7")
    (True, False)
    """
    found = pc.match_substring_regex(pa.array([text], pa.string()), pattern=f"^(?s:{pattern})$")
    return bool(found[0].as_py())


def fit_all(pattern: str, texts: Collection[str]) -> dict[str, bool]:
    """The same for many texts at once, a hundred times faster a text."""
    array = pa.array(list(texts), pa.string())
    found = pc.match_substring_regex(array, pattern=f"^(?s:{pattern})$").to_pylist()
    return dict(zip(texts, found, strict=True))


class Fitter:
    """`fits` with a cache of patterns in use: alerts are matched with the same ones each second."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, bool]] = {}

    def learn(self, matchers: Iterable[Matcher], labels: Sequence[Labels]) -> None:
        """Compute in advance what these matchers will ask about alerts with these labels."""
        patterns: dict[str, set[str]] = {}
        for matcher in matchers:
            if matcher.operator in {Operator.FITS, Operator.FITS_NOT}:
                patterns.setdefault(matcher.label, set()).add(matcher.value)
        values: dict[str, set[str]] = {label: {""} for label in patterns}
        if values:
            for name, value in itertools.chain.from_iterable(labels):
                if name in values:
                    values[name].add(value)
        known: dict[str, dict[str, bool]] = {}
        for label, texts in patterns.items():
            for pattern in texts:
                before = known.get(pattern) or self._known.get(pattern, {})
                if len(before) > VALUES_KEPT_MAX:
                    before = {}
                missing = values[label] - before.keys()
                known[pattern] = before | fit_all(pattern, missing) if missing else before
        self._known = known

    def __call__(self, pattern: str, text: str) -> bool:
        answer = self._known.get(pattern, {}).get(text)
        return fits(pattern, text) if answer is None else answer


def check_matcher(matcher: Matcher) -> None:
    if not _LABEL.fullmatch(matcher.label):
        raise SettingsError(f"{matcher.label[:80]!r} is no label; write letters, digits and _")
    if len(matcher.value) > PATTERN_CHARS_MAX:
        raise SettingsError(
            f"the value of {matcher.label} has {len(matcher.value)} characters; "
            f"PATTERN_CHARS_MAX is {PATTERN_CHARS_MAX}"
        )
    if matcher.operator not in {Operator.FITS, Operator.FITS_NOT}:
        return
    if "\0" in matcher.value:
        raise SettingsError(f"the pattern of {matcher.label} has a NUL byte")
    try:
        # Compiled alone first: `a)|(b` is a pattern only between our own brackets.
        pc.match_substring_regex(pa.array([""], pa.string()), pattern=matcher.value)
        fits(matcher.value, "")
    except pa.ArrowInvalid as error:
        why = str(error).partition("\n")[0]
        raise SettingsError(f"{matcher.label}: not a pattern of RE2's: {why}") from error


def parse_matcher(text: str) -> Matcher:
    r"""The matcher in a text. Raises SettingsError.

    >>> parse_matcher('severity!="info"')
    Matcher(label='severity', operator=<Operator.IS_NOT: '!='>, value='info')
    """
    found = _MATCHER.fullmatch(text)
    if found is None:
        raise SettingsError(f'{text[:80]!r} is no matcher; write label="value", or !=, =~, !~')
    label, operator, value = found.groups()
    if value.startswith('"'):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise SettingsError(f"{text[:80]!r}: its value is not quoted well: {error}") from error
    matcher = Matcher(label, Operator(operator), value)
    check_matcher(matcher)
    return matcher


def meets_empty(matchers: Iterable[Matcher]) -> bool:
    """Whether an alert without any labels matches all: such matchers are a mistake."""
    return all(matcher.meets({}, fits) for matcher in matchers)
