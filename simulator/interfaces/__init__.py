"""Production interfaces: files, tables and logs, written from a snapshot of the cluster."""
