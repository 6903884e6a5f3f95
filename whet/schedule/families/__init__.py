"""Expert sketches, one package each: match, price, nests, lower."""
