"""Graphs of operators: values, passes, text form, interpreter."""
