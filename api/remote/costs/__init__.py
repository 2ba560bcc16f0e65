"""`fabricscope costs`: what troubles have cost."""
