"""`fabricscope restore`: a backup into an empty data folder."""
