"""`fabricscope completion`: a script that completes verbs, their own verbs and options in a shell.

It is made from the parsers that the verbs really use. Those of verbs whose packages are not
installed are left out; their names are completed all the same.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator

import msgspec

from collector.cli import OPTIONS, parser_of, registered
from collector.contract.errors import SettingsError


class Option(msgspec.Struct, frozen=True):
    """An option, or a word that is one of some."""

    flags: tuple[str, ...]
    """Empty: it is a positional word."""
    help: str
    takes_value: bool
    choices: tuple[str, ...] = ()


class Node(msgspec.Struct, frozen=True):
    """A verb, or a verb's verb."""

    path: tuple[str, ...]
    help: str
    options: tuple[Option, ...]
    verbs: tuple[str, ...]
    """What may stand next."""
    takes_files: bool = False
    """A word of the user's own may stand there, which may be a file."""

    @property
    def words(self) -> list[str]:
        """All that may be completed here, but for values of options."""
        flags = [flag for option in self.options for flag in option.flags]
        loose = [word for one in self.options if not one.flags for word in one.choices]
        return [*self.verbs, *loose, *flags]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell",
        choices=["bash", "zsh", "fish"],
        help='bash: eval "$(fabricscope completion bash)" in ~/.bashrc; zsh: into a file '
        "_fabricscope in $fpath; fish: into ~/.config/fish/completions/fabricscope.fish",
    )


def run(arguments: argparse.Namespace) -> int:
    write: dict[str, Callable[[list[Node]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
    sys.stdout.write(write[arguments.shell](list(nodes())))
    return 0


def nodes() -> Iterator[Node]:
    """The command itself, then every verb with what is below it."""
    verbs = registered()
    own = tuple(Option((flag,), "", takes_value=False) for flag in OPTIONS)
    yield Node((), "", own, tuple(verbs))
    for name, verb in verbs.items():
        try:
            parser = parser_of(name, verb)
        except SettingsError:
            yield Node((name,), verb.help, (), ())
        else:
            yield from below(parser, (name,), verb.help)


def below(parser: argparse.ArgumentParser, path: tuple[str, ...], text: str) -> Iterator[Node]:
    options: list[Option] = []
    inner: dict[str, argparse.ArgumentParser] = {}
    helps: dict[str, str] = {}
    takes_files = False
    formatter = parser._get_formatter()  # noqa: SLF001 - as --help: with defaults in their places
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            inner |= action.choices
            helps |= {one.dest: one.help or "" for one in action._choices_actions}  # noqa: SLF001
            continue
        if action.help is argparse.SUPPRESS:
            continue
        choices = tuple(map(str, action.choices or ()))
        if action.option_strings or choices:
            flags = tuple(action.option_strings)
            takes = action.nargs != 0
            words = formatter._expand_help(action) if action.help else ""  # noqa: SLF001
            options.append(Option(flags, words, takes_value=takes, choices=choices))
        else:
            takes_files = True
    yield Node(path, text, tuple(options), tuple(inner), takes_files)
    for name, one in inner.items():
        yield from below(one, (*path, name), helps.get(name, ""))


# --- shells ---------------------------------------------------------------------------------------


def quoted(words: list[str]) -> str:
    return " ".join(map(shlex.quote, words))


def case_of_path(nodes: list[Node]) -> str:
    """The walk over the words before the cursor: which verb of which verb they lead to."""
    arms = [
        f"      {shlex.quote(' '.join(['', *node.path[:-1]]).strip() + ' ' + node.path[-1])}) "
        f"place={shlex.quote(' '.join(node.path))} ;;"
        for node in nodes
        if node.path
    ]
    return "\n".join(arms)


def value_arms(nodes: list[Node], give: Callable[[list[str]], str], files: str) -> str:
    """For each option that takes a value: its choices, or files."""
    arms: list[str] = []
    for node in nodes:
        for option in node.options:
            if not option.takes_value or not option.flags:
                continue
            place = " ".join(node.path)
            found = "|".join(shlex.quote(f"{place} {flag}") for flag in option.flags)
            arms.append(
                f"    {found}) {give(list(option.choices)) if option.choices else files} ;;"
            )
    return "\n".join(arms)


def word_arms(nodes: list[Node], give: Callable[[list[str]], str], files: str = "") -> str:
    """For each verb what may stand next; ``files`` offers files beside it."""
    return "\n".join(
        f"    {shlex.quote(' '.join(node.path))}) "
        f"{give(node.words)}{files if node.takes_files else ''} ;;"
        for node in nodes
    )


def bash(nodes: list[Node]) -> str:
    def give(words: list[str]) -> str:
        return f'COMPREPLY=($(compgen -W {shlex.quote(" ".join(words))} -- "$current"))'

    return f"""# Completion of fabricscope for bash, made by: fabricscope completion bash
_fabricscope() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} place= word
  COMPREPLY=()
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$place $word" in
{case_of_path(nodes)}
    esac
  done
  case "$place $before" in
{value_arms(nodes, lambda words: give(words) + "; return", "return")}
  esac
  case "$place" in
{word_arms(nodes, give)}
  esac
}}
complete -o default -o bashdefault -F _fabricscope fabricscope
"""


def zsh(nodes: list[Node]) -> str:
    def give(words: list[str]) -> str:
        return f"compadd -- {quoted(words)}"

    return f"""#compdef fabricscope
# Completion of fabricscope for zsh, made by: fabricscope completion zsh
_fabricscope() {{
  local place= word before=${{words[CURRENT-1]}}
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case "$place $word" in
{case_of_path(nodes)}
    esac
  done
  case "$place $before" in
{value_arms(nodes, lambda words: give(words) + "; return", "_files; return")}
  esac
  case "$place" in
{word_arms(nodes, give, "; [[ $PREFIX == -* ]] || _files")}
  esac
}}
compdef _fabricscope fabricscope
"""


def fish(nodes: list[Node]) -> str:
    lines = ["# Completion of fabricscope for fish, made by: fabricscope completion fish"]
    by_path = {node.path: node for node in nodes}
    for node in nodes:
        seen = "; and ".join(f"__fish_seen_subcommand_from {name}" for name in node.path)
        others = f"not __fish_seen_subcommand_from {' '.join(node.verbs)}" if node.verbs else ""
        asked = "; and ".join(filter(None, [seen, others])) or "true"
        if not node.takes_files:
            lines.append(fish_line(asked, "-f"))
        for name in node.verbs:
            text = by_path[*node.path, name].help
            lines.append(fish_line(seen_before(node, seen), "-f", "-a", name, "-d", text))
        for option in node.options:
            words: list[str] = []
            for flag in option.flags:
                words += ["-l", flag[2:]] if flag.startswith("--") else ["-s", flag[1:]]
            if option.choices:
                words += ["-a", " ".join(option.choices)]
            if option.takes_value and option.flags:
                words.append("-x" if option.choices else "-r")
            lines.append(fish_line(asked, *words, "-d", option.help))
    return "\n".join(lines) + "\n"


def seen_before(node: Node, seen: str) -> str:
    """A verb is completed until one stands there."""
    if not node.path:
        return "__fish_use_subcommand"
    return f"{seen}; and not __fish_seen_subcommand_from {' '.join(node.verbs)}"


def fish_line(condition: str, *words: str) -> str:
    return f"complete -c fabricscope -n {shlex.quote(condition)} {quoted(list(words))}"
