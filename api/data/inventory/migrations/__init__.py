"""Alembic's folder: the schema's history, one file a step, run by `api.data.inventory.migrate`."""
