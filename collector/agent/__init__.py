"""The agent's program: schedule, buffer, spool, shipping, its own metrics."""
