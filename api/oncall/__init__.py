"""From stored telemetry to an alert: evaluator, rules, notifications, explanations."""
