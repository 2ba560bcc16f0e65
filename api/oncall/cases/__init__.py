"""Cases: the windows of verdicts that operators said something about."""
