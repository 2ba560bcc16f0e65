"""What several detectors measure alike: gaps, ladders, transfers, neighbours. Pure."""
