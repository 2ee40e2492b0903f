"""What becomes gates: Amaranth components, and the definitions they share with the compiler."""
