"""The sketch of contractions that convert what they read and write."""
