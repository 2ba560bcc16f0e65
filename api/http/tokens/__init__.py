"""Access control: bearer tokens, their scopes, and the guard that checks them."""
