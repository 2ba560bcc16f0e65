"""The scopes in the interface's document: OpenAPI's `security` of each operation."""

from __future__ import annotations

from typing import Any

from api.http.tokens.scopes import SCOPES

SCHEME = "token"


def show_scopes(document: dict[str, Any]) -> dict[str, Any]:
    document.setdefault("components", {})["securitySchemes"] = {
        SCHEME: {
            "type": "http",
            "scheme": "bearer",
            "description": "A token of `fabricscope token create` with the scope that is named, or "
            "one that includes it. On loopback none is asked for by default.",
        }
    }
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if (scope := SCOPES.get(f"{method.upper()} {path}")) is not None:
                operation["security"] = [{SCHEME: [scope.value]}]
    return document
