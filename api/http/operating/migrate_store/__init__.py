"""`fabricscope migrate-store`: the tables of an embedded store to a ClickHouse server."""
