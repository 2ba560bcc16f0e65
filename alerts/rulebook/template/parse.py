"""Parses templates by Go's grammar of `text/template`, with its error messages."""

from __future__ import annotations

from collections.abc import Callable, Collection

from alerts.rulebook.template import nodes
from alerts.rulebook.template.bounds import NESTING_MAX, NODES_MAX
from alerts.rulebook.template.errors import STARTED_AT_LINE, TemplateError
from alerts.rulebook.template.lex import Kind, Word, lex, quoted
from alerts.rulebook.template.literals import read_character, read_number, unquote

FIRST_VARIABLES = ("$", "$labels", "$externalLabels", "$externalURL", "$value")
"""Prometheus declares these in front of every template. What is inside a `define` sees only `$`."""

_STARTS_OPERAND = frozenset(
    (Kind.BOOL, Kind.CHAR_CONSTANT, Kind.DOT, Kind.FIELD, Kind.IDENTIFIER, Kind.NUMBER,
     Kind.RAW_STRING, Kind.STRING, Kind.VARIABLE, Kind.OPEN)
)  # fmt: skip
_NOT_EXECUTABLE = (nodes.Bool, nodes.Dot, nodes.Nil, nodes.Number, nodes.String)
"""Only a pipeline's first command can be one of these."""
_WITHOUT_FIELDS = (nodes.Bool, nodes.String, nodes.Number, nodes.Nil, nodes.Dot)

Pieces = tuple[nodes.Piece, ...]


def parse(text: str, functions: Collection[str]) -> nodes.Template:
    """A template. Raises TemplateError for what Go's parser refuses, and what is too much."""
    return _Parser(text, functions).template()


