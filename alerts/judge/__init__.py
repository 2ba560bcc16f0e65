"""From findings to verdicts and incidents: one root, victims, confidence, words. Pure."""
