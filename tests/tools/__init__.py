"""Programs for developers: set-up, peers, documentation, the rotating cut of long proofs."""
