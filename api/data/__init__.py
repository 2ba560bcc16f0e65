"""What is stored and how it gets in: telemetry store, inventory, ingest, selectors, export."""
