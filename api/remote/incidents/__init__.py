"""Incidents from a terminal: what one is, and what people do about it."""
