"""What operators say about verdicts, from a terminal."""
