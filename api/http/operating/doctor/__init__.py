"""`fabricscope doctor`: what an operator may have got wrong, and what to do about it."""
