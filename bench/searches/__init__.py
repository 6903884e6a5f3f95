"""What bench/search.py asks of searches, a module per question."""
