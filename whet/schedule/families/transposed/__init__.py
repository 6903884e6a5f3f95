"""The sketch of copies between layouts."""
