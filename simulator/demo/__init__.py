"""`fabricscope demo`: a simulated cluster, watched by the real service and real agents."""
