"""whet: trained models made as fast as the machine allows."""

__version__ = "0.1.0"
