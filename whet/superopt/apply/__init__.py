"""Rules at work: matches in graphs, what they become, and laws of axes that operators carry."""
