"""A job's stretch of time as a trace: Chrome's JSON trace events, as Perfetto and others open them.

`subject` defines the content of a trace, `read` gets it from the service's store and inventory (and
`api.diagnose.trace` from a folder's), `tell` makes events of it, `stream` writes them in pieces.
"""
