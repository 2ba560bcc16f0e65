"""Random templates that Prometheus loads, made from a seed; most of them fail when expanded."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.oracles.template_cases import ASKED

_TEXTS = (
    '"a b"', "`raw`", '"\\u00e9\\n"', "`node-1.x:80`", "`1.5`", "``", "`%d`", "`日本`", "`job`",
    '"<&>"', "`1h`", "`(a)`", "`-3`",
)  # fmt: skip
_NUMBERS = (
    "0", "1", "-1", "2", "42", "0.0", "1.5", "-2.5", "1e6", "1e-7", "123456789.0", "0x1f", "'a'",
    "100000.0", "-0.25", "3600.0",
)  # fmt: skip
_NAMES = (
    "$labels", "$value", ".", "$", ".Labels", ".Value", "$labels.job", "$labels.none",
    "$labels.number", ".Labels.unicode", "$externalLabels", "$externalURL", "$.Value", "true",
    "false", ".ExternalLabels.cluster",
)  # fmt: skip
_ONE = (
    "humanize", "humanize1024", "humanizeDuration", "humanizePercentage", "title", "toUpper",
    "toLower", "stripPort", "stripDomain", "graphLink", "len", "not", "html", "js", "urlquery",
    "print", "println", "first", "value", "strvalue", "safeHtml", "parseDuration",
)  # fmt: skip
_TWO = (
    "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "index", "slice", "label", "sortByLabel",
    "match", "print",
)  # fmt: skip
_VERBS = (
    "%v", "%d", "%s", "%q", "%f", "%g", "%e", "%t", "%.2f", "%5.1f|", "%-8s|", "%08.2f", "%+d",
    "%x", "%T", "%%", "%c", "%U", "%6v|", "%.3s", "%+v", "% d", "%05d", "%.3g", "%G", "%!", "%z",
)  # fmt: skip
DEPTH = 3
"""Calls inside each other."""


class Maker:
    """Makes templates."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def _call(self, depth: int) -> str:
        """A function with arguments."""
        kinds: list[Callable[[int], str]] = [
            lambda deep: f"{self.random.choice(_ONE)} {self._word(deep)}",
            lambda deep: f"{self.random.choice(_TWO)} {self._word(deep)} {self._word(deep)}",
            self._printf,
            lambda _deep: f"{self._query()} | {self.random.choice(('first', 'len', 'not'))}",
            lambda deep: f"reReplaceAll `a|(b)` `<$1>` {self._word(deep)}",
        ]
        return self.random.choices(kinds, (4, 4, 3, 1, 1))[0](depth)

    def _query(self) -> str:
        # Go writes an answer as addresses in memory: a template must make something of it.
        return f"query `{self.random.choice(sorted(ASKED))}` | sortByLabel `lane`"

    def _printf(self, depth: int) -> str:
        verbs = self.random.choices(_VERBS, k=self.random.randint(1, 3))
        words = [self._word(depth) for _ in range(self.random.choice((0, 1, 1, 2, 3)))]
        return f"printf `{' '.join(verbs)}` {' '.join(words)}"

    def _word(self, depth: int) -> str:
        """One argument."""
        if depth < DEPTH and self.random.random() < 0.35:
            return f"({self._pipeline(depth + 1)})"
        return self.random.choice(self.random.choice((_TEXTS, _NUMBERS, _NAMES)))

    def _pipeline(self, depth: int) -> str:
        parts = [self._call(depth) if self.random.random() < 0.7 else self._word(depth)]
        while self.random.random() < 0.35:
            name = self.random.choice((*_ONE, *_TWO))
            parts.append(name if name in _ONE else f"{name} {self._word(depth)}")
        return " | ".join(parts)

    def _piece(self, depth: int) -> str:
        kind = self.random.random()
        inside = self._pipeline(1)
        if depth >= DEPTH or kind < 0.6:
            return f"{{{{ {inside} }}}}"
        body, other = self._piece(depth + 1), self._piece(depth + 1)
        if kind < 0.75:
            return f"{{{{ if {inside} }}}}{body}{{{{ else }}}}{other}{{{{ end }}}}"
        if kind < 0.85:
            body = f"{{{{- with $x := {inside} -}}}} {body}{{{{ $x }}}} "
            return f"{body}{{{{ else }}}}{other}{{{{ end }}}}"
        if kind < 0.95:
            inside = self.random.choice((inside, "$labels", self._query()))
            body = f"{{{{ range $k, $v := {inside} }}}}{{{{ $k }}}}{body}"
            return f"{body}{{{{ else }}}}{other}{{{{ end }}}}"
        return f"{{{{ $y := {inside} }}}}{body}{{{{ printf `%v` $y }}}}"

    def template(self) -> str:
        """One template."""
        return " ".join(self._piece(1) for _ in range(self.random.choice((1, 1, 2))))
