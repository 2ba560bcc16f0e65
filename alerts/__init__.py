"""Pure detection: detectors, verdicts, rule files and the alert life cycle."""
