"""The service: ingest, store, inventory, queries and HTTP."""
