"""An agent's half of a roll-out: what may come from the service, trials, and the way back."""
