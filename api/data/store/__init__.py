"""The telemetry store: ClickHouse, in this process (chDB) or on a server.

One class (`api.data.store.store.Store`), one SQL text, two places to run it. It writes blocks of
columns and answers SQL with Arrow tables; it knows nothing of HTTP, Prometheus or agents.
"""
