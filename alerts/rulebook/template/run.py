"""Expands templates: Go's evaluation, with bounds on everything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from alerts.rulebook.template import nodes, printing
from alerts.rulebook.template.bounds import (
    CHARACTERS_PER_STEP,
    DEPTH_MAX,
    OUTPUT_MAX,
    ROWS_PER_STEP,
    SHOWN_MAX,
    STEPS_MAX,
)
from alerts.rulebook.template.errors import BoundError, CallError, TemplateError
from alerts.rulebook.template.functions import Function, all_functions
from alerts.rulebook.template.lex import quoted
from alerts.rulebook.template.values import (
    ANY,
    REFLECTED,
    ROW,
    ROWS,
    STRING,
    Arguments,
    Root,
    Rows,
    TemplateData,
    Value,
    as_bytes,
    field_of,
    fits,
    is_true,
    type_name,
)

_CONSTANTS = (nodes.Bool, nodes.Number, nodes.String)


class _Missing:
    """Nothing was piped into a command. Not None, which is a value."""


_MISSING = _Missing()
Final = Value | _Missing


class _BreakLoop(Exception):  # noqa: N818 - a way out of a loop, no error
    """`{{break}}`."""


class _NextRound(Exception):  # noqa: N818 - the same
    """`{{continue}}`."""


def run(template: nodes.Template, data: TemplateData) -> str:
    run = _Run(template, data)
    run.pieces(run.root, template.pieces)
    return "".join(run.output)


class _Run:
    """One expansion. As in Go, the node that was looked at last is the one that errors name."""

    def __init__(self, template: nodes.Template, data: TemplateData) -> None:
        self.template = template
        self.functions = all_functions(data)
        self.root = Root(
            dict(data.labels), dict(data.external_labels), data.external_url, float(data.value)
        )
        self.variables: list[tuple[str, Value]] = [
            ("$", self.root),
            ("$labels", self.root.labels),
            ("$externalLabels", self.root.external_labels),
            ("$externalURL", self.root.external_url),
            ("$value", self.root.value),
        ]
        self.output: list[str] = []
        self.written = 0
        self.steps = 0
        self.depth = 0
        self.inside = ""
        self.node: nodes.Node = nodes.Dot(0)

    # --- errors and bounds --------------------------------------------------------------------

    def _fail(self, detail: str) -> TemplateError:
        before = self.template.text[: self.node.at]
        return TemplateError(
            detail,
            line=1 + before.count("\n"),
            column=len(as_bytes(before[before.rfind("\n") + 1 :])),
            at=str(self.node)[:SHOWN_MAX],
            template=self.inside,
        )

    def _step(self, node: nodes.Node) -> None:
        self.node = node
        self._charge(1)

    def _charge(self, steps: int) -> None:
        self.steps += steps
        if self.steps > STEPS_MAX:
            raise self._fail(f"the template takes more than {STEPS_MAX} steps")

    def _enter(self) -> None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self._fail(f"more than {DEPTH_MAX} blocks and templates inside each other")

    def _write(self, text: str) -> None:
        self.written += len(text)
        if self.written > OUTPUT_MAX:
            raise self._fail(f"the template writes more than {OUTPUT_MAX} characters")
        self.output.append(text)

    # --- pieces -------------------------------------------------------------------------------

    def pieces(self, dot: Value, pieces: Iterable[nodes.Piece]) -> None:
        self._enter()
        for piece in pieces:
            self._piece(dot, piece)
        self.depth -= 1

    def _piece(self, dot: Value, piece: nodes.Piece) -> None:
        self._step(piece)
        match piece:
            case nodes.Text():
                self._write(piece.text)
            case nodes.Action():
                value = self._pipeline(dot, piece.pipeline)
                if not piece.pipeline.variables:
                    self.node = piece
                    self._write(self._shown(value))
            case nodes.Branch():
                self._branch(dot, piece)
            case nodes.Range():
                self._range(dot, piece)
            case nodes.Call():
                self._call_template(dot, piece)
            case nodes.Break():
                raise _BreakLoop
            case nodes.Continue():
                raise _NextRound

    def _shown(self, value: Value) -> str:
        try:
            return printing.show(value)
        except CallError as error:
            raise self._fail(str(error)) from error

    def _branch(self, dot: Value, branch: nodes.Branch) -> None:
        known = len(self.variables)
        value = self._pipeline(dot, branch.pipeline)
        if is_true(value):
            self.pieces(value if branch.sets_dot else dot, branch.then)
        else:
            self.pieces(dot, branch.otherwise)
        del self.variables[known:]

    def _range(self, dot: Value, loop: nodes.Range) -> None:
        known = len(self.variables)
        value = self._pipeline(dot, loop.pipeline)
        rounds = self._rounds(value)
        inside, depth = len(self.variables), self.depth
        for index, element in rounds:
            # An empty round takes time too.
            self._charge(1)
            self._set_loop_variables(loop.pipeline, index, element)
            try:
                self.pieces(element, loop.body)
            except _BreakLoop:
                break
            except _NextRound:
                pass
            finally:
                self.depth = depth
                del self.variables[inside:]
        if not rounds:
            self.pieces(dot, loop.otherwise)
        del self.variables[known:]

    def _rounds(self, value: Value) -> Sequence[tuple[Value, Value]]:
        match value:
            case Rows():
                return list(enumerate(value.rows))
            case dict():
                return sorted(value.items())
            case Arguments():
                return sorted(value.by_name.items(), key=lambda pair: pair[0])
            case None:
                return ()
            case _:
                raise self._fail(f"range can't iterate over {self._shown(value)}")

    def _set_loop_variables(self, pipeline: nodes.Pipeline, index: Value, element: Value) -> None:
        """One variable gets the element; of two, the first gets the index."""
        values = (index, element)[-len(pipeline.variables) :] if pipeline.variables else ()
        for name, value in zip(pipeline.variables, values, strict=True):
            self._assign(name, value)

    def _call_template(self, dot: Value, call: nodes.Call) -> None:
        pieces = self.template.defined.get(call.name)
        if pieces is None:
            raise self._fail(f"template {quoted(call.name)} not defined")
        given = None if call.pipeline is None else self._pipeline(dot, call.pipeline)
        outside, inside = self.variables, self.inside
        self.variables, self.inside = [("$", given)], call.name
        self.pieces(given, pieces)
        self.variables, self.inside = outside, inside

    # --- variables ----------------------------------------------------------------------------

    def _place_of(self, name: str) -> int:
        for place in range(len(self.variables) - 1, -1, -1):
            if self.variables[place][0] == name:
                return place
        raise self._fail(f"undefined variable: {name}")

    def _assign(self, name: str, value: Value) -> None:
        """Set the variable that was declared last."""
        self.variables[self._place_of(name)] = (name, value)

    # --- pipelines ----------------------------------------------------------------------------

    def _pipeline(self, dot: Value, pipeline: nodes.Pipeline) -> Value:
        self._step(pipeline)
        self._enter()
        value: Final = _MISSING
        for command in pipeline.commands:
            value = self._command(dot, command, value)
        assert not isinstance(value, _Missing), "the parser wants one command at least"
        self.depth -= 1
        for name in pipeline.variables:
            if pipeline.assigns:
                self._assign(name, value)
            else:
                self.variables.append((name, value))
        return value

    def _command(self, dot: Value, command: nodes.Command, final: Final) -> Value:
        word = command.words[0]
        given = len(command.words) > 1 or not isinstance(final, _Missing)
        match word:
            case nodes.Identifier():
                return self._call(dot, word, command, command.words[1:], final)
            case nodes.Field() | nodes.Chain() | nodes.Variable():
                return self._fields(dot, word, given=given)
        if not isinstance(word, nodes.Pipeline):
            self._step(word)
        if given:
            raise self._fail(f"can't give argument to non-function {word}")
        match word:
            case nodes.Pipeline():
                return self._pipeline(dot, word)
            case nodes.Dot():
                return dot
            case nodes.Nil():
                raise self._fail("nil is not a command")
            case _:
                return self._constant(word)

    def _constant(self, word: nodes.Operand) -> Value:
        """A literal where nothing decides about its type."""
        self._step(word)
        match word:
            case nodes.Bool() | nodes.String():
                return word.value
            case nodes.Number():
                return word.decimal if word.is_decimal else word.whole
            case _:
                raise self._fail(f"can't evaluate command {quoted(str(word))}")

    def _fields(
        self, dot: Value, word: nodes.Field | nodes.Chain | nodes.Variable, *, given: bool
    ) -> Value:
        """A variable, or the fields of something. None of them takes arguments."""
        self._step(word)
        match word:
            case nodes.Field():
                value = dot
            case nodes.Variable():
                value = self.variables[self._place_of(word.name)][1]
                if not word.fields and given:
                    raise self._fail(f"can't give argument to non-function {word}")
            case nodes.Chain():
                if isinstance(word.of, nodes.Nil):
                    raise self._fail(f"indirection through explicit nil in {word}")
                value = self._operand(dot, word.of)
        for number, name in enumerate(word.fields, start=1):
            last = number == len(word.fields)
            value = self._field(value, name, given=given and last)
        return value

    def _field(self, value: Value, name: str, *, given: bool) -> Value:
        try:
            found = field_of(value, name)
        except CallError as error:
            raise self._fail(str(error)) from error
        if given and isinstance(value, dict | Arguments):
            raise self._fail(f"{name} is not a method but has arguments")
        if given and value is not None:
            raise self._fail(f"{name} has arguments but cannot be invoked as function")
        return found

    def _operand(self, dot: Value, word: nodes.Operand) -> Value:
        self._step(word)
        match word:
            case nodes.Dot():
                return dot
            case nodes.Pipeline():
                return self._pipeline(dot, word)
            case nodes.Identifier():
                return self._call(dot, word, word, (), _MISSING)
            case nodes.Field() | nodes.Variable() | nodes.Chain():
                return self._fields(dot, word, given=False)
            case _:
                return self._constant(word)

    # --- functions ----------------------------------------------------------------------------

    def _call(
        self,
        dot: Value,
        word: nodes.Identifier,
        node: nodes.Node,
        words: Sequence[nodes.Operand],
        final: Final,
    ) -> Value:
        self._step(word)
        function = self.functions[word.name]
        is_piped = not isinstance(final, _Missing)
        self._check_count(word.name, function, len(words), is_piped=is_piped)
        if word.name in ("and", "or"):
            return self._logic(dot, words, final, until=word.name == "or")
        values = [
            self._argument(dot, _type_of(function, place), one) for place, one in enumerate(words)
        ]
        if not isinstance(final, _Missing):
            values.append(self._checked(final, _type_of(function, len(words))))
        self._charge(function.steps + sum(map(_steps_for, values)))
        try:
            found: Any = function.call(*values)
        except BoundError as error:
            raise self._fail(str(error)) from error
        except CallError as error:
            self.node = node
            raise self._fail(f"error calling {word.name}: {error}") from error
        if isinstance(found, str) and len(found) > OUTPUT_MAX:
            raise self._fail(f"{word.name} gives a text of more than {OUTPUT_MAX} characters")
        value: Value = found
        self._charge(_steps_for(value))
        return value

    def _check_count(self, name: str, function: Function, words: int, *, is_piped: bool) -> None:
        count, wanted = words + is_piped, len(function.wants)
        if function.wants_more is not None:
            if count < wanted:
                raise self._fail(
                    f"wrong number of args for {name}: want at least {wanted} got {words}"
                )
        elif count != wanted:
            raise self._fail(f"wrong number of args for {name}: want {wanted} got {count}")

    def _logic(
        self, dot: Value, words: Sequence[nodes.Operand], final: Final, *, until: bool
    ) -> Value:
        """`and`, `or`: the first value that decides, or the last."""
        value: Value = None
        for word in words:
            value = self._argument(dot, REFLECTED, word)
            if is_true(value) == until:
                return value
        return value if isinstance(final, _Missing) else final

    def _argument(self, dot: Value, wanted: str, word: nodes.Operand) -> Value:
        self._step(word)
        if isinstance(word, nodes.Nil):
            if wanted == STRING:
                raise self._fail(f"cannot assign nil to {wanted}")
            return None
        if not isinstance(word, _CONSTANTS):
            return self._checked(self._operand(dot, word), wanted, of=word)
        if wanted in (ANY, REFLECTED):
            return self._constant(word)
        if wanted in (ROWS, ROW):
            raise self._fail(f"can't handle {word} for arg of type {wanted}")
        if not isinstance(word, nodes.String):
            raise self._fail(f"expected string; found {word}")
        return word.value

    def _checked(self, value: Value, wanted: str, of: nodes.Operand | None = None) -> Value:
        if fits(value, wanted):
            return value
        # To Go, an entry that a map of anything lacks is of a type; other values that are none not.
        is_entry = isinstance(of, nodes.Field | nodes.Variable | nodes.Chain) and of.fields
        if value is None and not is_entry:
            raise self._fail(f"invalid value; expected {wanted}")
        kind = ANY if value is None else type_name(value)
        raise self._fail(f"wrong type for value; expected {wanted}; got {kind}")


def _steps_for(value: Value) -> int:
    """What a function's work on a value counts: long texts and answers count for more."""
    if isinstance(value, str):
        return len(value) // CHARACTERS_PER_STEP
    return len(value.rows) // ROWS_PER_STEP if isinstance(value, Rows) else 0


def _type_of(function: Function, place: int) -> str:
    if place < len(function.wants):
        return function.wants[place]
    assert function.wants_more is not None, "the number of arguments was checked before"
    return function.wants_more
