"""YAML for rule files: scalars are text, every node has its line, all is bounded. Pure.

Go reads `yes` into a field of text as "yes" and `1e3` as "1e3"; YAML libraries of Python make them
True and 1000.0. Therefore nothing is resolved here: callers convert text to numbers.

The tree is built from the parser's events: an event costs no recursion and no expansion, so that a
document that was made to explode (deep nests, aliases of aliases) is refused while it is read. An
alias is the same node again, never a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

NODES_MAX = 200_000
"""Scalars, lists and maps of one file, and what merges bring in: ten thousand rules have fewer."""
DEPTH_MAX = 32
"""Lists and maps inside each other. A rule file has six of them."""
ALIASES_MAX = 2_000
PROBLEMS_MAX = 50
"""Problems of one file that are listed; further ones are counted."""
WORD_MAX = 80
"""Characters of a file that are repeated in a message."""

NULLS = frozenset({"", "~", "null", "Null", "NULL"})
"""YAML's spellings of null, where not in quotes."""
PLAIN_TAGS = frozenset(
    {None, "!", *(f"tag:yaml.org,2002:{name}" for name in ("str", "map", "seq"))}
)
"""Tags that change nothing."""
MERGE_KEY = "<<"

LOADER: type[yaml.BaseLoader | yaml.CBaseLoader] = (
    yaml.CBaseLoader if yaml.__with_libyaml__ else yaml.BaseLoader
)
"""libyaml, of which Go's YAML is a translation: the same texts are good and bad."""


class Problems:
    """Problems of one file, in the order found."""

    def __init__(self) -> None:
        self.told: list[tuple[int, str]] = []
        self.left_out = 0

    def add(self, line: int, detail: str) -> None:
        """Past PROBLEMS_MAX a problem is only counted."""
        if len(self.told) < PROBLEMS_MAX:
            self.told.append((line, detail))
        else:
            self.left_out += 1

    def __bool__(self) -> bool:
        return bool(self.told)


class NotReadable(Exception):  # noqa: N818 - reads as the statement it is
    """The text is no document that can be read further; caught in `read_yaml`."""

    def __init__(self, line: int, detail: str) -> None:
        super().__init__(detail)
        self.line = line
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Scalar:
    """A word. Lines count from 1."""

    line: int
    text: str
    is_plain: bool
    """Not in quotes, so that it may mean a number, or nothing."""

    @property
    def is_null(self) -> bool:
        return self.is_plain and self.text in NULLS


@dataclass(slots=True)
class Items:
    """A list."""

    line: int
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Fields:
    """A map. Its own fields come before those that `<<` brings in."""

    line: int
    fields: dict[str, Node] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


Node = Scalar | Items | Fields


def kind_of(node: Node) -> str:
    if isinstance(node, Items):
        return "a list"
    if isinstance(node, Fields):
        return "a map"
    return "nothing" if node.is_null else quoted(node.text)


def quoted(text: str) -> str:
    """A text from the file for a message: short, and without control characters."""
    return repr(text if len(text) <= WORD_MAX else f"{text[:WORD_MAX]}…")


def read_yaml(text: str, problems: Problems, bytes_max: int) -> Node | None:
    """The document of a text; None: there is none, or ``problems`` has why it is unreadable."""
    try:
        check_size(text, bytes_max)
        return TreeBuilder(problems).build(events(text))
    except NotReadable as error:
        problems.add(error.line, error.detail)
    return None