class _Parser:
    """Goes through a template's words once."""

    def __init__(self, text: str, functions: Collection[str]) -> None:
        self.text = text
        self.functions = functions
        self.words = lex(text)
        self.next_word = 0
        self.variables = list(FIRST_VARIABLES)
        self.defined: dict[str, Pieces] = {}
        self.nodes = 0
        self.nesting = 0
        self.loops = 0
        self.action_line = 0

    # --- words --------------------------------------------------------------------------------

    def _peek(self) -> Word:
        """The next word; after the last, the last again."""
        return self.words[min(self.next_word, len(self.words) - 1)]

    def _next(self) -> Word:
        word = self._peek()
        self.next_word += 1
        return word

    def _skip_space(self) -> Word:
        """The next word that is no space, which stays the next."""
        while self._peek().kind is Kind.SPACE:
            self.next_word += 1
        return self._peek()

    def _next_no_space(self) -> Word:
        self._skip_space()
        return self._next()

    def _fail(self, detail: str) -> TemplateError:
        last = self.words[max(0, min(self.next_word, len(self.words)) - 1)]
        return TemplateError(detail, line=last.line)

    def _unexpected(self, word: Word, context: str) -> TemplateError:
        if word.kind is not Kind.ERROR:
            return TemplateError(f"unexpected {word} in {context}", line=word.line)
        extra = ""
        if self.action_line not in (0, word.line):
            # "unclosed action in action" would be one too many.
            extra = " " if word.value.endswith(" action") else " in action "
            extra += f"{STARTED_AT_LINE}{self.action_line}"
        return TemplateError(f"{word}{extra}", line=word.line)

    def _expect(self, kind: Kind, context: str) -> Word:
        word = self._next_no_space()
        if word.kind is not kind:
            raise self._unexpected(word, context)
        return word

    def _count(self) -> None:
        self.nodes += 1
        if self.nodes > NODES_MAX:
            raise self._fail(f"the template has more than {NODES_MAX} pieces")

    def _enter(self) -> None:
        self.nesting += 1
        if self.nesting > NESTING_MAX:
            raise self._fail(f"more than {NESTING_MAX} blocks or parentheses inside each other")

    # --- pieces -------------------------------------------------------------------------------

    def template(self) -> nodes.Template:
        pieces: list[nodes.Piece] = []
        while self._peek().kind is not Kind.END_OF_TEXT:
            if self._at_keyword("define"):
                self._definition()
                continue
            piece = self._piece()
            if isinstance(piece, Word):
                raise TemplateError(f"unexpected {{{{{piece.value}}}}}", line=piece.line)
            pieces.append(piece)
        return nodes.Template(self.text, tuple(pieces), self.defined)

    def _at_keyword(self, keyword: str) -> bool:
        """Whether an action with this keyword comes next; goes behind the keyword then."""
        if self._peek().kind is not Kind.LEFT:
            return False
        before = self.next_word
        self._next()
        word = self._next_no_space()
        if word.kind is Kind.KEYWORD and word.value == keyword:
            return True
        self.next_word = before
        return False

    def _definition(self) -> None:
        context = "define clause"
        name = self._template_name(self._next_no_space(), context)
        self._expect(Kind.RIGHT, context)
        self._define(name, context)

    def _define(self, name: str, context: str) -> None:
        """The body of a template, in which none of the variables outside are known."""
        outside, loops = self.variables, self.loops
        self.variables, self.loops = ["$"], 0
        pieces, end = self._pieces()
        if end.value != "end":
            raise TemplateError(f"unexpected {{{{{end.value}}}}} in {context}", line=end.line)
        self.variables, self.loops = outside, loops
        if not _is_empty(self.defined.get(name, ())):
            if not _is_empty(pieces):
                raise self._fail(f"template: multiple definition of template {quoted(name)}")
            return
        self.defined[name] = pieces

    def _pieces(self) -> tuple[Pieces, Word]:
        """What comes before the next `end` or `else`, and that."""
        self._enter()
        pieces: list[nodes.Piece] = []
        while self._skip_space().kind is not Kind.END_OF_TEXT:
            piece = self._piece()
            if isinstance(piece, Word):
                self.nesting -= 1
                return tuple(pieces), piece
            pieces.append(piece)
        raise TemplateError("unexpected EOF", line=self._peek().line)

    def _piece(self) -> nodes.Piece | Word:
        self._count()
        word = self._next_no_space()
        if word.kind is Kind.TEXT:
            return nodes.Text(word.at, word.value)
        if word.kind is not Kind.LEFT:
            raise self._unexpected(word, "input")
        self.action_line = word.line
        piece = self._action()
        self.action_line = 0
        return piece

    def _action(self) -> nodes.Piece | Word:
        """What is between the delimiters; the left one is past."""
        word = self._skip_space()
        if word.kind is Kind.KEYWORD and word.value != "nil":
            self._next()
            return self._keyword(word)
        return nodes.Action(word.at, self._pipeline("command", Kind.RIGHT))

    def _keyword(self, word: Word) -> nodes.Piece | Word:
        """An action that begins with a keyword, which is past."""
        controls: dict[str, Callable[[Word], nodes.Piece]] = {
            "if": self._branch,
            "with": self._branch,
            "range": self._range,
            "template": self._call,
            "block": self._block,
            "break": self._leave_loop,
            "continue": self._leave_loop,
        }
        if word.value in controls:
            return controls[word.value](word)
        if word.value == "end":
            self._expect(Kind.RIGHT, "end")
            return word
        if word.value == "else":
            following = self._skip_space()
            if following.kind is not Kind.KEYWORD or following.value not in ("if", "with"):
                self._expect(Kind.RIGHT, "else")
            return word
        raise self._unexpected(word, "command")

    def _branch(self, word: Word) -> nodes.Branch:
        """`if` and `with`; `else if` is one inside the `else`, with the same `end`."""
        known = len(self.variables)
        pipeline = self._pipeline(word.value, Kind.RIGHT)
        then, end = self._pieces()
        otherwise: Pieces = ()
        if end.value == "else":
            otherwise = self._otherwise(word)
        del self.variables[known:]
        return nodes.Branch(pipeline.at, pipeline, then, otherwise, word.value == "with")

    def _otherwise(self, word: Word) -> Pieces:
        chained = self._peek()
        if chained.kind is Kind.KEYWORD and chained.value == word.value:
            self._next()
            self._enter()
            inner = (self._branch(chained),)
            self.nesting -= 1
            return inner
        if chained.kind is Kind.KEYWORD and chained.value in ("if", "with"):
            raise self._unexpected(chained, "input")
        otherwise, end = self._pieces()
        if end.value != "end":
            raise TemplateError(f"expected end; found {{{{{end.value}}}}}", line=end.line)
        return otherwise

    def _range(self, word: Word) -> nodes.Range:
        known = len(self.variables)
        pipeline = self._pipeline("range", Kind.RIGHT)
        self.loops += 1
        body, end = self._pieces()
        self.loops -= 1
        otherwise = self._otherwise(word) if end.value == "else" else ()
        del self.variables[known:]
        return nodes.Range(pipeline.at, pipeline, body, otherwise)

    def _leave_loop(self, word: Word) -> nodes.Break | nodes.Continue:
        following = self._next_no_space()
        if following.kind is not Kind.RIGHT:
            raise self._unexpected(following, f"{{{{{word.value}}}}}")
        if not self.loops:
            raise self._fail(f"{{{{{word.value}}}}} outside {{{{range}}}}")
        return nodes.Break(word.at) if word.value == "break" else nodes.Continue(word.at)

    def _template_name(self, word: Word, context: str) -> str:
        if word.kind not in (Kind.STRING, Kind.RAW_STRING):
            raise self._unexpected(word, context)
        return self._unquote(word)

    def _unquote(self, word: Word) -> str:
        try:
            return unquote(word.value)
        except ValueError as error:
            raise TemplateError(str(error), line=word.line) from error

    def _call(self, _word: Word) -> nodes.Call:
        context = "template clause"
        word = self._next_no_space()
        name = self._template_name(word, context)
        if self._skip_space().kind is Kind.RIGHT:
            self._next()
            return nodes.Call(word.at, name, quoted(name), None)
        return nodes.Call(word.at, name, quoted(name), self._pipeline(context, Kind.RIGHT))

    def _block(self, _word: Word) -> nodes.Call:
        """A definition, and a call of it in the same place."""
        context = "block clause"
        word = self._next_no_space()
        name = self._template_name(word, context)
        pipeline = self._pipeline(context, Kind.RIGHT)
        self._define(name, context)
        return nodes.Call(word.at, name, quoted(name), pipeline)

    # --- pipelines ----------------------------------------------------------------------------

    def _pipeline(self, context: str, end: Kind) -> nodes.Pipeline:
        """Commands up to the end of the action, or of the parentheses."""
        self._count()
        self._enter()
        at = self._skip_space().at
        variables, assigns = self._declared(context)
        commands: list[nodes.Command] = []
        while True:
            word = self._next_no_space()
            if word.kind is end:
                break
            if word.kind not in _STARTS_OPERAND and not _is_nil(word):
                raise self._unexpected(word, context)
            self.next_word -= 1
            commands.append(self._command())
        if not commands:
            raise self._fail(f"missing value for {context}")
        for stage, command in enumerate(commands[1:], start=2):
            if isinstance(command.words[0], _NOT_EXECUTABLE):
                raise self._fail(f"non executable command in pipeline stage {stage}")
        self.nesting -= 1
        return nodes.Pipeline(at, tuple(commands), variables, assigns)

    def _declared(self, context: str) -> tuple[tuple[str, ...], bool]:
        """The variables in front of `:=` or `=`, if there are any."""
        declared: list[str] = []
        while self._skip_space().kind is Kind.VARIABLE:
            before = self.next_word
            variable = self._next()
            sign = self._skip_space()
            if sign.kind in (Kind.DECLARE, Kind.ASSIGN):
                self._next()
                declared.append(variable.value)
                self.variables.append(variable.value)
                return tuple(declared), sign.kind is Kind.ASSIGN
            if sign.kind is not Kind.CHAR or sign.value != ",":
                self.next_word = before
                break
            self._next()
            declared.append(variable.value)
            self.variables.append(variable.value)
            if context != "range" or len(declared) > 1:
                raise self._fail(f"too many declarations in {context}")
            if self._skip_space().kind is not Kind.VARIABLE:
                raise self._fail("range can only initialize variables")
        return tuple(declared), False

    def _command(self) -> nodes.Command:
        """Words with spaces between them, up to a pipe or an end."""
        self._count()
        at = self._skip_space().at
        words: list[nodes.Operand] = []
        while True:
            self._skip_space()
            operand = self._operand()
            if operand is not None:
                words.append(operand)
            word = self._next()
            if word.kind is Kind.SPACE:
                continue
            if word.kind in (Kind.RIGHT, Kind.CLOSE):
                self.next_word -= 1
            elif word.kind is not Kind.PIPE:
                raise self._unexpected(word, "operand")
            break
        if not words:
            raise self._fail("empty command")
        return nodes.Command(at, tuple(words))

    def _operand(self) -> nodes.Operand | None:
        """A term and its fields."""
        term = self._term()
        following = self._peek()
        if term is None or following.kind is not Kind.FIELD:
            return term
        fields: list[str] = []
        while self._peek().kind is Kind.FIELD:
            fields.append(self._next().value[1:])
        if isinstance(term, nodes.Field):
            return nodes.Field(following.at, (*term.fields, *fields))
        if isinstance(term, nodes.Variable):
            return nodes.Variable(following.at, term.name, tuple(fields))
        if isinstance(term, _WITHOUT_FIELDS):
            raise self._fail(f"unexpected . after term {quoted(str(term))}")
        return nodes.Chain(following.at, term, tuple(fields))

    def _term(self) -> nodes.Operand | None:
        """The smallest thing that has a value; None: there is none here."""
        self._count()
        word = self._skip_space()
        if word.kind not in _STARTS_OPERAND and not _is_nil(word):
            return None
        self._next()
        if word.kind is Kind.OPEN:
            return self._pipeline("parenthesized pipeline", Kind.CLOSE)
        try:
            return self._simple_term(word)
        except ValueError as error:
            raise TemplateError(str(error), line=word.line) from error

    def _simple_term(self, word: Word) -> nodes.Operand:
        at, value = word.at, word.value
        if word.kind is Kind.IDENTIFIER:
            if value not in self.functions:
                raise self._fail(f"function {quoted(value)} not defined")
            return nodes.Identifier(at, value)
        if word.kind is Kind.VARIABLE:
            if value not in self.variables:
                raise self._fail(f"undefined variable {quoted(value)}")
            return nodes.Variable(at, value)
        return _SIMPLE_TERMS[word.kind](at, value)


_SIMPLE_TERMS: dict[Kind, Callable[[int, str], nodes.Operand]] = {
    Kind.DOT: lambda at, _value: nodes.Dot(at),
    Kind.FIELD: lambda at, value: nodes.Field(at, (value[1:],)),
    Kind.BOOL: lambda at, value: nodes.Bool(at, value == "true"),
    Kind.CHAR_CONSTANT: read_character,
    Kind.NUMBER: read_number,
    Kind.KEYWORD: lambda at, _value: nodes.Nil(at),
    Kind.STRING: lambda at, value: nodes.String(at, value, unquote(value)),
    Kind.RAW_STRING: lambda at, value: nodes.String(at, value, unquote(value)),
}
"""Words that are terms by themselves, whatever is known around them."""


def _is_nil(word: Word) -> bool:
    return word.kind is Kind.KEYWORD and word.value == "nil"


def _is_empty(pieces: Pieces) -> bool:
    return all(isinstance(piece, nodes.Text) and not piece.text.strip() for piece in pieces)
