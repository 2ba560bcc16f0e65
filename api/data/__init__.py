"""Stored data and its ingest: telemetry store, inventory, selectors, export."""
