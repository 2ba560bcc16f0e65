"""The HTTP surface: one file per resource, each with a ``router`` that `api.http.app` includes."""
