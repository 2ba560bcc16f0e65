"""Configurations on their way to agents: who is in the share, receipts, reports, and the stop."""
