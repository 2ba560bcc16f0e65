"""`fabricscope actions`: what is done with hosts, from a terminal."""
