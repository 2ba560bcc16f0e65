"""Verbs of operators that work on the service's folder and databases themselves."""