def check_size(text: str, bytes_max: int) -> None:
    """Raise NotReadable for a text over the bound, or one that is no text."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise NotReadable(line, "it has characters that are no UTF-8") from error
    if size > bytes_max:
        raise NotReadable(0, f"it has {size} bytes; at most {bytes_max} are read")


def events(text: str) -> Iterator[yaml.Event]:
    """The parser's events; its errors as NotReadable."""
    try:
        yield from yaml.parse(text, Loader=LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = " ".join(part for part in (error.context, error.problem) if part)
        # What is missing at the end, the parser finds missing in the line after it.
        line = min(mark.line + 1, max(1, len(text.splitlines()))) if mark else 0
        raise NotReadable(line, f"it is no YAML: {words}") from error
    except yaml.reader.ReaderError as error:
        line = text.encode()[: error.position].count(b"\n") + 1
        raise NotReadable(line, f"it is no YAML: {error.reason}") from error
    except yaml.YAMLError as error:
        raise NotReadable(0, f"it is no YAML: {error}") from error


class TreeBuilder:
    """Makes one document's nodes from events, within the bounds."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.open: list[OpenNode] = []
        self.anchors: dict[str, Node | None] = {}
        """None: it is not complete yet, and must not contain itself."""
        self.nodes = 0
        self.aliases = 0
        self.documents = 0
        self.root: Node | None = None

    def build(self, stream: Iterator[yaml.Event]) -> Node | None:
        """The one document; None where the text has none."""
        for event in stream:
            if isinstance(event, yaml.DocumentStartEvent):
                self.documents += 1
                if self.documents > 1:
                    # Prometheus ignores what follows, without a message.
                    raise NotReadable(
                        line_of(event), "a second document begins here; only one would be read"
                    )
            elif isinstance(event, yaml.AliasEvent):
                self.add(self.again(event), line_of(event))
            elif isinstance(event, yaml.ScalarEvent):
                self.scalar(event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self.begin(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self.end()
        return self.root

    def scalar(self, event: yaml.ScalarEvent) -> None:
        self.count(1, line_of(event))
        self.check_tag(event)
        is_plain = event.style in {None, ""} and event.tag is None
        node = Scalar(line_of(event), event.value, is_plain)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        self.add(node, node.line)

    def begin(self, event: yaml.CollectionStartEvent) -> None:
        line = line_of(event)
        self.count(1, line)
        self.check_tag(event)
        if len(self.open) >= DEPTH_MAX:
            raise NotReadable(line, f"lists and maps are nested over {DEPTH_MAX} deep (DEPTH_MAX)")
        is_map = isinstance(event, yaml.MappingStartEvent)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        self.open.append(OpenNode(Fields(line) if is_map else Items(line), event.anchor))

    def end(self) -> None:
        done = self.open.pop()
        for line, merged in done.merges:
            self.merge(done.node, merged, line)
        if done.anchor is not None:
            self.anchors[done.anchor] = done.node
        self.add(done.node, done.node.line)

    def again(self, event: yaml.AliasEvent) -> Node:
        self.aliases += 1
        line, name = line_of(event), event.anchor or ""
        if self.aliases > ALIASES_MAX:
            raise NotReadable(line, f"over {ALIASES_MAX} aliases (ALIASES_MAX)")
        if name not in self.anchors:
            raise NotReadable(line, f"the alias {quoted(name)} has no anchor before it")
        node = self.anchors[name]
        if node is None:
            raise NotReadable(line, f"the anchor {quoted(name)} contains itself")
        return node

    def add(self, node: Node, line: int) -> None:
        """Put a complete node where it belongs: the root, a list, a map's key or value."""
        if not self.open:
            self.root = node
            return
        parent = self.open[-1]
        if isinstance(parent.node, Items):
            parent.node.items.append(node)
        elif parent.key is None:
            parent.key = self.key_of(node, line)
        else:
            self.add_field(parent, parent.key, node, line)
            parent.key = None

    def key_of(self, node: Node, line: int) -> Scalar:
        if not isinstance(node, Scalar) or node.is_null:
            raise NotReadable(line, f"a field's name is {kind_of(node)}; it must be text")
        return Scalar(line, node.text, node.is_plain)

    def add_field(self, parent: OpenNode, key: Scalar, value: Node, line: int) -> None:
        """One field of a map, each name once."""
        if key.text == MERGE_KEY and key.is_plain:
            parent.merges.append((line, value))
            return
        target = parent.node
        if not isinstance(target, Fields):  # pragma: no cover - keys are of maps only
            return
        if key.text in target.fields:
            first = target.lines[key.text]
            self.problems.add(key.line, f"{quoted(key.text)} is there twice, first in line {first}")
            return
        target.fields[key.text] = value
        target.lines[key.text] = key.line

    def merge(self, target: Node, merged: Node, line: int) -> None:
        """Bring in the fields of `<<`; the map's own fields, and earlier merges, win.

        Done once for each map, when it is complete, so that nested merges do not multiply the cost.
        """
        for source in merged.items if isinstance(merged, Items) else [merged]:
            if not isinstance(source, Fields) or not isinstance(target, Fields):
                self.problems.add(line, f"<< brings in {kind_of(source)}; it must be a map")
                continue
            self.count(len(source.fields), line)
            for name, value in source.fields.items():
                target.fields.setdefault(name, value)
                target.lines.setdefault(name, source.lines[name])

    def count(self, nodes: int, line: int) -> None:
        self.nodes += nodes
        if self.nodes > NODES_MAX:
            raise NotReadable(line, f"over {NODES_MAX} values (NODES_MAX)")

    def check_tag(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        """Tags change the type of a text; rule files have no use for them."""
        if event.tag not in PLAIN_TAGS:
            self.problems.add(
                line_of(event), f"the tag {quoted(event.tag or '')} has no meaning here"
            )


@dataclass(slots=True)
class OpenNode:
    """A list or a map that is being read."""

    node: Items | Fields
    anchor: str | None
    key: Scalar | None = None
    """The key whose value comes next."""
    merges: list[tuple[int, Node]] = field(default_factory=list)


def line_of(event: yaml.Event) -> int:
    mark = event.start_mark
    return mark.line + 1 if mark else 0
