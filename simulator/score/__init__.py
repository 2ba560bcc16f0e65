"""`fabricscope score`: simulated faults whose truth is known, held against what is said of them."""
