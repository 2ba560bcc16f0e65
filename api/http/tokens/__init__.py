"""Who may do what: bearer tokens, their scopes, and the door that asks for them."""
