"""Errors of templates, with their place."""

from __future__ import annotations

from collector.contract.errors import FabricscopeError

DEFINITIONS = (
    "{{$labels := .Labels}}"
    "{{$externalLabels := .ExternalLabels}}"
    "{{$externalURL := .ExternalURL}}"
    "{{$value := .Value}}"
)
"""What Prometheus puts in front of every template; its error messages count these bytes too."""

STARTED_AT_LINE = "started at line "
"""In an error about the end of an action, what precedes the line where the action began."""


class TemplateError(FabricscopeError):
    """A template that cannot be read or expanded.

    ``line`` begins at 1, ``column`` is bytes from the line's begin (None where Go's parser gives
    none), ``at`` is the piece of the template that failed, ``template`` the name of the `define`
    that it is in.
    """

    def __init__(
        self,
        detail: str,
        *,
        line: int = 0,
        column: int | None = None,
        at: str = "",
        template: str = "",
    ) -> None:
        place = f"line {line}" if column is None else f"line {line}, column {column + 1}"
        place = f"{place}, at <{at}>" if at else place
        super().__init__(f"{place}: {detail}" if line else detail)
        self.detail = detail
        self.line = line
        self.column = column
        self.at = at
        self.template = template

    def as_prometheus(self, name: str) -> str:
        if not self.line:
            return f"error executing template {name}: {self.detail}"
        if self.column is None:
            detail = self.detail.replace(STARTED_AT_LINE, f"started at {name}:")
            return f"error parsing template {name}: template: {name}:{self.line}: {detail}"
        column = self.column + (len(DEFINITIONS) if self.line == 1 else 0)
        return (
            f"error executing template {name}: template: {name}:{self.line}:{column}: "
            f'executing "{self.template or name}" at <{self.at}>: {self.detail}'
        )


class CallError(FabricscopeError):
    """A function failed; the runner adds where it was called."""


class BoundError(CallError):
    """A template exceeds a bound; its expansion stops."""
