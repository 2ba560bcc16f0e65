"""`fabricscope score`: simulated faults of known truth, compared with the verdicts on them."""
