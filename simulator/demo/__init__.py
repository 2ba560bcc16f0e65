"""`fabricscope demo`: a cluster that is not there, watched by the real service and real agents."""
