"""`fabricscope actions`: list and decide actions on hosts, from a terminal."""
