"""`fabricscope sizing`: what so many hosts take, from measured costs."""
