"""What several routes share: parameters, pages, answers, look-ups. Routes do not import routes."""
