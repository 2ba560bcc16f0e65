"""Verbs of operators: doctor, restore, migrate-store, sizing."""
