"""`fabricscope config`: a client of the service's roll-outs."""
