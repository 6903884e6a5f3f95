"""The version of whet, the only place that says it."""

VERSION = "0.1.0"
