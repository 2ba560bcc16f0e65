"""What detectors look at: columns, aligned clocks, split collectives, steps. Pure data."""
