"""A command line's parser that says each mistake in one line, with what was meant.

argparse's own prints its usage, up to ten lines of it, and then the mistake without a hint: at 3
a.m. the line that helps is the one that names the option.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from collector.contract.errors import SettingsError
from collector.contract.layers import unknown


class Parser(argparse.ArgumentParser):
    """Of a verb, or of one of its own verbs."""

    def error(self, message: str) -> NoReturn:
        """What argparse calls: raise it as an error of ours, which `fabricscope` prints."""
        end = "" if message.endswith("?") else "."
        raise SettingsError(f"{message}{end} Try {self.prog} --help")

    def parse_all(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse a command line; SettingsError for a word that no parser takes."""
        arguments, left = self.parse_known_args(words)
        if left:
            chosen = self._chosen(words)
            option = left[0].partition("=")[0]
            if option.startswith("-"):
                chosen.error(unknown("option", option, chosen._options()))  # noqa: SLF001 - its own
            chosen.error(f"{left[0]!r} is one word too many")
        return arguments

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401 - argparse's
        """The base class lists all choices, and hints at none."""
        if action.choices is not None and isinstance(value, str) and value not in action.choices:
            known = [str(one) for one in action.choices]
            raise argparse.ArgumentError(action, unknown("value", value, known))
        super()._check_value(action, value)

    def _options(self) -> list[str]:
        return [name for action in self._actions for name in action.option_strings]

    def _verbs(self) -> Iterator[tuple[str, Parser]]:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - it has no other name
                yield from action.choices.items()

    def _chosen(self, words: Sequence[str]) -> Parser:
        """The parser of the innermost verb among the words."""
        own = dict(self._verbs())
        for place, word in enumerate(words):
            if word in own:
                return own[word]._chosen(words[place + 1 :])  # noqa: SLF001 - its own
        return self
