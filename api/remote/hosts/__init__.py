"""`fabricscope hosts`: the hosts of the inventory, from a terminal."""
