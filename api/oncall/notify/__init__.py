"""Telling people: through Alertmanagers, or without one through the built-in notifier.

The evaluator hands over the alerts of a rule group after each evaluation (`task.Notifying.notify`).
`alertmanager` passes them on as Prometheus does. The notifier plans (`alerts.rulebook.notices`,
pure), keeps what it is going to say in the inventory, and sends it from there (`outbox`) through
`receivers`; `message` has the words. `settings` reads the file that says who gets what.
"""
