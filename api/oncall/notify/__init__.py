"""Notifications: through Alertmanagers, or without one through the built-in notifier."""
