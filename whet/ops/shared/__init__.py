"""What operators of several families share: geometry, formulas, index arithmetic."""
