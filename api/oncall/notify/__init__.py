"""Notifications: through Alertmanagers, or without one through the built-in notifier.

The evaluator hands over the alerts of a rule group after each evaluation (`task.Notifying.notify`).
`alertmanager` passes them on as Prometheus does. The notifier plans (`alerts.rulebook.notices`,
pure), keeps notices in the inventory, and sends them from there (`outbox`) through `receivers`;
`message` has the texts. `settings` reads the file with receivers and routes.
"""
