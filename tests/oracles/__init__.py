"""Independent answers that ours are compared with: Prometheus, schemas, random questions."""
