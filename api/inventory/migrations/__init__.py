"""Alembic's folder: the schema's history, one file a step, run by `api.inventory.migrate`."""
