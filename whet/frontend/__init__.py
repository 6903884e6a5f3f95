"""Front ends: other formats to Graph."""
