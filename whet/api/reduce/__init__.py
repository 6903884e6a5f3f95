"""Models made small: the least part of one that still shows a problem."""
