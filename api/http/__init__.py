"""The outermost floor of the service: routes, tokens, settings and the wiring of all parts."""
