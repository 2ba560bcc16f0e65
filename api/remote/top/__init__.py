"""`fabricscope top`: what is wrong now, which jobs, links and hosts, in a terminal, over HTTP."""
